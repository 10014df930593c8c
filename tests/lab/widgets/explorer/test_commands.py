"""A setting as YAML and as a papermill command: both give the same experiment back."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from hypothesis import given

import workbench as wb
from tests.support.strategies import CASES, experiments
from workbench.core.presets.others import others
from workbench.lab.widgets.explorer.commands import papermill_command, yaml_of

ROOT = Path(__file__).resolve().parents[4]


def parameters(command: str) -> dict[str, object]:
    """Return papermill's parameters of the command line, by its own rules."""
    from papermill.cli import _resolve_type

    pieces = shlex.split(command)
    assert pieces[:3] == ["papermill", str(ROOT / "notebooks" / "run.ipynb"), "out.ipynb"]
    found: dict[str, object] = {}
    rest = iter(pieces[3:])
    for word in rest:
        if word == "-p":
            name = next(rest)
            found[name] = _resolve_type(next(rest))
        else:
            assert word == "-y"
            found.update(yaml.safe_load(next(rest)))
    return found


@given(experiments(sorted(CASES)))
def test_papermill_command_has_every_setting(spec: dict[str, object]) -> None:
    e = wb.Experiment(**spec)
    assert wb.Experiment(**parameters(papermill_command(e))) == e


@pytest.mark.parametrize("name", ["fig9c", "fig13", "table3", "mmc", "gcada", "agc2a"])
def test_papermill_command_of_published_experiments(name: str, tmp_path: Path) -> None:
    for e in (wb.presets if name in wb.presets else others)[name]:
        full = e.replace(decode_rate=1e8, faults=[{"worker": 2, "round": 3}])
        assert wb.Experiment(**parameters(papermill_command(full))) == full
        (tmp_path / "spec.yaml").write_text(yaml_of(full))
        assert wb.Experiment.read(tmp_path / "spec.yaml") == full


def test_papermill_command_names_engine_and_cluster() -> None:
    e = wb.Experiment(scheme="UMW")
    assert "engine" not in parameters(papermill_command(e))
    found = parameters(papermill_command(e, "mpi", "local"))
    assert (found.pop("engine"), found.pop("cluster")) == ("mpi", "local")
    assert wb.Experiment(**found) == e


def test_papermill_command_of_an_adaptive_run() -> None:
    e = wb.Experiment(scheme="GC", scheme_args={"stragglers": 2}, adaptive=True)
    assert wb.Experiment(**parameters(papermill_command(e))) == e


@pytest.mark.slow
def test_papermill_command_can_be_executed(tmp_path: Path) -> None:
    e = wb.Experiment(
        scheme="GC", scheme_args={"stragglers": 2}, workers=6, rounds=4, problem_args={"l2": 1e-3}
    )
    folder = tmp_path / "run"
    command = [
        *shlex.split(papermill_command(e, output=str(tmp_path / "out.ipynb"))),
        "-p",
        "folder",
        str(folder),
    ]
    command[0] = str(Path(sys.executable).with_name("papermill"))
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    assert wb.Trace.load(folder).same(wb.run(e))
