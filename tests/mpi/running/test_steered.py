"""Real runs that keep steering: one in which it pays, one in which nothing may change; replayed and resumed."""

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


def experiment(**fields: Any) -> wb.Experiment:
    spec = {"scheme": "UMW", "workers": 4, "problem": "least_squares", "problem_args": {"samples": 200}}
    return wb.Experiment(**{**spec, "adaptive": True, **fields})


def test_a_slow_worker_is_done_without_and_the_models_stay_the_same(tmp_path: Path) -> None:
    home = tmp_path / "run"
    first = wb.start(experiment(delays=SLOW, rounds=45), "mpi", folder=home)
    while not first.changes:
        assert not first.wait(0.02), first
    first.stop()
    first.result()
    trace = wb.resume(home).result()
    change = trace.changes[0]
    assert change.after.startswith(("GC", "CR", "CEGC"))
    assert change.bytes > 0
    assert "worker 3" in change.reason
    assert len(trace.rounds) == 45
    stays = wb.run(experiment(adaptive=False, rounds=45))
    np.testing.assert_allclose(trace.model, stays.model, rtol=1e-10)
    assert np.array_equal(replay_arrivals(home), read_models(home, len(trace.model)))
    assert wb.Trace.load(home).changes == trace.changes
    assert trace.columns["time"][-1] < 45 * 4e-3 * 50  # what waiting for that worker would have taken
    assert set(trace.events["round"]) == set(range(45))


def test_nothing_changes_where_nothing_does() -> None:
    trace = wb.run(experiment(delays=HEALTHY, rounds=30), engine="mpi")
    assert trace.changes == []
