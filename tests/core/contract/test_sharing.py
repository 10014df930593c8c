"""Workers that share cores, and stragglers that continue: compared with loops over all workers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import workbench as wb
from workbench.core.contract.delays import DelayStream
from workbench.core.contract.sharing import TIME_SLICE_S, Sharing, slowed, undisturbed
from workbench.core.forecasting import forecast

TIMES = arrays(float, (3, 5), elements=st.floats(0.01, 10.0))


@given(times=TIMES, cores=st.floats(0.5, 8.0))
@settings(max_examples=30, deadline=None)
def test_sharing_conserves_work(times: np.ndarray, cores: float) -> None:
    shared = slowed(times, cores)
    np.testing.assert_allclose(undisturbed(shared, cores), times, rtol=1e-6)
    assert (shared >= times * (1 - 1e-9)).all()
    assert (shared.max(axis=1) >= times.sum(axis=1) / cores * (1 - 1e-9)).all()
    ordered = np.take_along_axis(shared, np.argsort(times, axis=1), axis=1)
    # the order of the ends is that of the times alone, up to rounding
    assert (np.diff(ordered, axis=1) >= -1e-9 * shared.max()).all()


def test_sharing_equal_tasks_end_together() -> None:
    np.testing.assert_allclose(slowed(np.ones((1, 12)), 2.0), 6.0)


def wait(left: np.ndarray, rest: np.ndarray, cores: float) -> float:
    """Return the seconds that the master waits for a core, 0 if a core is idle.

    Each busy task gets a time slice before the master, or ends sooner.
    """
    before = [min(a + b, TIME_SLICE_S) for a, b in zip(left, rest, strict=True) if a + b > 1e-12]
    return sum(before) / cores if len(before) >= cores else 0.0


def stepped(e: wb.Experiment, needed: int, piece: float, cores: float, step: float = 1e-3) -> list[float]:
    """Simulate rounds of a star by a clock with fixed ticks: each busy worker gets the same share of the cores."""
    stream = DelayStream(e.delays, e.seed, e.workers)
    loads = e.built_scheme.loads(e.workers, e.shape()[0])
    left, rounds = np.zeros(e.workers), []  # remaining work of cancelled tasks
    for r in range(e.rounds):
        tasks = stream.whole(r, loads)
        done, now = np.zeros(e.workers), 0.0
        while np.count_nonzero(done >= tasks - 1e-12) < needed:
            active = (left > 0) | (done < tasks - 1e-12)
            share = step * min(1.0, cores / active.sum())
            own = np.where(active, np.maximum(share - left, 0.0), 0.0)
            left = np.maximum(left - share * active, 0.0)
            done, now = np.minimum(done + own, tasks), now + step
        # wait of the master for its time slice; all workers continue
        turn = step * np.ceil(wait(left, tasks - done, cores) / step)
        share = turn * min(1.0, cores / max(np.count_nonzero((left > 0) | (done < tasks - 1e-12)), 1))
        own = np.maximum(share - left, 0.0)
        left, done, now = np.maximum(left - share, 0.0), np.minimum(done + own, tasks), now + turn
        cut = np.minimum(np.ceil(done / (piece * tasks) - 1e-9) * piece * tasks, tasks)
        left = np.where(left > 0, left, cut - done)
        rounds.append(now)
    return rounds


@pytest.mark.parametrize(("cores", "piece"), [(np.inf, 1.0), (2.0, 1.0), (2.0, 0.25)])
def test_sharing_cancelled_workers_finish_their_piece(cores: float, piece: float) -> None:
    fields: dict[str, Any] = {"problem_args": {"samples": 60, "features": 3}, "rounds": 12, "seed": 2}
    delays = {"kind": "shifted_exponential", "shift": 0.05, "rate": 10.0}
    e = wb.Experiment(scheme="SGD", scheme_args={"stragglers": 2}, workers=6, delays=delays, **fields)
    found = forecast(e, sharing=Sharing((np.arange(6),), (cores,), piece)).seconds
    np.testing.assert_allclose(found, stepped(e, 4, piece, cores), atol=0.05)
    assert found.mean() > 1.05 * forecast(e).mean


def test_sharing_short_tasks_finish_within_a_slice() -> None:
    """A cancelled task ends within its time slice anyway. Long tasks are cancelled earlier."""

    def share(shift: float) -> float:
        fields: dict[str, Any] = {"problem_args": {"samples": 60, "features": 3}, "rounds": 8}
        delays = {"kind": "constant", "shift": shift}
        e = wb.Experiment(scheme="UC-MMC", scheme_args={"load": 6}, workers=6, delays=delays, **fields)
        found = forecast(e, sharing=Sharing((np.arange(6),), (2.0,), 1 / 6)).mean
        return found / (6 * 60 * shift / 2)  # total work over two cores

    assert share(1e-5) == pytest.approx(1.0)
    # the needed part, and the next one, which was started
    assert share(1e-2) == pytest.approx(2 / 6, rel=0.1)


def test_sharing_messages_use_cores() -> None:
    fields: dict[str, Any] = {"problem_args": {"samples": 60, "features": 3}, "rounds": 4}
    e = wb.Experiment(scheme="UMW", workers=6, delays={"kind": "constant", "shift": 1e-2}, **fields)
    alone, more, less = (
        forecast(e, sharing=Sharing((np.arange(6),), (2.0,), 1.0, extra)).mean for extra in (0.0, 0.03, -9.0)
    )
    assert more == pytest.approx(alone + 6 * 0.03 / 2)
    assert less == pytest.approx(alone / 2)


def test_sharing_relayed_messages_cost_time_at_the_end() -> None:
    fields: dict[str, Any] = {"problem_args": {"samples": 60, "features": 3}, "rounds": 4}
    args = {"children": 2, "layers": 2, "stragglers": 0}
    e = wb.Experiment(
        scheme="CR", scheme_args=args, workers=6, delays={"kind": "constant", "shift": 1e-2}, **fields
    )
    at_once, after = (
        forecast(e, sharing=Sharing((np.arange(6),), (2.0,), 1.0, 0.0, relayed)).mean
        for relayed in (0.0, 0.03)
    )
    assert after == pytest.approx(at_once + 0.03)


def test_sharing_is_per_host() -> None:
    sharing = Sharing((np.array([0, 2]), np.array([1])), (1.0, 1.0), 1.0)
    np.testing.assert_allclose(sharing.slowed(np.ones((1, 3))), [[2.0, 1.0, 2.0]])


@pytest.mark.parametrize(("scheme", "args"), [("UC-MMC", {"clusters": 4, "load": 3}), ("DropCompute", {})])
def test_sharing_idle_workers_cost_no_time(scheme: str, args: dict[str, Any]) -> None:
    e = wb.Experiment(
        scheme=scheme, scheme_args=args, workers=12, rounds=4, delays={"kind": "constant", "shift": 0.0}
    )
    found = forecast(e, sharing=Sharing((np.arange(12),), (2.0,), 1 / 12)).seconds
    assert np.isfinite(found).all()
