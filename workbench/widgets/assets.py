"""The widgets' JavaScript and CSS, and plotly.js as it travels to the page: packed, and once."""

import gzip
import json
from functools import cache
from pathlib import Path

import anywidget
import traitlets as t

from workbench.base.page import CONFIG

FOLDER = Path(__file__).parent / "js"


def script(*names: str) -> str:
    """Join files of ours to one module (what a browser is given cannot import files of ours).

    >>> "function library" in script("common")
    True
    """
    texts = [(FOLDER / f"{name}.js").read_text(encoding="utf-8") for name in ("common", *names)]
    return "\n".join([f"const PLOTLY_CONFIG = {json.dumps(CONFIG)};", *texts])


def style(*names: str) -> str:
    """Join our style sheets."""
    return "\n".join((FOLDER / f"{name}.css").read_text(encoding="utf-8") for name in ("common", *names))


class Sheet(anywidget.AnyWidget):
    """The style sheet, which reaches the widgets of others beside it too; their keys, see js/sheet.js."""

    _esm = t.Unicode(script("sheet")).tag(sync=True)
    _css = t.Unicode(style("explorer")).tag(sync=True)


@cache
def library() -> bytes:
    """plotly.js as the wheel of plotly has it, packed by gzip: a third of its five megabytes.

    Packed harder it would have a sixth less, and take the kernel three times as long.
    """
    import plotly

    text = (Path(plotly.__file__).parent / "package_data" / "plotly.min.js").read_bytes()
    return gzip.compress(text, compresslevel=1)
