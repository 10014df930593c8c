"""Order statistics against enumeration, exact fractions and Monte Carlo."""

from fractions import Fraction
from itertools import product
from math import comb, factorial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.monte_carlo import agrees
from workbench.core.theory import (
    exponential_order_mean,
    exponential_order_std,
    grouped_order_mean,
    harmonic,
    max_of_minima_mean,
    order_statistic_mean,
)

ranks = st.integers(1, 30).flatmap(lambda n: st.tuples(st.integers(1, n), st.just(n)))


def exponential(mean: float, shift: float = 0.0):
    return lambda t: np.exp(-np.maximum(t - shift, 0) / mean)


@pytest.mark.parametrize("n", [0, 1, 2, 5, 50])
def test_harmonic_numbers(n: int) -> None:
    assert harmonic(n) == pytest.approx(float(sum(Fraction(1, i) for i in range(1, n + 1))), abs=1e-14)


@given(x=st.floats(0, 1e6))
def test_harmonic_between_whole_numbers(x: float) -> None:
    """H_(x+1) = H_x + 1/(x+1), and log(x + 1) <= H_x. From x = 1 on, H_x <= 1 + log(x)."""
    assert harmonic(x + 1) == pytest.approx(harmonic(x) + 1 / (x + 1), abs=1e-12)
    assert harmonic(x) >= np.log1p(x) - 1e-12
    assert x < 1 or harmonic(x) <= 1 + np.log(x) + 1e-12


def test_published_bound_on_harmonic_numbers_is_false() -> None:
    """Paper 1, appendix D, prints log(i) < H_i < log(i+1), but H_i is above log(i+1) for every i."""
    for i in range(1, 100):
        assert np.log(i) < np.log(i + 1) < harmonic(i) <= 1 + np.log(i)


@given(rank=ranks, mean=st.floats(0.01, 100), shift=st.floats(0, 100))
def test_order_statistic_mean_and_deviation_against_exact_integrals(
    rank: tuple[int, int], mean: float, shift: float
) -> None:
    """E[X_(k)] = sum over j < k of C(n,j) j! (n-j-1)! / n!, the integrals of C(n,j) F^j S^(n-j)."""
    k, n = rank
    exact = sum(
        (Fraction(comb(n, j) * factorial(j) * factorial(n - j - 1), factorial(n)) for j in range(k)),
        Fraction(0),
    )
    assert exponential_order_mean(k, n, mean, shift) == pytest.approx(shift + mean * float(exact))
    assert order_statistic_mean(exponential(mean, shift), k, n) == pytest.approx(
        shift + mean * float(exact), rel=1e-9
    )


@pytest.mark.parametrize(("k", "n"), [(1, 1), (3, 5), (9, 12), (12, 12)])
def test_exponential_order_mean_against_monte_carlo(k: int, n: int) -> None:
    draws = np.sort(2.0 + 3.0 * np.random.default_rng(1).standard_exponential((40_000, n)), axis=1)[:, k - 1]
    expected = exponential_order_mean(k, n, mean=3.0, shift=2.0)
    agrees(draws, expected)
    agrees((draws - expected) ** 2, exponential_order_std(k, n, mean=3.0) ** 2)


@given(n=st.integers(1, 12), mean=st.floats(0.1, 10))
def test_exponential_order_means_sum_to_n_means(n: int, mean: float) -> None:
    assert sum(exponential_order_mean(k, n, mean) for k in range(1, n + 1)) == pytest.approx(n * mean)


@given(
    chances=st.lists(st.floats(0.05, 1), min_size=3, max_size=3),
    groups=st.integers(1, 3),
    k=st.integers(1, 2),
)
def test_grouped_order_mean_against_enumeration(chances: list[float], groups: int, k: int) -> None:
    """Sum over all outcomes for groups of two workers with times 1, 2 or 5, weighted with their probabilities."""
    times, p = np.array([1.0, 2.0, 5.0]), np.array(chances) / sum(chances)
    exact = 0.0
    for outcome in product(range(3), repeat=2 * groups):
        drawn = np.sort(times[list(outcome)].reshape(groups, 2), axis=1)
        exact += p[list(outcome)].prod() * drawn[:, k - 1].max()
    value = grouped_order_mean(lambda t: (p * (t[:, None] < times)).sum(1), groups, k, 2)
    assert value == pytest.approx(exact, rel=1e-9)


@given(groups=st.integers(1, 20), size=st.integers(1, 20), mean=st.floats(0.1, 10), shift=st.floats(0, 5))
def test_maximum_of_minima(groups: int, size: int, mean: float, shift: float) -> None:
    closed = max_of_minima_mean(groups, size, mean, shift)
    assert grouped_order_mean(exponential(mean, shift), groups, 1, size) == pytest.approx(closed, rel=1e-9)


@given(rank=ranks)
def test_exponential_order_mean_is_monotone(rank: tuple[int, int]) -> None:
    k, n = rank
    assert (
        exponential_order_mean(k, n + 1) < exponential_order_mean(k, n) < exponential_order_mean(k + 1, n + 1)
    )


def test_order_statistic_mean_of_pareto_against_gamma_functions() -> None:
    """E[X_(k)] of n Pareto times with tail t^-2: n! Gamma(n-k+1/2) / ((n-k)! Gamma(n+1/2))."""
    from scipy.special import gammaln

    n, k = 20, 20
    exact = np.exp(gammaln(n + 1) + gammaln(n - k + 0.5) - gammaln(n - k + 1) - gammaln(n + 0.5))
    assert order_statistic_mean(lambda t: np.maximum(t, 1.0) ** -2.0, k, n) == pytest.approx(exact, rel=1e-9)
