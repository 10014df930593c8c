"""Properties of optimisers, such as an `update` without side effects, and of schedules."""

from copy import deepcopy
from typing import Any

import numpy as np

from workbench.core.base.types import Array
from workbench.core.checking.property import Case, Property, PropertyFailed, through_json
from workbench.core.contract.optimisers import ConstantSchedule, Optimiser, Schedule, Scheduled, State
from workbench.core.problems.base import Problem, Request
from workbench.core.problems.linear import LeastSquares

SAMPLES, FEATURES, ROUNDS = 40, 4, 300


def _bowl(seed: int) -> Problem:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((SAMPLES, FEATURES))
    return LeastSquares(X, X @ rng.standard_normal(FEATURES), l2=0.0)


def _walk(
    optimiser: Optimiser, problem: Problem, rounds: range, model: Array, state: State
) -> tuple[Array, State]:
    for t in rounds:
        gradient = problem.gradient([(0, problem.samples, 1.0)], model)
        model, state = optimiser.update(state, model, gradient, problem, t)
    return model, state


def pure(optimiser: Optimiser, case: Case) -> None:
    """Check that the same call gives the same result and does not change its arguments."""
    problem = _bowl(case["seed"])
    model, state = _walk(optimiser, problem, range(3), problem.start(), optimiser.start(problem))
    gradient = problem.gradient([(0, problem.samples, 1.0)], model)
    before = deepcopy((state, model, gradient))
    one, _ = optimiser.update(state, model, gradient, problem, 3)
    changed = not (np.array_equal(model, before[1]) and np.array_equal(gradient, before[2]))
    two, _ = optimiser.update(before[0], before[1], before[2], problem, 3)
    if changed:
        raise PropertyFailed("`update` changes the model or the gradient that it is given")
    if not np.array_equal(one, two):
        raise PropertyFailed(
            "`update` gives other models for the same call; store values between calls in the state"
        )


def state_kept(optimiser: Optimiser, case: Case) -> None:
    """Check that the state consists of numbers and arrays, so that a run can resume from a checkpoint."""
    problem = _bowl(case["seed"])
    _, state = _walk(optimiser, problem, range(3), problem.start(), optimiser.start(problem))
    for name, value in state.items():
        if np.asarray(value).dtype.kind not in "fiub":
            raise PropertyFailed(
                f"the state's {name!r} is a {type(value).__name__}; only numbers and arrays can be saved"
            )


def descends(optimiser: Optimiser, case: Case) -> None:
    """Check that the loss of least squares decreases, with the given step size or with one of the candidates."""
    problem = _bowl(case["seed"])
    start = problem.evaluate([Request(problem.start(), gradient=False)])[0].loss
    tried = [optimiser, *optimiser.candidates(problem.smoothness())]
    losses = [np.inf]
    for each in tried:
        with np.errstate(all="ignore"):
            model, _ = _walk(each, problem, range(ROUNDS), problem.start(), each.start(problem))
            if np.isfinite(model).all():
                losses.append(problem.evaluate([Request(model, gradient=False)])[0].loss)
    if not min(losses) < start:
        raise PropertyFailed(f"after {ROUNDS} rounds the loss is {min(losses):.4g}; it was {start:.4g}")


def tuned(optimiser: Optimiser, case: Case) -> None:
    """Check that candidates for tuning are valid optimisers of the same class."""
    for each in [*optimiser.candidates(2.0), *optimiser.near(), optimiser.scaled(2.0, 1.0)]:
        if type(each) is not type(optimiser):
            raise PropertyFailed(f"it returns {each!r}, which is another optimiser")


def follows_schedule(optimiser: Scheduled, case: Case) -> None:
    """Check that a warm-up round with half the step changes the model by half as much."""
    problem = _bowl(case["seed"])
    moves = []
    for start in (1.0, 0.5):
        each = optimiser.replace(schedule=ConstantSchedule(warmup=1, warmup_start=start))
        model, _ = _walk(each, problem, range(1), problem.start(), each.start(problem))
        moves.append(model - problem.start())
    if not np.allclose(moves[1], moves[0] / 2, rtol=1e-6, atol=0.0):
        raise PropertyFailed(
            "`schedule` has another effect; multiply the step in `update` by `self.factor_at(t)`"
        )


def factors(schedule: Schedule, case: Case) -> None:
    """Check that the schedule's factor is finite and at least 0 in every round, and equal in a second call."""
    rounds = range(case["seed"] % ROUNDS, ROUNDS)
    found, again = ([schedule.factor_at(t) for t in rounds] for _ in range(2))
    if not np.isfinite(found).all() or min(found) < 0:
        raise PropertyFailed(f"`share_at` gives {min(found):.4g} to {max(found):.4g} in {ROUNDS} rounds")
    if found != again:
        raise PropertyFailed("`share_at` gives another share in a second call for the same round")


UNSCHEDULED = "its step follows no schedule: `Scheduled` is not its base"
PROPERTIES: tuple[Property[Any], ...] = (
    Property("settings", through_json),
    Property("pure", pure),
    Property("kept", state_kept),
    Property("descends", descends),
    Property("tuned", tuned),
    Property("schedule", follows_schedule, lambda each: "" if isinstance(each, Scheduled) else UNSCHEDULED),
)
OF_SCHEDULES: tuple[Property[Any], ...] = (
    Property("settings", through_json),
    Property("factors", factors),
)
