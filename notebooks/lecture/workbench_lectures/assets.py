"""The lectures' JavaScript and CSS, joined to what all widgets share."""

from __future__ import annotations

from pathlib import Path

from workbench.lab.widgets import assets

FOLDER = Path(__file__).parent / "js"


def script(*names: str) -> str:
    """A widget's module, joined of files of ours.

    >>> "export default" in script("question")
    True
    """
    return "\n".join(
        [assets.script(), *((FOLDER / f"{name}.js").read_text(encoding="utf-8") for name in names)]
    )


def style() -> str:
    """Style of forms, questions and pages."""
    return assets.style("form") + (FOLDER / "lecture.css").read_text(encoding="utf-8")
