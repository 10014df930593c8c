"""Title, duration, sentence and picture of each lecture, for lists."""

from __future__ import annotations

import re
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

from workbench.lab.notebooks import grammar_put_off
from workbench_lectures.lecture import Script
from workbench_lectures.thumbnail import thumbnail

with grammar_put_off():
    import nbformat

PACE = 130  # words per minute, read aloud
EACH = {"lecture.show(": 1.0, "lecture.race": 2.0}  # minutes
EXERCISE = 2  # minutes of an exercise, which are not in a lecture's own
BASIS = (  # stated in lists
    f"Minutes are computed from the text of a lecture, read aloud at {PACE} words a minute, with "
    f"{EACH['lecture.show(']:g} minute for each figure and {EACH['lecture.race']:g} minutes for its run. "
    f"Allow about {EXERCISE} minutes more for each exercise."
)


class LectureInfo(NamedTuple):
    """Entry of a lecture in a list: title, minutes without exercises, what it shows, a picture (SVG), exercises."""

    title: str
    minutes: int
    about: str = ""
    picture: str = ""
    exercises: int = 0

    @property
    def item(self) -> str:
        """HTML of the entry, for a list item that has a link's address in place of `HREF`."""
        link = f'<a href="HREF">{escape(self.title)}</a>'
        more = f", {self.exercises} exercises" if self.exercises else ""
        return (
            f'<div class="wb-thumb">{self.picture}</div><div>{link}<p>{escape(self.about)}</p></div>'
            f"<span>{self.minutes} min{more}</span>"
        )


def info_of(notebook: Path, script: Script[Any] | None = None) -> LectureInfo:
    """Return the entry of a lecture's notebook. The minutes are computed from its words, figures and run.

    `script`: script of the lecture, from which the sentence, the picture of the first figure and the number of
    exercises are taken.
    """
    cells = nbformat.reads(notebook.read_text(encoding="utf-8"), as_version=4).cells  # type: ignore[no-untyped-call]
    prose = "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
    title = re.search(r"^# (.+)$", prose, re.M)
    code = "\n".join(cell.source for cell in cells if cell.cell_type == "code")
    shown = sum(
        minutes * len(re.findall(f"^{re.escape(call)}", code, re.M)) for call, minutes in EACH.items()
    )
    pieces = len(re.sub(r"<[^>]+>", "", prose).split())
    found = LectureInfo(title[1] if title else notebook.stem, round(pieces / PACE + shown))
    if script is None:
        return found
    first = next(iter(script.figures.values()))
    picture = thumbnail(first.draw(script.knobs().fit(), "light"))
    return found._replace(about=script.about, picture=picture, exercises=len(script.exercises))
