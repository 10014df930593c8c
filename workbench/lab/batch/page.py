"""Pages of executed notebooks that need no network, and pictures in notebooks for readers without a kernel.

A picture takes 0.3 s of computing, plus some seconds to start a browser. Therefore all runs are executed first.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from workbench.core.base.files import write_file
from workbench.core.base.page import CONFIG
from workbench.core.base.reading import read_text
from workbench.core.base.text import read_json
from workbench.core.trace.layout import SCRIPT, STOP
from workbench.lab.figures.fit import FIT, page_script
from workbench.lab.figures.save import one_browser

if TYPE_CHECKING:
    from nbformat import NotebookNode

FIGURE = "application/vnd.plotly.v1+json"
# nbconvert's default template loads scripts for formulas and diagrams from other hosts.
TEMPLATE = f"""{{%- extends 'lab/index.html.j2' -%}}
{{% block html_head_js %}}<script charset="utf-8" src="../{SCRIPT}"></script>{{% endblock %}}
{{% block jupyter_widgets %}}{{% endblock %}}
{{% block html_head_js_mathjax %}}{{% endblock %}}
{{% block html_head_js_mermaidjs %}}{{% endblock %}}
"""
_STYLES_ASIDE = "{% block notebook_css %}{{ super() | aside }}{% endblock %}"


def write_page(notebook: Path, page: Path) -> None:
    """Write the page of a notebook. The script in the parent folder draws its figures."""
    body = _page(notebook, page.parent.name)
    write_file(page, body)


def preload(notebook: Path) -> None:
    """Make a page and discard it. The first page of a process takes a second or more, later ones take 35 ms."""
    _page(notebook, notebook.stem)


def _page(notebook: Path, title: str) -> str:
    import nbformat

    content = nbformat.reads(read_text(notebook), as_version=4)  # type: ignore[no-untyped-call]
    return _maker().page(content, title)


def write_script(folder: Path) -> None:
    """Write plotly's script, and the script that fits figures, into a folder: 5 MB, once for all pages."""
    from plotly.offline import get_plotlyjs

    script = f"{get_plotlyjs()}\n;{page_script()}\n".encode()
    file = folder / SCRIPT
    if not file.is_file() or file.stat().st_size != len(script):
        write_file(file, script)


class _Name(str):
    """Placeholder for a text that the parser should not parse."""


class _Maker:
    """Exporter of pages that load plotly's script from the parent folder, and nothing else.

    nbconvert parses its own page and writes it again, which would take most of the time. Styles, highlighted code and
    drawings are well formed. So placeholders replace them while the page is parsed.
    """

    def __init__(self) -> None:
        from nbconvert import HTMLExporter
        from nbconvert.filters import clean_html

        def highlight(source: str, metadata: dict[str, Any]) -> _Name:
            return self._aside(_highlighted(source, str(metadata.get("magics_language", ""))))

        filters = {"aside": self._aside, "highlight_code": highlight}
        filters["clean_html"] = lambda text: text if isinstance(text, _Name) else clean_html(text)
        template = TEMPLATE + _STYLES_ASIDE
        self._exporter = HTMLExporter(raw_template=template, filters=filters, optimistic_validation=True)
        self._texts: dict[str, str] = {}
        self._one_at_a_time = Lock()

    def page(self, notebook: NotebookNode, title: str) -> str:
        with self._one_at_a_time:
            self._texts.clear()
            every = (output for cell in notebook.cells for output in cell.get("outputs", []))
            figures = [output for output in every if FIGURE in output.get("data", {})]
            for number, output in enumerate(figures):
                output["data"] = {"text/html": self._drawing(output["data"][FIGURE], f"figure-{number}")}
            page, _ = self._exporter.from_notebook_node(notebook, {"metadata": {"name": title}})
            return re.sub("aside-[0-9a-f]{32}", lambda name: self._texts.get(name[0], name[0]), page)

    def _aside(self, text: str) -> _Name:
        name = _Name(f"aside-{uuid4().hex}")
        self._texts[name] = text
        return name

    def _drawing(self, figure: dict[str, Any], name: str) -> str:
        """Add closing tags, so that a script that an earlier output has not closed ends before the figure."""
        layout, config = figure["layout"], {"responsive": True, **CONFIG}
        # "</script>" in a text would end the script.
        texts = [json.dumps(x).replace("<", "\\u003c") for x in (name, figure["data"], layout, config)]
        drawn, height = self._aside(", ".join(texts)), layout.get("height", 450)
        script = f"<script>Plotly.newPlot({drawn}).then({FIT}.keep);</script>"
        return f'<div id="{name}" style="height:{height}px"></div>{script}'


@lru_cache(maxsize=1)
def _maker() -> _Maker:
    return _Maker()


@lru_cache(maxsize=64)  # the runs of a sweep share most cells
def _highlighted(source: str, language: str) -> str:
    from nbconvert.filters import Highlight2HTML

    highlight = Highlight2HTML(pygments_lexer="ipython3")
    return str(highlight(source, metadata={"magics_language": language} if language else None))


PNG, WIDTH, HEIGHT = "image/png", 960, 540


def add_pictures(notebooks: Iterable[Path], draw: Callable[[dict[str, Any]], bytes]) -> int:
    """Add a PNG to every figure without one, until the sweep is stopped. Return how many were added."""
    made = 0
    for path in notebooks:
        if (path.parent.parent / STOP).exists():
            break
        content = read_json(path)
        outputs = [out.get("data", {}) for cell in content["cells"] for out in cell.get("outputs", ())]
        bare = [data for data in outputs if FIGURE in data and PNG not in data]
        for data in bare:
            data[PNG] = base64.b64encode(draw(data[FIGURE])).decode()
        if bare:
            write_file(path, json.dumps(content, indent=1, ensure_ascii=False) + "\n")
        made += len(bare)
    return made


def picture(figure: dict[str, Any]) -> bytes:
    """Return a figure's PNG."""
    import kaleido

    size = {"width": WIDTH, "height": figure["layout"].get("height", HEIGHT)}
    parts = {name: figure[name] for name in ("data", "layout")}
    return bytes(kaleido.calc_fig_sync(parts, opts={"format": "png", **size}))


def illustrate(notebooks: Iterable[Path]) -> str:
    """Add pictures with one browser for all. Return why some are missing, or an empty text."""
    from choreographer.errors import ChromeNotFoundError

    try:
        with one_browser():
            add_pictures(notebooks, picture)
    except ChromeNotFoundError:
        return "no pictures were put into the notebooks: no Chrome or Chromium was found; set BROWSER_PATH to one"
    except Exception as error:  # without pictures, the runs are still valid
        return f"no more pictures were put into the notebooks: {type(error).__name__}: {' '.join(str(error).split())}"
    return ""
