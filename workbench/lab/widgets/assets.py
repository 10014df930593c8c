"""The widgets' JavaScript and CSS, and plotly.js as it travels to the page: packed, and once."""

import gzip
import json
from functools import cache
from pathlib import Path
from typing import Any

import anywidget
import traitlets as t
from IPython import get_ipython

from workbench.core.base.page import CONFIG

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


class _Ahead(anywidget.AnyWidget):
    """Brings plotly.js with itself, and goes once a page has it; it is never shown."""

    _esm = t.Unicode(script("ahead")).tag(sync=True)
    packed = t.Bytes().tag(sync=True)

    def __init__(self) -> None:
        super().__init__(packed=library())
        self.on_msg(lambda *_: self.close())


@cache
def send_ahead() -> None:
    """Send plotly.js to the page whose cell runs, so that it is read while the kernel loads what draws; once a kernel.

    A page that asks for it hears nothing before the cell has ended. Where no page runs the cell (Voila, nbconvert, a
    script), nothing is sent: what nobody takes would stay in the notebook.
    """
    kernel: Any = getattr(get_ipython(), "kernel", None)
    if kernel is not None and "cellId" in kernel.get_parent().get(
        "metadata", {}
    ):  # pages say which cell they run
        _Ahead()
