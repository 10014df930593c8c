"""The notebooks of lectures: text, parameters, calls of the package, and execution."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import nbformat
import papermill
import pytest

from tests.support.lecture_settings import SCRIPTS
from workbench.lab import notebooks

FOLDER = Path(__file__).resolve().parents[2] / "notebooks" / "lecture"


def cells(name: str, kind: str) -> list[str]:
    notebook = nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)
    return [cell.source for cell in notebook.cells if cell.cell_type == kind]


def test_lecture_notebook_for_every_lecture() -> None:
    assert sorted(path.stem for path in FOLDER.glob("*.ipynb")) == list(SCRIPTS)


@pytest.mark.parametrize("name", SCRIPTS)
def test_lecture_notebook_parameters_are_the_sliders(name: str) -> None:
    parameters = papermill.inspect_notebook(str(FOLDER / f"{name}.ipynb"))
    given = {key: ast.literal_eval(p["default"]) for key, p in parameters.items() if key != "start"}
    fields = SCRIPTS[name].knobs.model_fields
    assert given == {key: fields[key].default for key in given}
    assert len(given) >= 4


@pytest.mark.parametrize("name", SCRIPTS)
def test_lecture_notebook_cells_run_and_show_output(name: str) -> None:
    space: dict[str, Any] = {}
    shown = []
    for source in cells(name, "code"):
        body = ast.parse(source).body
        if body and isinstance(body[-1], ast.Expr):
            exec(compile(ast.Module(body[:-1], []), name, "exec"), space)
            shown.append(eval(compile(ast.Expression(body[-1].value), name, "eval"), space))
        else:
            exec(source, space)
    lecture = space["lecture"]
    assert shown == [lecture, *lecture.views.values(), lecture.race, lecture.quiz]
    assert set(lecture.views) == set(SCRIPTS[name].figures)  # each figure of the lecture is in its notebook
    assert len(lecture.quiz.questions) == 3


@pytest.mark.parametrize("name", SCRIPTS)
def test_lecture_notebook_prose_is_short_and_self_contained(name: str) -> None:
    text = "\n".join(cells(name, "markdown"))
    assert 250 < len(re.sub(r"<[^>]+>", "", text).split()) < 650  # ten to fifteen minutes, with the figures
    assert "$" not in text  # pages would load MathJax from the internet
    assert "http" not in text
    assert "<img" not in text
    assert len(cells(name, "code")) <= 8


@pytest.mark.parametrize(
    "name", [name if i == 0 else pytest.param(name, marks=pytest.mark.slow) for i, name in enumerate(SCRIPTS)]
)
def test_lecture_notebook_executes_in_papermill(name: str, tmp_path: Path) -> None:
    done = notebooks.execute(FOLDER / f"{name}.ipynb", tmp_path / "out.ipynb", {"start": True}, tmp_path)
    outputs = [cell.outputs for cell in done.cells if cell.cell_type == "code"]
    assert not [o for each in outputs for o in each if o.output_type in ("error", "stream")]
    assert sum(bool(each) for each in outputs) >= 5
