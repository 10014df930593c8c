"""Resampled seconds to a loss for every candidate. Rounds and seconds of one resample come from the same draws.

A resample is a cluster that the measurement allows (`ClusterProfile.resampled`) and a seed. The seed determines which
workers are slow in which round, and which permanently. All candidates get the same resamples. The round time of an
exact scheme is that of its forecast. An inexact scheme is first simulated under the same seed, which gives its number
of rounds.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from scipy.stats import norm
from scipy.stats import t as student

from workbench.analysis.planning.advice import RunnerUp, name_of
from workbench.analysis.planning.measurements import Fitted
from workbench.analysis.planning.profile import ClusterProfile, Task
from workbench.analysis.planning.targets import SCREENING_SEEDS, RoundsNeeded, Target, Trials, seeds_tried
from workbench.core.base.bar import Bar
from workbench.core.base.errors import RunError
from workbench.core.base.types import Array, chop
from workbench.core.contract.optimisers import Optimiser
from workbench.core.contract.round_times import SampledTimes
from workbench.core.experiment import Experiment
from workbench.core.forecasting import Forecast

PREDICTION_SEEDS = 24  # number of resampled predictions
FAR_BEHIND_SEEDS = SCREENING_SEEDS  # number of resampled predictions for candidates far behind
MAX_SHARPENED = 3  # max number of simulated configurations per scheme that get all predictions at first
FAR_BEHIND_RATIO = 2.0  # max ratio of a choice's time to the best one's, so that it gets all predictions
MAX_ERRORS = 4.0  # max difference of such a choice from the best one, in standard errors of this difference
MAX_FORECAST_ROUNDS = 300  # max rounds of a forecast; rounds of longer runs take equally long on average
FORECAST_ERROR_RATIO = 1.02  # a ratio of times up to this is within the error of a forecast
MISFIT_ROUNDS = 64  # rounds of a forecast by recorded times
# number of blocks of recorded rounds that are compared, and min rounds of a block; shorter records are halved
MISFIT_BLOCKS, MIN_BLOCK_ROUNDS = 4, 8
NOMINAL_COVERAGE = 0.9  # nominal coverage of the intervals
COMPARED_SEEDS = 24  # number of seeds on each cluster for the difference of two choices
# max number of choices that are compared under `COMPARED_SEEDS`, and max ratio of their time to the first
MAX_COMPARED_CHOICES, COMPARED_RATIO = 8, 1.5
MIN_CONFIDENCE = 0.95  # min probability that no choice is faster, for advice without a runner-up
MIN_CLUSTER_SHARE = 2 / 3  # a measurement is large enough if it decides on this share of the clusters


@dataclass(frozen=True)
class Candidate:
    """Scheme with its parameters on the cluster, and its forecast."""

    experiment: Experiment  # on the measured cluster
    task: Task
    forecast: Forecast
    exact: bool
    optimiser: Optimiser  # optimiser with its step size
    trials: Trials | None = None  # simulations of an inexact scheme
    seeds: int = 0  # number of seeds of its simulations
    # number of configurations of its scheme that may be simulated after the first ones; None: not limited
    more: int | None = None
    need: RoundsNeeded | None = None
    seconds: Array = field(default_factory=lambda: np.zeros(0))  # seconds to the target, (resamples,)
    # seconds to the target if every round takes as long as a single one, (clusters, seeds)
    table: Array = field(default_factory=lambda: np.zeros((0, 0)))
    misfit: float = 0.0  # standard error of the time's logarithm, due to the fitted delay model

    @property
    def name(self) -> str:
        """Scheme and parameters."""
        return name_of(self.experiment)

    @property
    def mean(self) -> float:
        """Expected seconds to the target.

        If workers are permanently slow, the mean of a few predictions is imprecise. The mean of many single rounds
        (`table`) is then used. Other rounds may differ from these. So the mean difference between predictions and
        single rounds under the same seeds is added, shrunk by its sampling error (James and Stein).
        """
        if not (self.table.size and self.experiment.delays.per_run):
            return float(self.seconds.mean())
        beyond = self.seconds - self.table.ravel("F")[: len(self.seconds)]
        # the larger of two variances, because a few draws may miss rare events
        spread = max(beyond.var(ddof=1), self.table.var(axis=1, ddof=1).mean())
        off, error = float(beyond.mean()), float(spread) / len(beyond)
        weight = max(1 - error / off**2, 0.0) if off else 0.0
        return max(float(self.table.mean()) + weight * off, float(self.seconds.min()))

    @property
    def interval(self) -> tuple[float, float]:
        """Interval that should contain nine in ten fresh runs.

        With many predictions it is between two quantiles k/(n+1), which are right on average for any delay model. With
        few it is Student's prediction interval of the logarithms. The error of forecasts, `FORECAST_ERROR_RATIO`, is
        added as an independent error, and so is `misfit`.
        """
        tail, n = (1 - NOMINAL_COVERAGE) / 2, len(self.seconds)
        logs = np.log(self.seconds)
        middle = np.full(2, np.median(logs))
        if n * tail >= 1:
            ends = np.quantile(logs, (tail, 1 - tail), method="weibull")
        else:
            half = float(student.ppf(1 - tail, n - 1)) * float(logs.std(ddof=1)) * (1 + 1 / n) ** 0.5
            ends = logs.mean() + half * np.array([-1, 1])
        model = np.hypot(float(norm.ppf(1 - tail)) * self.misfit, np.log(FORECAST_ERROR_RATIO))
        low, high = np.exp(middle + np.array([-1, 1]) * np.hypot(ends - middle, model))
        return float(low), float(high)

    def rounds(self, aim: Target) -> Array:
        """Return the rounds to the target under each seed that was simulated."""
        return np.array([float(aim.rounds)]) if self.need is None else self.need.rounds

    @property
    def pace(self) -> Array:
        """Ratio of the simulated to the forecast round time under each seed that was simulated."""
        return np.ones(1) if self.need is None else self.need.pace


@dataclass(frozen=True)
class Resampling:
    """Candidates on resampled clusters."""

    cluster: ClusterProfile
    aim: Target
    seed: int

    def again(self, c: Candidate, k: int) -> Experiment:
        """Return the candidate on the k-th resampled cluster, with the k-th seed."""
        numbers: Sequence[Fitted] = self.cluster.resampled or (self.cluster.fitted,)
        placed = self.cluster.placed(c.experiment, c.task, numbers[k % len(numbers)])
        return placed.model_copy(update={"seed": self.seed + 1 + k})

    def tried(self, c: Candidate) -> Candidate:
        """Return the candidate with its step size, and its rounds under a few seeds.

        The step size is chosen under other seeds. Under those, the rounds of the best step size are fewer by chance.
        """
        choosing, few = seeds_tried(c.experiment)
        chosen = self.learnt(c, choosing, first=PREDICTION_SEEDS)
        return chosen if missed(chosen) else self.learnt(chosen, min(few, c.seeds))

    def learnt(self, c: Candidate, seeds: int, first: int = 0) -> Candidate:
        """Return the candidate with its rounds under `seeds` seeds. Its step size is chosen at the first call."""
        assert c.trials is not None
        times = None if c.need is None else c.need.times
        need = c.trials.need([self.again(c, first + k) for k in range(seeds)], times)
        return replace(c, need=need, optimiser=need.optimiser)

    def predicted(self, c: Candidate, count: int) -> Candidate:
        """Return the candidate with `count` resampled predictions."""
        rounds, pace = np.resize(c.rounds(self.aim), count), np.resize(c.pace, count)
        each = [self._round(c, self.again(c, k), int(rounds[k])) for k in range(count)]
        return replace(c, seconds=np.array(each) * rounds * pace)

    def sharpened(self, c: Candidate, most: int = PREDICTION_SEEDS) -> Candidate:
        """Return the candidate with all predictions, simulated under at most `most` seeds."""
        c = c if c.trials is None else self.learnt(c, min(c.seeds, most))
        return c if missed(c) else self.predicted(c, PREDICTION_SEEDS)

    def tabled(self, c: Candidate) -> Candidate:
        """Return the candidate with times of single rounds on every cluster, under many seeds.

        Each is the second round of a run, because the first round of some schemes differs from later ones. If rounds
        are independent, those of one run after its first are enough.
        """
        clusters = len(self.cluster.resampled) or 1
        rows = []
        for k in range(clusters):
            e = self.again(c, k)
            if not (e.delays.per_run or e.delays.markovian):
                rows.append(self.cluster.forecast_of(e, c.task, COMPARED_SEEDS + 1).seconds[1:])
                continue
            seeds = range(e.seed, e.seed + clusters * COMPARED_SEEDS, clusters)
            each = [self.cluster.forecast_of(e, c.task, 2, seed).seconds[1] for seed in seeds]
            rows.append(np.array(each))
        return replace(c, table=np.array(rows) * float(c.rounds(self.aim).mean() * c.pace.mean()))

    def _round(self, c: Candidate, e: Experiment, rounds: int) -> float:
        """Return the mean seconds of a round under one seed."""
        return self.cluster.forecast_of(e, c.task, min(rounds, MAX_FORECAST_ROUNDS)).mean


def screened(
    all_: Resampling, found: Sequence[Candidate], progress: bool, deadline: float = float("inf")
) -> list[Candidate]:
    """Return each candidate with its step size and a few predictions. Rounds are NaN if it misses the target.

    After `deadline` (on the monotonic clock, s) only the candidates evaluated so far are returned, at least one.
    """
    some = list[Candidate]()
    with Bar("choosing steps", "candidate", len(found), progress) as bar:
        for i, c in enumerate(found):
            if some and time.monotonic() > deadline:
                break
            c = c if c.trials is None else all_.tried(c)
            some.append(c if missed(c) else all_.predicted(c, FAR_BEHIND_SEEDS))
            bar.update(i + 1)
    return some


def misfit(cluster: ClusterProfile, c: Candidate) -> float:
    """Return the error of the cluster's delay model for a candidate, as a standard error of the time's logarithm.

    It is the root of the sum of two terms. One is the squared difference between the forecasts by the model and by
    recorded times. The other one is the variance of a mean over blocks of recorded rounds. The sampling errors are
    subtracted, because predictions contain them already. With more than two blocks, the second variance is scaled from
    the normal to Student's quantile, because few blocks hardly determine it.
    """
    bare = cluster.fitted.replace(delay_models=(None,) * len(cluster.recorded))
    placed = cluster.placed(c.experiment, c.task, bare)
    there = cluster.forecast_of(placed, c.task, MISFIT_ROUNDS, c.experiment.seed)
    rounds = recorded_rounds(cluster, c)
    count = MISFIT_BLOCKS if len(rounds) >= MISFIT_BLOCKS * MIN_BLOCK_ROUNDS else 2
    pieces = np.array_split(rounds, count) if len(rounds) > 1 else []
    blocks = [Forecast(piece, 1.0, 0.0, 0.0) for piece in pieces]
    tail = 1 - (1 - NOMINAL_COVERAGE) / 2
    beyond = _beyond([c.forecast, there]) * 2
    if blocks:
        few = float(student.ppf(tail, count - 1) / norm.ppf(tail)) ** 2 if count > 2 else 1.0
        beyond += _beyond(blocks) / len(blocks) * few
    return float(beyond**0.5)


def _beyond(found: Sequence[Forecast]) -> float:
    """Return the variance of the logarithms of some mean round times, beyond their sampling errors; at least 0."""
    means = np.array([each.mean for each in found])
    if not (np.isfinite(means).all() and means.min() > 0):
        return 0.0
    errors = np.array([each.error for each in found]) / means
    return max(float(np.log(means).var(ddof=1) - np.mean(errors**2)), 0.0)


def recorded_rounds(cluster: ClusterProfile, c: Candidate) -> Array:
    """Return the times of a candidate's rounds if workers take the recorded times, in their order, (rounds,), s."""
    e, times = c.experiment, cluster.relative[cluster.main] * cluster.seconds(c.task.load, c.task.floats)
    own = times[:, cluster.places(e.workers)]
    samples, floats = e.shape()
    draws = SampledTimes.measured(own, lambda length: 0.0, e.line, floats, samples, e.decode_rate)
    try:
        return e.built_scheme.round_times(draws, e.workers).seconds
    except RunError:  # a scheme that needs single draws or parts of loads, such as a self-paced one
        return np.asarray(times.max(axis=1))


def by_scheme(found: Sequence[Candidate]) -> dict[str, list[Candidate]]:
    """Return the candidates by scheme, in order."""
    names = dict.fromkeys(c.experiment.scheme for c in found)
    return {name: [c for c in found if c.experiment.scheme == name] for name in names}


def missed(c: Candidate) -> bool:
    """Return whether a candidate misses the target."""
    return c.need is not None and bool(np.isnan(c.need.rounds).any())


def sharpened(
    all_: Resampling, found: Sequence[Candidate], progress: bool, deadline: float = float("inf")
) -> list[Candidate]:
    """Return the candidates, with all predictions for those near the fastest and for the best of every scheme.

    A candidate that is the best of its scheme under a few seeds can be so by chance. So this is repeated until the best
    of every scheme has all predictions. After `deadline` (on the monotonic clock, s) only the first choice gets them.
    """
    known, done, most = list(found), set[int](), MAX_SHARPENED
    far = {i for i, c in enumerate(found) if is_behind(c, min(found, key=lambda c: c.mean))}
    with Bar("resampling", "candidate", len(found), progress) as bar:
        while new := [i for i in _leaders(known, far, most, time.monotonic() > deadline) if i not in done]:
            # one candidate after the other, so that its gradient code is built once
            for i in new:
                known[i] = all_.sharpened(known[i], FAR_BEHIND_SEEDS if i in far else PREDICTION_SEEDS)
                done.add(i)
                bar.update(len(done))
                if time.monotonic() > deadline:
                    break
            most = 1
        bar.update(len(found))
    return known


def is_behind(c: Candidate, best: Candidate) -> bool:
    """Return whether a candidate is far slower than the best, or certainly slower, under the same seeds.

    It is certain if the mean difference of the logarithms, without rounding errors, is above `MAX_ERRORS` of its
    standard errors.
    """
    count = min(len(c.seconds), len(best.seconds))
    later = chop(np.log(c.seconds[:count] / best.seconds[:count]), 1.0)
    certain = later.mean() > MAX_ERRORS * later.std(ddof=1) / count**0.5
    return bool(certain or c.mean > FAR_BEHIND_RATIO * best.mean)


def _leaders(known: Sequence[Candidate], far: set[int], most: int, alone: bool) -> list[int]:
    """Return the indices of the best candidate of every scheme and of those that may be the best of all, in order.

    `far`: those that are behind. `most`: max number of simulated ones per scheme. `alone`: only the best of all.
    """
    ready = sorted((i for i, c in enumerate(known) if not missed(c)), key=lambda i: known[i].mean)
    if alone:
        return ready[:1]
    near = list[int]()
    for scheme in {known[i].experiment.scheme for i in ready}:
        order = [i for i in ready if known[i].experiment.scheme == scheme]
        close = [i for i in order if i not in far]
        near += order[:1] + [i for k, i in enumerate(close) if known[i].trials is None or k < most]
    return sorted(set(near))


def told_apart(all_: Resampling, found: Sequence[Candidate]) -> list[Candidate]:
    """Return the candidates, with means over many more draws for the fastest and those close behind it.

    If a candidate with few predictions becomes the fastest, it gets all of them first.
    """
    known = list(found)
    while open_ := [i for i in _front(known) if not known[i].table.size]:
        for i in open_:
            few = len(known[i].seconds) < PREDICTION_SEEDS
            known[i] = all_.sharpened(known[i]) if few else all_.tabled(known[i])
    return known


def _front(known: Sequence[Candidate]) -> list[int]:
    """Return the indices of the fastest candidate, and of candidates so close behind it that the order is uncertain."""
    order = sorted((i for i, c in enumerate(known) if not missed(c)), key=lambda i: known[i].mean)
    ready = [i for i in order if len(known[i].seconds) >= PREDICTION_SEEDS]
    if order[:1] != ready[:1]:
        return order[:1]
    return [i for i in ready[:MAX_COMPARED_CHOICES] if known[i].mean <= COMPARED_RATIO * known[ready[0]].mean]


def doubted(all_: Resampling, found: Sequence[Candidate]) -> RunnerUp | None:
    """Return a choice that may be faster than the first one. None if in 19 of 20 cases no choice is faster by over 2 %.

    None also if only one choice can be compared, or if fewer than `FAR_BEHIND_SEEDS` clusters were resampled.

    The difference of two choices has two causes. One is sampling error of runs, on any cluster. The other is the
    difference between the clusters that the measurement allows, which a larger measurement would reduce.
    """
    first, *others = sorted((c for c in found if c.table.size), key=lambda c: c.mean)
    if not others or len(all_.cluster.resampled) < FAR_BEHIND_SEEDS:
        return None
    saved = np.array([_saved(first, c) for c in others])
    quicker = float(np.quantile(saved.max(axis=0), MIN_CONFIDENCE))
    if quicker <= 1 - 1 / FORECAST_ERROR_RATIO:
        return None
    place = int(np.argmax(np.maximum(saved, 0.0).mean(axis=1)))
    took = np.maximum(1 - np.vstack([np.zeros(saved.shape[1]), saved]), 1e-3)
    behind = np.quantile(took / took.min(axis=0) - 1, MIN_CONFIDENCE, axis=1)
    safe = [first, *others][int(np.argmin(behind))]
    lasting = first.experiment.delays.per_run and not all_.cluster.same_machines
    able = first.experiment.workers <= all_.cluster.workers
    return RunnerUp(others[place].name, quicker, enough(took), safe.name, float(behind.min()), lasting, able)


def enough(took: Array) -> float:
    """Return by which factor a measurement must be larger, to decide which choice is best on two of three clusters.

    `took`: seconds, (choices, clusters). A measurement that is larger by a factor f leaves a smaller set of possible
    clusters: their distance from the true one shrinks by the root of f. Distances are normal scores of the clusters'
    order along the direction in which they differ most, so no delay model is assumed. A measurement is large enough if
    one choice is within 2 % of the best on all clusters that remain possible. So nearly equal choices need not be
    separated, and the factor is moderate.
    """
    logs = np.log(took)
    along = np.linalg.svd(logs - logs.mean(axis=1, keepdims=True), full_matrices=False)[2][0]
    scores = norm.ppf((along.argsort().argsort() + 0.5) / len(along))
    behind = took > FORECAST_ERROR_RATIO * took.min(axis=0)
    nearest = np.where(behind[:, None], np.abs(scores[:, None] - scores), np.inf).min(axis=2)
    factors = (norm.ppf(MIN_CONFIDENCE) / np.maximum(nearest.max(axis=0), 1e-3)) ** 2
    return float(np.quantile(factors, MIN_CLUSTER_SHARE))


def _saved(first: Candidate, other: Candidate) -> Array:
    """Return the share of the first's time that another choice saves on each cluster, (clusters,).

    The saving on a cluster contains sampling error, because it is a mean over few seeds. An analysis of variance
    estimates this error. The differences between clusters are shrunk, so that their variance is without the error.
    """
    means = first.table.mean(axis=1)
    saved = (first.table - other.table) / means[:, None]
    rows = saved.mean(axis=1)
    error, between = float(saved.var(axis=1, ddof=1).mean()) / saved.shape[1], float(rows.var(ddof=1))
    effect = (rows - rows.mean()) * (max(1 - error / between, 0.0) ** 0.5 if between else 0.0)
    return np.asarray(1 - other.mean / first.mean + effect - float(effect @ means / means.sum()))
