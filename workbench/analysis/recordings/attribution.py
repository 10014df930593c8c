"""Who is to blame for long steps: shares of what is lost, and whether chance explains them.

A step ends with its slowest worker, so causes interact: with two slow workers, mending either alone gains little. Each
one's cost is therefore its Shapley value, the mean over all orders of mending; for "the slowest decides" that is the
airport game: what the slowest exceeds the second by is its own, what the second exceeds the third by they share, ...

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

MAX_PERMUTATIONS, PERMUTATION_BATCH = 5000, 1000  # orders that chance is judged by, and are held at once
MAX_P_FOR_MORE_DRAWS = 0.1  # chance that needs no more of them
MIN_HOST_LATENESS_RATIO = (
    0.5  # of its latest worker's lateness, which all workers of a host have that is late itself
)
MIN_BLOCKS, MAX_BLOCKS = (
    16,
    256,
)  # blocks that a recording is cut into: where it has as many steps, and at most
STATISTIC_WEIGHTS = 0.4, 0.4, 0.2  # of the level: cost, lateness in all steps, a spell of lateness
CLIP_DEVIATIONS = 5.0  # usual deviations: lateness beyond counts as much, so that no few odd steps decide
MIN_REFERENCE_WORKERS = 6  # others, at least, whose memory tells something
MIN_P_SPREAD = 0.02  # p-value above which the spread of numbers of late steps explains that somebody is late
# times the variance explained by autocorrelation, above which workers are not alike
UNLIKE_VARIANCE_RATIO = 4.0
MEAN_ORDER_GAP = 0.7  # mean gap between the largest of several numbers, in their standard deviations
MAX_P_OWN_VARIATION = (
    0.05  # chance that somebody's own ups and downs make as much, above which they explain it
)


def excess_over_median(times: Array) -> Array:
    """By how much each is over the step's median; same shape.

    >>> excess_over_median(np.array([[1.0, 1.0, 3.0]])).tolist()
    [[0.0, 0.0, 2.0]]
    """
    return np.asarray(np.maximum(times - np.median(times, axis=1, keepdims=True), 0.0))


def shapley_shares(over: Array) -> Array:
    """Everybody's part of the largest excess of a step: Shapley values, (steps, workers) as `over`.

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
    """How often somebody would be as late as each of the workers if no worker differed from another.

    `times` (steps, workers). Three statistics: what a worker costs (`shapley_shares`), which finds who is seldom
    late but then very; its time over the step's median, cut where it is odd; and its longest spell of lateness
    (`spell_p_values`), which finds who is slow in a part of the steps. The smallest p-value counts, over its share
    of the level (`STATISTIC_WEIGHTS`). The unluckiest of all workers is compared, as any might have been named.
    `reference`: where a column is a host, its workers' times, which have the same autocorrelation; `members`: their
    columns.

    >>> times = np.ones((40, 4)) + 0.1 * np.random.default_rng(0).random((40, 4)) + [0, 0, 0, 1]
    >>> (p_values(times, np.random.default_rng(1)) < 0.01).tolist()
    [False, False, False, True]
    """
    if len(times) < 2:  # one step is no habit
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
    """Normal scores of everybody's own order of steps, apart from what all share: ups and downs, and none is odd."""
    over = times - np.median(times, axis=1, keepdims=True)
    return np.asarray(norm.ppf((rankdata(over, axis=0) - 0.5) / len(over)))


def _varying(ups: Array, lasts: float) -> float:
    """Variance of a sum of ups and downs, added over workers: of those that were seen the mean has been taken."""
    return float((ups**2).sum()) * _grown(lasts, len(ups))


def _grown(lasts: float, steps: int) -> float:
    return lasts * steps / max(steps - lasts, steps / 2)


def _permutation_p_values(score: Array, lasts: float, cut: Array, rng: np.random.Generator) -> Array:
    """The same for one score, (steps, workers); `lasts`: see `variance_inflation`; `cut`: lateness as it is cut.

    What goes up and down around everybody's own mean is dealt out anew for every block of steps; the sums say how far
    chance takes the unluckiest. Blocks keep bursts together. As lateness remembers beyond a block, sums of the series
    vary more than of its shuffled blocks: they are grown by that.

    Somebody's own ups and downs must not explain it, either: one burst, among many quiet workers, is one event and no
    habit. A habit may have begun, or ended, halfway. Nor must all others' memory, told by lateness as it is cut:
    normal scores weigh many quick steps as much as a few late ones, and see a third of the memory of bursts. One's own
    habit that begins is the slowest wave of all, so it must not tell; and few others make a poor guess.
    """
    steps, mean = len(score), score.mean(axis=0)
    more = mean - mean.mean()
    ups = score - score.mean(axis=1, keepdims=True) - more
    block = max(1, min(round(lasts), steps // MIN_BLOCKS), -(-steps // MAX_BLOCKS))
    sums = np.add.reduceat(ups, np.arange(0, steps, block), axis=0)
    shuffled = max(float((sums**2).sum()), 1e-300)
    sums = sums * max(_varying(ups, lasts) / shuffled, 1.0) ** 0.5
    # Equal to rounding: where all is even, every order has the same sums.
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
    """Return how likely the gap is between the late steps of a worker, or of several as late, and all others' number.

    A step is late from half of what makes up the worker's lateness. 0 where the others' numbers differ by more than
    their autocorrelation explains: they are then not alike.
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
    """How often chance, in ascending order, takes the unluckiest as far."""
    return (1 + len(worst) - np.searchsorted(worst, score)) / (1 + len(worst))


def _passing(series: Array) -> float:
    """How likely a series that goes up and down as this one does, around nothing, is above it as much as this one."""
    ups = (series - series.mean())[:, None]
    spread = _varying(ups, variance_inflation(ups)) ** 0.5
    return float(norm.sf(series.sum() / max(spread, 1e-300)))


def late_p_values(late: Array, known: Array, times: Array) -> Array:
    """Return a p-value for each worker: how likely is its share of late steps if no worker differs from another?

    `late`, `known`: of every step and worker; `times`: the steps in which all were recorded. The binomial tail at the
    others' share, which is taken to be at most a half, of as many steps as are left by autocorrelation, times the
    number of workers (Bonferroni).

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
    """Return the logarithms of some workers' times over the others' usual ones, and the spells in which they are late.

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
    """Hosts that are late as a whole: more than by chance, and with all their workers, not with one of them.

    `hosts`: the columns of each. A host with one worker alone is that worker. Autocorrelation is estimated from all
    workers: of two hosts, each is the other's mirror. All workers of a host are late in the steps of its spells.

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
