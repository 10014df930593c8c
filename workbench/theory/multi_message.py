"""Paper 5, multi-message communication: completion times of the schemes with one message per worker.

E. Ozfatura, D. Gunduz, S. Ulukus. K workers, K parts, every worker computes r parts (its load) in order.
Worker i has finished x computations at x X_i, X_i = alpha + Exp(rate mu): shift alpha in s/part, rate mu in
parts/s, and the mean is alpha + 1 / mu = 0.11 s/part for the paper's alpha = 0.01, mu = 10 (it says 10 parts
per second; that leaves out alpha).
"""

from __future__ import annotations

import numpy as np

from workbench.base.types import Array
from workbench.theory._checks import divides, positive, real, whole
from workbench.theory.order_statistics import exponential_order_mean, grouped_order_mean

__all__ = ["clustered_gc_completion", "gc_completion", "lcc_completion", "lcc_threshold"]


def gc_completion(workers: int, load: int, shift: float, rate: float) -> float:
    """Expected completion time of cyclic gradient coding: K - r + 1 workers with all their r parts.

    Parameters
    ----------
    workers : int
        K, also the number of parts.
    load : int
        Parts per worker, r, 1 to K.
    shift, rate : float
        alpha, s/part, and mu, parts/s.

    Returns
    -------
    float
        Seconds: r (alpha + (H_K - H_(r-1)) / mu).

    Notes
    -----
    Paper 5, section II and figure 1 (GC), with equation (5) for the delays.

    Examples
    --------
    >>> round(gc_completion(40, 10, shift=0.01, rate=10), 4)
    1.5496
    """
    return clustered_gc_completion(workers, load, 1, shift, rate)


def clustered_gc_completion(workers: int, load: int, clusters: int, shift: float, rate: float) -> float:
    """Expected completion time of gradient coding in clusters, one message per worker.

    Every cluster of K / P workers has K / P parts of its own and needs K / P - r + 1 of its workers.

    Parameters
    ----------
    workers : int
        K.
    load : int
        Parts per worker, r, 1 to K / P; r = K / P is fractional repetition, one worker needed per cluster.
    clusters : int
        P, must divide K.
    shift, rate : float
        alpha, s/part, and mu, parts/s.

    Returns
    -------
    float
        Seconds until the last cluster is done: exact for one cluster, else by quadrature.

    Notes
    -----
    Paper 5, section III-C.

    Examples
    --------
    >>> round(clustered_gc_completion(40, 10, 4, shift=0.01, rate=10), 4)
    0.3083
    """
    size = cluster_size(workers, clusters)
    load = whole("load", load, 1, size, f"a cluster has {size} parts")
    return _wait_for(size - load + 1, size, clusters, load, shift, rate)


def lcc_threshold(workers: int, load: int) -> int:
    """Workers that Lagrange coded computing needs for linear regression: 2 ceil(K / r) - 1.

    Parameters
    ----------
    workers : int
        K, also the number of parts.
    load : int
        Coded parts per worker, r, 1 to K.

    Returns
    -------
    int
        Answers needed: one more than the degree 2 (ceil(K / r) - 1) of the polynomial to interpolate.

    Raises
    ------
    SettingError
        If an argument is out of its range, or more answers than workers are needed.

    Notes
    -----
    Paper 5, section IV (LCC); S. Li et al. 2018, "Polynomially coded regression".

    Examples
    --------
    >>> lcc_threshold(40, 10)
    7
    """
    workers = whole("workers", workers, 1)
    least = -(-workers // ((workers + 1) // 2))  # from this load on, the threshold is at most K
    load = whole("load", load, least, workers, "2 ceil(workers / load) - 1 of them must answer")
    return 2 * -(-workers // load) - 1


def lcc_completion(workers: int, load: int, shift: float, rate: float) -> float:
    """Expected completion time of Lagrange coded computing: 2 ceil(K / r) - 1 workers with all their r parts.

    Parameters
    ----------
    workers : int
        K, also the number of parts.
    load : int
        Coded parts per worker, r.
    shift, rate : float
        alpha, s/part, and mu, parts/s.

    Returns
    -------
    float
        Seconds: r (alpha + (H_K - H_(K-k)) / mu), k the threshold.

    Notes
    -----
    Paper 5, section IV and figure 1 (LCC).

    Examples
    --------
    >>> round(lcc_completion(40, 10, shift=0.01, rate=10), 4)
    0.2897
    """
    return _wait_for(lcc_threshold(workers, load), workers, 1, load, shift, rate)


def cluster_size(workers: int, clusters: int) -> int:
    """Workers per cluster, K / P; raises `SettingError` unless P divides K."""
    workers = whole("workers", workers, 1)
    divides("clusters", whole("clusters", clusters, 1, workers), "workers", workers)
    return workers // clusters


def time_per_part(x: Array, shift: float, rate: float) -> Array:
    """P(X > x), X = alpha + Exp(rate mu): the seconds that a worker takes per part."""
    return np.asarray(np.exp(-rate * np.maximum(x - shift, 0.0)))


def _wait_for(k: int, size: int, clusters: int, load: int, shift: float, rate: float) -> float:
    """Mean until every cluster has k of its workers with all their parts."""
    shift, rate = real("shift", shift), positive("rate", rate)
    if clusters == 1:
        return exponential_order_mean(k, size, load / rate, load * shift)
    return grouped_order_mean(lambda t: time_per_part(t / load, shift, rate), clusters, k, size)
