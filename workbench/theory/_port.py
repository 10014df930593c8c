"""A receiver that takes one message at a time: when are k of n independent messages through?"""

from __future__ import annotations

from typing import cast

import numpy as np

from workbench.protocol import Array
from workbench.theory.order_statistics import order_survival

NEGLIGIBLE = 1e-20  # chance of so many arrivals in one transfer time below which they are left out


def through(arrived: Array, n: int) -> Array:
    """P(the first k of n messages are through the port by t), every transfer taking the same time t_c.

    The first k messages arrive at t_(1) <= ... <= t_(k) and are through at max_j t_(j) + (k-j+1) t_c: so at least j
    messages must have arrived by t - (k-j+1) t_c, for every j. The count of arrivals is followed through these k
    moments as a Poisson process conditioned on n arrivals in all: only positive terms, nothing cancels.

    Parameters
    ----------
    arrived : Array
        (m, k): P(a message arrived by t - i t_c) for i = k, ..., 1 (increasing along the row), for m times t.
    n : int
        Messages on their way, n >= k.

    Returns
    -------
    Array
        (m,) probabilities.
    """
    result = (arrived[:, -1] > 0).astype(float)
    uncertain = (arrived[:, -1] > 0) & (arrived[:, 0] < 1)  # neither impossible nor certain
    result[uncertain] = _path(arrived[uncertain], n)
    return result


def _path(arrived: Array, n: int) -> Array:
    moments = np.maximum(np.diff(arrived, axis=1, prepend=0.0), 0.0)  # rounding may make it fall
    counts = np.zeros((len(arrived), n + 1))
    counts[:, 0] = 1.0
    for j in range(arrived.shape[1]):
        counts = _convolve(counts, _poisson(n * moments[:, j], n))
        counts[:, : j + 1] = 0.0
    after = _poisson(n * np.maximum(1.0 - arrived[:, -1], 0.0), n)
    return np.asarray((counts * after[:, ::-1]).sum(1) / _poisson(np.array([float(n)]), n)[0, n])


def through_at_once(arrived: Array, k: int, n: int) -> Array:
    """P(k of n messages are there by t) where transfers take no time; `arrived` is P(a message arrived by t)."""
    return 1.0 - order_survival(1.0 - arrived, k, n)


def _poisson(mean: Array, most: int) -> Array:
    """Poisson probabilities of 0..most for every mean; shape (m, most + 1)."""
    from scipy.special import gammaln, xlogy

    counts = np.arange(most + 1)
    return cast(Array, np.exp(xlogy(counts, mean[:, None]) - mean[:, None] - gammaln(counts + 1)))


def _convolve(a: Array, b: Array) -> Array:
    """Row by row the distribution of a sum, cut off at the last column."""
    width = a.shape[1]
    total = np.zeros_like(a)
    for extra in np.flatnonzero((b > NEGLIGIBLE).any(0)):
        total[:, extra:] += a[:, : width - extra] * b[:, extra, None]
    return total
