"""Shares of what is lost, and when chance explains them."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from workbench.base.types import Array
from workbench.recordings.blame import blame, over_median


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
