"""The lectures' JavaScript and CSS, joined with the common parts of all widgets."""

from __future__ import annotations

from pathlib import Path

from workbench.lab.figures.design import style_sheet
from workbench.lab.widgets import assets

FOLDER = Path(__file__).parent / "js"


def script(*names: str) -> str:
    """Return the module of a widget, joined from the files of the package.

    >>> "export default" in script("question")
    True
    """
    return "\n".join(
        [assets.script(), *((FOLDER / f"{name}.js").read_text(encoding="utf-8") for name in names)]
    )


def style() -> str:
    """Return the style sheet of forms, questions and pages."""
    return style_sheet() + (FOLDER / "lecture.css").read_text(encoding="utf-8")
