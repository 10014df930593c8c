"""Who is to blame for long steps: shares of what is lost, and whether chance explains them.

A step ends with its slowest worker, so causes interact: with two slow workers, mending either alone gains little. Each
one's cost is therefore its Shapley value, the mean over all orders of mending; for "the slowest decides" that is the
airport game: what the slowest exceeds the second by is its own, what the second exceeds the third by they share, ...

S. C. Littlechild, G. Owen, "A simple expression for the Shapley value in a special case", Management Science 20 (1973).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache

import numpy as np
from scipy.fft import dct
from scipy.stats import norm

from workbench.base.types import Array

DRAWS, ATONCE = 4000, 1000  # orders that chance is judged by, and are held at once
LONG = 100  # steps from which on halves are looked at, too
ALIKE = 0.5  # of its latest worker's lateness, which all workers of a host have that is late itself
FEWEST, LONGEST = 8, 256  # blocks at least; stretches that a recording is cut into at most
CUT = 5.0  # usual deviations: lateness beyond counts as much, so that no few odd steps decide
OWN = 0.05  # chance that somebody's own ups and downs make as much, above which they explain it
SHARES = np.arange(0.2, 1.01, 0.2)  # of lateness that remembers; the rest is of its own step
MEMORIES, PART = (
    8,
    3,
)  # lengths of memory that are tried, from half a step to a third of all: longer is a habit


def over_median(times: Array) -> Array:
    """By how much each is over the step's median; same shape.

    >>> over_median(np.array([[1.0, 1.0, 3.0]])).tolist()
    [[0.0, 0.0, 2.0]]
    """
    return np.asarray(np.maximum(times - np.median(times, axis=1, keepdims=True), 0.0))


def blame(over: Array) -> Array:
    """Everybody's part of the largest excess of a step: Shapley values, (steps, workers) as `over`.

    >>> blame(np.array([[0.0, 0.0, 0.0, 1.0, 3.0]])).tolist()
    [[0.0, 0.0, 0.0, 0.5, 2.5]]
    """
    order = np.argsort(over, axis=1)
    rising = np.take_along_axis(over, order, axis=1)
    steps = np.diff(rising, axis=1, prepend=0.0) / np.arange(over.shape[1], 0, -1)
    share = np.empty_like(over)
    np.put_along_axis(share, order, np.cumsum(steps, axis=1), axis=1)
    return share


def chances(times: Array, rng: np.random.Generator) -> Array:
    """How often somebody would be as late as each of the workers if no worker differed from another.

    `times` (steps, workers). Late in two senses: by what it costs (`blame`), which finds who is seldom late but then
    very, and by the time over the step's median, cut where it is odd; of long recordings that also in the first and the
    last half, as a habit may begin. The smallest chance counts, as many times as is due for all that is tried. The
    unluckiest of all workers is compared, as any might have been named.

    >>> times = np.ones((40, 4)) + 0.1 * np.random.default_rng(0).random((40, 4)) + [0, 0, 0, 1]
    >>> (chances(times, np.random.default_rng(1)) < 0.01).tolist()
    [False, False, False, True]
    """
    over = times - np.median(times, axis=1, keepdims=True)
    usual = np.abs(over - np.median(over, axis=0))
    most = CUT * np.median(usual[usual > 0]) if usual.any() else 0.0
    scores = blame(over_median(times)), np.clip(over, -most, most)
    tried = [(each, 2) for each in scores]
    if len(times) >= LONG:
        tried = [*((each, 4) for each in scores), *((half, 8) for half in np.array_split(scores[1], 2))]
    return np.asarray(np.minimum(1.0, np.min([n * _chances(each, rng) for each, n in tried], axis=0)))


def _chances(score: Array, rng: np.random.Generator) -> Array:
    """The same for one score, (steps, workers).

    What goes up and down around everybody's own mean is dealt out anew for every block of steps; the sums say how far
    chance takes the unluckiest. Blocks keep bursts together. As lateness remembers beyond a block, sums of the series
    vary more than of its shuffled blocks, by a factor that its memory tells (see `_memory`): they are grown by that,
    for every memory that the recording leaves open. With few steps that is many, and nobody is accused lightly.

    Somebody's own ups and downs must not explain it, either: one burst, among many quiet workers, is one event and no
    habit. A habit may have begun, or ended, halfway.
    """
    if len(score) < 2:  # one step is no habit
        return np.ones(score.shape[1])
    width = -(-len(score) // LONGEST)
    score = np.add.reduceat(score, np.arange(0, len(score), width), axis=0)
    steps, mean = len(score), score.mean(axis=0)
    likely, whole = _memory(score), _variances(steps, steps)
    block = max(1, min(round(2 * float(likely @ whole) / steps), steps // FEWEST))
    sums = np.add.reduceat(score - mean, np.arange(0, steps, block), axis=0)
    # The blocks' own variance, less what went with the mean of all of them.
    within = steps / block * _variances(steps, block) - whole * block / steps
    grown = np.sqrt(np.maximum(whole / np.maximum(within, 1e-9), 1.0))
    some = np.broadcast_to(sums, (ATONCE, *sums.shape))
    drawn = [rng.permuted(some, axis=2).sum(axis=1).max(axis=1) for _ in range(DRAWS // ATONCE)]
    worst = np.sort(np.concatenate(drawn))
    more = steps * (mean - mean.mean())
    # Equal to rounding: where all is even, every order has the same sums.
    least = more - 1e-9 * np.abs(worst).max()
    known = (1 + (DRAWS - np.searchsorted(worst, least[:, None] / grown)) @ likely) / (1 + DRAWS)
    for i in np.flatnonzero(known <= OWN):
        series = score[:, i] - np.delete(score, i, axis=1).mean(axis=1)
        if min(map(_passing, (series, *np.array_split(series, 2)))) > OWN:
            known[i] = 1.0
    return known


def _passing(series: Array) -> float:
    """How likely a series that goes up and down as this one does, around nothing, is above it as much as this one."""
    steps, ups = len(series), float(((series - series.mean()) ** 2).sum())
    whole = _variances(steps, steps)
    spread = np.sqrt(ups * whole / np.maximum(steps - whole / steps, 1e-9))
    return float(_memory(series[:, None]) @ norm.sf(series.sum() / np.maximum(spread, 1e-300)))


@cache
def _memories(steps: int) -> tuple[Array, Array]:
    """Kinds of memory, the first none: correlations by lag, (kinds, steps), and spectra, (kinds, steps - 1).

    A share of the lateness is an autoregressive series, the rest independent. Spectrum: variances of the cosines that
    fit into all steps 1, 2, ... times by half, which are free of the mean, and nearly independent of one another.
    """
    lag = np.arange(steps)
    cosines = dct(np.eye(steps), norm="ortho", axis=0)[1:]
    shares, alone = SHARES[:, None], lag == 0
    kinds, spectra = [alone[None] * 1.0], [np.ones((1, steps - 1))]
    for memory in np.geomspace(0.5, max(steps / PART, 0.5), MEMORIES):
        together = np.exp(-np.abs(lag[:, None] - lag) / memory)
        kinds.append(np.where(alone, 1.0, shares * together[0]))
        spectra.append(1 - shares + shares * ((cosines @ together) * cosines).sum(axis=1))
    return np.concatenate(kinds), np.concatenate(spectra)


def _variances(steps: int, length: int) -> Array:
    """Variance of the sum of so many of the steps by kind of memory, in those of one step, (kinds,)."""
    lag = np.arange(length)
    return np.asarray(_memories(steps)[0][:, :length] @ np.where(lag == 0, length, 2.0 * (length - lag)))


def _memory(score: Array) -> Array:
    """How likely each kind of memory is, from how everybody goes up and down around its mean, (kinds,).

    Whittle's likelihood over the cosines, with any level; before, no memory is held as likely as all others together.
    Workers count by how evenly they share the ups and downs: a single one's burst is one witness.

    P. Whittle, "Estimation and information in stationary time series", Arkiv for Matematik 2 (1953), pp. 423-434.
    """
    steps, workers = score.shape
    spectra = _memories(steps)[1]
    power = dct(score - score.mean(axis=0), norm="ortho", axis=0)[1:] ** 2
    own, total = power.sum(axis=0), power.sum(axis=1)
    if steps < 2 or own.sum() <= 1e-18 * (score**2).sum():
        return np.eye(1, len(spectra))[0]
    witnesses = own.sum() ** 2 / (own**2).sum() * max(1 - 1 / workers, 1 / workers)
    fit = (steps - 1) * np.log((total / spectra).sum(axis=1)) + np.log(spectra).sum(axis=1)
    likely = np.exp(-0.5 * witnesses * (fit - fit.min()))
    likely[0] *= len(likely) - 1
    return np.asarray(likely / likely.sum())


def late_hosts(
    times: Array, hosts: Mapping[str, Sequence[int]], chance: float, rng: np.random.Generator
) -> list[str]:
    """Hosts that are late as a whole: more than by chance, and with all their workers, not with one of them.

    `hosts`: the columns of each. A host with one worker alone is that worker.

    >>> times = 1 + 0.1 * np.random.default_rng(0).random((40, 6)) + np.array([0, 0, 0, 0, 1, 1])
    >>> late_hosts(times, {"a": (0, 1), "b": (2, 3), "c": (4, 5)}, 0.01, np.random.default_rng(1))
    ['c']
    """
    if len(hosts) < 2 or max(map(len, hosts.values())) < 2 or np.any(times <= 0):
        return []
    means = np.stack([np.exp(np.log(times[:, [*who]]).mean(axis=1)) for who in hosts.values()], axis=1)
    found = []
    for name, known in zip(hosts, chances(means, rng), strict=True):
        who = list(hosts[name])
        others = np.median(np.delete(times, who, axis=1), axis=1, keepdims=True)
        late = np.median(times[:, who] / others, axis=0) - 1
        if known <= chance and len(who) > 1 and late.min() >= ALIKE * late.max() > 0:
            found.append(name)
    return found
