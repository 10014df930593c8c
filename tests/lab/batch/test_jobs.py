"""From a notebook's names to a checked run; `notebooks/run.ipynb` by plain papermill, with the same errors."""

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


def test_the_notebook_s_parameters_are_the_experiment_s_fields() -> None:
    assert parameters(NOTEBOOK) == [*wb.Experiment.model_fields, "engine", "cluster", "folder"]


def test_the_notebook_s_defaults_are_the_experiment_s_but_for_the_tree() -> None:
    names: dict[str, Any] = {}
    cells = papermill.iorw.load_notebook_node(str(NOTEBOOK)).cells
    exec(next(cell.source for cell in cells if "parameters" in cell.metadata.get("tags", [])), names)
    found = job(names, USUAL)
    tree = {"scheme_args": {"children": 4, "layers": 2}, "workers": 20}
    assert found.experiment == wb.Experiment(**tree)
    assert (found.engine, found.cluster, found.folder) == ("sim", "", "")
    assert repr(USUAL) in "".join(cell.source for cell in cells).replace('"', "'")


def test_a_number_of_the_scheme_by_its_own_name() -> None:
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
    except SettingError as error:  # the defaults of some schemes do not fit 12 workers
        return str(error)


@pytest.mark.parametrize("scheme", wb.schemes.names())
def test_every_scheme_takes_its_own_names(scheme: str) -> None:
    for name, field in wb.schemes.get(scheme).model_fields.items():
        by_itself = outcome(lambda: job({"scheme": scheme, name: field.default}).experiment)  # noqa: B023
        assert by_itself == outcome(lambda: wb.Experiment(scheme=scheme, scheme_args={name: field.default}))  # noqa: B023


def test_text_is_yaml_where_a_field_has_fields_and_text_elsewhere() -> None:
    found = job({"delays": "{kind: pareto, shape: 3}", "scheme_args": "{stragglers: 0}", "faults": "[]"})
    assert found.experiment.delays == wb.Experiment(delays={"kind": "pareto", "shape": 3}).delays
    assert found.experiment.scheme_args == {"stragglers": 0}


def test_what_ipython_and_other_cells_leave_is_no_parameter() -> None:
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
        ({"scheme_args": "[3"}, "scheme_args = .*is no YAML"),
        ({"rounds": "many"}, "rounds = 'many'"),
        ({"rounds": 0}, "rounds = 0"),
        ({"delays": "pareto"}, "delays"),
        ({"engine": "mip"}, "engine = 'mip'"),
        ({"engine": "sim", "cluster": "local"}, "cluster = 'local'"),
        ({"engine": "mpi", "cluster": "lokal"}, "cluster = 'lokal'"),
        ({"folder": "/"}, "folder = '/': exists already"),
    ],
)
def test_mistakes_are_one_sentence_without_our_code(names: dict[str, Any], error: str) -> None:
    with pytest.raises(SettingError, match=error) as caught:
        job(names)
    (line,) = caught.value._render_traceback_()  # type: ignore[attr-defined]  # what a notebook shows
    assert line == f"SettingError: {caught.value}"


def test_a_run_that_breaks_off_is_one_sentence_and_leaves_no_folder(tmp_path: Path) -> None:
    deaths = [{"worker": 1, "round": 1}, {"worker": 2, "round": 1}]
    folder = tmp_path / "run"
    broken = job({"scheme": "UMW", "workers": 4, "rounds": 5, "faults": deaths, "folder": str(folder)})
    with pytest.raises(wb.RunError, match="round 1") as caught:
        broken.run()
    assert len(caught.value._render_traceback_()) == 1  # type: ignore[attr-defined]
    assert not folder.exists()


def plainly(tmp_path: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        "-m",
        "papermill",
        str(NOTEBOOK),
        str(tmp_path / "out.ipynb"),
        "--no-progress-bar",
    ]
    return subprocess.run([*command, *words], cwd=tmp_path, capture_output=True, text=True, check=False)


@sampled_test("papermill", 0, 2)
def test_papermill_runs_it_plainly(tmp_path: Path) -> None:
    settings = {"scheme": "CR", "stragglers": "3", "rounds": "4", "folder": "run"}
    done = plainly(tmp_path, *(word for pair in settings.items() for word in ("-p", *pair)))
    assert done.returncode == 0, done.stderr
    trace = wb.Trace.load(tmp_path / "run")
    assert trace.experiment.built_scheme == wb.schemes.get("CR")(children=4, layers=2, stragglers=3)
    assert len(trace.rounds) == 4


@sampled_test("papermill", 1, 2)
def test_papermill_ends_with_the_sentence(tmp_path: Path) -> None:
    done = plainly(tmp_path, "-p", "stragglers", "9")
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("SettingError: scheme_args.stragglers = 9: a parent with 4 children")
