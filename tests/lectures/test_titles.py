"""The list of lectures: titles instead of file names, and minutes estimated from the number of words."""

from __future__ import annotations

import re
from pathlib import Path

import nbformat
import pytest
from workbench_lectures.offline.pages import index
from workbench_lectures.titles import BASIS, info_of

from tests.support.lecture_settings import SCRIPTS

FOLDER = Path(__file__).resolve().parents[2] / "notebooks" / "lecture"


NOTEBOOKS = (FOLDER.parents[1] / "docs" / "tutorial" / "notebooks.md").read_text(encoding="utf-8")


def spoken(name: str) -> float:
    """Return the minutes of a lecture, as its list states: 130 words a minute, 1 for each figure, 2 for its run."""
    cells = nbformat.read(FOLDER / f"{name}.ipynb", 4).cells
    words = [re.sub("<.+?>", "", each.source).split() for each in cells if each.cell_type == "markdown"]
    lines = [line for each in cells if each.cell_type == "code" for line in each.source.splitlines()]
    calls = [line.split("(")[0] for line in lines]
    assert calls.count("lecture.race") == 1
    return sum(map(len, words)) / 130 + calls.count("lecture.show") + 2


@pytest.mark.parametrize("name", SCRIPTS)
def test_title_and_duration_of_a_lecture(name: str) -> None:
    found = info_of(FOLDER / f"{name}.ipynb", SCRIPTS[name])
    assert found.title.startswith(f"Lecture {name[0]}: ")
    assert 5 <= found.minutes <= 12
    assert found.minutes == round(spoken(name))
    assert found.exercises == len(SCRIPTS[name].exercises)
    assert found.about.endswith(".")
    assert len(found.about.split()) <= 25
    drawn = found.picture.count("<path") + found.picture.count("<rect") + found.picture.count("<circle")
    assert drawn >= 2
    assert found.item.count('href="HREF"') == 1


def test_list_states_how_minutes_are_computed() -> None:
    assert "130 words a minute, with 1 minute for each figure and 2 minutes for its run" in BASIS
    assert BASIS in index({})


@pytest.mark.parametrize("name", SCRIPTS)
def test_minutes_in_the_tutorial_include_the_exercises(name: str) -> None:
    whole = round(spoken(name)) + 2 * len(SCRIPTS[name].exercises)
    (row,) = [line for line in NOTEBOOKS.splitlines() if f"lecture/{name}.ipynb" in line]
    assert row.split("|")[3].strip() == str(whole)


def test_duration_grows_with_words_and_figures(tmp_path: Path) -> None:
    cells = [
        nbformat.v4.new_markdown_cell("# One\n" + "word " * 260),
        nbformat.v4.new_code_cell('lecture.show("a")'),
    ]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), tmp_path / "1.ipynb")
    assert info_of(tmp_path / "1.ipynb")[:2] == ("One", 3)
