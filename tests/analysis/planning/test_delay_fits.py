"""Fitted delay models: parameters of drawn times are recovered, and a bad fit is reported."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.sampled_cases import rotated
from workbench.analysis.planning.delay_fits import (
    PROFILE_KINDS,
    FittedModel,
    assess,
    distance,
    drawn,
    fit_markov,
    fitted_models,
    persistence,
    redrawn,
    refit,
    resampled,
    slow_for_good,
    straggling,
)
from workbench.core.base.settings import SettingError
from workbench.core.base.types import Array
from workbench.core.contract.delays import (
    Delays,
    Heterogeneous,
    Markov,
    Pareto,
    Replay,
    ShiftedExponential,
    delay_models,
    law_of,
)

FEW_EXAMPLES = settings(max_examples=15)
SEEDS = st.integers(0, 2**32 - 1)
SCALES = st.floats(1e-5, 10.0)
EC2 = Path(os.environ.get("WORKBENCH_EC2_TRACES", "../shared/data/ec2_traces.csv"))


def best(times: Array) -> FittedModel:
    return fitted_models(times)[0]


@rotated
@FEW_EXAMPLES
@given(shift=SCALES, spread=st.floats(0.3, 3.0), seed=SEEDS)
def test_refit_recovers_a_shifted_exponential(shift: float, spread: float, seed: int) -> None:
    truth = ShiftedExponential(shift=shift, rate=1 / (spread * shift))
    times = drawn(truth, 60, 20, seed)
    delay_model = refit(times, "shifted_exponential")
    assert isinstance(delay_model, ShiftedExponential)
    assert delay_model.shift == pytest.approx(shift, rel=0.3)
    assert delay_model.shift + 1 / delay_model.rate == pytest.approx(shift * (1 + spread), rel=0.1)
    assert 1 / delay_model.rate == pytest.approx(spread * shift, rel=0.2)
    assert best(times).fits


@FEW_EXAMPLES
@given(shift=SCALES, shape=st.floats(1.3, 6.0), seed=SEEDS)
def test_refit_recovers_a_pareto_tail(shift: float, shape: float, seed: int) -> None:
    delay_model = refit(drawn(Pareto(shift=shift, shape=shape), 60, 20, seed), "pareto")
    assert isinstance(delay_model, Pareto)
    assert delay_model.shift == pytest.approx(shift, rel=0.1)
    assert delay_model.shape == pytest.approx(shape, rel=0.2)


@rotated
@FEW_EXAMPLES
@given(
    shift=SCALES,
    slow=st.floats(0.2, 0.5),
    often=st.floats(0.6, 0.95),
    seldom=st.floats(0.0, 0.05),
    factor=st.floats(3.0, 20.0),
    seed=SEEDS,
)
def test_fitted_models_find_heterogeneous_workers(
    shift: float, slow: float, often: float, seldom: float, factor: float, seed: int
) -> None:
    truth = Heterogeneous(
        shift=shift, slow=slow, slow_straggles=often, active_straggles=seldom, factor=factor
    )
    times = drawn(truth, 100, 200, seed)
    delay_model = best(times).delays
    assert isinstance(delay_model, Heterogeneous)
    assert delay_model.shift == pytest.approx(shift, rel=1e-6)
    assert delay_model.factor == pytest.approx(factor, rel=1e-6)
    assert delay_model.slow == pytest.approx(slow, abs=0.15)
    assert delay_model.slow_straggles == pytest.approx(often, abs=0.05)
    assert delay_model.active_straggles == pytest.approx(seldom, abs=0.03)


@FEW_EXAMPLES
@given(
    shift=SCALES, enter=st.floats(0.02, 0.3), leave=st.floats(0.1, 0.5), factor=st.floats(3, 20), seed=SEEDS
)
def test_refit_recovers_markov_spells(
    shift: float, enter: float, leave: float, factor: float, seed: int
) -> None:
    delay_model = refit(
        drawn(Markov(shift=shift, p_slow=enter, p_recover=leave, factor=factor), 200, 60, seed), "markov"
    )
    assert isinstance(delay_model, Markov)
    assert (delay_model.shift, delay_model.factor) == (
        pytest.approx(shift, rel=1e-6),
        pytest.approx(factor, rel=1e-6),
    )
    assert delay_model.p_slow == pytest.approx(enter, rel=0.3)
    assert delay_model.p_recover == pytest.approx(leave, rel=0.3)


# Drawn fields of every delay model but `replay`, which has the recorded times themselves.
SHIFTS = st.floats(0.5, 2.0)
DRAWN: dict[str, st.SearchStrategy[dict[str, Any]]] = {
    "constant": st.builds(lambda a: {"shift": a}, SHIFTS),
    "shifted_exponential": st.builds(lambda a, b: {"shift": a, "rate": b}, SHIFTS, SHIFTS),
    "exponential": st.builds(lambda a: {"mean": a}, SHIFTS),
    "two_part": st.builds(lambda a, b: {"t1": a, "lambda1": b}, SHIFTS, SHIFTS),
    "pareto": st.builds(lambda a, b: {"shift": a, "shape": b}, SHIFTS, st.floats(3, 8)),
    "lognormal": st.builds(lambda a, b: {"mu": a, "sigma": b}, st.floats(-1, 1), st.floats(0.1, 0.8)),
    "gamma": st.builds(lambda a, b: {"shape": a, "scale": b}, SHIFTS, SHIFTS),
    "weibull": st.builds(lambda a, b: {"shape": a, "scale": b}, st.floats(0.8, 4), SHIFTS),
    "distribution": st.builds(
        lambda a, b: {"distribution": "invgauss", "args": {"mu": a}, "scale": b}, SHIFTS, SHIFTS
    ),
    "heterogeneous": st.builds(
        lambda a, b, c: {"shift": a, "slow": b, "factor": c}, SHIFTS, st.floats(0.2, 0.5), st.floats(2, 9)
    ),
    "markov": st.builds(
        lambda a, b, c: {"shift": 1.0, "p_slow": a, "p_recover": b, "factor": c},
        st.floats(0.02, 0.3), st.floats(0.1, 0.5), st.floats(2, 9),
    ),
    "fritchman": st.builds(
        lambda a, b, c: {"shift": 1.0, "p_slow": a, "p_next": b, "slow_states": c},
        st.floats(0.05, 0.3), st.floats(0.3, 0.9), st.integers(2, 4),
    ),
    "mixture": st.builds(
        lambda a, b: {
            "components": [{"kind": "lognormal", "mu": m, "sigma": 0.2} for m in (0.0, b)], "shares": [a, 1 - a]
        },
        st.floats(0.2, 0.8), st.floats(1, 2),
    ),
    "groups": st.builds(
        lambda a, b: {
            "base": {"kind": "lognormal", "mu": 0.0, "sigma": 0.2},
            "common": {"kind": "lognormal", "mu": 0.0, "sigma": a},
            "size": b,
            "effect": "multiply",
        },
        st.floats(0.3, 0.6), st.sampled_from([2, 4, 8]),
    ),
    "changing": st.builds(
        lambda a, b: {"before": {"kind": "constant", "shift": a}, "after": {"kind": "constant", "shift": b}, "at": 100},
        SHIFTS, SHIFTS,
    ),
}  # fmt: skip
# delay models without a fit of their own -> kind that describes the times of one task, or name in `scipy.stats`
FITTED_AS = {
    "exponential": "shifted_exponential",
    "two_part": "shifted_exponential",
    "distribution": "invgauss",
    "changing": "mixture",
}


@rotated
@pytest.mark.parametrize("kind", [k for k in sorted(delay_models()) if k != "replay"])
@settings(max_examples=8)
@given(data=st.data(), seed=SEEDS)
def test_a_fit_to_draws_gives_back_their_mean(kind: str, data: st.DataObject, seed: int) -> None:
    """Every delay model is fitted to 200 rounds of 40 workers."""
    times = drawn(law_of({"kind": kind, **data.draw(DRAWN[kind])}), 200, 40, seed)
    delay_model = refit(times, FITTED_AS.get(kind, kind))
    mean = delay_model.expected(1)
    assert mean == pytest.approx(times.mean(), rel=0.1)
    assert drawn(delay_model, 400, 200, seed + 1).mean() == pytest.approx(times.mean(), rel=0.2)


@pytest.mark.parametrize(
    "truth",
    [
        ShiftedExponential(shift=1.0, rate=2.0),
        Pareto(shift=1.0, shape=2.0),
        Heterogeneous(shift=1.0, slow=0.3),
        Markov(shift=1.0, p_slow=0.1, p_recover=0.2, factor=6.0),
    ],
    ids=lambda delay_model: delay_model.kind,
)
def test_fitted_models_choose_the_true_model_despite_jitter(truth: Delays) -> None:
    times = drawn(truth, 120, 40, seed=5) * np.exp(np.random.default_rng(1).normal(0, 0.02, (120, 40)))
    found = best(times)
    assert found.delays.kind == truth.kind
    assert found.fits, found.complaint


def test_redrawn_share_of_slow_workers_has_a_binomial_spread() -> None:
    def spread(workers: int) -> float:
        often = np.where(np.arange(workers) < workers // 4, 0.9, 0.02)
        times = 1.0 + 9.0 * (np.random.default_rng(1).random((60, workers)) < often)
        drawn = [redrawn(times, "heterogeneous", np.random.default_rng(seed)) for seed in range(40)]
        return float(
            np.std([delay_model.slow for delay_model in drawn if isinstance(delay_model, Heterogeneous)])
        )

    assert spread(12) == pytest.approx(2 * spread(48), rel=0.3)


def test_redrawn_markov_chances_are_within_the_measured_interval() -> None:
    """Draw 40 independent measurements of 20 rounds, so that no spell continues into the next measurement.

    `redrawn` resamples p_slow and p_recover within their sampling errors.
    """
    truth, ends = Markov(shift=1.0, p_slow=0.02, p_recover=0.1), range(20, 800, 20)
    times = np.concatenate([drawn(truth, 20, 12, seed) for seed in range(40)])
    apart, joined = refit(times, "markov", ends), refit(times, "markov")
    assert isinstance(apart, Markov)
    assert isinstance(joined, Markov)
    assert (apart.p_slow, apart.p_recover) == (pytest.approx(0.02, rel=0.2), pytest.approx(0.1, rel=0.2))
    assert joined.p_recover > 1.2 * apart.p_recover
    rng = np.random.default_rng(0)
    low, middle, high = (redrawn(times, "markov", rng, ends, (q, q)) for q in (0.01, 0.5, 0.99))
    for name in ("p_slow", "p_recover"):
        assert getattr(middle, name) == pytest.approx(getattr(apart, name), rel=0.02)
        assert getattr(low, name) < getattr(truth, name) < getattr(high, name)


def test_fitted_models_of_almost_constant_times_are_constant() -> None:
    times = 3.0 * np.exp(np.random.default_rng(0).normal(0, 0.01, (50, 8)))
    assert best(times).delays.model_dump() == {
        "kind": "constant",
        "fixed": 0.0,
        "shift": pytest.approx(3.0, rel=0.01),
    }


def test_persistence_of_delays_common_to_all_workers_fits_groups_only() -> None:
    """All workers are late in the same rounds, unlike independent workers."""
    rng = np.random.default_rng(0)
    times = np.repeat(1 + rng.exponential(1.0, (80, 1)), 10, axis=1) * rng.uniform(0.98, 1.02, (80, 10))
    assert persistence(times).together > 0.9
    assert best(times).delays.kind == "groups"
    others = [each for each in fitted_models(times) if each.delays.kind != "groups"]
    assert not any(each.fits for each in others)
    assert all("workers are slow together" in each.complaint for each in others)


def test_assess_reports_a_delay_model_that_does_not_fit() -> None:
    known = assess(drawn(Pareto(shift=1.0, shape=1.2), 100, 20), ShiftedExponential(shift=1.0, rate=1.0))
    assert not known.fits
    assert "Kolmogorov distance" in known.complaint or "quantile" in known.complaint


def test_persistence_distinguishes_the_delay_models() -> None:
    for_good = persistence(drawn(Heterogeneous(slow=0.5, active_straggles=0.0), 90, 100))
    passing = persistence(drawn(Markov(p_slow=0.1, p_recover=0.1), 90, 300))
    neither = persistence(drawn(ShiftedExponential(), 90, 100))
    assert for_good.lag == pytest.approx(for_good.far, abs=0.05)
    assert passing.lag == pytest.approx(0.8, abs=0.05)  # 1 - p_slow - p_recover
    assert passing.far == pytest.approx(0.0, abs=0.1)
    assert max(abs(x) for x in neither) < 0.05


def test_distance_of_two_samples() -> None:
    a = np.arange(1.0, 101.0)
    assert distance(a, a) == 0.0
    assert distance(a, a + 1000.0, slack=0.0) == 1.0
    assert distance(a, a[50:], slack=0.0) == pytest.approx(0.5)
    assert distance(a, a * 1.04) == 0.0  # smaller differences than the tolerance


def test_straggling_finds_two_levels_or_none() -> None:
    times = np.array([[1.0, 1.1, 5.0], [1.05, 5.2, 0.95]])
    late = straggling(times)
    assert late is not None
    np.testing.assert_array_equal(late, [[False, False, True], [False, True, False]])
    assert straggling(np.full((4, 4), 2.0)) is None
    assert straggling(np.array([[1.0, 1.1]])) is None


@given(rounds=st.integers(1, 300), seed=SEEDS)
def test_resampled_draws_rounds_in_blocks(rounds: int, seed: int) -> None:
    found = resampled(rounds, np.random.default_rng(seed))
    assert found.shape == (rounds,)
    assert found.min() >= 0
    assert found.max() < rounds
    block = max(1, round(rounds**0.5))
    np.testing.assert_array_equal(np.diff(found[:block]) % rounds, np.full(block - 1, 1 % rounds))


@pytest.mark.parametrize("times", [np.ones(4), np.ones((1, 1)), np.array([[1.0, np.nan]]), np.zeros((3, 3))])
def test_fitted_models_refuse_values_that_are_not_times(times: Array) -> None:
    with pytest.raises(SettingError, match=r"^times: "):
        fitted_models(times)


def test_refit_refuses_an_unknown_kind() -> None:
    with pytest.raises(SettingError, match=r"kind = 'two_part': .*pareto"):
        refit(np.ones((3, 3)), "two_part")
    assert set(PROFILE_KINDS) <= set(delay_models())


@pytest.mark.skipif(not EC2.is_file(), reason=f"no recorded EC2 times at {EC2}")
@pytest.mark.parametrize("experiment", ["ec2-6", "ec2-7"])
def test_fitted_models_of_recorded_ec2_times_are_heterogeneous(experiment: str) -> None:
    """The recordings of paper 4's authors are fitted best by the model of that paper."""
    from workbench.core.contract.delays import recorded

    padded, lengths = recorded(str(EC2), experiment)
    found = best(padded[:, : lengths.min()].T)
    assert isinstance(found.delays, Heterogeneous)
    assert found.fits
    assert found.delays.factor > 5


def test_replay_with_common_start_keeps_rounds_together(tmp_path: Path) -> None:
    path = tmp_path / "times.csv"
    rows = [f"{w},{i},{100 * i + w + 1}" for w in range(4) for i in range(6)]
    path.write_text("\n".join(["worker,iteration,seconds", *rows]))
    times = drawn(Replay(path=str(path), common_start=True), 12, 4, seed=3)
    assert all(len(set((row // 100).tolist())) == 1 for row in times)
    np.testing.assert_array_equal(times[:6], times[6:])


def test_permanently_slow_workers_have_no_transition() -> None:
    """If no worker changes its state, a Markov model cannot be fitted."""
    times = np.where(np.arange(12) < 3, 5.0, 1.0) * np.random.default_rng(0).uniform(0.97, 1.03, (40, 12))
    assert fit_markov(times) is None
    assert fitted_models(times)[0].delays.kind == "heterogeneous"
    assert slow_for_good(times).round().tolist() == [1.0] * 3 + [0.0] * 9


@rotated
@settings(max_examples=20)
@given(
    seed=st.integers(0, 999), often=st.sampled_from([0.01, 0.1, 0.3]), rounds=st.sampled_from([20, 60, 360])
)
def test_permanently_slow_workers_are_none_if_all_straggle_alike(
    seed: int, often: float, rounds: int
) -> None:
    """At most 6 of 40 cases are false alarms. Three slow workers of twelve are found."""
    rng = np.random.default_rng(seed)
    alike = [slow_for_good(np.where(rng.random((rounds, 12)) < often, 10.0, 1.0)) for _ in range(40)]
    assert sum(found is not None for found in alike) <= 6
    chances = np.where(np.arange(12) < 3, 0.8, 0.01)
    found = slow_for_good(np.where(rng.random((rounds, 12)) < chances, 10.0, 1.0))
    assert found is not None
    assert (found > 0.5).tolist() == (chances > 0.5).tolist()
