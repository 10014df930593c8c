"""Means from survival functions: smooth, with kinks and jumps, tiny, huge, and heavy-tailed."""

import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from workbench.core.base.settings import SettingError
from workbench.core.theory._quadrature import mean_time


@given(
    shift=st.floats(0, 1e6),
    mean=st.floats(1e-9, 1e9),
)
def test_mean_time_of_a_shifted_exponential_at_any_scale(shift: float, mean: float) -> None:
    value = mean_time(lambda t: np.exp(-np.maximum(t - shift, 0) / mean))
    assert value == pytest.approx(shift + mean, rel=1e-9)


@given(shift=st.floats(0, 1e6), mean=st.floats(1e-6, 1e6))
def test_mean_time_is_independent_of_a_known_start(shift: float, mean: float) -> None:
    value = mean_time(lambda t: np.exp(-np.maximum(t - shift, 0) / mean), start=shift)
    assert value == pytest.approx(shift + mean, rel=1e-12)


# here the halves of a panel agreed with the whole by symmetry
@example(times=[523.0, 750.0], weights=[1.0] * 6)
@given(
    times=st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=6),
    weights=st.lists(st.floats(0.1, 1), min_size=6, max_size=6),
)
def test_mean_time_finds_jumps(times: list[float], weights: list[float]) -> None:
    chances = np.array(weights[: len(times)]) / sum(weights[: len(times)])
    value = mean_time(lambda t: (chances * (t[:, None] < times)).sum(1))
    assert value == pytest.approx(chances @ times, rel=1e-9)


def test_mean_time_that_is_always_zero() -> None:
    assert mean_time(np.zeros_like) == pytest.approx(0.0, abs=1e-40)


@pytest.mark.parametrize("power", [1.1, 1.5, 3.0])
def test_mean_time_of_heavy_tails(power: float) -> None:
    assert mean_time(lambda t: np.maximum(t, 1.0) ** -power) == pytest.approx(power / (power - 1), rel=1e-9)


def test_mean_time_of_a_tail_with_a_logarithm() -> None:
    value = mean_time(lambda t: np.exp(-(np.log1p(t) ** 2)))
    exact = math.exp(1 / 4) * math.sqrt(math.pi) / 2 * (1 + math.erf(1 / 2))
    assert value == pytest.approx(exact, rel=1e-10)


@pytest.mark.parametrize("power", [0.0, 0.5, 1.0])
def test_mean_time_refuses_an_infinite_mean(power: float) -> None:
    with pytest.raises(SettingError, match="no finite mean"):
        mean_time(lambda t: np.maximum(t, 1.0) ** -power)


@pytest.mark.parametrize("wrong", [np.nan, 2.0, -0.5])
def test_mean_time_refuses_what_is_not_a_probability(wrong: float) -> None:
    with pytest.raises(SettingError, match="not probabilities"):
        mean_time(lambda t: np.full_like(t, wrong))
