"""Paper 2: table 3, exact identities, Monte Carlo, equal rates."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.monte_carlo import agrees
from workbench.core.theory import cegc_achievable, cegc_best, cegc_survival, cegc_table, cegc_time

MODEL = {"lambda1": 0.8, "lambda2": 0.1, "t1": 1.6, "t2": 6.0}

TABLE_3 = [  # row m, column d, from d = m on
    [36.1138, 29.2288, 27.3351, 26.7469, 26.4574, 26.0891, 25.4172, 24.1063],
    [23.1036, 21.3994, 21.5369, 21.9114, 22.2099, 22.3189, 22.1405],
    [22.2604, 21.3697, 21.5749, 21.9095, 22.1707, 22.2772],
    [24.8036, 23.2793, 23.1114, 23.1862, 23.2611],
    [28.5800, 25.9827, 25.2862, 25.0141],
    [32.8664, 29.0745, 27.7904],
    [37.3977, 32.3759],
    [42.0638],
]

rates = st.floats(0.05, 5)
models = st.fixed_dictionaries(
    {"lambda1": rates, "lambda2": rates, "t1": st.floats(0, 5), "t2": st.floats(0, 5)}
)


def test_cegc_table_is_table_3() -> None:
    table = cegc_table(8, **MODEL)
    for m, row in enumerate(TABLE_3, start=1):
        assert table[m - 1, m - 1 :] == pytest.approx(row, abs=6e-5)
        assert np.isnan(table[m - 1, : m - 1]).all()


def test_published_best() -> None:
    """The best time, at d = 4 and m = 3, is 41 % below uncoded, and 11 % below the best plain gradient code (d = 8)."""
    best = cegc_time(8, 4, 3, **MODEL)
    assert cegc_best(8, **MODEL) == (4, 3)
    assert 1 - best / cegc_time(8, 1, 1, **MODEL) == pytest.approx(0.41, abs=0.005)
    assert 1 - best / cegc_time(8, 8, 1, **MODEL) == pytest.approx(0.11, abs=0.005)


@given(n=st.integers(1, 8), model=models, data=st.data())
def test_cegc_times_sum_to_n_means(n: int, model: dict[str, float], data: st.DataObject) -> None:
    """The n order statistics of n workers sum to n mean times, exactly: s = 0..n-1 with d = n, m = 1."""
    total = sum(cegc_time(n, n, 1, **model, stragglers=s) for s in range(n))
    mean = n * (model["t1"] + 1 / model["lambda1"]) + model["t2"] + 1 / model["lambda2"]
    assert total == pytest.approx(n * mean, rel=1e-9)


@given(model=models, d=st.integers(1, 9), m=st.integers(1, 9))
def test_survival_against_the_textbook_form(model: dict[str, float], d: int, m: int) -> None:
    a, b = model["lambda1"] / d, model["lambda2"] * m
    least = d * model["t1"] + model["t2"] / m
    x = np.linspace(0, 20 / min(a, b), 50)
    if abs(a - b) > 0.1 * max(a, b):
        textbook = (b * np.exp(-a * x) - a * np.exp(-b * x)) / (b - a)
        assert cegc_survival(least + x, d, m, **model) == pytest.approx(textbook, abs=1e-13)
    assert cegc_survival(least * np.array([0, 0.5, 1]), d, m, **model) == pytest.approx(1)


@pytest.mark.parametrize(("d", "m"), [(1, 1), (4, 2), (3, 1)])
@pytest.mark.parametrize("off", [0.0, 1e-15, 1e-9, 1e-6])
def test_cegc_survival_with_equal_rates(d: int, m: int, off: float) -> None:
    """At lambda1 / d = lambda2 m, the sum has an Erlang distribution, (1 + a x) exp(-a x).

    The survival function is continuous at this point.
    """
    a, x = 0.7, np.linspace(0, 50, 101)
    survival = cegc_survival(x, d, m, a * d * (1 + off), a / m, 0.0, 0.0)
    assert survival == pytest.approx((1 + a * x) * np.exp(-a * x), abs=2 * off + 1e-15)
    time = cegc_time(5, d, m, a * d * (1 + off), a / m, 1.0, 2.0)
    assert time == pytest.approx(cegc_time(5, d, m, a * d, a / m, 1.0, 2.0), rel=2 * off + 1e-12)


@pytest.mark.parametrize(
    ("n", "d", "m", "s"), [(8, 4, 3, None), (5, 5, 2, 1), (3, 1, 1, None), (12, 6, 6, 0)]
)
def test_cegc_time_against_monte_carlo(n: int, d: int, m: int, s: int | None) -> None:
    rng = np.random.default_rng(n)
    compute = 1.6 + rng.exponential(1 / 0.8, (40_000, n))
    send = 6 + rng.exponential(1 / 0.1, (40_000, n))
    k = n - (d - m if s is None else s)
    agrees(np.sort(d * compute + send / m, axis=1)[:, k - 1], cegc_time(n, d, m, **MODEL, stragglers=s))


@given(n=st.integers(2, 10), model=models, data=st.data())
def test_cegc_time_decreases_with_tolerance(n: int, model: dict[str, float], data: st.DataObject) -> None:
    d = data.draw(st.integers(2, n))
    m = data.draw(st.integers(1, d - 1))
    times = [cegc_time(n, d, m, **model, stragglers=s) for s in range(d - m + 1)]
    assert times == sorted(times, reverse=True)
    assert times[-1] == cegc_time(n, d, m, **model)


@given(n=st.integers(1, 10), model=models)
def test_best_is_the_least_of_the_table(n: int, model: dict[str, float]) -> None:
    d, m = cegc_best(n, **model)
    assert m <= d
    assert cegc_time(n, d, m, **model) == np.nanmin(cegc_table(n, **model))


def test_limits_of_the_best() -> None:
    """If sending is free, m = 1 is best. If computing is free, storing all parts everywhere is best."""
    assert cegc_best(6, 0.8, 1e6, 1.6, 0.0)[1] == 1
    assert cegc_best(6, 1e6, 0.1, 0.0, 6.0)[0] == 6


@given(n=st.integers(1, 20), s=st.integers(0, 20), m=st.integers(1, 20), data=st.data())
def test_achievable(n: int, s: int, m: int, data: st.DataObject) -> None:
    """Theorem 1: a worker must compute d of k parts with d / k >= (s + m) / n."""
    parts = data.draw(st.integers(1, 30))
    d = data.draw(st.integers(1, parts))
    assert cegc_achievable(n, d, s, m, parts) == (d / parts >= (s + m) / n - 1e-12)
    assert cegc_achievable(n, min(d, n), s, m) == (min(d, n) >= s + m)
