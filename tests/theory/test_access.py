"""Paper 4: who answers and how often a part is used, against enumeration and Monte Carlo."""

from math import comb

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.theory.samples import agrees
from workbench.theory import (
    expected_accesses,
    missed_given_slow,
    missed_shuffled,
    missed_unshuffled,
    survivor_distribution,
)

chance = st.floats(0, 1)
classes = st.fixed_dictionaries({"p_slow": chance, "p_ss": chance, "p_as": chance})
codes = st.integers(1, 9).flatmap(lambda n: st.tuples(st.just(n), st.integers(1, n)))


@given(n=st.integers(1, 12), p_ss=chance, p_as=chance, data=st.data())
def test_survivors_against_enumeration(n: int, p_ss: float, p_as: float, data: st.DataObject) -> None:
    slow = data.draw(st.integers(0, n))
    stuck = [p_ss] * slow + [p_as] * (n - slow)
    exact = np.zeros(n + 1)
    for mask in range(2**n):
        exact[mask.bit_count()] += np.prod([1 - q if mask >> i & 1 else q for i, q in enumerate(stuck)])
    distribution = survivor_distribution(n, slow, p_ss, p_as)
    assert distribution == pytest.approx(exact, abs=1e-12)
    assert distribution.sum() == pytest.approx(1)


def printed_survivors(n: int, m: int, p_ss: float, p_as: float) -> list[float]:
    """P_r as theorem 1 prints it, r'(i) = min(i, m)."""
    return [
        sum(
            comb(m, min(i, m))
            * comb(n - m, r - min(i, m))
            * (1 - p_ss) ** i
            * p_ss ** (m - i)
            * (1 - p_as) ** (r - i)
            * p_as ** (n - m - r + i)
            for i in range(r + 1)
        )
        for r in range(n + 1)
    ]


def test_published_survivor_distribution_is_none() -> None:
    """The printed P_r add up to more than 1: terms with more slow survivors than slow workers are counted."""
    assert sum(printed_survivors(8, 0, 0.8, 0.01)) == pytest.approx(1.00253, abs=1e-5)
    assert sum(printed_survivors(8, 2, 0.3, 0.2)) > 1.05
    assert survivor_distribution(8, 2, 0.3, 0.2).sum() == pytest.approx(1)


@given(s=st.integers(1, 6), model=classes)
def test_missed_is_a_mean_over_the_classes(s: int, model: dict[str, float]) -> None:
    p, exact = model["p_slow"], 0.0
    for k in range(s + 1):
        exact += (
            comb(s, k) * p**k * (1 - p) ** (s - k) * missed_unshuffled(s, k, model["p_ss"], model["p_as"])
        )
    assert missed_shuffled(s, **model) == pytest.approx(exact, abs=1e-14)


@given(code=codes, model=classes)
def test_missed_in_a_run_averages_to_proposition_1(code: tuple[int, int], model: dict[str, float]) -> None:
    n, s = code
    p = model["p_slow"]
    mean = sum(
        comb(n, m) * p**m * (1 - p) ** (n - m) * missed_given_slow(n, s, m, model["p_ss"], model["p_as"])
        for m in range(n + 1)
    )
    assert mean == pytest.approx(missed_shuffled(s, **model), abs=1e-13)


def test_accesses_against_monte_carlo() -> None:
    """A run of 50 iterations with n = 6, s = 2 and workers 0 and 3 slow: fixed, and shuffled in every iteration."""
    rng = np.random.default_rng(6)
    stuck = np.where(np.isin(np.arange(6), [0, 3]), 0.8, 0.1)
    fails = rng.random((4000, 50, 6)) < stuck
    for pair, slow_holders in (((0, 3), 2), ((0, 1), 1), ((4, 5), 0)):
        used = ~fails[:, :, list(pair)].all(2)
        agrees(used.sum(1).astype(float), expected_accesses(50, missed_unshuffled(2, slow_holders, 0.8, 0.1)))
    places = rng.permuted(np.broadcast_to(np.arange(6), (4000, 50, 6)), axis=2)[:, :, :2]
    used = ~np.take_along_axis(fails, places, 2).all(2)
    agrees(used.sum(1).astype(float), expected_accesses(50, missed_given_slow(6, 2, 2, 0.8, 0.1)))
