"""The list of lectures: titles instead of file names, and minutes estimated from the number of words."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from workbench_lectures.titles import info_of

from tests.support.lecture_settings import SCRIPTS

FOLDER = Path(__file__).resolve().parents[2] / "notebooks" / "lecture"


@pytest.mark.parametrize("name", SCRIPTS)
def test_title_and_duration_of_a_lecture(name: str) -> None:
    found = info_of(FOLDER / f"{name}.ipynb", SCRIPTS[name])
    assert found.title.startswith(f"Lecture {name[0]}: ")
    assert 5 <= found.minutes <= 12
    assert found.exercises == len(SCRIPTS[name].exercises)
    assert found.about.endswith(".")
    assert len(found.about.split()) <= 25
    drawn = found.picture.count("<path") + found.picture.count("<rect") + found.picture.count("<circle")
    assert drawn >= 2
    assert found.item.count('href="HREF"') == 1


def test_duration_grows_with_words_and_figures(tmp_path: Path) -> None:
    cells = [
        nbformat.v4.new_markdown_cell("# One\n" + "word " * 260),
        nbformat.v4.new_code_cell('lecture.show("a")'),
    ]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), tmp_path / "1.ipynb")
    assert info_of(tmp_path / "1.ipynb")[:2] == ("One", 3)
