"""Export of figures as offline HTML, PNG, SVG and PDF."""

from __future__ import annotations

import os
import subprocess
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import plotly.graph_objects as go

from workbench.core.base.files import write_file
from workbench.core.base.settings import SettingError, path_of, short
from workbench.lab.figures.page import Figure
from workbench.lab.figures.paper import for_paper, length

WIDTH, HEIGHT = 1280, 720
PAPER_SCALE = 4  # pixels of a PNG per 1/96 inch, which gives 384 dots per inch
_FORMATS = (".html", ".png", ".svg", ".pdf")


class NoBrowser(RuntimeError):
    """Chrome or Chromium, which draws static pictures, was not found.

    >>> issubclass(NoBrowser, RuntimeError)
    True
    """


def save(figure: go.Figure, path: str | Path, width: str | None = None) -> Path:
    """Write a figure to a file, atomically.

    `figure`: any figure. `path`: ends in .html (self-contained, works offline), .png, .svg or .pdf (1280 px
    wide, by Chrome or Chromium). `width`: width for a paper, such as "8.5cm", "86mm" or "3.4in". Text then has 8
    points, the legend is below, and the title is left out, because the paper has a caption. Not for .html.

    Raises `SettingError` for another ending, if the folder does not exist, or if the width is not a length. Raises
    `NoBrowser` if no Chrome or Chromium was found for .png, .svg or .pdf.

    >>> import tempfile
    >>> file = save(go.Figure(), Path(tempfile.mkdtemp()) / "empty.html")
    >>> "plotly.js" in file.read_text(encoding="utf-8")
    True
    """
    file = path_of(path, "path")
    if not hasattr(figure, "to_html"):
        raise SettingError(f"figure = {short(figure)}: is none; give what a function of wb.figures returns")
    if file.suffix not in _FORMATS:
        why = f"no format for {file.suffix!r}; end it in {', '.join(_FORMATS)}"
        raise SettingError(f"path = {str(path)!r}: {why}")
    if not file.parent.is_dir():
        raise SettingError(f"path = {str(path)!r}: there is no folder {str(file.parent)!r}; make it first")
    if width is not None:
        if file.suffix == ".html":
            raise SettingError(f"width = {short(width)}: a page has none; end path in .pdf, .svg or .png")
        pixels = length(width)
        content = _picture(for_paper(figure, pixels), file.suffix[1:], round(pixels), PAPER_SCALE)
    else:
        content = _html(figure) if file.suffix == ".html" else _picture(figure, file.suffix[1:])
    write_file(file, content)
    return file


@contextmanager
def one_browser() -> Iterator[None]:
    """Draw all pictures inside the context with one Chrome or Chromium, since its start takes longer than a picture."""
    import kaleido
    from choreographer.browsers.chromium import Chromium

    found = os.environ.get("BROWSER_PATH") or Chromium.find_browser(skip_local=False)
    if not (found and _answers(found)):  # otherwise the server would wait for a browser that does not start
        yield
        return
    kaleido.start_sync_server(n=1, silence_warnings=True)
    try:
        with warnings.catch_warnings():  # plotly warns about options that it sets itself
            warnings.filterwarnings("ignore", "The kopts argument", UserWarning)
            yield
    finally:
        kaleido.stop_sync_server(silence_warnings=True)


def _answers(browser: str) -> bool:
    try:
        done = subprocess.run([browser, "--version"], capture_output=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def _html(figure: go.Figure) -> bytes:
    html = Figure(figure).to_html(include_plotlyjs=True, config={"responsive": True})
    return html.encode()


def _picture(figure: go.Figure, kind: str, width: int = WIDTH, scale: int = 1) -> bytes:
    size = {"width": width, "height": figure.layout.height or HEIGHT, "scale": scale if kind == "png" else 1}
    try:
        return bytes(figure.to_image(format=kind, **size))
    except RuntimeError as error:
        # Plotly turns Kaleido's ChromeNotFoundError into a RuntimeError with a long text.
        if "Chrome" not in str(error):
            raise
        raise NoBrowser(
            "no Chrome or Chromium was found to draw PNG, SVG and PDF with: install the package chromium,"
            " or set BROWSER_PATH to the browser's program; .html works without"
        ) from None
