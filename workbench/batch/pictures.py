"""Static pictures of the figures in executed notebooks, for readers without a kernel, and for sites that run no script.

A third of a second of computing a figure, once a browser runs, and some seconds to start that: so all runs come first.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from workbench.base.files import atomic_write
from workbench.batch.page import FIGURE
from workbench.figures.save import one_browser
from workbench.trace.layout import STOP

PNG, WIDTH, HEIGHT = "image/png", 960, 540


def add_pictures(notebooks: Iterable[Path], draw: Callable[[dict[str, Any]], bytes]) -> int:
    """Put a PNG beside every figure that has none, until somebody stops the sweep; returns how many."""
    made = 0
    for path in notebooks:
        if (path.parent.parent / STOP).exists():
            break
        content = json.loads(path.read_text(encoding="utf-8"))
        outputs = [out.get("data", {}) for cell in content["cells"] for out in cell.get("outputs", ())]
        bare = [data for data in outputs if FIGURE in data and PNG not in data]
        for data in bare:
            data[PNG] = base64.b64encode(draw(data[FIGURE])).decode()
        if bare:
            with atomic_write(path, "w") as out:
                out.write(json.dumps(content, indent=1, ensure_ascii=False) + "\n")
        made += len(bare)
    return made


def picture(figure: dict[str, Any]) -> bytes:
    """A figure's PNG."""
    import kaleido

    size = {"width": WIDTH, "height": figure["layout"].get("height", HEIGHT)}
    parts = {name: figure[name] for name in ("data", "layout")}
    return bytes(kaleido.calc_fig_sync(parts, opts={"format": "png", **size}))


def illustrate(notebooks: Iterable[Path]) -> str:
    """Add pictures with one browser for all; says why there are none, empty where all went well."""
    from choreographer.errors import ChromeNotFoundError

    try:
        with one_browser():
            add_pictures(notebooks, picture)
    except ChromeNotFoundError:
        return "no pictures were put into the notebooks: no Chrome or Chromium was found; set BROWSER_PATH to one"
    except Exception as error:  # the runs are what counts
        return f"no more pictures were put into the notebooks: {type(error).__name__}: {' '.join(str(error).split())}"
    return ""
