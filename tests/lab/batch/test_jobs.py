"""Jobs: from a notebook's variables to a checked run, and `notebooks/run.ipynb` in papermill."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import papermill
import pytest

import workbench as wb
from tests.support.sampled_cases import sampled_test
from workbench.core.base.settings import SettingError
from workbench.lab.batch import job
from workbench.lab.batch.run import NOTEBOOK, parameters

USUAL = {"scheme": "CR", "workers": 20, "scheme_args": {"children": 4, "layers": 2}}


def test_notebook_parameters_are_the_fields_of_an_experiment() -> None:
    assert parameters(NOTEBOOK) == [*wb.Experiment.model_fields, "engine", "cluster", "folder"]


def test_notebook_defaults_are_those_of_an_experiment() -> None:
    names: dict[str, Any] = {}
    cells = papermill.iorw.load_notebook_node(str(NOTEBOOK)).cells
    exec(next(cell.source for cell in cells if "parameters" in cell.metadata.get("tags", [])), names)
    found = job(names, USUAL)
    tree = {"scheme_args": {"children": 4, "layers": 2}, "workers": 20}
    assert found.experiment == wb.Experiment(**tree)
    assert (found.engine, found.cluster, found.folder) == ("sim", "", "")
    assert repr(USUAL) in "".join(cell.source for cell in cells).replace('"', "'")


def test_job_takes_a_scheme_parameter_by_its_name() -> None:
    assert job({"scheme": "CR", "workers": 20, "stragglers": 3}, USUAL).experiment.scheme_args == {
        "children": 4,
        "layers": 2,
        "stragglers": 3,
    }
    assert job({"scheme": "CR", "workers": 12}, USUAL).experiment == wb.Experiment()
    assert job({"scheme": "GC", "workers": 20, "stragglers": 3}, USUAL).experiment.scheme_args == {
        "stragglers": 3
    }


def outcome(make: Any) -> Any:
    try:
        return make()
    except SettingError as error:  # some schemes' default parameters do not fit 12 workers
        return str(error)


@pytest.mark.parametrize("scheme", wb.schemes.names())
def test_job_takes_the_parameters_of_every_scheme(scheme: str) -> None:
    for name, field in wb.schemes.get(scheme).model_fields.items():
        by_itself = outcome(lambda: job({"scheme": scheme, name: field.default}).experiment)  # noqa: B023
        assert by_itself == outcome(lambda: wb.Experiment(scheme=scheme, scheme_args={name: field.default}))  # noqa: B023


def test_job_parses_yaml_only_for_nested_fields() -> None:
    found = job({"delays": "{kind: pareto, shape: 3}", "scheme_args": "{stragglers: 0}", "faults": "[]"})
    assert found.experiment.delays == wb.Experiment(delays={"kind": "pareto", "shape": 3}).delays
    assert found.experiment.scheme_args == {"stragglers": 0}


def test_job_ignores_names_of_ipython_and_other_cells() -> None:
    names = {"In": ["x"], "Out": {}, "_": 3, "__name__": "__main__", "wb": wb, "quit": exit, "rounds": 7}
    assert job(names).experiment.rounds == 7


@pytest.mark.parametrize(
    ("names", "error"),
    [
        ({"straglers": 3}, "parameter = 'straglers'.*did you mean 'stragglers'"),
        ({"scheme": "UMW", "stragglers": 3}, "parameter = 'stragglers'"),
        ({"stragglers": 1, "scheme_args": {"stragglers": 2}}, "stragglers: is given twice"),
        ({"stragglers": "1\nimport os"}, r"scheme_args\.stragglers"),
        ({"scheme": "GD"}, "scheme = 'GD'"),
        ({"scheme_args": 3}, "scheme_args = 3"),
        ({"scheme_args": "[3"}, "scheme_args = .*is not YAML"),
        ({"rounds": "many"}, "rounds = 'many'"),
        ({"rounds": 0}, "rounds = 0"),
        ({"delays": "pareto"}, "delays"),
        ({"engine": "mip"}, "engine = 'mip'"),
        ({"engine": "sim", "cluster": "local"}, "cluster = 'local'"),
        ({"engine": "mpi", "cluster": "lokal"}, "cluster = 'lokal'"),
        ({"folder": "/"}, "folder = '/': exists already"),
    ],
)
def test_job_errors_are_one_sentence_without_a_traceback(names: dict[str, Any], error: str) -> None:
    with pytest.raises(SettingError, match=error) as caught:
        job(names)
    (line,) = caught.value._render_traceback_()  # type: ignore[attr-defined]  # what a notebook shows
    assert line == f"SettingError: {caught.value}"


def test_job_of_a_failing_run_leaves_no_folder(tmp_path: Path) -> None:
    deaths = [{"worker": 1, "round": 1}, {"worker": 2, "round": 1}]
    folder = tmp_path / "run"
    broken = job({"scheme": "UMW", "workers": 4, "rounds": 5, "faults": deaths, "folder": str(folder)})
    with pytest.raises(wb.RunError, match="round 1") as caught:
        broken.run()
    assert len(caught.value._render_traceback_()) == 1  # type: ignore[attr-defined]
    assert not folder.exists()


def plainly(tmp_path: Path, *text: str) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        "-m",
        "papermill",
        str(NOTEBOOK),
        str(tmp_path / "out.ipynb"),
        "--no-progress-bar",
    ]
    return subprocess.run([*command, *text], cwd=tmp_path, capture_output=True, text=True, check=False)


@sampled_test("papermill", 0, 2)
def test_papermill_executes_the_run_notebook(tmp_path: Path) -> None:
    settings = {"scheme": "CR", "stragglers": "3", "rounds": "4", "folder": "run"}
    done = plainly(tmp_path, *(word for pair in settings.items() for word in ("-p", *pair)))
    assert done.returncode == 0, done.stderr
    trace = wb.Trace.load(tmp_path / "run")
    assert trace.experiment.built_scheme == wb.schemes.get("CR")(children=4, layers=2, stragglers=3)
    assert len(trace.rounds) == 4


@sampled_test("papermill", 1, 2)
def test_papermill_ends_with_the_error_sentence(tmp_path: Path) -> None:
    done = plainly(tmp_path, "-p", "stragglers", "9")
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("SettingError: scheme_args.stragglers = 9: a parent with 4 children")
