"""Confidence intervals of means."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import ttest_1samp

from workbench.core.base.intervals import band
from workbench.core.base.settings import SettingError


@given(st.integers(2, 30), st.floats(0.5, 0.99), st.integers(0, 2**32))
def test_band_is_students_t_interval(n: int, level: float, seed: int) -> None:
    values = np.random.default_rng(seed).normal(3.0, 2.0, n)
    found = band(values, level)
    known = ttest_1samp(values, 0.0).confidence_interval(level)
    assert found.mean == pytest.approx(values.mean())
    assert (found.low, found.high) == (pytest.approx(known.low), pytest.approx(known.high))


def test_band_has_the_stated_coverage() -> None:
    rng = np.random.default_rng(1)
    for n, level in ((3, 0.8), (5, 0.95)):
        found = band(rng.normal(size=(n, 20_000)), level)
        covered = np.mean((found.low <= 0) & (found.high >= 0))
        assert abs(covered - level) < 4 * np.sqrt(level * (1 - level) / 20_000)


def test_band_of_a_single_run() -> None:
    assert band([[1.0, 2.0]]).mean.tolist() == [1.0, 2.0]
    assert np.isnan(band([[1.0, 2.0]]).low).all()
    with pytest.raises(SettingError, match="nothing to take a mean of"):
        band([])
    for level in (0.0, 1.0, 95):
        with pytest.raises(SettingError, match="level"):
            band([1.0, 2.0], level)
