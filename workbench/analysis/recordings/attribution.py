"""Attribution of long steps: each worker's share of the lost time, and tests whether random variation explains it.

A step ends with its slowest worker, so causes interact: with two slow workers, fixing either alone gains little. The
cost of a worker is therefore its Shapley value, the mean over all orders of fixing workers. If the slowest worker
decides, that is the airport game. The excess of the slowest over the second is its own cost. The excess of the second
over the third is shared by these two, and so on.

S. C. Littlechild, G. Owen, "A simple expression for the Shapley value in a special case", Management Science 20 (1973).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy.special import betainc
from scipy.stats import norm, rankdata

from workbench.analysis.recordings.spells import (
    PRIOR_GAPS,
    gap_p_value,
    late_spells,
    spell_p_values,
    variance_inflation,
)
from workbench.core.base.types import Array

# max number of random permutations of a test, and number of permutations in one batch
MAX_PERMUTATIONS, PERMUTATION_BATCH = 5000, 1000
MAX_P_FOR_MORE_DRAWS = 0.1  # p-value above which no more permutations are drawn
# a host is late if each of its workers is late by at least this share of the lateness of its latest worker
MIN_HOST_LATENESS_RATIO = 0.5
# min number (if there are enough steps) and max number of blocks of a recording
MIN_BLOCKS, MAX_BLOCKS = 16, 256
# shares of the significance level for the three statistics: cost, lateness in all steps, spells of lateness
STATISTIC_WEIGHTS = 0.4, 0.4, 0.2
# lateness is clipped at this many typical deviations, so that single unusual steps do not decide
CLIP_DEVIATIONS = 5.0
MIN_REFERENCE_WORKERS = 6  # min number of other workers for an estimate of autocorrelation
# above this p-value, the spread of the other workers' counts of late steps explains a late worker
MIN_P_SPREAD = 0.02
# workers are unequal if their counts vary by more than this multiple of what autocorrelation explains
UNLIKE_VARIANCE_RATIO = 4.0
MEAN_ORDER_GAP = 0.7  # mean gap between the two largest of several normal values, in standard deviations
MAX_P_OWN_VARIATION = 0.05  # above this p-value, a worker's own variation explains its lateness


def excess_over_median(times: Array) -> Array:
    """Return the excess of each time over the median of its step; same shape.

    >>> excess_over_median(np.array([[1.0, 1.0, 3.0]])).tolist()
    [[0.0, 0.0, 2.0]]
    """
    return np.asarray(np.maximum(times - np.median(times, axis=1, keepdims=True), 0.0))


def shapley_shares(over: Array) -> Array:
    """Return the share of each worker in the largest excess of a step: Shapley values, (steps, workers) as `over`.

    >>> shapley_shares(np.array([[0.0, 0.0, 0.0, 1.0, 3.0]])).tolist()
    [[0.0, 0.0, 0.0, 0.5, 2.5]]
    """
    order = np.argsort(over, axis=1)
    rising = np.take_along_axis(over, order, axis=1)
    steps = np.diff(rising, axis=1, prepend=0.0) / np.arange(over.shape[1], 0, -1)
    share = np.empty_like(over)
    np.put_along_axis(share, order, np.cumsum(steps, axis=1), axis=1)
    return share


def p_values(
    times: Array,
    rng: np.random.Generator,
    reference: Array | None = None,
    members: Sequence[Sequence[int]] = (),
) -> Array:
    """Return a p-value for each worker: how likely is such lateness if no worker differs from another?

    `times` (steps, workers). There are three statistics. The first is the cost of a worker (`shapley_shares`), which is
    sensitive to rare, long delays. The second is its clipped excess over the step's median. The third is for spells of
    lateness (`spell_p_values`), and is sensitive to workers that are slow in some of the steps. The result is the
    smallest p-value, divided by its share of the level (`STATISTIC_WEIGHTS`). The first two statistics are compared
    with their maxima over workers, the third is corrected by Bonferroni. Both control the family-wise error.
    `reference`: if a column is a host, the times of its workers, which have the same autocorrelation; `members`: their
    columns.

    >>> times = np.ones((40, 4)) + 0.1 * np.random.default_rng(0).random((40, 4)) + [0, 0, 0, 1]
    >>> (p_values(times, np.random.default_rng(1)) < 0.01).tolist()
    [False, False, False, True]
    """
    if len(times) < 2:  # one step gives no evidence
        return np.ones(times.shape[1])
    over = times - np.median(times, axis=1, keepdims=True)
    usual = np.abs(over - np.median(over, axis=0))
    scale = float(np.median(usual[usual > 0])) if usual.any() else 0.0
    cut = np.clip(over, -CLIP_DEVIATIONS * scale, CLIP_DEVIATIONS * scale)
    lasts = variance_inflation(_normal_scores(times if reference is None else reference))
    found = [
        _permutation_p_values(score, lasts, cut, rng)
        for score in (shapley_shares(excess_over_median(times)), cut)
    ]
    found.append(spell_p_values(times, reference, members))
    return np.asarray(
        np.minimum(1.0, np.min([p / w for p, w in zip(found, STATISTIC_WEIGHTS, strict=True)], axis=0))
    )


def _normal_scores(times: Array) -> Array:
    """Return normal scores of the order of each worker's times over the steps, relative to the step's median."""
    over = times - np.median(times, axis=1, keepdims=True)
    return np.asarray(norm.ppf((rankdata(over, axis=0) - 0.5) / len(over)))


def _varying(ups: Array, lasts: float) -> float:
    """Return the variance of a sum of deviations, added over workers, with a correction for the estimated mean."""
    return float((ups**2).sum()) * _grown(lasts, len(ups))


def _grown(lasts: float, steps: int) -> float:
    return lasts * steps / max(steps - lasts, steps / 2)


def _permutation_p_values(score: Array, lasts: float, cut: Array, rng: np.random.Generator) -> Array:
    """Return p-values for one score, (steps, workers). `lasts`: see `variance_inflation`; `cut`: clipped lateness.

    For every block of steps, the deviations from each worker's mean are permuted. The sums give the distribution of
    the maximum under the null hypothesis. Blocks keep bursts together. Autocorrelation beyond a block makes sums of
    the series vary more than sums of shuffled blocks, so they are scaled by that ratio.

    A worker is also not named if its own variation explains its lateness: one burst among many quiet workers is a
    single event. This is tested in all steps and in each half of them, because lateness may begin or end halfway. The
    autocorrelation of the other workers, estimated from the clipped lateness, must not explain the lateness either.
    Normal scores would weigh many fast steps like a few late ones, and show only a third of the autocorrelation of
    bursts. The worker itself is excluded from this estimate, because a change of its speed looks like autocorrelation.
    With few other workers, the estimate is imprecise, and not used.
    """
    steps, mean = len(score), score.mean(axis=0)
    more = mean - mean.mean()
    ups = score - score.mean(axis=1, keepdims=True) - more
    block = max(1, min(round(lasts), steps // MIN_BLOCKS), -(-steps // MAX_BLOCKS))
    sums = np.add.reduceat(ups, np.arange(0, steps, block), axis=0)
    shuffled = max(float((sums**2).sum()), 1e-300)
    sums = sums * max(_varying(ups, lasts) / shuffled, 1.0) ** 0.5
    # With constant times, all permutations have the same sums. Sums that differ only by rounding count as equal.
    least, worst = steps * more - 1e-9 * np.abs(score).sum(), np.zeros(0)
    known: Array = np.zeros(len(more))
    while len(worst) < MAX_PERMUTATIONS and known.min() <= MAX_P_FOR_MORE_DRAWS:
        some = np.broadcast_to(sums, (PERMUTATION_BATCH, *sums.shape))
        worst = np.sort(np.append(worst, rng.permuted(some, axis=2).sum(axis=1).max(axis=1)))
        known = _above(least, worst)
    for i in np.flatnonzero(known <= MAX_P_OWN_VARIATION).tolist():
        series = score[:, i] - np.delete(score, i, axis=1).mean(axis=1)
        if min(map(_passing, (series, *np.array_split(series, 2)))) > MAX_P_OWN_VARIATION:
            known[i] = 1.0
        elif len(mean) > MIN_REFERENCE_WORKERS:
            others = _grown(variance_inflation(np.delete(cut, i, axis=1)), steps)
            known[i] = _above(least[i], worst * max(others / _grown(lasts, steps), 1.0) ** 0.5)
            if known[i] <= MAX_P_OWN_VARIATION and _spread(score, i) > MIN_P_SPREAD:
                known[i] = 1.0
    return np.asarray(known)


def _spread(score: Array, worker: int) -> float:
    """Return a p-value for the gap between a worker's count of late steps and the counts of the other workers.

    Several workers may be equally late. A step is late if it exceeds half of the worker's lateness. The result is 0 if
    the other workers' counts differ by more than autocorrelation explains, because these workers are then unequal.
    """
    over = np.maximum(score, 0.0)
    mine = over[:, worker]
    late = over > 0.5 * float(mine @ mine) / max(float(mine.sum()), 1e-300)
    count, steps = late.sum(axis=0).astype(float), len(late)
    order = np.argsort(-count, kind="stable")
    place, p = int(np.flatnonzero(order == worker)[0]) + 1, 1.0
    if place > len(order) // 2:
        return 0.0
    for k in range(place, len(order) // 2 + 1):
        rest = late[:, order[k:]].astype(float)
        explained = steps * float(rest.var(axis=0).mean()) * _grown(variance_inflation(rest), steps)
        spread = float(count[order[k:]].var(ddof=1))
        if spread > UNLIKE_VARIANCE_RATIO * max(explained, 1.0):
            return 0.0
        usual = MEAN_ORDER_GAP * max(spread, 1.0) ** 0.5
        here = gap_p_value(count[order], k, usual, PRIOR_GAPS, rest.shape[1] // 2)
        p = min(p, (k - place + 1) ** 2 * here)
    return p


def _above(score: Any, worst: Array) -> Any:
    """Return the p-value of a score: the share of the sorted random maxima `worst` that are at least as large."""
    return (1 + len(worst) - np.searchsorted(worst, score)) / (1 + len(worst))


def _passing(series: Array) -> float:
    """Return the probability that a series with these deviations and expectation 0 has a mean of at least this size."""
    ups = (series - series.mean())[:, None]
    spread = _varying(ups, variance_inflation(ups)) ** 0.5
    return float(norm.sf(series.sum() / max(spread, 1e-300)))


def late_p_values(late: Array, known: Array, times: Array) -> Array:
    """Return a p-value for each worker: how likely is its share of late steps if no worker differs from another?

    `late`, `known`: (steps, workers). `times`: times in the steps in which all workers were recorded. The p-value is
    the binomial tail for the share of late steps of the other workers, at most a half. The number of steps is reduced
    by autocorrelation. The result is multiplied by the number of workers (Bonferroni).

    >>> late = np.arange(40)[:, None] % 8 == np.arange(4)
    >>> late[:, 2] = True
    >>> late_p_values(late, np.ones_like(late), 1.0 + late).round(3).tolist()
    [1.0, 1.0, 0.0, 1.0]
    """
    count, steps = late.sum(axis=0), known.sum(axis=0)
    others = (count.sum() - count + 0.5) / (steps.sum() - steps + 1)
    whole = late[known.all(axis=1)].astype(float)
    memory = (
        max(variance_inflation(_normal_scores(times)), variance_inflation(whole)) if len(times) > 1 else 1.0
    )
    n = steps / memory
    k = np.divide(count, steps, out=np.zeros(len(n)), where=steps > 0) * n
    tail = np.where(k > 0, betainc(np.maximum(k, 1e-9), n - k + 1, np.minimum(others, 0.5)), 1.0)
    return np.asarray(np.minimum(1.0, tail * len(n)))


def spells_of(times: Array, who: Sequence[int]) -> tuple[Array, list[tuple[int, int]]]:
    """Return the log ratios of some workers' times to the usual time of the others, and the spells of lateness.

    `times`: (steps, workers); a spell is its first step and the step after its last.
    """
    logs = np.log(times / np.median(times, axis=1, keepdims=True))
    others = np.delete(logs, list(who), axis=1)
    series = logs[:, list(who)].mean(axis=1) - np.median(others)
    memory = variance_inflation(_normal_scores(others)) if others.shape[1] > 1 and len(times) > 1 else 1.0
    return series, late_spells(series, memory)


def late_hosts(
    times: Array, hosts: Mapping[str, Sequence[int]], chance: float, rng: np.random.Generator
) -> list[str]:
    """Return hosts that are late as a whole: significantly, and with all their workers.

    `hosts`: columns of each host. A host with one worker is that worker. Autocorrelation is estimated from all workers:
    of two hosts, each is the mirror image of the other. All workers of a host are late in the steps of its spells.

    >>> times = 1 + 0.1 * np.random.default_rng(0).random((40, 6)) + np.array([0, 0, 0, 0, 1, 1])
    >>> late_hosts(times, {"a": (0, 1), "b": (2, 3), "c": (4, 5)}, 0.01, np.random.default_rng(1))
    ['c']
    """
    if len(hosts) < 2 or max(map(len, hosts.values())) < 2 or np.any(times <= 0):
        return []
    means = np.stack([np.exp(np.log(times[:, [*who]]).mean(axis=1)) for who in hosts.values()], axis=1)
    found = []
    for name, known in zip(hosts, p_values(means, rng, times, [*hosts.values()]), strict=True):
        who = list(hosts[name])
        others = np.median(np.delete(times, who, axis=1), axis=1, keepdims=True)
        spells = [slice(first, end) for first, end in spells_of(times, who)[1]]
        within = np.r_[tuple(spells)] if spells else slice(None)
        late = np.median((times[:, who] / others)[within], axis=0) - 1
        if known <= chance and len(who) > 1 and late.min() >= MIN_HOST_LATENESS_RATIO * late.max() > 0:
            found.append(name)
    return found
