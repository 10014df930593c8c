"""Long spells of lateness: whether one worker's longest is beyond what the others have, and where spells are.

All workers' lateness has the same autocorrelation where no worker differs from another. So a worker's longest spell is
compared with the longest spells of the others, and no model of the autocorrelation is needed.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from workbench.core.base.types import Array

MIN_STEPS = 5  # shortest spell
MAX_CUTS = 60  # places at which a window may begin or end
PRIOR_GAPS = 6  # as how many gaps their expected size counts
PRIOR_BURSTS = 4  # as how many bursts their mean length counts
BURSTY = 1.3  # how many times as long as by chance runs of late steps are, to be called bursts
EXPLAINED = 0.05  # p-value above which others' bursts explain a spell
ROUNDS = 4  # in which levels and spells are estimated
PENALTY = 2.0  # for each change, in logarithms of the number of steps
THRESHOLD = 0.4  # between the usual level (0) and the late one (1), above which a step speaks for a spell
STEADY = 0.05  # least standard deviation, in differences of the levels
NORMAL_MAD = 0.6745  # median absolute deviation of a standard normal variate
MAX_SPACINGS = 20  # order statistics below a gap that it is compared with
ONGOING_SHARE = 0.08  # least share of the steps that a spell up to the end lasts
ENDED_SHARE, ENDED_SHARE_FEW = 0.2, 0.35  # least share of late steps of one that has ended; with few workers
FEW_WORKERS = 6  # up to which the others may have no burst by chance
NEARLY = 0.9  # of the largest statistic, from which on a window up to the end is preferred


def spell_p_values(over: Array, most: float, inflation: Callable[[Array], float]) -> Array:
    """Return a p-value for each worker: is its longest spell of lateness longer than the others' allow?

    `over`: seconds over the step's median, (steps, workers), clipped at `most` so that no few odd steps decide.
    `inflation`: by what autocorrelation inflates the variance of a mean of such a table.

    The statistic is the largest standardised excess of a window's mean over the worker's mean. Of independent windows
    its square has an exponential upper tail, and so has the length of bursts. So the gap between order statistics is
    compared with the gaps below it (Renyi's representation). Several may be late: the k-th gap is tested at 2^-k of the
    level. A spell that has ended lasts at least a fifth of the steps, a third with few workers: a shorter one is a
    single event.

    >>> over = np.random.default_rng(0).random((60, 8))
    >>> over[40:, 3] += 5
    >>> (spell_p_values(over, 2.0, lambda _: 1.0) < 0.001).tolist()
    [False, False, False, True, False, False, False, False]
    """
    steps, workers = over.shape
    p, late = np.ones(workers), np.clip(over, -most, most)
    if workers < 4 or steps < 2 * MIN_STEPS:
        return p
    first, last, excess = longest_windows(late)
    order = np.argsort(-excess)
    for k in range(1, workers // 3 + 1):
        rest = late[:, order[k:]]
        usual = 2 * float(rest.var(axis=0).mean()) * inflation(rest)
        p[order[:k]] = np.minimum(
            p[order[:k]], 2.0**k * gap_p_value(excess[order] ** 2, k, usual, PRIOR_GAPS)
        )
    for i in np.flatnonzero(p < 1).tolist():
        if not _counts(over, i, first[i], last[i]):
            p[i] = 1.0
    return p


def longest_windows(late: Array) -> tuple[Array, Array, Array]:
    """Return first step, step after the last, and statistic of every worker's window of largest excess."""
    steps = len(late)
    cuts = np.unique(np.linspace(0, steps, min(steps, MAX_CUTS) + 1).round().astype(int))
    sums = np.vstack([np.zeros(late.shape[1]), np.cumsum(late - late.mean(axis=0), axis=0)])[cuts]
    a, b = np.triu_indices(len(cuts), 1)
    length = cuts[b] - cuts[a]
    a, b = (each[(length >= MIN_STEPS) & (length <= steps - MIN_STEPS)] for each in (a, b))
    length = cuts[b] - cuts[a]
    excess = (sums[b] - sums[a]) / np.sqrt(length)[:, None]
    best, at = excess.argmax(axis=0), np.arange(late.shape[1])
    to_end = np.where((b == len(cuts) - 1)[:, None], excess, -np.inf)
    last = to_end.argmax(axis=0)
    best = np.where(to_end[last, at] >= NEARLY * excess[best, at], last, best)
    return cuts[a[best]], cuts[b[best]], np.maximum(excess[best, at], 0.0)


def gap_p_value(values: Array, k: int, usual: float = 0.0, prior: int = 0, most: int = MAX_SPACINGS) -> float:
    """Return how likely the gap below the k-th of descending values is, if all have one exponential tail.

    k times the k-th gap is an exponential variate, whatever k is. Its mean is estimated from the gaps below, which
    count as one observation each, `most` of them, and from `usual`, which counts as `prior` ones.

    >>> gap_p_value(np.array([9.0, 1.0, 0.5, 0.0]), 1).__round__(2)
    0.06
    """
    gaps = np.arange(1, len(values)) * -np.diff(values)
    below = gaps[k:][:most]
    total, count = float(below.sum()) + prior * usual, len(below) + prior
    return float((1 + gaps[k - 1] / max(total, 1e-300)) ** -count)


def _counts(over: Array, worker: int, first: int, last: int) -> bool:
    """Return whether a window is late, long enough to be more than one event, and longer than others' bursts."""
    steps, mine, others = len(over), over[:, worker], np.delete(over, worker, axis=1)
    inside, outside = float(np.median(mine[first:last])), float(np.median(np.delete(mine, np.s_[first:last])))
    level = (inside + outside) / 2
    if last == steps:
        length = int((mine[first:] > level).sum())
        enough = last - first >= max(MIN_STEPS, ONGOING_SHARE * steps)
    else:
        length = int((mine > level).sum())
        share = ENDED_SHARE if over.shape[1] > FEW_WORKERS else ENDED_SHARE_FEW
        enough = length >= max(MIN_STEPS, share * steps)
    return inside > max(outside, 0.0) and enough and burst_p_value(others > level, length) <= EXPLAINED


def burst_p_value(late: NDArray[np.bool_], length: int) -> float:
    """Return how likely one of the others' bursts is at least that long; 0 where they have no bursts.

    Bursts have an exponential length, of which the mean is estimated from those that there are and `PRIOR_BURSTS` of
    their mean length. Late steps that follow one another no more than by chance are not bursts.
    """
    found, alone = bursts(late)
    if found <= BURSTY * alone:
        return 0.0
    count = late.sum() / found
    return float((count + 1) * (1 + length / (found * (count + PRIOR_BURSTS))) ** -(count + PRIOR_BURSTS))


def late_spells(times: Array, memory: float = 1.0) -> list[tuple[int, int]]:
    """Return first step and step after the last of each spell in which a worker is late; the first is the onset.

    `times`: logarithms of its times over the others' usual one, (steps,). `memory`: by how much autocorrelation
    inflates the variance of a mean. Each step is late or not: the likelihood of two levels, with a penalty for each
    change, is largest (Viterbi's algorithm). No spell: the worker is now late and now not, or never.

    >>> late_spells(np.repeat([0.0, 1.0, 0.0], [30, 20, 40]) + 0.1 * np.sin(np.arange(90)))
    [(30, 50)]
    """
    steps = len(times)
    if steps < 2 * MIN_STEPS:
        return []
    first, last, _ = longest_windows(times[:, None])
    place = np.arange(steps)
    begun = [np.ones(steps, dtype=bool), (place >= first[0]) & (place < last[0])]
    begun += [times > level for level in np.quantile(times, [0.3, 0.5, 0.7])]
    penalty = PENALTY * math.log(steps) * memory
    late = min((_fitted(times, start, penalty) for start in begun), key=lambda found: found[0])[1]
    edges = np.flatnonzero(np.diff(np.pad(late.astype(int), 1)))
    return [(int(a), int(b)) for a, b in edges.reshape(-1, 2)]


def _fitted(times: Array, late: NDArray[np.bool_], penalty: float) -> tuple[float, NDArray[np.bool_]]:
    """Return the penalised misfit (of Laplace's likelihood) and the late steps, from a first guess of them.

    The usual level is 0; the late one and the spread are estimated. No step speaks for a change on its own.
    """
    spread = 1.0
    for _ in range(ROUNDS):
        high = float(np.median(times[late])) if late.any() else 0.0
        if high <= 0:
            late = np.zeros_like(late)
        rest = times - high * late
        usual = float(np.median(np.abs(rest))) / NORMAL_MAD
        spread = max(
            float(np.sqrt(np.mean(np.clip(rest, -3 * usual, 3 * usual) ** 2))), STEADY * np.ptp(times), 1e-12
        )
        if not late.any():
            break
        inside = np.clip(times, -high / 2, 1.5 * high)
        score = (inside - THRESHOLD * high) * high / spread**2
        most = 2 * penalty / (MIN_STEPS - 1)
        again = _two_states(np.clip(score, -most, most), penalty)
        if (again == late).all():
            break
        late = again
    changes = int(np.count_nonzero(np.diff(late)))
    misfit = max(float(np.mean(np.abs(rest))), STEADY * float(np.ptp(times)), 1e-12)
    return len(times) * math.log(misfit) + penalty * changes, late


def _two_states(score: Array, penalty: float) -> NDArray[np.bool_]:
    """Return the steps whose scores have the largest sum, where each change costs a penalty."""
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
    """How many steps in a row each lateness lasted, all workers' (columns) together.

    >>> lengths(np.array([[True], [True], [False], [True]])).tolist()
    [2, 1]
    """
    edges = np.diff(np.pad(late.astype(np.int8), ((1, 1), (0, 0))), axis=0)
    return np.asarray(np.nonzero(edges.T == -1)[1] - np.nonzero(edges.T == 1)[1])


def bursts(late: NDArray[np.bool_]) -> tuple[float, float]:
    """Mean length of a lateness, and what it would be if a worker's late steps were independent: 1/(1 - p).

    The worker's own share p of late steps counts, so that who is slow for good makes no burst of itself. Of late steps
    that are n of a worker's T in random order, the mean number of runs is n (T - n + 1) / T.
    """
    found, steps, count = lengths(late), len(late), late.sum(axis=0)
    expected = float((count * (steps - count + 1) / steps).sum())
    return (float(found.mean()), float(count.sum() / expected)) if len(found) else (0.0, 0.0)
