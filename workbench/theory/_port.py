"""A receiver that takes one message at a time: when are k of n independent messages through?"""

from __future__ import annotations

from typing import cast

import numpy as np

from workbench.base.types import Array
from workbench.theory.order_statistics import order_survival

NEGLIGIBLE = 1e-20  # chance of so many arrivals in one transfer time below which they are left out
BATCH = 256  # times at once: neighbours in time have similar chances, and the processor's cache holds them


def through(arrived: Array, n: int) -> Array:
    """P(the first k of n messages are through the port by t), every transfer taking the same time t_c.

    `arrived`: (m, k): P(a message arrived by t - i t_c) for i = k, ..., 1 (increasing along the row), for m
    times t. `n`: messages on their way, n >= k.

    The first k messages arrive at t_(1) <= ... <= t_(k) and are through at max_j t_(j) + (k-j+1) t_c: so at
    least j messages must have arrived by t - (k-j+1) t_c, for every j. The count of arrivals is followed
    through these k moments as a Poisson process conditioned on n arrivals in all: only positive terms, so
    nothing cancels.

    Returns (m,) probabilities.
    """
    result = (arrived[:, -1] > 0).astype(float)
    uncertain = np.flatnonzero((arrived[:, -1] > 0) & (arrived[:, 0] < 1))  # neither impossible nor certain
    for some in np.array_split(uncertain, -(-len(uncertain) // BATCH) or 1):
        result[some] = _path(arrived[some].T, n)
    return result


def through_at_once(arrived: Array, k: int, n: int) -> Array:
    """P(k of n messages are there by t) where transfers take no time, from P(a message arrived by t)."""
    return 1.0 - order_survival(1.0 - arrived, k, n)


def _path(arrived: Array, n: int) -> Array:
    """The same for few times, one per column."""
    moments = np.maximum(np.diff(arrived, axis=0, prepend=0.0), 0.0)  # rounding may make it fall
    counts = np.zeros((n + 1, arrived.shape[1]))
    counts[0] = 1.0
    for j, moment in enumerate(moments):
        counts = _add(counts, _poisson(n * moment, n), j)
        counts[: j + 1] = 0.0
    after = _poisson(n * np.maximum(1.0 - arrived[-1], 0.0), n)
    return np.asarray((counts * after[::-1]).sum(0) / _poisson(np.array([float(n)]), n)[n])


def _poisson(mean: Array, most: int) -> Array:
    """Poisson probabilities of 0..most for every mean; shape (most + 1, m)."""
    from scipy.special import gammaln, xlogy

    counts = np.arange(most + 1)[:, None]
    return cast(Array, np.exp(xlogy(counts, mean) - mean - gammaln(counts + 1)))


def _add(counts: Array, more: Array, least: int) -> Array:
    """Distribution of a sum, column by column and cut off at the last row; counts are at least `least`."""
    total = np.zeros_like(counts)
    for extra in np.flatnonzero((more > NEGLIGIBLE).any(1)):
        total[least + extra :] += counts[least : len(counts) - extra] * more[extra]
    return total
