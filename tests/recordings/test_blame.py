"""Shares of what is lost, and when chance explains them."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from workbench.base.types import Array
from workbench.recordings.blame import blame, chances, late_hosts, over_median


@settings(max_examples=50, deadline=None)
@given(arrays(float, (3, 5), elements=st.integers(1, 6).map(float)))
def test_blame_is_the_shapley_value(times: Array) -> None:
    """Against its definition: the mean gain of mending a worker, over all orders of mending."""
    over = np.maximum(times - np.median(times, axis=1, keepdims=True), 0.0)
    wanted, orders = np.zeros_like(over), list(itertools.permutations(range(5)))
    for order in orders:
        left = over.copy()
        for worker in order:
            before = left.max(axis=1)
            left[:, worker] = 0.0
            wanted[:, worker] += (before - left.max(axis=1)) / len(orders)
    np.testing.assert_allclose(blame(over_median(times)), wanted, atol=1e-12)


def test_chance_is_blamed_as_seldom_as_it_says() -> None:
    """Also where neighbours in time resemble each other: blocks grow with that."""
    rng = np.random.default_rng(0)
    for memory in (0.0, 0.7):
        wrong = 0
        for _ in range(40):
            noise = rng.normal(size=(100, 6))
            for t in range(1, 100):
                noise[t] = memory * noise[t - 1] + noise[t] * (1 - memory**2) ** 0.5
            wrong += bool((chances(np.exp(0.1 * noise), rng) <= 0.05).any())
        assert wrong <= 6  # 2 are expected of 40 at most; 7 come once in 200 times


@pytest.mark.parametrize("lateness", ["often a little", "seldom but very"])
def test_both_ways_of_being_late_are_found(lateness: str) -> None:
    rng = np.random.default_rng(1)
    times = np.exp(0.05 * rng.standard_t(1.5, size=(80, 8)).clip(-20, 20))
    late = rng.random(80) < 0.15
    times[:, 5] *= 1.15 if lateness == "often a little" else np.where(late, 60.0, 1.0)
    found = chances(times, rng) <= 0.01
    assert np.flatnonzero(found).tolist() == [5]


def test_equal_times_blame_nobody() -> None:
    assert (chances(np.ones((40, 5)), np.random.default_rng(0)) == 1.0).all()
    assert late_hosts(np.ones((40, 4)), {"a": [0, 1], "b": [2, 3]}, 0.01, np.random.default_rng(0)) == []
    assert late_hosts(np.ones((40, 2)), {"a": [0], "b": [1]}, 0.01, np.random.default_rng(0)) == []
