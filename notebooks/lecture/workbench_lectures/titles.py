"""Title and duration of each lecture, for lists."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from workbench.lab.notebooks import grammar_put_off

with grammar_put_off():
    import nbformat

PACE = 130  # words per minute, read aloud
EACH = {"lecture.show(": 1.0, "lecture.race": 2.0, "lecture.quiz": 3.0}  # minutes


class LectureInfo(NamedTuple):
    """Title of a lecture, and its duration in minutes."""

    title: str
    minutes: int


def info_of(notebook: Path) -> LectureInfo:
    """Return title and minutes of a lecture's notebook, from its words, figures, run and exercises."""
    cells = nbformat.reads(notebook.read_text(encoding="utf-8"), as_version=4).cells  # type: ignore[no-untyped-call]
    prose = "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
    title = re.search(r"^# (.+)$", prose, re.M)
    code = "\n".join(cell.source for cell in cells if cell.cell_type == "code")
    shown = sum(
        minutes * len(re.findall(f"^{re.escape(call)}", code, re.M)) for call, minutes in EACH.items()
    )
    pieces = len(re.sub(r"<[^>]+>", "", prose).split())
    return LectureInfo(title[1] if title else notebook.stem, round(pieces / PACE + shown))
