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
    """Losses of one run, up to the target. `every`: number of rounds from one evaluation to the next."""

    def __init__(self, target: float, every: int = 1) -> None:
        self.target, self.every, self.values = target, every, list[float]()
        self.over, self.rounds = False, float("nan")

    def due(self, rounds: int) -> bool:
        """Return whether the loss after this number of rounds is evaluated, and not yet in `values`."""
        return not self.over and rounds % self.every == 0 and rounds > self.every * len(self.values)

    def see(self, loss: float) -> bool:
        """Add the loss of another evaluation.

        Return whether the run is over, because it reached the target or diverged.
        """
        self.values.append(loss)
        if not np.isfinite(loss):
            self.over = True
        elif np.mean(self.values[-EVALUATIONS:]) <= self.target:
            self.over, self.rounds = True, float(self.every * len(self.values))
        return self.over


def tested(e: Experiment, problem: Problem, model: Array) -> float:
    """Return the accuracy on held-out samples at a model, or the loss there if targets are real numbers."""
    if e.problem_args.get("targets") == "classes":
        data = e.problem_spec.prepared()
        assert data is not None
        return network.accuracy(model, data.held_out.X, data.held_out.y)
    (at,) = problem.evaluate([Request(model, gradient=False, test=True)])
    return at.metrics.get("test_accuracy", at.metrics["test_loss"])


def followed(
    e: Experiment,
    optimisers: Sequence[Optimiser],
    commits: Coefficients | None,
    longest: int,
    target: float,
    every: int = 1,
) -> list[Arrived]:
    """Return the rounds to the target, without seconds, for several optimisers with the same commits.

    `longest`: max number of rounds. `every`: number of rounds from one evaluation of the loss to the next.
    """
    problem, weights = e.build_problem(), commits.weights[:longest] if commits else [None] * longest
    shares = commits.shares[:longest] if commits else ()
    runs = [Commits(own, weights, e.plan.sizes, every, shares) for own in optimisers]
    watches, found = [Watch(target, every) for _ in runs], [Arrived() for _ in runs]
    for learnts in follow(problem, runs):
        for k, (watch, learnt) in enumerate(zip(watches, learnts, strict=True)):
            if watch.due(len(learnt.loss)) and watch.see(learnt.loss[-1]) and np.isfinite(watch.rounds):
                found[k] = Arrived(watch.rounds, float("nan"), tested(e, problem, learnt.model))
        if all(watch.over for watch in watches):
            break
    return found


class Over(Exception):
    """Exception by which a simulation ends at the target."""


def simulated(e: Experiment, commits: Coefficients, limit: float) -> list[float]:
    """Simulate a scheme, and stop after `limit` s. Return the ends of the rounds, s; fill in `commits`."""
    ends = list[float]()

    def look(timeline: Timeline) -> None:
        ends.append(timeline.times[-1])
        if ends[-1] > limit:
            raise Over

    with suppress(Over):
        timeline(e, commits, events=False, watch=look)
    return ends


def computed(
    e: Experiment,
    optimiser: Optimiser,
    longest: int,
    target: float,
    every: int = 1,
    limit: float = float("inf"),
) -> Arrived:
    """Simulate a numeric scheme. Return when it reaches the target, within `limit` s.

    `longest`: max number of rounds. `every`: number of rounds from one evaluation of the loss to the next.
    """
    problem, watch = e.build_problem(), Watch(target, every)
    numbers, ended = Numbers(e.plan, problem, optimiser, e.seed, keep=False), list[float]()

    def look(timeline: Timeline) -> None:
        if watch.due(len(timeline.times)):
            (at,) = problem.evaluate([Request(numbers.models[-1], gradient=False)])
            watch.see(at.loss)
        if watch.over or timeline.times[-1] > limit:
            ended.append(timeline.times[-1])
            raise Over

    with np.errstate(over="ignore", invalid="ignore"), suppress(Over):
        timeline(e.model_copy(update={"rounds": longest}), numbers, events=False, watch=look)
    if np.isnan(watch.rounds):
        return Arrived()
    return Arrived(watch.rounds, ended[0], tested(e, problem, numbers.models[-1]))
