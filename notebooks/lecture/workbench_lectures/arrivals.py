"""Rounds and seconds that a scheme with one step size needs to a training loss, on the virtual clock."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from workbench.core.base.types import Array
from workbench.core.contract.optimisers import Optimiser
from workbench.core.contract.problem import Problem, Request
from workbench.core.engine.timeline import Timeline
from workbench.core.engine.virtual.arithmetic import Coefficients, Numbers
from workbench.core.experiment import Experiment
from workbench.core.running.simulated import timeline
from workbench.core.trace.learning import Commits, follow
from workbench_lectures import network

EVALUATIONS = 5  # number of losses whose mean is compared with the target


@dataclass(frozen=True)
class Arrived:
    """Rounds and seconds of a run to the target, and the metric of held-out samples there. NaN: target missed."""

    rounds: float = float("nan")
    seconds: float = float("nan")
    test: float = float("nan")


class Watch:
    """Losses of one run, up to the target."""

    def __init__(self, target: float) -> None:
        self.target, self.values, self.over, self.rounds = target, list[float](), False, float("nan")

    def see(self, loss: float) -> bool:
        """Add the loss after another round.

        Return whether the run is over, because it reached the target or diverged.
        """
        self.values.append(loss)
        if not np.isfinite(loss):
            self.over = True
        elif np.mean(self.values[-EVALUATIONS:]) <= self.target:
            self.over, self.rounds = True, float(len(self.values))
        return self.over


def tested(e: Experiment, problem: Problem, model: Array) -> float:
    """Return the accuracy on held-out samples at a model, or the loss there if targets are real numbers."""
    if e.problem_args.get("data") == "digits":
        data = e.problem_spec.prepared()
        assert data is not None
        return network.accuracy(model, data.held_out.X, data.held_out.y)
    (at,) = problem.evaluate([Request(model, gradient=False, test=True)])
    return at.metrics.get("test_accuracy", at.metrics["test_loss"])


def followed(
    e: Experiment, optimisers: Sequence[Optimiser], commits: Coefficients | None, longest: int, target: float
) -> list[Arrived]:
    """Return the rounds to the target, without seconds, for several optimisers with the same commits."""
    problem, weights = e.build_problem(), commits.weights if commits else [None] * longest
    shares = commits.shares if commits else ()
    runs = [Commits(own, weights, e.plan.sizes, 1, shares) for own in optimisers]
    watches, found = [Watch(target) for _ in runs], [Arrived() for _ in runs]
    for learnts in follow(problem, runs):
        for k, (watch, learnt) in enumerate(zip(watches, learnts, strict=True)):
            if (
                not watch.over
                and len(learnt.loss) > len(watch.values)
                and watch.see(learnt.loss[-1])
                and np.isfinite(watch.rounds)
            ):
                found[k] = Arrived(watch.rounds, float("nan"), tested(e, problem, learnt.model))
        if all(watch.over for watch in watches):
            break
    return found


class Over(Exception):
    """Exception by which a simulation ends at the target."""


def computed(
    e: Experiment, optimiser: Optimiser, longest: int, target: float, limit: float = float("inf")
) -> Arrived:
    """Simulate a numeric scheme. Return when it reaches the target, within `limit` s."""
    problem, watch = e.build_problem(), Watch(target)
    numbers, ended = Numbers(e.plan, problem, optimiser, e.seed, keep=False), list[float]()

    def look(timeline: Timeline) -> None:
        (at,) = problem.evaluate([Request(numbers.models[-1], gradient=False)])
        if watch.see(at.loss) or timeline.times[-1] > limit:
            ended.append(timeline.times[-1])
            raise Over

    with np.errstate(over="ignore", invalid="ignore"), suppress(Over):
        timeline(e.model_copy(update={"rounds": longest}), numbers, events=False, watch=look)
    if np.isnan(watch.rounds):
        return Arrived()
    return Arrived(watch.rounds, ended[0], tested(e, problem, numbers.models[-1]))
