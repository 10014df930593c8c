"""Notebooks run top to bottom in papermill, with any parameter changed, and are kept without outputs."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import nbformat
import papermill
import pytest

import workbench as wb
from workbench.base import notebooks
from workbench.widgets.explorer.explorer import EXAMPLE

ROOT = Path(__file__).resolve().parents[1]
FIRST = ROOT / "notebooks" / "01-straight-line.ipynb"
SMALL: dict[str, Any] = {"children": 2, "layers": 2, "rounds": 4}


def execute(notebook: Path, tmp_path: Path, **parameters: Any) -> nbformat.NotebookNode:
    return notebooks.execute(notebook, tmp_path / "out.ipynb", parameters, ROOT)


@pytest.mark.parametrize("path", sorted((ROOT / "notebooks").rglob("*.ipynb")), ids=lambda p: p.stem)
def test_no_outputs_in_git_and_a_parameters_cell(path: Path) -> None:
    cells = nbformat.read(path, as_version=4).cells
    code = [c for c in cells if c.cell_type == "code"]
    assert not any(c.outputs or c.execution_count for c in code)
    (parameters,) = (c for c in code if "parameters" in c.metadata.get("tags", []))
    assigned = [node for node in ast.parse(parameters.source).body if isinstance(node, ast.AnnAssign)]
    known = {p["name"] for p in papermill.inspect_notebook(str(path)).values()}
    assert known == {node.target.id for node in assigned if isinstance(node.target, ast.Name)}


CHANGES: list[dict[str, Any]] = [
    {"data": "breast_cancer", "problem": "logistic", "seed": 3},
    {"data": "diabetes", "problem": "least_squares", "stragglers": 0, "children": 3, "latency": 0.0},
    {"shift": 1e-3, "shape": 1.1, "bandwidth": 1e5, "layers": 3, "l2": 0.0},
]


@pytest.mark.parametrize("changes", CHANGES, ids=lambda c: c.get("data", "digits"))
def test_the_first_notebook_runs_with_parameters_changed(tmp_path: Path, changes: dict[str, Any]) -> None:
    out = tmp_path / "results"
    done = execute(FIRST, tmp_path, **{**SMALL, **changes, "out": str(out)})
    traces = {path.parent.name: wb.Trace.load(path.parent) for path in out.glob("*/spec.json")}
    assert sorted(traces) == ["CR", "GC", "RAR", "SGD", "UMW"]
    for trace in traces.values():
        assert len(trace.rounds) == 4
        assert trace.rounds["loss"].iloc[-1] < trace.initial["loss"]
    page = (out / "convergence.html").read_text()
    assert "plotly" in page and '<script src="http' not in page  # noqa: PT018
    words = "".join(str(o) for c in done.cells if c.cell_type == "code" for o in c.outputs)
    assert "All schemes reach a loss" in words


def test_the_first_notebook_begins_where_the_explorer_does() -> None:
    code = [c for c in nbformat.read(FIRST, as_version=4).cells if c.cell_type == "code"]
    (parameters,) = (c for c in code if "parameters" in c.metadata.get("tags", []))
    names: dict[str, Any] = {}
    exec(parameters.source, names)
    (settings,) = (c.source for c in code if c.source.startswith("import workbench"))
    exec(settings[: settings.index("experiments =")], names)
    assert names["common"] == {**EXAMPLE, "seed": 0}


def test_coding_or_not_shows_its_maps_and_times_a_cell_anew(tmp_path: Path) -> None:
    table = tmp_path / "times.csv"
    rows = [f"{w},{i},{1 + (w == i % 3)}" for w in range(4) for i in range(6)]
    table.write_text("\n".join(["worker,iteration,seconds", *rows]))
    parameters = {"schemes": "UMW, GC, SGD", "recorded": str(table), "share": 1.0, "cost": 0.02}
    done = execute(ROOT / "notebooks" / "05-coding-or-not.ipynb", tmp_path, **parameters)
    outputs = [output for cell in done.cells if cell.cell_type == "code" for output in cell.outputs]
    assert sum("application/vnd.plotly.v1+json" in output.get("data", {}) for output in outputs) == 6
    assert all(name in outputs[-1]["data"]["text/plain"] for name in ("UMW", "GC", "SGD"))


def test_a_bad_parameter_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(papermill.PapermillExecutionError, match=r"scheme_args\.stragglers = 2"):
        execute(FIRST, tmp_path, **{**SMALL, "stragglers": 2})
