"""Spells of lateness: the longest one of a worker, compared with those of the others; first and last steps."""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest, kstest

from tests.support.synthetic_times import bursts, slowed
from workbench.analysis.recordings.attribution import p_values, spells_of
from workbench.analysis.recordings.spells import (
    _likelihoods,
    _mean_likelihood,
    _ranks,
    burst_p_value,
    gap_p_value,
    spell_p_values,
)
from workbench.core.base.types import Array

LAWS: dict[str, Callable[[int, int, np.random.Generator], Array]] = {
    "shifted exponential": lambda steps, workers, rng: 1 + rng.exponential(size=(steps, workers)),
    "pareto": lambda steps, workers, rng: 1 + rng.pareto(2.5, size=(steps, workers)),
    "lognormal": lambda steps, workers, rng: np.exp(0.2 * rng.normal(size=(steps, workers))),
}
PARTS = [(0.9, 1.0), (0.8, 1.0), (0.6, 1.0), (0.4, 1.0), (0.2, 1.0), (0.0, 1.0), (0.0, 0.4), (0.3, 0.6)]


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("delay_model", LAWS)
@pytest.mark.parametrize("count", [2, pytest.param(40, marks=pytest.mark.slow)])
def test_p_values_find_a_worker_slow_in_a_part_of_the_steps(
    delay_model: str, part: tuple[float, float], count: int
) -> None:
    found = 0
    for seed in range(count):
        rng = np.random.default_rng([seed, 1])
        times = slowed(LAWS[delay_model](120, 12, rng), seed % 12, part)
        found += p_values(times, rng)[seed % 12] <= 0.01 / 2
    assert found >= int(0.8 * count)


def test_p_values_find_two_workers_with_different_onsets() -> None:
    for seed in range(2):
        rng = np.random.default_rng([seed, 2])
        times = slowed(slowed(LAWS["shifted exponential"](100, 32, rng), 3, (0.8, 1.0)), 20, (0.7, 1.0))
        assert np.flatnonzero(p_values(times, rng) <= 0.005).tolist() == [3, 20]


def test_p_values_find_a_late_onset_among_four_workers() -> None:
    found = 0
    for seed in range(5):
        rng = np.random.default_rng([seed, 3])
        times = slowed(LAWS["lognormal"](100, 4, rng), 1, (0.8, 1.0))
        found += p_values(times, rng)[1] <= 0.005
    assert found >= 4


@pytest.mark.parametrize("part", [(0.9, 1.0), (0.6, 1.0), (0.4, 1.0), (0.0, 0.4), (0.3, 0.6)])
@pytest.mark.parametrize("delay_model", LAWS)
@pytest.mark.parametrize("count", [5, pytest.param(40, marks=pytest.mark.slow)])
def test_p_values_find_a_worker_of_four_slow_in_a_part_of_the_steps(
    delay_model: str, part: tuple[float, float], count: int
) -> None:
    found = 0
    for seed in range(count):
        times = slowed(LAWS[delay_model](100, 4, np.random.default_rng([seed, 9])), seed % 4, part)
        found += spell_p_values(times)[seed % 4] <= 0.2 * 0.01
    assert found >= int(0.7 * count)


@settings(max_examples=15, deadline=None)
@given(st.lists(st.integers(0, 9), min_size=6, max_size=6))
def test_likelihood_ratio_of_ranks_has_mean_at_most_one(values: list[int]) -> None:
    """The mean over all orders of six values, of which some may be equal, is at most 1.

    If all steps and workers are alike, the inverse of the ratio is therefore a p-value.
    """
    orders = np.array(list(permutations(values)), dtype=float).reshape(-1, 3, 2)
    found = [np.exp(_mean_likelihood(_likelihoods(_ranks(each)))) for each in orders]
    assert np.mean(found) <= 1 + 1e-9


@pytest.mark.parametrize(
    ("size", "count"),
    [((12, 60), 20)]
    + [pytest.param(size, 200, marks=pytest.mark.slow) for size in [(4, 100), (32, 100), (84, 60)]],
)
@pytest.mark.parametrize("delay_model", [*LAWS, "bursts"])
def test_p_values_of_identical_workers_name_nobody(
    delay_model: str, size: tuple[int, int], count: int
) -> None:
    wrong, (workers, steps) = 0, size
    for seed in range(count):
        rng = np.random.default_rng([seed, 4])
        times = (
            bursts(steps, workers, 0.05 * steps, rng)
            if delay_model == "bursts"
            else LAWS[delay_model](steps, workers, rng)
        )
        wrong += bool((p_values(times, rng) <= 0.01).any())
    assert binomtest(wrong, count, 0.05, alternative="greater").pvalue > 0.01, wrong


@settings(max_examples=25, deadline=None)
@given(st.integers(15, 105), st.sampled_from(sorted(LAWS)), st.integers(0, 10**6))
def test_spells_of_finds_the_onset_within_a_few_steps(onset: int, delay_model: str, seed: int) -> None:
    times = LAWS[delay_model](120, 8, np.random.default_rng(seed))
    _, ((first, last),) = spells_of(slowed(times, 3, (onset / 120, 1.0)), [3])
    assert abs(first - onset) <= 6
    assert last == 120


@pytest.mark.parametrize("factor", [1.6, 4.0])
def test_spells_of_separates_spells(factor: float) -> None:
    times = np.exp(0.05 * np.random.default_rng(5).normal(size=(200, 6)))
    for parts, wanted in (
        ([(0.2, 0.4), (0.6, 0.8)], [(40, 80), (120, 160)]),
        ([(0.0, 0.3)], [(0, 60)]),
        ([(0.3, 0.45), (0.7, 1.0)], [(60, 90), (140, 200)]),
        ([(0.0, 1.0)], [(0, 200)]),
    ):
        _, spells = spells_of(slowed(times, 2, *parts, factor=factor), [2])
        assert np.abs(np.subtract(spells, wanted)).max() <= 2


def test_spells_of_a_second_rise_keeps_the_first_onset() -> None:
    times = np.exp(0.05 * np.random.default_rng(6).normal(size=(200, 6)))
    times[80:, 2] *= 2.0
    times[150:, 2] *= 2.0
    _, ((first, _),) = spells_of(times, [2])
    assert abs(first - 80) <= 2


def test_gaps_of_exponential_values_have_uniform_p_values() -> None:
    rng = np.random.default_rng(7)
    for k in (1, 3):
        p = [gap_p_value(np.sort(rng.exponential(size=12))[::-1], k) for _ in range(400)]
        assert kstest(p, "uniform").pvalue > 0.001


def test_burst_p_value_compares_with_the_bursts_of_others() -> None:
    rng = np.random.default_rng(8)
    assert burst_p_value(bursts(200, 11, 20.0, rng) > 2, 25) > 0.05
    assert burst_p_value(rng.random((200, 11)) < 0.05, 25) == 0.0
    assert burst_p_value(np.zeros((200, 11), dtype=bool), 25) == 0.0
