"""Expected errors of the inexact schemes against enumeration of the survivor sets."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.core.contract.delays import DelayStream, ShiftedExponential
from workbench.core.schemes.is_gc import ISGC
from workbench.core.theory import cagc_straggler_probability, is_gc_error, pgc_error


@given(st.integers(1, 4), st.integers(1, 5), st.data())
def test_is_gc_error_is_the_mean_over_all_sets(size: int, groups: int, data: st.DataObject) -> None:
    n = size * min(groups, 10 // size)
    w = data.draw(st.integers(1, n))
    scheme = ISGC(replication=size, placement="fractional")
    code = scheme.build_code(n)
    errors = [scheme.weigh(code, answered).residual for answered in combinations(range(n), w)]
    assert np.mean(errors) == pytest.approx(is_gc_error(n, size, w), abs=1e-9)


@given(st.integers(1, 9), st.data())
def test_pgc_error_is_the_mean_over_all_sets(n: int, data: st.DataObject) -> None:
    s = data.draw(st.integers(0, n - 1))
    held = (np.arange(n)[:, None] + np.arange(s + 1)) % n
    errors = []
    for came in combinations(range(n), n - s):
        weights = np.bincount(held[list(came)].ravel(), minlength=n) * n / ((n - s) * (s + 1))
        errors.append(((weights - 1) ** 2).sum())
    assert np.mean(errors) == pytest.approx(pgc_error(n, s), abs=1e-12)


def test_is_gc_error_with_replication_one_is_backup_workers() -> None:
    assert is_gc_error(10, 1, 8) == pytest.approx(8 * (10 / 8 - 1) ** 2 + 2)


def test_cagc_straggler_probability_is_the_share_of_late_draws() -> None:
    """Draws of the delay model are 1 plus an exponential time, in units of a task without stragglers."""
    delays = ShiftedExponential(shift=1.0, rate=2.0)
    draws = np.concatenate([DelayStream(delays, seed, 100).whole(0, np.ones(100)) for seed in range(40)])
    for deadline in (0.5, 1.0, 1.3, 2.0):
        late = np.mean(draws > deadline)
        assert cagc_straggler_probability(2.0, deadline) == pytest.approx(late, abs=0.03)
