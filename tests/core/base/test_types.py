"""Rounding errors are removed from differences, and nothing else is."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from workbench.core.base.types import ROUNDING, chop
from workbench.core.theory.approximate import crc_errors

NUMBERS = st.floats(-1e6, 1e6).filter(lambda x: abs(x) > 1e-3)


@given(st.lists(NUMBERS, min_size=2, max_size=8))
def test_chop_removes_what_is_left_of_a_sum_of_opposite_numbers(values: list[float]) -> None:
    both = np.array(values + [-value for value in reversed(values)])
    assert chop(np.cumsum(both)[-1], np.abs(both).sum()) == 0.0


@given(NUMBERS)
def test_chop_keeps_differences_above_rounding(value: float) -> None:
    assert chop(value * 2 * ROUNDING, value) == value * 2 * ROUNDING
    assert np.isnan(chop(np.nan, value))
    assert chop(np.inf, value) == np.inf


def test_errors_of_codes_that_lose_nothing_are_zero() -> None:
    for n in (4, 8, 12):
        for s in (divisor for divisor in range(1, n + 1) if n % divisor == 0):
            assert (crc_errors(n, s)[n - s + 1 :] == 0.0).all()
