"""Shapley values."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.analysis.planning.shapley import shapley


@given(st.lists(st.floats(-10, 10), min_size=8, max_size=8))
def test_shapley_is_efficient_and_ignores_names(values: list[float]) -> None:
    def value(on: frozenset[str]) -> float:
        return values[sum(2**i for i, name in enumerate("abc") if name in on)]

    parts = shapley("abc", value)
    assert sum(parts.values()) == pytest.approx(values[7] - values[0], abs=1e-9)
    assert shapley("cba", value) == pytest.approx(parts, abs=1e-9)


def test_shapley_gives_a_null_player_zero() -> None:
    assert shapley(["a", "b"], lambda on: float("a" in on))["b"] == 0.0
