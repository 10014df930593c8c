"""Fits of distributions, mixtures, groups and spells: the parameters of drawn times are recovered."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.sampled_cases import rotated
from workbench.analysis.planning.delay_fits import drawn, fit_of, fitted_models, judged, redrawn, refit
from workbench.analysis.planning.distribution_fits import (
    correlated,
    fit_distribution,
    fit_gamma,
    fit_lognormal,
    fit_weibull,
)
from workbench.core.contract.delays import (
    Fritchman,
    Gamma,
    Groups,
    Heterogeneous,
    Lognormal,
    Markov,
    Mixture,
    Weibull,
    law_of,
)

FEW_EXAMPLES = settings(max_examples=8)
SEEDS = st.integers(0, 2**32 - 1)


@FEW_EXAMPLES
@given(mu=st.floats(-8, 5), sigma=st.floats(0.2, 1.5), seed=SEEDS)
def test_fit_recovers_a_lognormal(mu: float, sigma: float, seed: int) -> None:
    found = refit(drawn(Lognormal(mu=mu, sigma=sigma), 60, 40, seed), "lognormal")
    assert isinstance(found, Lognormal)
    assert found.quantile(0.5, 1) == pytest.approx(np.exp(mu), rel=0.1 * max(1, sigma))
    assert found.quantile(0.9, 1) == pytest.approx(np.exp(mu + 1.2816 * sigma), rel=0.12 * max(1, sigma))


@FEW_EXAMPLES
@given(shape=st.floats(0.6, 5), scale=st.floats(1e-3, 10), shift=st.sampled_from([0.0, 0.5]), seed=SEEDS)
def test_fit_recovers_weibull_and_gamma_quantiles(
    shape: float, scale: float, shift: float, seed: int
) -> None:
    for truth in (Weibull, Gamma):
        model = truth(shape=shape, scale=scale, shift=shift * scale)
        found = refit(drawn(model, 60, 40, seed), model.kind)
        assert found.kind == model.kind
        for q in (0.25, 0.5, 0.9):
            assert found.quantile(q, 1) == pytest.approx(model.quantile(q, 1), rel=0.15)


@pytest.mark.parametrize("spread", [0.0, 1e-12, 1e-8, 1e-6, 1e-4, 1e-2, 1e2, 1e6])
@pytest.mark.parametrize("fit", [fit_lognormal, fit_weibull, fit_gamma])
def test_fit_of_nearly_equal_and_of_very_different_times_is_none_or_near(fit: Any, spread: float) -> None:
    times = 1e-3 * (1 + spread * np.random.default_rng(0).random((20, 5)))
    found = fit(times)
    assert found is None or found.quantile(0.5, 1) == pytest.approx(float(np.median(times)), rel=0.5)
    if not 1e-7 < spread < 1e-5:  # close to the smallest spread that is fitted
        assert (found is None) == (spread <= 1e-7)


@FEW_EXAMPLES
@given(share=st.floats(0.1, 0.5), apart=st.floats(1.5, 4), seed=SEEDS)
def test_fit_recovers_a_mixture(share: float, apart: float, seed: int) -> None:
    parts = (Lognormal(mu=0.0, sigma=0.2), Lognormal(mu=apart, sigma=0.3))
    times = drawn(Mixture(components=parts, shares=(1 - share, share)), 60, 40, seed)
    found = refit(times, "mixture")
    assert isinstance(found, Mixture)
    assert found.shares[1] == pytest.approx(share, abs=0.04)
    assert [part.mu for part in found.components if isinstance(part, Lognormal)] == pytest.approx(
        [0, apart], abs=0.1
    )


@FEW_EXAMPLES
@given(size=st.integers(2, 4), sigma=st.floats(0.3, 0.8), seed=SEEDS)
def test_fit_recovers_groups(size: int, sigma: float, seed: int) -> None:
    base, common = Lognormal(mu=0.0, sigma=0.1), Lognormal(mu=0.0, sigma=sigma)
    truth = Groups(base=base, common=common, effect="multiply", size=size)
    times = drawn(truth, 80, 3 * size, seed)
    found = refit(times, "groups")
    assert isinstance(found, Groups)
    assert found.size == size
    assert isinstance(found.common, Lognormal)
    assert found.common.sigma == pytest.approx(sigma, rel=0.25)
    assert isinstance(redrawn(times, "groups", seed), Groups)


@FEW_EXAMPLES
@given(speeds=st.lists(st.floats(0.4, 2.5), min_size=8, max_size=8), seed=SEEDS)
def test_fit_of_groups_recovers_the_speeds_of_workers(speeds: list[float], seed: int) -> None:
    """Speeds are relative: only their ratios are determined, as `base` may be longer instead."""
    wanted = np.array(speeds) / np.exp(np.log(speeds).mean())
    base, common = Lognormal(mu=0.0, sigma=0.1), Lognormal(mu=0.0, sigma=0.5)
    truth = Groups(base=base, common=common, effect="multiply", size=2, speeds=tuple(speeds))
    found = refit(drawn(truth, 200, 8, seed), "groups")
    assert isinstance(found, Groups)
    # the error of a worker's mean logarithm is 0.51 / 200^0.5 = 0.036
    np.testing.assert_allclose(np.log(np.resize(found.speeds or (1.0,), 8)), np.log(wanted), atol=0.18)


@FEW_EXAMPLES
@given(seed=SEEDS)
def test_correlated_workers_that_are_not_neighbours(seed: int) -> None:
    truth = law_of({"kind": "groups", "base": {"kind": "lognormal", "mu": 0.0, "sigma": 0.1}, "effect": "multiply",
                    "common": {"kind": "lognormal", "mu": 0.0}, "members": [[1, 4], [2, 5, 6]]})  # fmt: skip
    found = refit(drawn(truth, 100, 6, seed), "groups")
    assert isinstance(found, Groups)
    assert found.members == ((1, 4), (2, 5, 6))
    assert correlated(drawn(Lognormal(), 100, 6, seed)) is None


@FEW_EXAMPLES
@given(states=st.integers(2, 4), seed=SEEDS)
def test_fit_recovers_fritchmans_slow_states(states: int, seed: int) -> None:
    truth = Fritchman(p_slow=0.1, p_next=0.7, slow_states=states, factor=5.0, shift=1.0)
    found = refit(drawn(truth, 200, 40, seed), "fritchman")
    assert isinstance(found, Fritchman)
    assert abs(found.slow_states - states) <= 1
    assert found.slow_states / found.p_next == pytest.approx(states / 0.7, rel=0.15)
    assert found.p_slow == pytest.approx(0.1, rel=0.2)


@rotated
@pytest.mark.parametrize("states", [2, 3, 4])
def test_spells_of_even_length_are_judged_fritchmans(states: int) -> None:
    """Spells of similar lengths are fitted as Fritchman's model, and spells of a Markov chain as a Markov model.

    Both models have about the same distances to the times, and about the same correlations.
    """
    truth = Fritchman(p_slow=0.1, p_next=0.7, slow_states=states, factor=5.0, shift=1.0)
    first = [fitted_models(drawn(truth, 80, 12, seed))[0].delays.kind for seed in range(5)]
    assert first.count("fritchman") >= 4
    chain = Markov(p_slow=0.1, p_recover=0.3, factor=5.0, shift=1.0)
    assert all(fitted_models(drawn(chain, 80, 12, seed))[0].delays.kind == "markov" for seed in range(5))


@pytest.mark.parametrize(("size", "sigma"), [(2, 0.45), (3, 0.4), (4, 0.8)])
def test_workers_that_are_late_together_are_judged_groups(size: int, sigma: float) -> None:
    truth = Groups(
        base=Lognormal(mu=0.0, sigma=0.3), common=Lognormal(mu=0.0, sigma=sigma), effect="multiply", size=size
    )
    first = [fitted_models(drawn(truth, 60, 12, seed))[0].delays.kind for seed in range(5)]
    assert first == ["groups"] * 5
    alone = [
        fitted_models(drawn(Lognormal(mu=0.0, sigma=sigma), 60, 12, seed))[0].delays.kind for seed in range(5)
    ]
    assert "groups" not in alone


@FEW_EXAMPLES
@given(shares=st.lists(st.floats(0.02, 0.9), min_size=12, max_size=12), seed=SEEDS)
def test_fit_recovers_the_straggler_probability_of_each_worker(shares: list[float], seed: int) -> None:
    truth = Heterogeneous(shift=1.0, straggles=tuple(shares), factor=4.0)
    found = fit_of(drawn(truth, 300, 12, seed), "straggles")
    assert isinstance(found, Heterogeneous)
    assert found.straggles is not None
    # four standard errors of a share of 300 rounds
    np.testing.assert_allclose(found.straggles, shares, atol=4 * (0.25 / 300) ** 0.5)
    assert (found.shift, found.factor) == pytest.approx((1.0, 4.0))


@rotated
@pytest.mark.parametrize("seed", range(3))
def test_probabilities_by_worker_are_chosen_only_with_evidence(seed: int) -> None:
    """Two kinds of workers, and workers that are all alike, need no list. Profiles are for other workers as well."""
    apart = drawn(
        Heterogeneous(shift=1.0, straggles=tuple(np.linspace(0.02, 0.8, 12).tolist())), 60, 12, seed
    )
    two = drawn(Heterogeneous(shift=1.0), 60, 12, seed)
    alike = drawn(Heterogeneous(shift=1.0, straggles=(0.3,)), 60, 12, seed)
    lists = [getattr(fitted_models(times)[0].delays, "straggles", None) for times in (apart, two, alike)]
    assert lists[0] is not None
    assert lists[1:] == [None, None]
    judgements, _ = judged([apart])
    assert all(getattr(each.delays, "straggles", None) is None for each in judgements[0])


def test_fit_distribution_by_name_gives_its_quantiles() -> None:
    truth = law_of({"kind": "distribution", "distribution": "invgauss", "args": {"mu": 0.5}, "scale": 2.0})
    found = fit_distribution(drawn(truth, 60, 40), "invgauss")
    assert found.quantile(0.9, 1) == pytest.approx(truth.quantile(0.9, 1), rel=0.05)


def test_lognormal_times_are_judged_lognormal() -> None:
    """A lognormal tail is long, and neither exponential nor Pareto."""
    best = fitted_models(drawn(Lognormal(mu=0.0, sigma=1.0), 80, 30, 1))[0]
    assert best.fits
    assert best.delays.kind == "lognormal"
