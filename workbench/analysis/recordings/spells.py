"""Spells of lateness: tests whether a worker is late in consecutive steps by more than chance, and in which steps.

The test uses only the order of all times, so that it needs no delay model. Autocorrelation is estimated from the other
workers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.fft import dct
from scipy.stats import rankdata

from workbench.core.base.types import Array

MIN_STEPS = 5  # min length of a spell, in steps
MIN_WORKERS = 4  # min number of workers for an estimate of the others' autocorrelation
MAX_BLOCKS = 200  # max number of blocks into which steps are divided; spells begin and end at their edges
MAX_CUTS = 60  # max number of positions at which the longest window may begin or end
SLOWDOWNS = 2.0, 4.0, 8.0  # factors by which a late worker's exponential scores are larger
RANK_POWERS = 4.0, 16.0, 64.0  # a late worker's rank is distributed as the largest of this many healthy ranks
# if the autocorrelation factor exceeds 1 by this many standard errors, its upper estimate is used
SURE_ERRORS = 1.5
PRIOR_BURSTS = 4  # prior weight of the mean length of bursts, as a number of bursts
# runs of late steps count as bursts if they are longer than by chance by at least this factor
MIN_BURST_RATIO = 1.3
MIN_P_EXPLAINED = 0.01  # above this p-value, bursts of the other workers explain a spell
ITERATIONS = 4  # iterations of the estimate of levels and spells
CHANGE_PENALTY = 2.0  # penalty for each change, in units of the logarithm of the number of steps
# level, from 0 (usual) to 1 (late), above which a step counts for a spell
SPELL_THRESHOLD = 0.4
MIN_DEVIATION = 0.05  # min standard deviation, in units of the difference of both levels
NORMAL_MAD = 0.6745  # median absolute deviation of a standard normal variate
PRIOR_GAPS = 6  # prior weight of the expected size of gaps, as a number of gaps
MAX_SPACINGS = 20  # max number of gaps below a gap, from which its expected size is estimated
# min share of late steps for a spell that has ended, with many workers and with few
ENDED_SHARE, ENDED_SHARE_FEW = 0.2, 0.25
# up to this number of workers, ENDED_SHARE_FEW is used, because the others may by chance have had no burst
FEW_WORKERS = 6
# a window up to the end is preferred if it has at least this share of the largest statistic
NEAR_MAXIMUM_SHARE = 0.9


def spell_p_values(times: Array, parts: Array | None = None, members: Sequence[Sequence[int]] = ()) -> Array:
    """Return a p-value for each worker: is it late in a spell of steps, of any length and place?

    `times`: (steps, workers). `parts`, `members`: if a column is a host, the times of its workers and their columns
    there.

    The statistic is a likelihood ratio of ranks, averaged over all spells and six alternatives (Lehmann's). Spells up
    to the end have half of the weight. If no worker and no step differs from another, the expected ratio is at most 1
    for any delay model. The inverse ratio is therefore a p-value (Markov's inequality). It is multiplied by the number
    of workers (Bonferroni). With too few steps or workers, all p-values are 1. The logarithm of the ratio is divided by
    the autocorrelation factor of the other workers. Several workers may be late: the k latest are left out of this
    estimate, at 1/k of the level. In a spell that has ended, at least a fifth of all steps are late, or a quarter with
    few workers. A shorter spell is a single event.

    G. Shafer, V. Vovk, "Test martingales, Bayes factors and p-values", Statistical Science 26 (2011).

    >>> times = np.random.default_rng(0).random((60, 8))
    >>> times[40:, 3] += 5
    >>> (spell_p_values(times) < 0.001).tolist()
    [False, False, False, True, False, False, False, False]
    """
    steps, workers = times.shape
    parts, members = (times, [[i] for i in range(workers)]) if parts is None else (parts, members)
    p, over = np.ones(workers), times - np.median(times, axis=1, keepdims=True)
    if steps < 2 * MIN_STEPS or parts.shape[1] < MIN_WORKERS:
        return p
    ranks = _ranks(over)
    logs = _likelihoods(ranks)
    free = _mean_likelihood(logs)
    order = np.argsort(-free)
    for k in range(1, max(1, workers // 3) + 1):
        if workers * math.exp(-free[order[k - 1]]) >= 1:
            break
        rest = parts[:, [i for worker in order[k:] for i in members[worker]]]
        memory = _memory(rest)
        found = k * workers * np.exp(-_mean_likelihood(logs[:, order[:k]] / memory))
        p[order[:k]] = np.minimum(p[order[:k]], found)
    for i in np.flatnonzero(p < 1).tolist():
        if not _counts(over, i, *longest_window(-np.log1p(-ranks[:, i]))):
            p[i] = 1.0
    return p


def _ranks(values: Array) -> Array:
    """Return the ranks of all values of a table, between 0 and 1."""
    return np.asarray((rankdata(values).reshape(values.shape) - 0.5) / values.size)


def _likelihoods(ranks: Array) -> Array:
    """Return logarithms of likelihood ratios, (blocks of steps, workers, alternatives)."""
    score = -np.log1p(-ranks)
    found = [(1 - 1 / f) * score - math.log(f) for f in SLOWDOWNS]
    found += [(power - 1) * np.log(ranks) + math.log(power) for power in RANK_POWERS]
    edges = np.unique(np.linspace(0, len(ranks), min(len(ranks), MAX_BLOCKS) + 1).round().astype(int))
    return np.add.reduceat(np.stack(found, axis=2), edges[:-1], axis=0)


def _mean_likelihood(logs: Array) -> Array:
    """Return every worker's logarithm of the likelihood ratio, averaged over spells and alternatives."""
    steps, whole = len(logs), np.full(logs.shape[1:], -np.inf)
    ending = whole
    for each in logs:
        ending = np.logaddexp(ending, 0.0) + each
        whole = np.logaddexp(whole, ending)
    spells = np.logaddexp(ending - math.log(steps), whole - math.log(steps * (steps + 1) / 2)) - math.log(2)
    return np.asarray(np.logaddexp.reduce(spells, axis=1) - math.log(logs.shape[2]))


def _memory(rest: Array) -> float:
    """Return the factor by which autocorrelation inflates the variance of a mean, estimated from equal workers.

    The factor is 1 unless the estimate exceeds 1 by more than a standard error. With at least three
    workers, common variations are removed.
    """
    over = rest - np.median(rest, axis=1, keepdims=True) if rest.shape[1] > 2 else rest
    scores = -np.log1p(-_ranks(over))
    level, count = _wave_levels(scores)
    error = np.sqrt(2 / (count * rest.shape[1]))
    if (level * (1 - SURE_ERRORS * error)).max() > 1:
        return variance_inflation(scores)
    return max(1.0, float((level * (1 - error)).max()))


def variance_inflation(series: Array) -> float:
    """Return the factor by which autocorrelation inflates the variance of a mean of each column, (steps, workers).

    Autocorrelation increases the power of low frequencies. The variance of a mean follows from the average power of
    the lowest frequencies. Averages are taken over the lowest 1, 2, ... frequencies, and the largest average is
    used. A few frequencies may all have little power by chance, so each average is first multiplied by 1 + 1 / (number
    of its terms). The basis functions are cosines with 1, 2, ... half periods over all steps. They are orthogonal to
    the mean, and nearly independent.
    """
    level, count = _wave_levels(series)
    return float((level * (1 + 1 / (count * max(series.shape[1] - 1, 1)))).max(initial=1.0))


def _wave_levels(series: Array) -> tuple[Array, Array]:
    """Return the mean powers of the lowest 1, 2, ... frequencies, relative to that of all.

    The second array has the number of terms of each mean.
    """
    power = (dct(series - series.mean(axis=0), norm="ortho", axis=0)[1:] ** 2).sum(axis=1)
    if power.sum() <= 1e-18 * (series**2).sum():
        return np.ones(len(power)), np.full(len(power), np.inf)
    count = np.arange(1.0, len(series))
    level = np.cumsum(power) / count
    return level / level[-1], count


def longest_window(series: Array) -> tuple[int, int]:
    """Return first step and step after the last of the window whose mean exceeds that of the series most.

    The excess is multiplied by the root of the length. A window up to the end is preferred if it is nearly as large.
    """
    steps = len(series)
    cuts = np.unique(np.linspace(0, steps, min(steps, MAX_CUTS) + 1).round().astype(int))
    sums = np.append(0.0, np.cumsum(series - series.mean()))[cuts]
    a, b = np.triu_indices(len(cuts), 1)
    length = cuts[b] - cuts[a]
    a, b = (each[(length >= MIN_STEPS) & (length <= steps - MIN_STEPS)] for each in (a, b))
    excess = (sums[b] - sums[a]) / np.sqrt(cuts[b] - cuts[a])
    to_end = np.where(b == len(cuts) - 1, excess, -np.inf)
    best = int((to_end if to_end.max() >= NEAR_MAXIMUM_SHARE * excess.max() else excess).argmax())
    return int(cuts[a[best]]), int(cuts[b[best]])


def gap_p_value(values: Array, k: int, usual: float = 0.0, prior: int = 0, most: int = MAX_SPACINGS) -> float:
    """Return a p-value for the gap below the k-th of descending values, if all have the same exponential tail.

    k times the k-th gap is an exponential variate for all k. Its mean is estimated from at most `most` smaller gaps,
    which count as one observation each, and from `usual`, which counts as `prior` observations.

    >>> gap_p_value(np.array([9.0, 1.0, 0.5, 0.0]), 1).__round__(2)
    0.06
    """
    gaps = np.arange(1, len(values)) * -np.diff(values)
    below = gaps[k:][:most]
    total, count = float(below.sum()) + prior * usual, len(below) + prior
    return float((1 + gaps[k - 1] / max(total, 1e-300)) ** -count)


def _counts(over: Array, worker: int, first: int, last: int) -> bool:
    """Return whether a window is late, longer than a single event, and longer than bursts of other workers."""
    steps, mine, others = len(over), over[:, worker], np.delete(over, worker, axis=1)
    inside, outside = float(np.median(mine[first:last])), float(np.median(np.delete(mine, np.s_[first:last])))
    level = (inside + outside) / 2
    late = mine > level
    length = int((late[first:] if last == steps else late).sum())
    share = 0 if last == steps else ENDED_SHARE_FEW if over.shape[1] <= FEW_WORKERS else ENDED_SHARE
    enough = length >= max(MIN_STEPS, share * steps)
    return inside > max(outside, 0.0) and enough and burst_p_value(others > level, length) <= MIN_P_EXPLAINED


def burst_p_value(late: NDArray[np.bool_], length: int) -> float:
    """Return the probability that a burst of the other workers is at least that long, or 0 if they have no bursts.

    The length of bursts is exponential. Its mean is estimated from the observed bursts, and `PRIOR_BURSTS` assumed ones
    of a prior mean length. Consecutive late steps that are no more frequent than by chance are not bursts.
    """
    found, alone = bursts(late)
    if found <= MIN_BURST_RATIO * alone:
        return 0.0
    count = late.sum() / found
    return float((count + 1) * (1 + length / (found * (count + PRIOR_BURSTS))) ** -(count + PRIOR_BURSTS))


def late_spells(times: Array, memory: float = 1.0) -> list[tuple[int, int]]:
    """Return the spells of a worker's lateness: first step and step after the last. The first one is the onset.

    `times`: logarithms of the worker's times divided by the others' usual time, (steps,). `memory`: factor by which
    autocorrelation inflates the variance of a mean. Viterbi's algorithm chooses the late steps that maximise the
    likelihood of two levels, with a penalty for each change. Without spells the worker is late in single steps, or
    never.

    >>> late_spells(np.repeat([0.0, 1.0, 0.0], [30, 20, 40]) + 0.1 * np.sin(np.arange(90)))
    [(30, 50)]
    """
    steps = len(times)
    if steps < 2 * MIN_STEPS:
        return []
    first, last = longest_window(times)
    place = np.arange(steps)
    begun = [np.ones(steps, dtype=bool), (place >= first) & (place < last)]
    begun += [times > level for level in np.quantile(times, [0.3, 0.5, 0.7])]
    penalty = CHANGE_PENALTY * math.log(steps) * memory
    late = min((_fitted(times, start, penalty) for start in begun), key=lambda found: found[0])[1]
    edges = np.flatnonzero(np.diff(np.pad(late.astype(int), 1)))
    return [(int(a), int(b)) for a, b in edges.reshape(-1, 2)]


def _fitted(times: Array, late: NDArray[np.bool_], penalty: float) -> tuple[float, NDArray[np.bool_]]:
    """Return the penalised misfit (of Laplace's likelihood), and whether each step is late, (steps,).

    `late`: initial guess. The usual level is 0. The late level and the spread are estimated. Scores are limited, so
    that a single late step is never worth the penalty.
    """
    spread = 1.0
    for _ in range(ITERATIONS):
        high = float(np.median(times[late])) if late.any() else 0.0
        if high <= 0:
            late = np.zeros_like(late)
        rest = times - high * late
        usual = float(np.median(np.abs(rest))) / NORMAL_MAD
        spread = max(
            float(np.sqrt(np.mean(np.clip(rest, -3 * usual, 3 * usual) ** 2))),
            MIN_DEVIATION * np.ptp(times),
            1e-12,
        )
        if not late.any():
            break
        inside = np.clip(times, -high / 2, 1.5 * high)
        score = (inside - SPELL_THRESHOLD * high) * high / spread**2
        most = 2 * penalty / (MIN_STEPS - 1)
        again = _two_states(np.clip(score, -most, most), penalty)
        if (again == late).all():
            break
        late = again
    changes = int(np.count_nonzero(np.diff(late)))
    misfit = max(float(np.mean(np.abs(rest))), MIN_DEVIATION * float(np.ptp(times)), 1e-12)
    return len(times) * math.log(misfit) + penalty * changes, late


def _two_states(score: Array, penalty: float) -> NDArray[np.bool_]:
    """Return whether each step is late: the choice with the largest sum of scores, less a penalty for each change."""
    came, value = np.zeros((len(score), 2), dtype=int), np.zeros(2)
    for t, gain in enumerate(score):
        change = value[::-1] - penalty
        came[t] = np.where(change > value, [1, 0], [0, 1])
        value = np.maximum(value, change) + np.array([0.0, gain])
    state, late = int(value.argmax()), np.zeros(len(score), dtype=bool)
    for t in range(len(score) - 1, -1, -1):
        late[t], state = bool(state), int(came[t, state])
    return late


def lengths(late: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return the lengths of all runs of consecutive late steps, of all workers (columns) together.

    >>> lengths(np.array([[True], [True], [False], [True]])).tolist()
    [2, 1]
    """
    edges = np.diff(np.pad(late.astype(np.int8), ((1, 1), (0, 0))), axis=0)
    return np.asarray(np.nonzero(edges.T == -1)[1] - np.nonzero(edges.T == 1)[1])


def bursts(late: NDArray[np.bool_]) -> tuple[float, float]:
    """Return the mean length of a run of late steps, and its value for independent late steps, 1/(1 - p).

    p is the worker's own share of late steps, so a permanently slow worker is not a burst. With n of T steps late in
    random order, the mean number of runs is n (T - n + 1) / T.
    """
    found, steps, count = lengths(late), len(late), late.sum(axis=0)
    expected = float((count * (steps - count + 1) / steps).sum())
    return (float(found.mean()), float(count.sum() / expected)) if len(found) else (0.0, 0.0)
