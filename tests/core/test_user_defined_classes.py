"""User-defined classes of a user file, given by name as `mine.py:Half`, in forecasts, plans and sweeps."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
import pytest

import workbench as wb
from tests.support.notebook_cells import CELL
from tests.support.sampled_cases import rotated
from workbench.analysis.planning.measuring import simulated
from workbench.cli.main import main
from workbench.lab import batch


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "mine.py"
    file.write_text(CELL)
    monkeypatch.chdir(tmp_path)
    return file


OWN: dict[str, Any] = {
    "scheme": "mine.py:Half",
    "delays": {"kind": "mine.py:Pauses"},
    "problem": "mine.py:QuadraticArgs",
    "optimiser": "mine.py:Slowly",
    "workers": 4,
    "rounds": 6,
}


def test_user_defined_classes_in_forecasts_comparisons_and_figures(mine: Path) -> None:
    e = wb.Experiment(**OWN)
    assert wb.forecast(e, rounds=50).mean > 0
    traces = wb.compare([e, e.replace(scheme="UMW")])
    one, other = traces
    assert one.rounds["loss"].to_numpy() == pytest.approx(other.rounds["loss"].to_numpy(), rel=1e-12)
    drawn = [
        wb.figures.convergence(traces),
        wb.figures.round_times(traces),
        wb.figures.gantt(one, round=2),
        wb.figures.tree(e),
        wb.figures.code(e),
    ]
    assert all(isinstance(figure, go.Figure) and figure.data for figure in drawn)
    assert "Half" in drawn[0].to_json()
    assert len(wb.figures.moments(one, round=2))


@rotated
def test_user_defined_scheme_is_ranked_by_plan(mine: Path) -> None:
    wb.Experiment(**OWN)  # the class is then registered, as one of a cell is
    like = wb.Experiment(scheme="UMW", workers=4, delays={"kind": "exponential", "mean": 1e-3})
    profile = simulated(like, 30, 0)
    for names in (["UMW", "Half"], ["UMW", "mine.py:Half"]):
        advice = wb.plan(profile, "quadratic", {"columns": 5}, schemes=names, rounds=10, effort=0)
        assert sorted(choice.scheme for choice in advice.choices) == sorted(names)
    everything = wb.plan(profile, "quadratic", {"columns": 5}, rounds=10, effort=0)
    assert "Half" in {choice.scheme for choice in everything.choices}


def test_user_defined_classes_in_yaml_command_line_and_sweep(
    mine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = wb.Experiment(**OWN).write(tmp_path / "spec.yaml")
    assert "scheme: mine.py:Half" in spec.read_text()
    assert "kind: mine.py:Pauses" in spec.read_text()  # so that another process finds it
    assert wb.Experiment.read(spec) == wb.Experiment(**OWN)
    for text in (
        ["run", str(spec), "-o", "one"],
        ["run", str(spec), "--rounds", "4", "--set", "seed=3", "-o", "two"],
    ):
        monkeypatch.setattr(sys, "argv", ["workbench", *text])
        with suppress(SystemExit):
            main()
        assert "written to" in capsys.readouterr().out
    assert wb.Trace.load("one").same(wb.run(wb.Experiment.read(spec)))
    assert len(wb.Trace.load("two").rounds) == 4
    plan = {
        "base": wb.Experiment.read(spec).model_dump(mode="json"),
        "grid": {"scheme": ["UMW", "mine.py:Half"]},
    }
    done = batch.sweep(plan, tmp_path / "sweep", progress=False)
    assert sorted(status.state for status in done.states.values()) == ["done", "done"], done
    assert len(list((tmp_path / "sweep").glob("*/trace/own-Half.py"))) == 1
    table = wb.runs(tmp_path / "sweep").done
    assert set(table["scheme"]) == {"UMW", "mine.py:Half"}
