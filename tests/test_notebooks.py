"""Notebooks run completely in papermill, with any parameter changed, and are stored without outputs."""

from __future__ import annotations

import ast
import os
import re
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import nbformat
import numpy as np
import papermill
import pytest

import workbench as wb
from tests.support.sampled_cases import rotated, sampled_test
from tests.support.synthetic_recordings import recording
from workbench.core.base.user_code import name_of
from workbench.lab import notebooks
from workbench.lab.batch.kernels import CAN_FORK, Kernels
from workbench.lab.widgets.explorer.explorer import EXAMPLE

ROOT = Path(__file__).resolve().parents[1]
FIRST = ROOT / "notebooks" / "01-quickstart.ipynb"
SMALL: dict[str, Any] = {"children": 2, "layers": 2, "rounds": 4}


@pytest.fixture(scope="module")
def kernels() -> Iterator[Kernels]:
    """Start a fork server for kernels that has imported the notebooks' modules.

    Notebooks 04, 05, 08, 09 and the papers' have new kernels.
    """
    with Kernels(threads=1, fresh=not CAN_FORK) as found:
        yield found


@pytest.fixture
def warm(kernels: Kernels, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Execute notebooks in a forked kernel."""
    manager = kernels.manager(tmp_path.name, tmp_path / "kernel.log")
    plain = papermill.execute_notebook
    monkeypatch.setattr(papermill, "execute_notebook", partial(plain, kernel_manager_class=manager))


def execute(notebook: Path, tmp_path: Path, **parameters: Any) -> nbformat.NotebookNode:
    return notebooks.execute(notebook, tmp_path / "out.ipynb", parameters, ROOT)


@pytest.mark.parametrize("path", sorted((ROOT / "notebooks").rglob("*.ipynb")), ids=lambda p: p.stem)
def test_notebooks_have_no_outputs_and_a_parameters_cell(path: Path) -> None:
    cells = nbformat.read(path, as_version=4).cells
    code = [c for c in cells if c.cell_type == "code"]
    assert not any(c.outputs or c.execution_count for c in code)
    (parameters,) = (c for c in code if "parameters" in c.metadata.get("tags", []))
    assigned = [node for node in ast.parse(parameters.source).body if isinstance(node, ast.AnnAssign)]
    known = {p["name"] for p in papermill.inspect_notebook(str(path)).values()}
    assert known == {node.target.id for node in assigned if isinstance(node.target, ast.Name)}


def text_of(name: str) -> str:
    """Return the text of a notebook, without its code."""
    cells = nbformat.read(ROOT / "notebooks" / f"{name}.ipynb", as_version=4).cells
    return "\n".join(c.source for c in cells if c.cell_type == "markdown")


def test_notebooks_with_different_ratios_state_what_is_tuned() -> None:
    """Notebook 01 tunes step sizes and notebook 02 does not, so that SGD's ratio to CR differs."""
    first, second = text_of("01-quickstart"), text_of("02-explore")
    code = nbformat.read(FIRST, as_version=4).cells
    assert any("wb.tune(" in c.source for c in code if c.cell_type == "code")
    assert "**What is tuned:** `wb.tune` chooses a step size for each scheme" in first
    assert "(02-explore.ipynb) uses the optimisers as they are set" in first
    assert "SGD keeps its untuned, decreasing step size" in first
    assert "Optimisers are used as they are set. Notebook 01 tunes their step sizes" in second


def id_of(changes: dict[str, Any]) -> str:
    return str(changes.get("data", "digits"))


CHANGES: list[dict[str, Any]] = [
    {"data": "breast_cancer", "problem": "logistic", "seed": 3},
    {"data": "diabetes", "problem": "least_squares", "stragglers": 0, "children": 3, "latency": 0.0},
    {"shift": 1e-3, "shape": 1.1, "bandwidth": 1e5, "layers": 3, "l2": 0.0},
]


@pytest.mark.parametrize(
    "changes", [CHANGES[0], *(pytest.param(each, marks=pytest.mark.slow) for each in CHANGES[1:])], ids=id_of
)
@pytest.mark.usefixtures("warm")
def test_quickstart_notebook_with_other_parameters(tmp_path: Path, changes: dict[str, Any]) -> None:
    out = tmp_path / "results"
    done = execute(FIRST, tmp_path, **{**SMALL, **changes, "out": str(out)})
    traces = {path.parent.name: wb.Trace.load(path.parent) for path in out.glob("*/spec.json")}
    assert sorted(traces) == ["CR", "GC", "RAR", "SGD", "UMW"]
    for trace in traces.values():
        assert len(trace.rounds) == 4
        assert trace.rounds["loss"].iloc[-1] < trace.initial["loss"]
    page = (out / "convergence.html").read_text()
    assert "plotly" in page and '<script src="http' not in page  # noqa: PT018
    text = "".join(str(o) for c in done.cells if c.cell_type == "code" for o in c.outputs)
    assert "All schemes reach a loss" in text


def test_quickstart_notebook_starts_with_the_explorers_example() -> None:
    code = [c for c in nbformat.read(FIRST, as_version=4).cells if c.cell_type == "code"]
    (parameters,) = (c for c in code if "parameters" in c.metadata.get("tags", []))
    names: dict[str, Any] = {}
    exec(parameters.source, names)
    (settings,) = (c.source for c in code if c.source.startswith("import workbench"))
    exec(settings[: settings.index("experiments =")], names)
    assert names["common"] == {**EXAMPLE, "seed": 0}


@rotated
@pytest.mark.usefixtures("warm")
def test_coding_or_not_notebook_shows_its_maps(tmp_path: Path) -> None:
    table = tmp_path / "times.csv"
    rows = [f"{w},{i},{1 + (w == i % 3)}" for w in range(4) for i in range(6)]
    table.write_text("\n".join(["worker,iteration,seconds", *rows]))
    parameters = {"schemes": "UMW, GC, Backup", "recorded": str(table), "share": 1.0, "cost": 0.02}
    done = execute(ROOT / "notebooks" / "07-coding-or-not.ipynb", tmp_path, **parameters)
    outputs = [output for cell in done.cells if cell.cell_type == "code" for output in cell.outputs]
    assert sum("application/vnd.plotly.v1+json" in output.get("data", {}) for output in outputs) == 2
    assert all(name in outputs[-1]["data"]["text/plain"] for name in ("UMW", "GC", "Backup"))


TRAINING: dict[str, Any] = {"workers": 3, "rounds": 12, "accuracy": 0.5, "batches": [60], "seeds": 1}
SMALL_BUDGET: dict[str, Any] = {"budget": 6, "shift": 1e-5}


def trained(tmp_path: Path, **parameters: Any) -> tuple[str, list[list[str]], list[wb.Trace]]:
    """Return the text of the notebook on training, the curves of its figures, and the runs of its sweep."""
    out = tmp_path / "sweep"
    notebook = ROOT / "notebooks" / "08-training.ipynb"
    done = execute(notebook, tmp_path, **{**TRAINING, **SMALL_BUDGET, **parameters, "out": str(out)})
    outputs = [o for c in done.cells if c.cell_type == "code" for o in c.outputs]
    plots = [o["data"].get("application/vnd.plotly.v1+json") for o in outputs if "data" in o]
    curves = [[str(curve.get("name")) for curve in plot["data"]] for plot in plots if plot]
    return (
        "".join(str(o) for o in outputs),
        curves,
        [wb.Trace.load(p.parent) for p in out.glob("*/trace/spec.json")],
    )


def test_training_notebook_without_pytorch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The network is omitted with one sentence. Curves and sweep are those of the linear model."""
    (tmp_path / "torch.py").write_text("raise ImportError('none here')\n")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{ROOT}")
    text, curves, runs = trained(tmp_path, cluster="")
    assert text.count("PyTorch is not installed") == 1
    assert len(curves) == 3
    schemes = {"UMW", "Backup", "GC", "IS-GC", "LocalSGD"}
    for drawn in curves:
        assert schemes <= {name.split()[0] for name in drawn}
    assert {t.experiment.scheme for t in runs} == schemes
    for trace in runs:
        assert trace.experiment.batch == 60
        assert trace.columns["test_accuracy"][-1] > 0.5
        assert np.isnan(trace.columns["test_accuracy"][0])


@sampled_test("expensive notebooks", 0, 3)
@pytest.mark.mpi
@pytest.mark.xdist_group("mpi")
def test_training_notebook_with_a_network_on_real_processes(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    text, curves, runs = trained(tmp_path)
    assert "PyTorch is not installed" not in text
    assert len(curves) == 3
    assert len(runs) == 5


@sampled_test("who is late", 0, 2)
@pytest.mark.usefixtures("warm")
def test_who_is_late_notebook_names_the_slow_worker(tmp_path: Path) -> None:
    times = 1 + 0.05 * np.random.default_rng(0).random((60, 6))
    times[:, [1, 4]] *= 3.0
    file = recording(times).write(tmp_path / "times.csv")
    done = execute(ROOT / "notebooks" / "06-who-is-late.ipynb", tmp_path, recording=str(file), rounds=60)
    outputs = [output for cell in done.cells if cell.cell_type == "code" for output in cell.outputs]
    text = "".join(output.get("text", "") for output in outputs)
    assert "worker 1 costs" in text
    assert "worker 4 costs" in text
    assert re.search(r"would save (\d+)% of the time \(.*\); it saves \d+%", text)
    assert sum("application/vnd.plotly.v1+json" in output.get("data", {}) for output in outputs) == 3


@sampled_test("who is late", 1, 2)
@pytest.mark.usefixtures("warm")
def test_who_is_late_notebook_simulates_a_run(tmp_path: Path) -> None:
    done = execute(ROOT / "notebooks" / "06-who-is-late.ipynb", tmp_path, rounds=40)
    assert "costs" in "".join(
        o.get("text", "") for c in done.cells if c.cell_type == "code" for o in c.outputs
    )


@pytest.mark.usefixtures("warm")
def test_notebook_with_a_bad_parameter_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(papermill.PapermillExecutionError, match=r"scheme_args\.stragglers = 2"):
        execute(FIRST, tmp_path, **{**SMALL, "stragglers": 2})


YOURS = ROOT / "notebooks" / "05-yours.ipynb"
SMALL_PARAMETERS: dict[str, Any] = {"workers": 3, "wait": 2, "rounds": 4, "nap": 0.01, "seeds": 1}


def yours(tmp_path: Path, **parameters: Any) -> tuple[str, list[wb.Trace]]:
    """Return the output of the notebook on user-defined schemes, and the runs of its sweep."""
    out = tmp_path / "sweep"
    done = execute(YOURS, tmp_path, **{**SMALL_PARAMETERS, **parameters, "out": str(out)})
    outputs = [o for c in done.cells if c.cell_type == "code" for o in c.outputs]
    text = "".join(str(o) for o in outputs)
    assert "Fastest passes all properties that apply" in text
    assert "Naps passes all properties that apply" in text
    assert any("application/vnd.plotly.v1+json" in o.get("data", {}) for o in outputs[-1:])
    return text, [wb.Trace.load(path.parent) for path in sorted(out.glob("*/trace/spec.json"))]


def test_user_defined_notebook_cell_without_pytorch(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The experiments use the cell's class, and one of them trains."""
    define(YOURS)
    monkeypatch.setitem(sys.modules, "torch", None)
    (cell,) = (c.source for c in nbformat.read(YOURS, as_version=4).cells if "from torch" in c.source)
    names = {"wb": wb, **SMALL_PARAMETERS, "chance": 0.2}
    exec(compile(cell, "<cell>", "exec", dont_inherit=True), names)
    assert "PyTorch is not installed" in capsys.readouterr().out
    assert {e.problem for e in [names["mine"], *names["baselines"]]} == {"softmax"}
    trace = wb.run(names["mine"])
    assert trace.rounds["loss"].iloc[-1] < trace.initial["loss"]


@pytest.mark.slow  # if PyTorch is installed, the test above executes it
def test_user_defined_notebook_without_pytorch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('none here')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    define(YOURS)
    text, traces = yours(tmp_path, engine="sim")
    assert "PyTorch is not installed" in text
    assert sorted(trace.experiment.scheme_args["k"] for trace in traces) == [1, 2, 3]
    assert {trace.experiment.problem for trace in traces} == {"softmax"}


@sampled_test("expensive notebooks", 2, 3)
@pytest.mark.mpi
@pytest.mark.xdist_group("mpi")
def test_user_defined_notebook_with_a_network_on_real_processes(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    define(YOURS)
    text, traces = yours(tmp_path)
    assert "PyTorch is not installed" not in text
    assert {trace.experiment.problem for trace in traces} == {"torch"}
    for folder in (tmp_path / "sweep").glob("*/trace"):
        assert {path.name for path in folder.glob("own-*")} == {"own-Fastest.py", "own-Naps.py", "own-net.py"}


def define(notebook: Path) -> None:
    """Define the classes of a notebook's cells, so that its runs can be read."""
    space: dict[str, Any] = {"__name__": "own_notebook"}
    for cell in nbformat.read(notebook, as_version=4).cells:
        if cell.cell_type == "code" and ("class " in cell.source or "def net" in cell.source):
            source = cell.source.split("wb.check(")[0].split("\ncommon")[0]
            exec(compile(source, "<cell>", "exec", dont_inherit=True), space)
    if net := space.get("net"):
        name_of(net, "problem_args.module")
