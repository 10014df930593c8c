"""JavaScript and CSS of the widgets. plotly.js is sent to a page once, in compressed form."""

import gzip
import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import anywidget
import traitlets as t
from IPython import get_ipython

from workbench.core.base.page import CONFIG
from workbench.lab.figures.design import style_sheet
from workbench.lab.figures.fit import FIT, page_script

FOLDER = Path(__file__).parent / "js"


def script(*names: str) -> str:
    """Return JavaScript files of the package as one module, without comments.

    Each widget sends its own module, because browsers cannot import the files from the package.

    >>> "function library" in script("common")
    True
    """
    texts = [(FOLDER / f"{name}.js").read_text(encoding="utf-8") for name in ("common", *names)]
    lines = re.sub(r"^\s*(//[^\n]*|/\*\*.*?\*/)\n", "", "\n".join(texts), flags=re.MULTILINE | re.DOTALL)
    return f"const PLOTLY_CONFIG = {json.dumps(CONFIG)};\n{lines}"


class Sheet(anywidget.AnyWidget):
    """Style sheet, which also applies to other libraries' widgets. js/sheet.js handles keys of these widgets."""

    _esm = t.Unicode(script("sheet")).tag(sync=True)
    _css = t.Unicode(style_sheet(whole=True)).tag(sync=True)


@cache
def library() -> bytes:
    """Return plotly.js from the wheel of plotly and the functions of figures/js/fit.js, compressed by gzip.

    Stronger compression would save a sixth, and take three times as long.
    """
    import plotly

    text = (Path(plotly.__file__).parent / "package_data" / "plotly.min.js").read_bytes()
    fit = f"\n;{page_script()}\nmodule.exports.{FIT} = globalThis.{FIT};\n"
    return gzip.compress(text + fit.encode(), compresslevel=1)


class _Ahead(anywidget.AnyWidget):
    """Invisible widget that contains plotly.js, and is removed once a page has loaded it."""

    _esm = t.Unicode(script("ahead")).tag(sync=True)
    packed = t.Bytes().tag(sync=True)

    def __init__(self) -> None:
        super().__init__(packed=library())
        self.on_msg(lambda *_: self.close())


@cache
def send_ahead() -> None:
    """Send plotly.js to the page whose cell runs, so that it is loaded while the kernel imports modules.

    A request of the page would be answered only after the cell. If no page runs the cell (Voila, nbconvert, a
    script), nothing is sent, because plotly.js would then be stored in the notebook.
    """
    kernel: Any = getattr(get_ipython(), "kernel", None)
    # only pages identify the cell that they run
    if kernel is not None and "cellId" in kernel.get_parent().get("metadata", {}):
        _Ahead()
