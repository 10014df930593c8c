"""Sweeps with real notebooks and kernels, one of whose runs fails."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import nbformat
import pytest

import workbench as wb
from tests.support.sweep_runs import DEATHS, QUICK
from workbench.analysis.tables.status import Status, alone
from workbench.core.base.settings import SettingError
from workbench.lab.batch import Summary, Sweep, sweep
from workbench.lab.batch.run import NOTEBOOK

UNUSUAL_TEXT = 'it\'s "odd"\n{rounds}\\ \\n; import os #.csv'  # could be code, a path, or a formula


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("data") / UNUSUAL_TEXT
    rows = [f"{i % 7},{i % 5},{i % 3}" for i in range(40)]
    file.write_text("a,b,y\n" + "\n".join(rows) + "\n")
    return file


@pytest.fixture(scope="module")
def plan(data: Path) -> dict[str, Any]:
    cases = [{}, {"faults": DEATHS}, {"problem": "least_squares", "problem_args": {"data": str(data)}}]
    return {"base": QUICK, "cases": cases, "grid": {"delays.rate": [1e3]}, "seeds": 2}


@pytest.fixture(scope="module")
def summary(plan: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Summary:
    # Papermill replaces names in braces in a path.
    return sweep(plan, tmp_path_factory.mktemp("a") / "it's {scheme}", jobs=2, progress=False)


def test_sweep_continues_after_a_failing_run(summary: Summary) -> None:
    assert len(summary.named("done")) == 4
    assert len(summary.failed) == 2
    text = str(summary)
    assert "4 done, 2 failed" in text
    for name in summary.failed:
        assert f"--only {name}" in text.replace("'", "") or f"--only '{name}'" in text
    assert "why: QuorumLost: round 1: the master lost worker 1," in text
    assert "Traceback" not in text


def test_sweep_run_has_notebook_page_and_run_folder(summary: Summary, plan: dict[str, Any]) -> None:
    for name in summary.named("done"):
        folder = summary.folder / name
        trace = wb.Trace.load(folder / "trace")
        assert trace.replay().same(trace)
        assert {"python", "numpy"} <= set(trace.info["versions"])
        status = Status.read(folder)
        assert status is not None
        assert status.spec == trace.experiment.model_dump(mode="json")
        assert {"name", "platform", "cores"} <= set(status.host)
        cells = nbformat.read(folder / "run.ipynb", as_version=4).cells
        figures = [
            o
            for c in cells
            for o in c.get("outputs", [])
            if "application/vnd.plotly.v1+json" in o.get("data", {})
        ]
        assert len(figures) == 3
        assert (folder / "run.ipynb").stat().st_size < 200_000  # without plotly.js
        assert not (folder / "kernel.log").exists()


def test_sweep_pages_load_only_the_script_beside_them(summary: Summary) -> None:
    page = (summary.folder / summary.named("done")[0] / "run.html").read_text()
    assert page.count("Plotly.newPlot") == 3
    assert page.count('src="') == page.count('src="../plotly.min.js"') == 1
    assert "import(" not in page
    assert (summary.folder / "plotly.min.js").stat().st_size > 1e6


def test_sweep_failed_run_shows_the_place_and_has_no_run_folder(summary: Summary) -> None:
    for name in summary.failed:
        folder = summary.folder / name
        assert "QuorumLost" in (folder / "run.ipynb").read_text()
        assert "QuorumLost" in (folder / "run.html").read_text()
        assert not (folder / "trace").exists()


def test_sweep_table_has_all_runs(summary: Summary, data: Path) -> None:
    runs = summary.runs()
    assert runs.table["state"].value_counts().to_dict() == {"done": 4, "failed": 2}
    assert set(runs.where(state="done", problem="least_squares").table["problem_args.data"]) == {str(data)}
    failed = runs.where(state="failed").table
    assert failed["time"].isna().all()
    assert all([fault["worker"] for fault in json.loads(faults)] == [1, 2] for faults in failed["faults"])
    assert failed["error"].str.contains("QuorumLost").all()
    assert list(runs.table["seed"]) == [0, 1] * 3  # in the sweep's order


def test_sweep_repeats_only_failed_runs_or_one_alone(summary: Summary) -> None:
    before = {name: (summary.folder / name / "status.json").stat().st_mtime_ns for name in summary.states}
    again = sweep(summary.folder, only=summary.failed[0], progress=False)
    assert list(again.states) == summary.failed[:1]
    after = {name: (summary.folder / name / "status.json").stat().st_mtime_ns for name in summary.states}
    assert [name for name in before if before[name] != after[name]] == summary.failed[:1]
    nothing = sweep(summary.folder, only=summary.named("done"), progress=False)
    assert (nothing.before, dict(nothing.states)) == (4, {})


def test_sweep_finds_runs_again_if_reworded(summary: Summary, plan: dict[str, Any]) -> None:
    base = {**QUICK, "delays": {"kind": "shifted_exponential", "rate": 1e3}}
    found = sweep({"base": base, "grid": {"seed": [1, 0]}}, summary.folder, progress=False)
    assert (found.before, dict(found.states)) == (2, {})
    sweep(plan, summary.folder, only=summary.named("done"), progress=False)  # the original plan


def test_sweep_is_refused_before_it_starts(summary: Summary, tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="holds another sweep"):
        sweep({"base": QUICK, "grid": {"rounds": [77]}}, summary.folder)
    with pytest.raises(SettingError, match=r"run 2 of 2 .*rounds = 0"):
        sweep({"base": {"scheme": "UMW"}, "grid": {"rounds": [3, 0]}}, tmp_path / "new")
    with pytest.raises(SettingError, match="jobs = 0"):
        sweep({"base": QUICK}, tmp_path / "new", jobs=0)
    with pytest.raises(SettingError, match="only = 'x'"):
        sweep({"base": QUICK}, tmp_path / "new", only="x")
    with pytest.raises(SettingError, match=r"without sweep\.json"):
        sweep(tmp_path)
    with pytest.raises(SettingError, match=r"timeout = -3"):
        sweep({"base": QUICK}, tmp_path / "new", timeout=-3)
    assert not (tmp_path / "new").exists()
    wb.run(wb.Experiment(**QUICK)).save(tmp_path / "run")
    for place in (tmp_path / "run", tmp_path / "run" / "sub", summary.folder / summary.named("done")[0]):
        with pytest.raises(SettingError, match="holds a run; choose another"):
            sweep({"base": QUICK}, place)
    with alone(summary.folder), pytest.raises(SettingError, match="a sweep is running in it"):
        sweep(summary.folder)


@pytest.mark.parametrize("missing", ["folder", "scheme"])
def test_sweep_notebook_must_declare_its_parameters(tmp_path: Path, missing: str) -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    cell = next(c for c in notebook.cells if "parameters" in c.metadata.get("tags", []))
    cell.source = "\n".join(line for line in cell.source.splitlines() if not line.startswith(f"{missing}:"))
    nbformat.write(notebook, tmp_path / "mine.ipynb")
    with pytest.raises(SettingError, match=f"declares no parameter {missing};"):
        sweep({"base": QUICK}, tmp_path / "new", notebook=tmp_path / "mine.ipynb")
    with pytest.raises(SettingError, match="no such file"):
        sweep({"base": QUICK}, tmp_path / "new", notebook=tmp_path / "yours.ipynb")


ENDS = {  # seed -> what the notebook does, and the error of the run
    0: ("", "without a run folder"),
    1: ("import workbench as wb; wb.run(wb.Experiment(scheme='UMW')).save(folder)", "another experiment"),
    2: ("import os; os._exit(3)", "the kernel ended by itself with status 3"),
    3: ("1 / 0", "ZeroDivisionError: division by zero"),
    4: ("", "FileExistsError"),  # a file in place of its folder
    5: ("import sys; sys.exit(0)", "a cell ended the kernel (SystemExit: 0)"),
    6: ("import sys; sys.exit()", "a cell ended the kernel (SystemExit)"),
    7: ("import sys; sys.exit('no data')", "a cell ended the kernel (SystemExit: no data)"),
    8: (
        "import os; os.write(2, b'why'); os._exit(4)",
        "the kernel ended by itself with status 4; see kernel.log",
    ),
}


def ending(folder: Path, code: str) -> Path:
    """Write a notebook with the parameters of `run.ipynb` and one cell."""
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    cells = [c for c in notebook.cells if "parameters" in c.metadata.get("tags", [])]
    notebook.cells = [*cells, nbformat.v4.new_code_cell(code)]
    nbformat.write(notebook, folder / "mine.ipynb")
    return folder / "mine.ipynb"


@pytest.mark.parametrize("fresh", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_sweep_run_without_a_result_has_failed(tmp_path: Path, fresh: bool) -> None:
    acts = {seed: act for seed, (act, _) in ENDS.items()}
    notebook = ending(tmp_path, f"exec({acts!r}[seed])")
    plan = Sweep(base=QUICK, seeds=len(ENDS))
    names = [item.name for item in plan.items()]
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / names[4]).touch()
    found = sweep(plan, tmp_path / "new", jobs=2, notebook=notebook, fresh=fresh, progress=False)
    assert found.failed == names
    for name, (_, error) in zip(names, ENDS.values(), strict=True):
        assert error in found.states[name].error
        assert ("kernel.log" in found.states[name].error) == (found.folder / name / "kernel.log").is_file()


def test_sweep_cell_timeout_is_a_failed_run(tmp_path: Path) -> None:
    notebook = ending(tmp_path, "import time; time.sleep(600)")
    found = sweep({"base": QUICK}, tmp_path / "new", timeout=3.0, notebook=notebook, progress=False)
    (status,) = found.states.values()
    assert (status.state, status.error) == ("failed", "a cell took longer than the timeout allows")


@pytest.mark.slow
def test_sweep_with_fresh_kernels_gives_the_same_table(
    summary: Summary, plan: dict[str, Any], tmp_path: Path
) -> None:
    fresh = sweep(plan, tmp_path / "fresh", jobs=2, fresh=True, progress=False).runs().table
    known = summary.runs().table
    assert fresh.drop(columns="folder").equals(known.drop(columns="folder"))


@pytest.mark.slow
@pytest.mark.mpi
@pytest.mark.xdist_group("mpi")
def test_sweep_of_real_runs(tmp_path: Path) -> None:
    plan = {
        "base": {"scheme": "UMW", "workers": 2, "rounds": 4},
        "seeds": 2,
        "engine": "mpi",
        "cluster": "local",
    }
    found = sweep(plan, tmp_path / "real", progress=False)
    assert found.named("done") == list(found.states), str(found)
    table = found.runs().table
    assert table["engine"].tolist() == ["mpi", "mpi"]
    assert table["cluster"].tolist() == ["local", "local"]
    simulated = wb.run(wb.Experiment(scheme="UMW", workers=2, rounds=4)).columns["loss"][-1]
    assert table["loss"].to_numpy() == pytest.approx(simulated)


def test_sweep_over_batch_sizes(tmp_path: Path) -> None:
    base = {**QUICK, "problem": "logistic", "problem_args": {"samples": 240, "features": 3}}
    found = sweep({"base": base, "grid": {"batch": [None, 60, 120]}}, tmp_path / "a", progress=False)
    table = wb.runs(tmp_path / "a").done
    assert len(found.named("done")) == 3
    assert table["batch"].fillna(240).astype(int).tolist() == [240, 60, 120]
    assert table["load"].tolist() == pytest.approx(
        [table["load"].iloc[0] * share for share in (1, 1 / 4, 1 / 2)]
    )
    assert (table["rounds_done"] == base["rounds"]).all()
