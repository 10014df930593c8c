"""Predicted times of workers: start-up costs, workers that become slow, late workers and units."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.core.base.types import Array
from workbench.core.contract.worker_times import BIN_WIDTH, MAX_STORED_ROUNDS, STARTUP_LOADS, WorkerTimes

WORKERS = 6


def tasks(seconds: Array, loads: int, known: WorkerTimes, answers: int = WORKERS) -> WorkerTimes:
    """Add rounds that end with a number of answers. `seconds`: (rounds, workers)."""
    for row in seconds:
        end = np.sort(row)[answers - 1]
        known.add(np.where(row <= end, row, np.nan), np.full(WORKERS, end), np.full(WORKERS, loads))
    return known


def noise(rounds: int, seed: int = 0) -> Array:
    return np.exp(0.2 * np.random.default_rng(seed).standard_normal((rounds, WORKERS)))


@pytest.mark.parametrize("startup", [0, 3])
def test_worker_times_learn_the_start_up_cost(startup: int) -> None:
    """The tasks of the first load last 100 * (1 + startup) times as long as a sample."""
    known = WorkerTimes(WORKERS)
    for k, load in enumerate((100, 300, 100, 300)):
        tasks(noise(5, k) * (load + 100 * startup), load, known)
    assert STARTUP_LOADS[np.argmax(known.posterior)] == startup


def test_worker_times_follow_a_worker_that_becomes_slow_and_recovers() -> None:
    known = tasks(noise(60), 100, WorkerTimes(WORKERS))
    slow = noise(10, 1)
    slow[:, 2] *= 8
    tasks(slow, 100, known)
    typical = np.median(known.drawn(200, np.random.default_rng(0))[0], axis=0)
    assert typical[2] > 5
    assert np.delete(typical, 2).max() < 1.5
    assert np.median(tasks(noise(10, 2), 100, known).drawn(200, np.random.default_rng(0))[0], axis=0)[2] < 1.5


def test_worker_times_of_late_workers_are_above_the_bound() -> None:
    """Worker 3 is slow for the whole run, and measured once. All other rounds end before its answer."""
    slow = noise(40)
    slow[:, 2] *= 8
    known = tasks(slow[1:], 100, tasks(slow[:1], 100, WorkerTimes(WORKERS)), answers=WORKERS - 1)
    assert np.median(known.drawn(200, np.random.default_rng(0))[0], axis=0)[2] > 4


def test_worker_times_of_equal_workers_approach_their_distribution() -> None:
    pareto = np.random.default_rng(3).pareto(2.5, (80, WORKERS)) + 1
    drawn = tasks(pareto, 100, WorkerTimes(WORKERS)).drawn(1000, np.random.default_rng(0))[0]
    for q in (0.1, 0.5, 0.9):
        assert np.quantile(drawn, q) == pytest.approx(np.quantile(pareto, q), rel=0.2)


def test_worker_times_store_the_last_rounds_and_count_all() -> None:
    seconds = noise(MAX_STORED_ROUNDS + 9)
    known = tasks(seconds, 100, WorkerTimes(WORKERS))
    assert known.rounds == len(seconds)
    assert np.array_equal([row[0] for row in known.rows], seconds[-MAX_STORED_ROUNDS:])


@given(st.floats(1e-6, 1e6), st.integers(1, 6), st.integers(0, 1000))
def test_worker_times_do_not_depend_on_the_unit(unit: float, answers: int, seed: int) -> None:
    seconds = noise(6, seed)
    one, other = (
        tasks(c * seconds, 50, WorkerTimes(WORKERS), answers).drawn(20, np.random.default_rng(0))[0]
        for c in (1.0, unit)
    )
    assert np.abs(np.log(other / unit / one)).mean() < 2 * BIN_WIDTH
    assert (one > 0).all()
