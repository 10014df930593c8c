"""An executed notebook as a page that needs no network."""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

from workbench.files import atomic_write

if TYPE_CHECKING:
    from nbconvert import HTMLExporter
    from nbformat import NotebookNode

_FIGURE = "application/vnd.plotly.v1+json"
SCRIPT = "plotly.min.js"
_ONE_AT_A_TIME = Lock()  # an exporter keeps notes on the notebook it is at
# The usual page loads mathematics, diagrams and a loader of scripts from other hosts.
TEMPLATE = f"""{{%- extends 'lab/index.html.j2' -%}}
{{% block html_head_js %}}<script charset="utf-8" src="../{SCRIPT}"></script>{{% endblock %}}
{{% block jupyter_widgets %}}{{% endblock %}}
{{% block html_head_js_mathjax %}}{{% endblock %}}
{{% block html_head_js_mermaidjs %}}{{% endblock %}}
"""


def write_page(notebook: Path, page: Path) -> None:
    """Write the page of a notebook; its figures are drawn by the script in the folder above."""
    body = _page(notebook, page.parent.name)
    with atomic_write(page, "w") as out:
        out.write(body)


def rehearse(notebook: Path) -> None:
    """Make a page and throw it away: a process's first takes a second or more, later ones some 40 ms."""
    _page(notebook, notebook.stem)


def _page(notebook: Path, title: str) -> str:
    import nbformat

    content = nbformat.reads(notebook.read_text(encoding="utf-8"), as_version=4)  # type: ignore[no-untyped-call]
    _draw(content)
    with _ONE_AT_A_TIME:
        return str(exporter().from_notebook_node(content, {"metadata": {"name": title}})[0])


def write_script(folder: Path) -> None:
    """Put plotly's script into a folder: 5 MB, once for all pages."""
    from plotly.offline import get_plotlyjs

    script = get_plotlyjs().encode()
    file = folder / SCRIPT
    if not file.is_file() or file.stat().st_size != len(script):
        with atomic_write(file) as out:
            out.write(script)


@lru_cache(maxsize=1)
def exporter() -> HTMLExporter:
    """Exporter whose pages load plotly's script from the folder above, and nothing else."""
    from nbconvert import HTMLExporter
    from nbconvert.filters import Highlight2HTML, clean_html

    highlight = Highlight2HTML(pygments_lexer="ipython3")

    @lru_cache(maxsize=64)  # the runs of a sweep have most cells in common
    def highlighted(source: str, language: str) -> _Clean:
        return _Clean(highlight(source, metadata={"magics_language": language} if language else None))

    filters = {
        "clean_html": lambda text: text if isinstance(text, _Clean) else clean_html(text),
        "highlight_code": lambda source, metadata: highlighted(
            source, str(metadata.get("magics_language", ""))
        ),
    }
    return HTMLExporter(raw_template=TEMPLATE, filters=filters, optimistic_validation=True)


class _Clean(str):
    """What the highlighter made: it has escaped the code already."""


def _draw(notebook: NotebookNode) -> None:
    """Put a drawing in place of every figure."""
    outputs = [o for cell in notebook.cells for o in cell.get("outputs", []) if _FIGURE in o.get("data", {})]
    for number, output in enumerate(outputs):
        output["data"] = {"text/html": _html(output["data"][_FIGURE], f"figure-{number}")}


def _html(figure: dict[str, Any], name: str) -> str:
    layout = figure["layout"]
    config = {"responsive": True, "displaylogo": False}
    # "</script>" in a text would end the script.
    words = [json.dumps(x).replace("<", "\\u003c") for x in (name, figure["data"], layout, config)]
    height = layout.get("height", 450)
    return f'<div id="{name}" style="height:{height}px"></div><script>Plotly.newPlot({", ".join(words)});</script>'
