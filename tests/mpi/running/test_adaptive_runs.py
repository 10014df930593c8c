"""Adaptive real runs: one with a useful change, and one without a change. They are replayed and resumed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import workbench as wb
from workbench.core.trace.records import read_models
from workbench.mpi.running.replay import replay_arrivals

pytestmark = [pytest.mark.mpi, pytest.mark.xdist_group("mpi"), pytest.mark.usefixtures("cache")]
HEALTHY: dict[str, Any] = {"kind": "constant", "shift": 2e-4}
SLOW = {
    "kind": "changing",
    "before": HEALTHY,
    "after": {"kind": "constant", "shift": 4e-3},
    "at": 5,
    "worker": 3,
}
ROUNDS = 80  # enough rounds to stop the run before its end


def experiment(**fields: Any) -> wb.Experiment:
    spec = {"scheme": "UMW", "workers": 4, "problem": "least_squares", "problem_args": {"samples": 200}}
    return wb.Experiment(**{**spec, "adaptive": True, **fields})


@pytest.mark.parametrize("more", [0, 5])
def test_adaptive_real_run_excludes_a_slow_worker(tmp_path: Path, more: int) -> None:
    """The run is stopped at the change, or some rounds later, and resumed.

    The rounds of all three segments are in the trace.
    """
    home = tmp_path / "run"
    first = wb.start(experiment(delays=SLOW, rounds=ROUNDS), "mpi", folder=home)
    while not first.changes or len(first.rows()["round"]) < first.changes[0].round + more:
        assert not first.wait(0.02), first
    first.stop()
    first.result()
    trace = wb.resume(home).result()
    change = trace.changes[0]
    assert change.after.startswith(("GC", "CR", "CEGC"))
    assert change.bytes > 0
    assert "worker 3" in change.reason
    assert len(trace.rounds) == ROUNDS
    stays = wb.run(experiment(adaptive=False, rounds=ROUNDS))
    np.testing.assert_allclose(trace.model, stays.model, rtol=1e-10)
    assert np.array_equal(replay_arrivals(home), read_models(home, len(trace.model)))
    assert wb.Trace.load(home).changes == trace.changes
    assert trace.columns["time"][-1] < ROUNDS * 4e-3 * 50  # the time if every round waited for worker 3
    assert set(trace.events["round"]) == set(range(ROUNDS))
    ends = trace.events[trace.events["kind"] == "commit"]["end"]
    np.testing.assert_allclose(ends, trace.columns["time"], atol=1e-6)


def test_adaptive_real_run_resumed_twice_keeps_events(tmp_path: Path) -> None:
    home = tmp_path / "run"
    e = experiment(adaptive=False, rounds=ROUNDS, delays={"kind": "constant", "shift": 4e-4})
    run = wb.start(e, "mpi", folder=home)
    for rounds in (5, 20):
        while len(run.rows()["round"]) < rounds:
            assert not run.wait(0.01), run
        run.stop()
        run.result()
        run = wb.resume(home)
    trace = run.result()
    assert set(trace.events["round"]) == set(range(ROUNDS))
    computed = trace.events[trace.events["kind"] == "compute"]
    assert computed.groupby("round").size().tolist() == [4] * ROUNDS
    assert trace.columns["samples"].tolist() == [200] * ROUNDS
    ends = trace.events[trace.events["kind"] == "commit"]["end"]
    np.testing.assert_allclose(ends, trace.columns["time"], atol=1e-6)
    assert wb.Trace.load(home).same(trace)


def test_adaptive_real_run_makes_no_change_in_a_stationary_run() -> None:
    trace = wb.run(experiment(delays=HEALTHY, rounds=30), engine="mpi")
    assert trace.changes == []
