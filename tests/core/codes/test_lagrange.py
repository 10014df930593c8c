"""Lagrange coded computing recovers the sum of X_j^T X_j w from any 2 ceil(K/r) - 1 results."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.survivor_sets import every, neighbours, some
from workbench.core.base.settings import SettingError
from workbench.core.codes import Lagrange, amplification, lagrange
from workbench.core.codes.lagrange import spread_order


def relative_error(code: Lagrange, answered: tuple[int, ...]) -> float:
    rng = np.random.default_rng(1)
    X, w = rng.standard_normal((code.encoding.shape[2], 5, 3)), rng.standard_normal(3)
    results = []
    for worker in answered:
        stored = np.einsum("rk,kdp->rdp", code.encode(worker), X)
        results.append(sum(block.T @ (block @ w) for block in stored))
    true = sum(block.T @ (block @ w) for block in X)
    off = code.decode(answered).weights @ np.array(results) - true
    return float(np.linalg.norm(off) / np.linalg.norm(true))


@pytest.mark.parametrize("parts", range(1, 7))
@pytest.mark.parametrize("workers", range(1, 9))
def test_lagrange_decodes_every_set_of_results(parts: int, workers: int) -> None:
    for load in range(1, parts + 1):
        threshold = 2 * -(-parts // load) - 1
        if threshold <= workers:
            code = lagrange(parts, workers, load)
            assert code.threshold == threshold
            assert max(relative_error(code, answered) for answered in every(code)) < 1e-9


@pytest.mark.parametrize("parts", range(2, 7))
def test_lagrange_does_not_decode_with_one_result_less(parts: int) -> None:
    code = lagrange(parts, 12, 1)
    sets = some(12, 12 - code.threshold + 1, 20)
    assert max(code.decode(answered).residual for answered in sets) > 1e-3


@pytest.mark.parametrize("parts", [2, 3, 4, 6])
def test_evenly_spread_results_decode_by_their_mean(parts: int) -> None:
    """If the results are equally spaced on the circle, the trapezoid rule needs K of them instead of 2K - 1 (r = 1)."""
    code = lagrange(parts, 12, 1)
    even = [spread_order(12).index(12 // parts * k) for k in range(parts)]
    assert code.decode(tuple(even)).weights == pytest.approx(np.ones(parts))
    assert relative_error(code, tuple(even)) < 1e-12


def test_lagrange_of_the_papers_size_needs_seven_of_forty() -> None:
    code = lagrange(40, 40, 10)
    assert code.threshold == 7
    assert max(relative_error(code, answered) for answered in some(40, 33, 100)) < 1e-8
    assert max(relative_error(code, answered) for answered in neighbours(40, 33)) < 1e-13


def test_lagrange_encoding_stays_at_the_size_of_the_data() -> None:
    """No coefficient is large, since that would amplify the rounding of single precision and the noise of the data."""
    assert np.abs(lagrange(40, 40, 3).encoding).max() < 1.01


def test_lagrange_loses_fewer_digits_than_polynomials() -> None:
    """Points on the circle are compared with Chebyshev nodes, the best ones of a real interval (K = 40, r = 10)."""
    circle = lagrange(40, 40, 10)
    x = np.cos((np.arange(40) + 0.5) * np.pi / 40)
    V = np.polynomial.chebyshev.chebvander(x, 6)
    goal = np.polynomial.chebyshev.chebvander(np.cos((np.arange(4) + 0.5) * np.pi / 4), 6).sum(axis=0)
    sets = list(some(40, 33, 300))
    line = max(np.abs(np.linalg.solve(V[list(f)].T, goal)).sum() for f in sets)
    assert 100 * amplification(circle, sets) < line


@given(st.integers(1, 300))
def test_spread_order_is_a_permutation_without_close_neighbours(count: int) -> None:
    order = spread_order(count)
    assert sorted(order) == list(range(count))
    if count > 20:
        steps = np.diff([*order, order[0]]) % count
        assert (np.minimum(steps, count - steps) > count / 5).all()


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (
            (12, 10, 2),
            "load = 2: 2 ceil(12/2) - 1 = 11 results are needed and there are 10 workers; take 3, 4",
        ),
        ((12, 10, 13), "load = 13: a worker stores as much as some of the 12 blocks; take 1 to 12"),
        ((12, 0, 1), "workers = 0: a code needs at least one"),
    ],
)
def test_lagrange_refuses_invalid_sizes(settings: tuple[int, int, int], sentence: str) -> None:
    with pytest.raises(SettingError) as error:
        lagrange(*settings)
    assert str(error.value).startswith(sentence)
