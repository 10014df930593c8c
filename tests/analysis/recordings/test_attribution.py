"""Shares of the lost time, and p-values of late workers."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import binomtest, norm

from tests.support.synthetic_times import bursts, remembering
from workbench.analysis.recordings.attribution import excess_over_median, late_hosts, p_values, shapley_shares
from workbench.core.base.types import Array


@settings(max_examples=50, deadline=None)
@given(arrays(float, (3, 5), elements=st.integers(1, 6).map(float)))
def test_shapley_shares_equal_the_shapley_value(times: Array) -> None:
    """Compare with the definition: the mean gain of fixing a worker, over all orders of fixing the workers."""
    over = np.maximum(times - np.median(times, axis=1, keepdims=True), 0.0)
    wanted, orders = np.zeros_like(over), list(itertools.permutations(range(5)))
    for order in orders:
        left = over.copy()
        for worker in order:
            before = left.max(axis=1)
            left[:, worker] = 0.0
            wanted[:, worker] += (before - left.max(axis=1)) / len(orders)
    np.testing.assert_allclose(shapley_shares(excess_over_median(times)), wanted, atol=1e-12)


HEALTHY: dict[str, Callable[[int, int, float, np.random.Generator], Array]] = {
    "autoregressive": lambda *how: np.exp(0.1 * remembering(*how)),
    "heavy tails": lambda *how: 1 + 0.05 * norm.sf(remembering(*how)) ** (-1 / 1.5),
    "drift and noise": lambda *how: np.exp(0.06 * remembering(*how) + 0.08 * how[3].normal(size=how[:2])),
    "bursts": bursts,
}
SIZES = [(30, 4), (30, 12), (60, 40), (200, 4), (200, 12)]
CELLS = list(itertools.product(HEALTHY, SIZES, (0.0, 0.05, 0.1)))
QUICK_CASES = [("autoregressive", (30, 4), 0.1), ("heavy tails", (30, 12), 0.05), ("bursts", (60, 12), 0.1)]


@pytest.mark.parametrize(
    ("kind", "size", "part", "count"),
    [(*cell, 40) for cell in QUICK_CASES]
    + [pytest.param(*cell, 300, marks=pytest.mark.slow) for cell in CELLS],
)
def test_p_values_of_equal_workers_are_rarely_small(
    kind: str, size: tuple[int, int], part: float, count: int
) -> None:
    """At most 5 % of healthy recordings have a p-value of at most 1 %.

    Their autocorrelation lasts up to a tenth of the recording.
    """
    wrong = 0
    for number in range(count):
        rng = np.random.default_rng([number, *size, int(100 * part), *kind.encode()])
        times = HEALTHY[kind](*size, part * size[0], rng)
        wrong += bool((p_values(times, rng) <= 0.01).any())
    assert binomtest(wrong, count, 0.05, alternative="greater").pvalue > 0.01, wrong


@pytest.mark.parametrize("count", [40, pytest.param(400, marks=pytest.mark.slow)])
@pytest.mark.parametrize("memory", [0.0, 3.0])
def test_p_values_have_the_stated_false_alarm_rate(memory: float, count: int) -> None:
    """The rate is at most 5 % at level 5 %, with and without autocorrelation."""
    wrong = 0
    for number in range(count):
        rng = np.random.default_rng([number, 9])
        times = np.exp(0.1 * remembering(100, 6, memory, rng))
        wrong += bool((p_values(times, rng) <= 0.05).any())
    assert binomtest(wrong, count, 0.05, alternative="greater").pvalue > 0.01, wrong


def test_p_values_ignore_a_single_burst() -> None:
    wrong = 0
    for number in range(10):
        rng = np.random.default_rng([number, 6])
        times = np.exp(0.05 * rng.normal(size=(60, 40)))
        begun = int(rng.integers(50))
        times[begun : begun + 10, 3] *= 3
        wrong += bool((p_values(times, rng) <= 0.01).any())
    assert wrong <= 2


@pytest.mark.parametrize("count", [10, pytest.param(100, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("steps", "workers"), [(30, 4), (30, 8), (60, 4), (200, 12)])
@pytest.mark.parametrize("memory", [0.0, 3.0])
def test_p_values_find_a_worker_that_is_a_fifth_slower(
    steps: int, workers: int, memory: float, count: int
) -> None:
    """The others vary by 5 %. The level is a third of 1 %, since hosts and links are tested as well."""
    found = 0
    for number in range(count):
        rng = np.random.default_rng([number, steps, workers])
        times = np.exp(0.05 * remembering(steps, workers, memory, rng))
        times[:, number % workers] *= 1.2
        found += p_values(times, rng)[number % workers] <= 0.01 / 3
    assert found >= 0.95 * count


@pytest.mark.parametrize("lateness", ["often a little", "seldom but very"])
def test_p_values_find_rare_long_and_frequent_short_lateness(lateness: str) -> None:
    rng = np.random.default_rng(1)
    times = np.exp(0.05 * rng.standard_t(1.5, size=(80, 8)).clip(-20, 20))
    late = rng.random(80) < 0.15
    times[:, 5] *= 1.15 if lateness == "often a little" else np.where(late, 60.0, 1.0)
    found = p_values(times, rng) <= 0.01
    assert np.flatnonzero(found).tolist() == [5]


@pytest.mark.parametrize("late", [1, 2])
def test_p_values_account_for_autocorrelation_of_the_others(late: int) -> None:
    rng = np.random.default_rng(late)
    times = 1 + 0.1 * rng.exponential(size=(200, 12))
    times[90:, :late] *= 1.6
    assert (p_values(times, rng) <= 0.01).tolist() == [True] * late + [False] * (12 - late)


def test_p_values_and_late_hosts_of_equal_times_name_nobody() -> None:
    assert (p_values(np.ones((40, 5)), np.random.default_rng(0)) == 1.0).all()
    assert late_hosts(np.ones((40, 4)), {"a": [0, 1], "b": [2, 3]}, 0.01, np.random.default_rng(0)) == []
    assert late_hosts(np.ones((40, 2)), {"a": [0], "b": [1]}, 0.01, np.random.default_rng(0)) == []
