"""Rounds to a target loss, for exact schemes and for simulated ones."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import workbench as wb
from workbench.analysis.planning.prices import NUMBERS_PER_EVENT, STAR_SHARE, cost
from workbench.analysis.planning.targets import (
    EXACT_STEPS,
    LAZY_STEPS,
    MAX_NUMBERS,
    MAX_ROUNDS_RATIO,
    STEP_SEEDS,
    Target,
    Trials,
    centre,
    commits_and_ends,
    portion,
    reduced,
    reference,
    shortened,
    stepped,
    stretched,
)
from workbench.core.base.settings import SettingError
from workbench.core.trace.metrics import first_reached

SPEC: dict[str, Any] = {
    "workers": 6,
    "problem": "logistic",
    "problem_args": {"samples": 240, "features": 20},
    "link": {"latency": 1e-3, "bandwidth": 1e6},
}


def experiment(scheme: str = "UMW", args: dict[str, Any] | None = None, **changes: Any) -> wb.Experiment:
    return wb.Experiment(**{**SPEC, "scheme": scheme, "scheme_args": args or {}, **changes})


def untuned(rounds: int, tolerance: float) -> Target:
    return reference(experiment(), rounds, None, tolerance, MAX_NUMBERS, tuned=False)


def seeds(e: wb.Experiment, count: int = 4) -> list[wb.Experiment]:
    return [e.replace(seed=seed) for seed in range(count)]


def test_the_target_is_what_an_exact_scheme_has_within_the_tolerance() -> None:
    loss = wb.run(experiment(rounds=30), events=False)
    strict = untuned(30, 0.0)
    assert (strict.rounds, strict.loss) == (30, pytest.approx(loss.columns["loss"][-1]))
    loose = untuned(30, 0.1)
    way = loss.initial["loss"] - loss.columns["loss"][-1]
    assert loose.loss == pytest.approx(loss.columns["loss"][-1] + 0.1 * way)
    assert loose.rounds == int(np.argmax(loss.columns["loss"] <= loose.loss)) + 1 < 30


@pytest.mark.parametrize(
    ("metric", "wanted"), [("loss", 9.0), ("test_accuracy", 0.01), ("loss", 1e-9), ("test_accuracy", 2.0)]
)
def test_target_that_is_met_at_the_start_or_never_is_refused(metric: str, wanted: float) -> None:
    e = experiment(problem_args={**SPEC["problem_args"], "test": 0.2})
    with pytest.raises(SettingError, match=rf"^target = {wanted:g}: .* or more rounds$"):
        reference(e, 30, wanted, 0.0, MAX_NUMBERS, metric=metric)
    with pytest.raises(SettingError, match=r"more effort, so that more samples are simulated$"):
        reference(e, 30, wanted, 0.0, MAX_NUMBERS, metric=metric, samples=120)


def test_stepped_chooses_the_fastest_step_of_exact_schemes() -> None:
    """No step of the grid reaches the target in fewer rounds."""
    target = reference(experiment(), 30, None, 0.02, MAX_NUMBERS)
    took = []
    for times in EXACT_STEPS:
        chosen = stepped(experiment().build_optimiser(), times, target.smoothness)
        trace = wb.run(experiment(rounds=30, optimiser_args={"step": chosen.step}), events=False)
        took.append(np.append(np.flatnonzero(trace.columns["loss"] <= target.loss), 99)[0] + 1)
    assert target.rounds == min(took) == took[EXACT_STEPS.index(target.times)]
    assert target.rounds < untuned(30, 0.02).rounds


def test_trials_of_an_exact_scheme_need_the_reference_rounds() -> None:
    target = untuned(30, 0.05)
    need = Trials(target).need(seeds(experiment("GC", {"stragglers": 2})))
    assert set(need.rounds) == {target.rounds}
    np.testing.assert_allclose(need.pace, 1.0)


@pytest.mark.parametrize("stragglers", [6, 3])
def test_trials_rescale_the_step_of_sums_of_fewer_answers(stragglers: int) -> None:
    """SGD commits the plain sum of N - S of N answers.

    With the exact step it needs about N / (N - S) times the rounds.
    """
    e = experiment("SGD", {"stragglers": stragglers}, workers=12, problem_args={"data": "breast_cancer"})
    e = e.replace(delays={"kind": "shifted_exponential"})
    target = reference(e, 30, None, 0.05, MAX_NUMBERS, tuned=False)
    own = Trials(target).need(seeds(e)).rounds.mean()
    chosen = Trials(target, centre=1.0).need(seeds(e))
    factor = 12 / (12 - stragglers)
    assert own >= 0.8 * factor * target.rounds
    assert chosen.rounds.mean() <= 1.15 * target.rounds
    assert chosen.times is not None
    assert chosen.times >= 0.7 * factor


def test_trials_report_a_scheme_that_misses_the_target() -> None:
    need = Trials(untuned(30, 0.0)).need(seeds(experiment("SGD", {"stragglers": 5})))
    assert np.isnan(need.rounds).all()


def test_trials_count_the_rounds_of_the_runs() -> None:
    """For each seed, the count is the number of rounds that a run with the chosen step needs to the target loss."""
    e = experiment("SGD", {"stragglers": 2})
    target = reference(e, 30, None, 0.05, MAX_NUMBERS)
    need = Trials(target, target.times).need(seeds(e))
    args = need.optimiser.model_dump(exclude_unset=True)
    for each, rounds in zip(seeds(e), need.rounds, strict=True):
        trace = wb.run(each.replace(optimiser_args=args, rounds=90), events=False)
        assert np.flatnonzero(trace.columns["loss"] <= target.loss)[0] + 1 == rounds


@pytest.mark.parametrize(("scheme", "args", "share"), [("ASGD", {}, 1 / 6), ("FedBuff", {"buffer": 3}, 0.5)])
def test_trials_stretch_rounds_and_steps_for_commits_of_few_answers(
    scheme: str, args: dict[str, Any], share: float
) -> None:
    """ASGD and FedBuff commit fewer answers per round, and need about as many answers in all."""
    e = experiment(scheme, args)
    target = reference(e, 30, None, 0.05, MAX_NUMBERS)
    assert portion(e) == pytest.approx(share)
    assert target.times is not None
    own = stretched(target, e)
    assert own.rounds == round(target.rounds / share)
    need = Trials(own, target.times * share).need(seeds(e))
    assert (need.rounds * share < MAX_ROUNDS_RATIO * target.rounds).all()


def test_slow_schemes_are_not_simulated_for_long() -> None:
    """`longest` is the number of rounds in three times the time of the fastest exact scheme, at least its rounds."""
    aim = Target(rounds=20, longest=60, loss=0.1, seconds=20.0)
    e = experiment("SGD", {"stragglers": 2})
    found = [stretched(aim, e, per_round).longest for per_round in (0.0, 0.5, 1.0, 2.0, 9.0)]
    assert found == [60, 60, 60, 30, 20]
    assert stretched(aim, experiment("CADA1"), 9.0).longest == 60  # its forecast is an upper bound


@pytest.mark.parametrize("scheme", ["SGD", "DSAG", "ASGD"])
def test_price_counts_gradients_at_older_models(scheme: str) -> None:
    """Stale gradients are computed for every step size. Rounds of a star are cheaper than those of other schemes."""
    e = experiment(scheme)
    one, twelve = (cost(e, 240, 30.0, steps) for steps in (1, 12))
    events = 30 * 6 * NUMBERS_PER_EVENT
    if scheme == "SGD":
        assert one == pytest.approx(STAR_SHARE * events + 30 * 240 * 20)
        assert twelve - one == pytest.approx(11 * 30 * 240 * 20)
    else:
        assert twelve - one == pytest.approx(11 * (events + 30 * 240 * 20))


def test_step_size_that_no_seed_reaches_the_target_with_is_not_tried_further() -> None:
    e = experiment("SGD", {"stragglers": 5})
    target = replace(reference(e, 30, None, 0.0, MAX_NUMBERS), rounds=2, longest=2)
    trials = Trials(target, 1e-6)
    assert np.isnan(trials.need(seeds(e)).rounds).all()
    assert not trials.found
    assert {rounds for _, rounds in trials.simulated} == {2}


@pytest.mark.parametrize(
    ("scheme", "args", "changes"),
    [
        ("SGD", {"stragglers": 2}, {}),
        ("ASGD", {}, {}),
        ("DSAG", {"wait_for": 3}, {}),
        ("SGD", {"stragglers": 1}, {"batch": 60}),
    ],
)
def test_steps_that_are_given_up_would_have_taken_longer(
    scheme: str, args: dict[str, Any], changes: dict[str, Any]
) -> None:
    """The chosen step is the fastest of all steps whose runs are simulated to their ends.

    Later calls with this step return the same rounds.
    """
    e = experiment(scheme, args, **changes)
    target = reference(experiment(**changes), 30, None, 0.05, MAX_NUMBERS)
    assert target.times is not None
    aim, centre_step = stretched(target, e), target.times * portion(e)
    trials = Trials(aim, centre_step)
    need = trials.need(seeds(e))
    few = seeds(e, STEP_SEEDS)
    for longest, some in ((trials._soon(e), few), (aim.longest, few[:1])):
        every = [commits_and_ends(each.replace(rounds=longest))[0] for each in some]
        steps, rounds = Trials(aim, centre_step)._steps(some, every)
        if not np.isnan(rounds).any(axis=1).all():
            break
    ends = [
        [np.nan if np.isnan(r) else wb.run(each.replace(rounds=int(r)), events=False).columns["time"][-1]
         for r, each in zip(row, some, strict=True)]
        for row in rounds
    ]  # fmt: skip
    assert need.times == steps[int(np.nanargmin(np.mean(ends, axis=1)))]
    np.testing.assert_array_equal(trials.need(seeds(e, 6), need.times).rounds[:4], need.rounds)
    np.testing.assert_array_equal(
        Trials(aim, centre_step).need(seeds(e, 6), need.times).rounds,
        trials.need(seeds(e, 6), need.times).rounds,
    )


def test_trials_of_lazy_schemes_have_shorter_rounds_than_the_forecast() -> None:
    target = untuned(30, 0.05)
    need = Trials(target).need(seeds(experiment("CADA", {"c": 2.0}), 2))
    assert (need.pace < 1.0).all()
    assert (need.rounds <= MAX_ROUNDS_RATIO * target.rounds).all()


def test_trials_vary_an_optimisers_own_step_around_its_centre() -> None:
    e = experiment("CADA", optimiser="amsgrad")
    target = reference(experiment(), 30, None, 0.05, MAX_NUMBERS)
    middle = centre(e, target)
    assert middle in EXACT_STEPS
    need = Trials(target, middle).need(seeds(e, 2))
    assert need.optimiser.name == "amsgrad"
    assert any(
        need.times == pytest.approx(middle * k)
        for k in [*LAZY_STEPS, *(LAZY_STEPS[-1] * k for k in LAZY_STEPS)]
    )


def test_reduced_samples_keep_the_times_of_workers() -> None:
    """The stragglers must not depend on the number of samples."""
    e = experiment("SGD", {"stragglers": 2}, problem_args={"samples": 2400, "features": 20}, rounds=5)
    few = reduced(e, 240)
    assert few.shape()[0] == 240
    np.testing.assert_allclose(wb.forecast(few).seconds, wb.forecast(e).seconds)


def test_reduced_samples_keep_the_batch_and_its_times() -> None:
    many = {"samples": 2400, "features": 20}
    e = experiment("SGD", {"stragglers": 2}, problem_args=many, rounds=5, batch=60)
    for samples in (240, 600, 30):
        few = reduced(e, samples)
        assert (few.shape()[0], few.batch) == (samples, min(60, samples))
        np.testing.assert_allclose(wb.forecast(few).seconds, wb.forecast(e).seconds)
    assert shortened(e, rounds=100, effort=1.0).shape()[0] == 4 * 60


@pytest.mark.parametrize("scheme", ["ASGD", "SGD", "AdaptiveK"])
def test_trials_with_batches_count_the_rounds_of_runs(scheme: str) -> None:
    """Each seed has its own batches. The rounds count until an evaluated loss reaches the target."""
    e = experiment(scheme, batch=60, evaluate_every=2, rounds=60)
    aim = reference(e, 30, None, 0.4, MAX_NUMBERS)
    need = Trials(aim, aim.times).need(seeds(e, 3), aim.times)
    step = need.optimiser.model_dump(exclude_unset=True)
    for seed, rounds in zip(range(3), need.rounds, strict=True):
        trace = wb.run(e.replace(seed=seed, optimiser_args=step, rounds=aim.longest))
        assert aim.loss is not None
        first = first_reached(trace.columns["loss"], aim.loss, "loss", e.batch)
        assert rounds == first + 1 if first is not None else np.isnan(rounds)


def test_shortened_limits_the_cost_of_many_samples() -> None:
    e = experiment(problem_args={"samples": 10_000, "features": 100})
    few = shortened(e, rounds=100, effort=1e7)
    assert few.shape() == (1000, 100)
    assert shortened(e, rounds=100, effort=1.0).shape()[0] == 4 * 6
    assert shortened(e, rounds=1, effort=1e12) is e
    assert cost(e, 1000, 10, steps=3) - cost(e, 1000, 10) == pytest.approx(2 * 1000 * 100 * 10)
    assert cost(experiment("CADA"), 240, 1) > cost(experiment("SGD"), 240, 1)


def test_reference_reports_a_step_that_is_too_large() -> None:
    wild = experiment(problem="least_squares", optimiser_args={"step": 1e9})
    with pytest.raises(SettingError, match=r"^optimiser_args = .*smaller"):
        reference(wild, 200, None, 0.0, MAX_NUMBERS, tuned=False)


@pytest.mark.parametrize("metric", ["accuracy", "test_accuracy", "test_loss"])
@pytest.mark.parametrize("scheme", ["SGD", "D-SGD"])
def test_need_to_a_metric_is_that_of_the_run(metric: str, scheme: str) -> None:
    """The number of rounds equals that of the run until it reaches the value, with the chosen step."""
    args = {**SPEC["problem_args"], "test": 0.25}
    plain = experiment(problem_args=args)
    aim = reference(plain, 30, None, 0.05, MAX_NUMBERS, metric=metric)
    assert (aim.metric, aim.samples) == (metric, 180)
    e = experiment(scheme, problem_args=args, rounds=aim.longest)
    need = Trials(aim, aim.times).need([e])
    if np.isnan(need.rounds).any():
        return
    trace = wb.run(e.replace(optimiser_args={"step": need.optimiser.step}))
    there = trace.columns[metric] <= aim.loss if metric == "test_loss" else trace.columns[metric] >= aim.loss
    assert need.rounds.tolist() == [np.flatnonzero(there)[0] + 1]


def test_reference_of_an_unknown_metric_is_refused() -> None:
    with pytest.raises(SettingError, match=r"metric = 'test_auc': no such name; .* accuracy"):
        reference(experiment(), 10, None, 0.1, MAX_NUMBERS, metric="test_auc")
