"""Who is to blame for long steps: shares of what is lost, and whether chance explains them.

A step ends with its slowest worker, so causes interact: with two slow workers, mending either alone gains little. Each
one's cost is therefore its Shapley value, the mean over all orders of mending; for "the slowest decides" that is the
airport game: what the slowest exceeds the second by is its own, what the second exceeds the third by they share, ...

S. C. Littlechild, G. Owen, "A simple expression for the Shapley value in a special case", Management Science 20 (1973).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from scipy.stats import rankdata

from workbench.base.types import Array

DRAWS = 1000  # orders that chance is judged by
ALIKE = 0.5  # of its latest worker's lateness, which all workers of a host have that is late itself
FEWEST = 8  # blocks, at least


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
    """How often anybody is as late as each of the workers if who is late is drawn anew for every block of steps.

    `times` (steps, workers). Late in two senses: by what it costs (`blame`), which finds who is seldom late but then
    very, and by its rank among the others (Friedman's test), which no few odd steps upset; the smaller chance counts,
    twice. Blocks keep bursts together, and the unluckiest of all workers is compared, as any might have been named.

    >>> times = np.ones((40, 4)) + 0.1 * np.random.default_rng(0).random((40, 4)) + [0, 0, 0, 1]
    >>> (chances(times, np.random.default_rng(1)) < 0.01).tolist()
    [False, False, False, True]
    """
    ranks = rankdata(times, axis=1)
    starts = np.arange(0, len(times), _block(ranks))
    sums = [np.add.reduceat(each, starts, axis=0) for each in (blame(over_median(times)), ranks)]
    found = []
    for each in sums:
        drawn = np.broadcast_to(each, (DRAWS, *each.shape))
        worst = rng.permuted(drawn, axis=2).sum(axis=1).max(axis=1)
        # Equal to rounding: where all is even, every order has the same sums.
        as_late = worst[None, :] >= each.sum(axis=0)[:, None] - 1e-9 * np.abs(worst).max()
        found.append((1 + as_late.sum(axis=1)) / (1 + DRAWS))
    return np.asarray(np.minimum(1.0, 2 * np.minimum(*found)))


def _block(ranks: Array) -> int:
    """Steps that are kept together: by how neighbours resemble each other, apart from who is late for good.

    E. Carlstein, Annals of Statistics 14 (1986), p. 1171: for autoregressive series the best block of n steps is
    (2 r / (1 - r^2))^(2/3) n^(1/3).
    """
    off = ranks - ranks.mean(axis=0)
    power = float((off**2).sum())
    r = float((off[1:] * off[:-1]).sum()) / power if power > 0 else 0.0
    r = min(max(r, 0.0), 0.95)
    grown = max(1.0, (2 * r / (1 - r**2)) ** (2 / 3))
    return max(1, min(round(grown * len(ranks) ** (1 / 3)), len(ranks) // FEWEST))


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
