"""Importance of settings, compared with known shares of the variance."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.analysis.tables.importance import importance
from workbench.analysis.tables.table import Runs
from workbench.core.base.settings import SettingError


def table(count: int, seed: int, weights: tuple[float, ...]) -> Runs:
    """Make a table with time = sum of weight x setting, each uniform, and a setting without influence."""
    rng = np.random.default_rng(seed)
    settings = {f"delays.s{i}": rng.uniform(size=count) for i in range(len(weights))}
    time = sum(w * x for w, x in zip(weights, settings.values(), strict=True)) + 0.01 * rng.normal(size=count)
    chance = {"delays.none": rng.choice(["a", "b", "c"], count), "seed": np.arange(count)}
    return Runs(pd.DataFrame({"state": "done", **settings, **chance, "time": time}), (*settings, *chance))


@settings(max_examples=15)
@given(st.integers(0, 10**6), st.tuples(st.floats(0.2, 5), st.floats(0.2, 5)))
def test_importance_of_independent_settings_is_their_variance(
    seed: int, weights: tuple[float, float]
) -> None:
    found = importance(table(2000, seed, weights)).set_index("setting")["share"]
    squares = np.square(weights)
    for i, square in enumerate(squares):
        assert found[f"delays.s{i}"] == pytest.approx(square / squares.sum(), abs=0.08)
    assert found["delays.none"] < 0.02
    assert "seed" not in found


def test_importance_is_corrected_for_small_groups() -> None:
    shares = [
        importance(table(30, seed, (0.0,))).set_index("setting")["share"]["delays.s0"] for seed in range(20)
    ]
    # without the correction, ten groups of three runs explain 9 / 29 of the variance by chance
    assert np.mean(shares) < 0.15


def test_importance_refuses_too_few_runs() -> None:
    with pytest.raises(SettingError, match=r"of = 'time': 2 runs have it, and three are needed"):
        importance(table(2, 0, (1.0,)))
    with pytest.raises(SettingError, match=r"of = 'delays.none': is not a column of numbers"):
        importance(table(9, 0, (1.0,)), "delays.none")


def test_importance_of_a_result_that_never_varies_is_empty() -> None:
    same = table(9, 0, (1.0,))
    same.table["rounds"] = 5.0
    assert len(importance(same, "rounds")) == 0
    same.table["rounds"] *= 1 + 1e-12 * np.arange(9)  # rounding does not count as variance
    assert len(importance(same, "rounds")) == 0
