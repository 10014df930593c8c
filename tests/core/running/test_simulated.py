"""Watched runs on the virtual clock: equal results to awaited runs, rows from the first round on, and Stop."""

from __future__ import annotations

import threading
from pathlib import Path
from threading import Event

import pytest

import workbench as wb
from tests.support.held_opening import held_opening
from workbench.core.engine.timeline import Timeline
from workbench.core.running.simulated import Simulation

PARETO = {"kind": "pareto", "shift": 5e-4, "shape": 1.3}
SMALL = {"samples": 60, "features": 3}


def join_simulations() -> None:
    """Wait for the threads of all simulations."""
    while threads := [t for t in threading.enumerate() if t.name == "workbench-simulation"]:
        threads[0].join()


def test_growing_runs_have_the_results_of_awaited_ones() -> None:
    """Exact schemes share models until they differ; runs end and are evaluated at different rounds."""
    five = list(wb.baselines(3, 2, 1, rounds=12, delays=PARETO, problem_args=SMALL))
    more = [
        five[0].replace(rounds=7),
        five[1].replace(batch=20),
        five[3].replace(evaluate_every=5),
        five[4].replace(seed=1),
        five[0].replace(scheme="ASGD", scheme_args={}),
        five[0].replace(faults=({"kind": "kill", "worker": 1, "round": 3},)),
    ]
    experiments = [*five, *more[:-1]]
    runs = wb.start_all(experiments)
    for run, trace in zip(runs, wb.compare(experiments), strict=True):
        assert run.result().same(trace)
        assert run.note == f"all {run.experiment.rounds} rounds done"
    assert not more[-1].faults[0].changes_answers
    failed, fine = wb.start_all([more[-1], five[4]])
    with pytest.raises(wb.RunError):
        failed.result()  # UMW waits for the dead worker
    assert len(fine.result().rounds) == 12


def test_growing_runs_have_rows_before_they_are_simulated(monkeypatch: pytest.MonkeyPatch) -> None:
    """All runs have a loss of their first rounds before any simulation has ended. Stop keeps these rounds."""
    gate, reached = Event(), Event()
    pause = Simulation.pause

    def slowly(arithmetic: Simulation, timeline: Timeline) -> None:
        if len(timeline.times) == 20:
            reached.set()
            assert gate.wait(60)
        pause(arithmetic, timeline)

    monkeypatch.setattr(Simulation, "pause", slowly)
    runs = wb.start_all(wb.baselines(3, 2, 1, rounds=500, delays=PARETO, problem_args=SMALL))
    assert reached.wait(60)
    rows = [len(run.rows()["loss"]) for run in runs]
    assert min(rows) >= 1
    for run in runs:
        run.stop()
    gate.set()
    for run, known in zip(runs, rows, strict=True):
        trace = run.result()
        assert run.state == "stopped"
        assert known <= len(trace.rounds) < 500
        assert trace.rounds["loss"].notna().all()


@pytest.mark.parametrize("numeric", [False, True])
def test_growing_runs_that_are_stopped_while_data_are_opened_end_at_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, numeric: bool
) -> None:
    """Runs end although the data are still being opened, and also those that wait for their turn."""
    opening, gate = held_opening(monkeypatch)
    runs = wb.start_all(wb.baselines(3, 2, 1, rounds=500, problem_args=SMALL), numeric=numeric)
    assert opening.wait(60)
    assert [run.state for run in runs].count("waiting") == len(runs) - 1
    for run in runs:
        run.stop()
    assert [run.state for run in runs] == ["stopped"] * len(runs)
    gate.set()
    join_simulations()
    for i, run in enumerate(runs):
        assert (run.state, run.error, run.note) == ("stopped", None, "stopped before the first round")
        assert not len(wb.Trace.load(run.result().save(tmp_path / str(i))).rounds)


def test_growing_run_whose_data_fail_after_it_was_stopped_stays_stopped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opening, gate = held_opening(monkeypatch, OSError("no data"))
    run = wb.start(wb.Experiment(rounds=5))
    assert opening.wait(60)
    run.stop()
    gate.set()
    join_simulations()
    assert (run.state, run.error) == ("stopped", None)
