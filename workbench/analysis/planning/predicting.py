"""Seconds to a loss of every candidate, resampled: rounds and seconds of one resample come from the same draws.

A resample is a cluster as the measurement allows it (`ClusterProfile.resampled`) and a seed, which says who is slow in
which round, and who for good. All candidates meet the same ones. An exact scheme's rounds take what their forecast
says; an inexact one first learns under that very seed, which tells how many there are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from scipy.stats import norm
from scipy.stats import t as student

from workbench.analysis.planning.advice import RunnerUp, name_of
from workbench.analysis.planning.measurements import Fitted
from workbench.analysis.planning.profile import ClusterProfile, Task
from workbench.analysis.planning.targets import STEP_SEEDS, RoundsNeeded, Target, Trials
from workbench.core.base.bar import Bar
from workbench.core.base.types import Array
from workbench.core.contract.optimisers import Optimiser
from workbench.core.experiment import Experiment
from workbench.core.forecasting import Forecast, first_rounds

PREDICTION_SEEDS = 24  # resampled predictions
FAR_BEHIND_SEEDS = 5  # of those far behind
FAR_BEHIND_RATIO = 2.0  # choices that take at most so many times as long as the best are resampled fully
MAX_FORECAST_ROUNDS = 300  # rounds of a forecast; those of longer runs take as long on average
FORECAST_ERROR_RATIO = 1.02  # times as long or as short: as far as a forecast can tell
NOMINAL_COVERAGE = 0.9  # of the intervals
COMPARED_SEEDS = 48  # seeds on each cluster: what two choices differ by
# choices at most that are looked at so, and how far behind the first
MAX_COMPARED_CHOICES, COMPARED_RATIO = 8, 1.5
MIN_CONFIDENCE = 0.95  # that nothing is quicker, where nothing is said
MIN_CLUSTER_SHARE = 2 / 3  # of the clusters: where as large a measurement as is asked for tells enough


@dataclass(frozen=True)
class Candidate:
    """A scheme with its parameters on the cluster, and its forecast."""

    experiment: Experiment  # on the cluster as measured
    task: Task
    forecast: Forecast
    exact: bool
    optimiser: Optimiser  # step included
    trials: Trials | None = None  # of an inexact one
    seeds: int = 0  # under which it learns
    need: RoundsNeeded | None = None
    seconds: Array = field(default_factory=lambda: np.zeros(0))  # to the target, (resamples,)
    table: Array = field(default_factory=lambda: np.zeros((0, 0)))  # by its first round, (clusters, seeds)

    @property
    def name(self) -> str:
        """Scheme and parameters."""
        return name_of(self.experiment)

    @property
    def mean(self) -> float:
        """Expected seconds to the target.

        Where a run's luck decides (who is slow for good is drawn once a run), the mean of a few says little: of first
        rounds there are many. By how much the few, which are of the same draws as some of these, differ from them is
        luck, too, but for what is beyond it (James and Stein): later rounds, or their number, may be others.
        """
        if not (self.table.size and self.experiment.delays.per_run):
            return float(self.seconds.mean())
        beyond = self.seconds - self.table.ravel("F")[: len(self.seconds)]
        spread = max(beyond.var(ddof=1), self.table.var(axis=1, ddof=1).mean())  # few may miss what is rare
        off, luck = float(beyond.mean()), float(spread) / len(beyond)
        weight = max(1 - luck / off**2, 0.0) if off else 0.0
        return max(float(self.table.mean()) + weight * off, float(self.seconds.min()))

    @property
    def interval(self) -> tuple[float, float]:
        """What nine in ten fresh runs should lie in.

        Of many predictions the quantiles k/(n+1), which are right on average for any delay model; of few Student's
        interval of one more, on a logarithmic scale. Forecasts are off by `FORECAST_ERROR_RATIO` whatever is drawn:
        as an error of its own.
        """
        tail, n = (1 - NOMINAL_COVERAGE) / 2, len(self.seconds)
        logs = np.log(self.seconds)
        middle = np.full(2, np.median(logs))
        if n * tail >= 1:
            ends = np.quantile(logs, (tail, 1 - tail), method="weibull")
        else:
            half = float(student.ppf(1 - tail, n - 1)) * float(logs.std(ddof=1)) * (1 + 1 / n) ** 0.5
            ends = logs.mean() + half * np.array([-1, 1])
        low, high = np.exp(middle + np.array([-1, 1]) * np.hypot(ends - middle, np.log(FORECAST_ERROR_RATIO)))
        return float(low), float(high)

    def rounds(self, aim: Target) -> Array:
        """Rounds to the target under each seed that was tried."""
        return np.array([float(aim.rounds)]) if self.need is None else self.need.rounds

    @property
    def pace(self) -> Array:
        """A real round over a forecast one under each of these seeds, where a simulation knows."""
        return np.ones(1) if self.need is None else self.need.pace


@dataclass(frozen=True)
class Resampling:
    """Candidates on a cluster that is drawn again and again."""

    cluster: ClusterProfile
    aim: Target
    seed: int

    def again(self, c: Candidate, k: int) -> Experiment:
        """Return the candidate on the k-th of the clusters that the measurement allows, with a seed of its own."""
        numbers: Sequence[Fitted] = self.cluster.resampled or (self.cluster.fitted,)
        placed = self.cluster.placed(c.experiment, c.task, numbers[k % len(numbers)])
        return placed.model_copy(update={"seed": self.seed + 1 + k})

    def learnt(self, c: Candidate, seeds: int) -> Candidate:
        """With the rounds that it needs under so many seeds; its step is chosen the first time."""
        assert c.trials is not None
        times = None if c.need is None else c.need.times
        need = c.trials.need([self.again(c, k) for k in range(seeds)], times)
        return replace(c, need=need, optimiser=need.optimiser)

    def predicted(self, c: Candidate, count: int) -> Candidate:
        """Return the candidate with that many resampled predictions."""
        rounds, pace = c.rounds(self.aim), c.pace
        seconds = [
            self._round(c, self.again(c, k), int(rounds[k % len(rounds)]))
            * rounds[k % len(rounds)]
            * pace[k % len(pace)]
            for k in range(count)
        ]
        return replace(c, seconds=np.array(seconds))

    def tabled(self, c: Candidate) -> Candidate:
        """With the first rounds of every cluster under many seeds, its own; those of the predictions among them."""
        clusters = len(self.cluster.resampled) or 1
        rows = []
        for k in range(clusters):
            e = self.again(c, k)
            seeds = range(e.seed, e.seed + clusters * COMPARED_SEEDS, clusters)
            rows.append(first_rounds(e, seeds, self.cluster.sharing(e.workers, c.task)))
        return replace(c, table=np.array(rows) * float(c.rounds(self.aim).mean() * c.pace.mean()))

    def _round(self, c: Candidate, e: Experiment, rounds: int) -> float:
        """Mean seconds a round under one seed."""
        return self.cluster.forecast_of(e, c.task, min(rounds, MAX_FORECAST_ROUNDS)).mean


def screened(all_: Resampling, found: Sequence[Candidate], progress: bool) -> list[Candidate]:
    """Each with its step and a few predictions; those that do not come to the target have rounds of NaN."""
    some = []
    with Bar("choosing steps", "candidate", len(found), progress) as bar:
        for i, c in enumerate(found):
            c = c if c.trials is None else all_.learnt(c, STEP_SEEDS)
            some.append(c if missed(c) else all_.predicted(c, FAR_BEHIND_SEEDS))
            bar.update(i + 1)
    return some


def by_scheme(found: Sequence[Candidate]) -> dict[str, list[Candidate]]:
    """Candidates by scheme, in order."""
    names = dict.fromkeys(c.experiment.scheme for c in found)
    return {name: [c for c in found if c.experiment.scheme == name] for name in names}


def missed(c: Candidate) -> bool:
    """Does it not come to the target?"""
    return c.need is not None and bool(np.isnan(c.need.rounds).any())


def sharpened(all_: Resampling, found: Sequence[Candidate], progress: bool) -> list[Candidate]:
    """The same; those near the front, and the best of every scheme, with all predictions."""
    front = FAR_BEHIND_RATIO * min(c.mean for c in found)
    firsts = {id(min(of, key=lambda c: c.mean)) for of in by_scheme(found).values()}
    sharp = []
    with Bar("resampling", "candidate", len(found), progress) as bar:
        for i, c in enumerate(found):  # one candidate after the other: its code is made once
            if c.mean <= front or id(c) in firsts:
                c = c if c.trials is None else all_.learnt(c, _seeds(c, front))
                c = c if missed(c) else all_.predicted(c, PREDICTION_SEEDS)
            sharp.append(c)
            bar.update(i + 1)
    return sharp


def told_apart(all_: Resampling, found: Sequence[Candidate]) -> list[Candidate]:
    """The same; the first, and those that come near it, with their means known from many more first rounds."""
    known = list(found)
    while open_ := [i for i in _front(known) if not known[i].table.size]:
        for i in open_:
            known[i] = all_.tabled(known[i])
    return known


def _front(known: Sequence[Candidate]) -> list[int]:
    """Places of the first and of those next to it: how far behind they are a few predictions may misjudge."""
    ready = sorted(
        (i for i, c in enumerate(known) if len(c.seconds) >= PREDICTION_SEEDS), key=lambda i: known[i].mean
    )
    return [i for i in ready[:MAX_COMPARED_CHOICES] if known[i].mean <= COMPARED_RATIO * known[ready[0]].mean]


def doubted(all_: Resampling, found: Sequence[Candidate]) -> RunnerUp | None:
    """Which other choice may be quicker than the first; None where in 19 of 20 cases none is by more than 2 %.

    Of what two choices differ by, runs' own luck explains a part, on whatever cluster. What differs between the
    clusters that the measurement allows beyond that is what a larger measurement would tell.
    """
    first, *rivals = sorted((c for c in found if c.table.size), key=lambda c: c.mean)
    if not rivals or len(all_.cluster.resampled) < FAR_BEHIND_SEEDS:
        return None
    saved = np.array([_saved(first, c) for c in rivals])
    quicker = float(np.quantile(saved.max(axis=0), MIN_CONFIDENCE))
    if quicker <= 1 - 1 / FORECAST_ERROR_RATIO:
        return None
    place = int(np.argmax(np.maximum(saved, 0.0).mean(axis=1)))
    took = np.maximum(1 - np.vstack([np.zeros(saved.shape[1]), saved]), 1e-3)
    behind = np.quantile(took / took.min(axis=0) - 1, MIN_CONFIDENCE, axis=1)
    safe = [first, *rivals][int(np.argmin(behind))]
    lasting = first.experiment.delays.per_run and not all_.cluster.same_machines
    times = enough(took)
    able = first.experiment.workers <= all_.cluster.workers
    return RunnerUp(rivals[place].name, quicker, times, safe.name, float(behind.min()), lasting, able)


def enough(took: Array) -> float:
    """As large a measurement tells, on two of three of the clusters, which choice is the best to 2 %.

    `took`: (choices, clusters). Whichever cluster it is, a larger measurement leaves open those near to it, the root of
    its size nearer: in normal scores of their order along what they mostly differ by, so their delay model may be
    any. It is large enough where one choice is within 2 % of the best on all of them. The more is open, the more do
    choices mostly differ by: so it is a few times as many, and not what would tell where they are nearly as good.
    """
    logs = np.log(took)
    along = np.linalg.svd(logs - logs.mean(axis=1, keepdims=True), full_matrices=False)[2][0]
    scores = norm.ppf((along.argsort().argsort() + 0.5) / len(along))
    behind = took > FORECAST_ERROR_RATIO * took.min(axis=0)
    nearest = np.where(behind[:, None], np.abs(scores[:, None] - scores), np.inf).min(axis=2)
    return float(
        np.quantile(
            (norm.ppf(MIN_CONFIDENCE) / np.maximum(nearest.max(axis=0), 1e-3)) ** 2, MIN_CLUSTER_SHARE
        )
    )


def _saved(first: Candidate, other: Candidate) -> Array:
    """Share of the first's time that another saves on each cluster, (clusters,).

    What the mean over so few seeds varies by on one cluster (analysis of variance) is luck, by which the clusters'
    effects are drawn together.
    """
    means = first.table.mean(axis=1)
    saved = (first.table - other.table) / means[:, None]
    rows = saved.mean(axis=1)
    luck, between = float(saved.var(axis=1, ddof=1).mean()) / saved.shape[1], float(rows.var(ddof=1))
    effect = (rows - rows.mean()) * (max(1 - luck / between, 0.0) ** 0.5 if between else 0.0)
    return np.asarray(1 - other.mean / first.mean + effect - float(effect @ means / means.sum()))


def _seeds(c: Candidate, front: float) -> int:
    """Under how many it learns: those that carry numbers cost most, and their rounds hang little on who is late."""
    far = c.mean > front and c.experiment.built_scheme.numeric
    return min(c.seeds, FAR_BEHIND_SEEDS) if far else c.seeds
