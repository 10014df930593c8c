"""Models and losses of committed rounds: one weighted pass over the data per round, for all schemes at once.

On the virtual clock a scheme's commits are decoding vectors. Schemes with the same optimiser and the same decoding
vectors have the same iterates. All exact schemes but `delayed` ones are therefore computed together, once. Different
trajectories share every pass over memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from workbench.core.base.grouping import grouped
from workbench.core.base.types import Array
from workbench.core.contract.batches import Batched
from workbench.core.contract.optimisers import Optimiser, State
from workbench.core.contract.problem import Slice, in_round, regularised
from workbench.core.contract.weights import Decoding, VersionedWeights
from workbench.core.problems.base import Evaluation, Problem, Request

Progress = Callable[[int], None]


@dataclass(frozen=True)
class Commits:
    """Commits of one run: decoding vectors (see `Decoding`) over parts of these sizes.

    `shares`: share of the regularisation in the step of each round (see `Commit`). If it is empty, all are 1.
    """

    optimiser: Optimiser
    weights: Sequence[Decoding]
    sizes: NDArray[np.int64]
    every: int = 1  # rounds from one evaluation of the loss to the next
    shares: Sequence[float] = ()
    rounds: int = 0  # total number of rounds, if more commits will be added; 0: the number of commits

    @property
    def total(self) -> int:
        """Total number of rounds."""
        return self.rounds or len(self.weights)

    def key(self) -> tuple[object, ...]:
        """Return a key that is equal for runs with the same iterates."""
        bytes_ = tuple(None if w is None else w.tobytes() for w in self.weights)
        sizes = self.sizes.tobytes() if any(bytes_) else None
        return (self.optimiser, self.every, bytes_, sizes, tuple(self.share(t) for t in range(len(bytes_))))

    def key_of(self, round: int) -> tuple[object, ...]:
        """Return a key that is equal for runs that update equal models in the same way in a round."""
        weights = self.weights[round]
        own = None if weights is None else (weights.tobytes(), self.sizes.tobytes())
        return (own, self.share(round))

    def share(self, round: int) -> float:
        """Return the share of the regularisation in the step of a round."""
        return self.shares[round] if self.shares else 1.0

    def evaluated(self, round: int) -> bool:
        """Return whether the loss is evaluated after a round."""
        return evaluated(round, self.total, self.every)


def evaluated(round: int, rounds: int, every: int) -> bool:
    """Return whether the loss is evaluated after a round: after the last one, and after every `every`-th.

    >>> [r for r in range(10) if evaluated(r, 10, 4)]
    [3, 7, 9]
    """
    return (round + 1) % every == 0 or round == rounds - 1


@dataclass
class Learnt:
    """Losses and metrics of one trajectory, one row per round, after its commit, and its newest model."""

    model: Array
    first: Evaluation | None = None  # evaluation before the first round
    loss: list[float] = field(default_factory=list)
    metrics: dict[str, list[float]] = field(default_factory=dict)

    @property
    def initial(self) -> dict[str, float]:
        """Loss and metrics before the first round."""
        return {"loss": self.first.loss, **self.first.metrics} if self.first else {"loss": float("nan")}

    def add(self, evaluation: Evaluation | None) -> None:
        """Append the loss and metrics after a finished round. None means not evaluated, and is stored as NaN."""
        if evaluation is None:
            known = self.first.metrics if self.first else {}
            evaluation = Evaluation(math.nan, None, dict.fromkeys(known, math.nan))
        self.loss.append(evaluation.loss)
        self._metrics(evaluation.metrics)

    def amend(self, round: int, evaluation: Evaluation) -> None:
        """Fill in the loss and metrics of a round that was not evaluated before."""
        self.loss[round] = evaluation.loss
        for name, value in evaluation.metrics.items():
            self.metrics[name][round] = value

    def moved(self, before: Array, after: Array, truth: Array | None) -> None:
        """Append the relative change (paper 1, equation 9) and the distance from the truth (equation 11)."""
        size = float(before @ before)
        change = after - before
        row = {"relative_error": float(change @ change) / size if size else float("nan")}
        if truth is not None:
            off = after - truth
            row["model_error"] = float(off @ off) / float(truth @ truth)
        self._metrics(row)
        self.model = after

    def _metrics(self, row: dict[str, float]) -> None:
        for name, value in row.items():
            self.metrics.setdefault(name, []).append(value)


def learn(problem: Problem, runs: Sequence[Commits], progress: Progress | None = None) -> list[Learnt]:
    """Compute the iterates of every run, and return one `Learnt` per run. Equal trajectories are computed once."""
    learnt: list[Learnt] = []
    for t, learnt in enumerate(follow(problem, runs)):  # noqa: B007 - its last value is used below
        if progress:
            progress(t)
    return learnt


def follow(problem: Problem, runs: Sequence[Commits]) -> Iterator[list[Learnt]]:
    """Compute the iterates round by round: yield one `Learnt` per run before the first and after every round.

    After round t the losses of rounds 0 to t - 1 are known, and the model is one update ahead of them.
    """
    trajectories = Trajectories(problem, runs)
    for _ in range(max((run.total for run in runs), default=0) + 1):
        yield trajectories.step()


class Trajectories:
    """Iterates of several runs, whose commits may still be added; runs share them while their commits are equal.

    >>> from workbench.core.experiment import Experiment
    >>> e = Experiment(scheme="UMW", workers=4)
    >>> weights = [None]
    >>> runs = Commits(e.build_optimiser(), weights, e.plan.sizes, rounds=2)
    >>> both = Trajectories(e.build_problem(), [runs, runs])
    >>> both.ready(), both.step()[0].loss, both.ready()
    (True, [], False)
    """

    def __init__(self, problem: Problem, runs: Sequence[Commits]) -> None:
        self.problem, self.runs, self.rounds_done = problem, runs, 0
        self._going = set(range(len(runs)))
        groups: dict[tuple[object, ...], list[int]] = {}
        for i, run in enumerate(runs):
            old = any(isinstance(weights, VersionedWeights) for weights in run.weights)
            groups.setdefault((run.optimiser, run.every, run.total, run.key() if old else None), []).append(i)
        self._groups = [(_Trajectory(problem, runs[who[0]]), who) for who in groups.values()]

    def ready(self) -> bool:
        """Return whether the commits for the next step are available, for all runs that continue."""
        t, runs = self.rounds_done, [self.runs[i] for i in self._going]
        return all(t < len(run.weights) or t >= run.total for run in runs)

    def drop(self, run: int) -> None:
        """Leave out a run that has ended or was stopped."""
        self._going.discard(run)
        kept = [(trajectory, [i for i in who if i != run]) for trajectory, who in self._groups]
        self._groups = [(trajectory, who) for trajectory, who in kept if who]
        for trajectory, who in self._groups:
            trajectory.follow(self.runs[who[0]])

    def step(self) -> list[Learnt]:
        """Compute one round. Return one `Learnt` per run that was not left out, in order."""
        t, self.rounds_done = self.rounds_done, self.rounds_done + 1
        self._groups = [part for group in self._groups for part in self._split(*group, t)]
        active = [tr for tr, _ in self._groups if t <= tr.commits.total]
        # no warnings, because too large steps lead to a loss of inf or NaN, which is reported
        with np.errstate(over="ignore", invalid="ignore"):
            requests = [trajectory.request(t) for trajectory in active]
            found = iter(self.problem.evaluate([request for request in requests if request is not None]))
            for trajectory, request in zip(active, requests, strict=True):
                trajectory.take(t, None if request is None else next(found))
        learnt = {i: trajectory.learnt for trajectory, who in self._groups for i in who}
        return [learnt[i] for i in sorted(learnt)]

    def _split(
        self, trajectory: _Trajectory, who: list[int], t: int
    ) -> Iterator[tuple[_Trajectory, list[int]]]:
        """Yield the runs of a trajectory by their commit of round t; each group has a trajectory of its own."""
        if len(who) == 1 or t >= trajectory.commits.total:
            yield trajectory, who
            return
        groups = grouped((self.runs[i].key_of(t), i) for i in who)
        for n, members in enumerate(groups.values()):
            own = trajectory if n == len(groups) - 1 else trajectory.copy()
            own.follow(self.runs[members[0]])
            yield own, members


class _Trajectory:
    def __init__(self, problem: Problem, commits: Commits) -> None:
        self.problem = problem
        self.batched = isinstance(problem, Batched)
        self.state: State = commits.optimiser.start(problem)
        self.learnt = Learnt(problem.start())
        self.wanted = last_uses(commits.weights)
        self.models: dict[int, Array] = {}  # models by version, stored while a later commit needs them
        self.follow(commits)

    def follow(self, commits: Commits) -> None:
        """Use the commits of a run from now on."""
        self.commits = commits
        self.bounds = np.concatenate([[0], np.cumsum(commits.sizes)]).tolist()

    def copy(self) -> _Trajectory:
        """Return a trajectory that continues from here."""
        other = copy(self)
        metrics = {name: [*values] for name, values in self.learnt.metrics.items()}
        other.learnt = replace(self.learnt, loss=[*self.learnt.loss], metrics=metrics)
        other.models = dict(self.models)
        return other

    def request(self, t: int) -> Request | None:
        """Return the request to evaluate at the model after t rounds, or None if there is none."""
        if t in self.wanted:
            self.models[t] = self.learnt.model
        weights = self.commits.weights[t] if t < self.commits.total else None
        due = t == 0 or self.commits.evaluated(t - 1)
        if t == self.commits.total or self.batched or isinstance(weights, VersionedWeights):
            return Request(self.learnt.model, gradient=False, test=True) if due else None
        by_sample = None if weights is None else np.repeat(weights, self.commits.sizes)
        return Request(self.learnt.model, by_sample, round=t, test=due)

    def take(self, t: int, evaluation: Evaluation | None) -> None:
        if t == 0:
            self.learnt.first = evaluation
        else:
            self.learnt.add(evaluation if self.commits.evaluated(t - 1) else None)
        if t == self.commits.total:
            return
        before, gradient = self.learnt.model, evaluation.gradient if evaluation else None
        weights = self.commits.weights[t]
        if isinstance(weights, VersionedWeights):
            gradient = sum(
                (self._gradient(*each) for each in weights.sums), start=np.zeros(self.problem.size)
            )
            self.models = {v: model for v, model in self.models.items() if self.wanted[v] > t}
        elif self.batched:
            gradient = self._of_batch(t, before, weights)
        assert gradient is not None
        update = self.commits.optimiser.update
        after, self.state = update(
            self.state, before, gradient, regularised(self.problem, self.commits.share(t)), t
        )
        self.learnt.moved(before, after, self.problem.truth)

    def _of_batch(self, t: int, model: Array, weights: Array | None) -> Array:
        """Return the gradient of a round's mini-batch with weighted parts, without arrays of the data set's length."""
        if weights is None:
            slices: list[Slice] = [(0, self.problem.samples, 1.0)]
        else:
            slices = list(zip(self.bounds, self.bounds[1:], weights.tolist(), strict=False))
        return in_round(self.problem, t).gradient(slices, model)

    def _gradient(self, version: int, job: int, weighted: Sequence[tuple[int, float]]) -> Array:
        """Return the sum of weight * gradient of some parts at an older model, with the draws of a commit."""
        slices = [(self.bounds[part], self.bounds[part + 1], weight) for part, weight in weighted]
        return in_round(self.problem, job).gradient(slices, self.models[version])


def last_uses(weights: Sequence[Decoding]) -> dict[int, int]:
    """Return the last round whose commit needs a gradient at each version, for commits that mix versions."""
    stale = [(t, w) for t, w in enumerate(weights) if isinstance(w, VersionedWeights)]
    return {version: t for t, w in stale for version in set(w.versions.tolist())}
