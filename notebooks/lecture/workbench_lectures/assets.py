"""The lectures' JavaScript and CSS, joined to what all widgets share."""

from __future__ import annotations

from pathlib import Path

from workbench.widgets import assets

FOLDER = Path(__file__).parent / "js"


def script(name: str) -> str:
    """A widget's module.

    >>> "export default" in script("question")
    True
    """
    return assets.script() + "\n" + (FOLDER / f"{name}.js").read_text(encoding="utf-8")


def style() -> str:
    """Style of forms, questions and pages."""
    return assets.style("form") + (FOLDER / "lecture.css").read_text(encoding="utf-8")
