"""Paper 5, multi-message communication: exact mean completion times of its schemes, and of those with one message.

E. Ozfatura, D. Gunduz, S. Ulukus. There are K workers and K parts. Every worker computes r parts (its load) in order.
Worker i has finished x computations at x X_i, where X_i = alpha + Exp(rate mu), with alpha in s/part and mu in parts/s.
For the paper's alpha = 0.01 and mu = 10, the mean is alpha + 1 / mu = 0.11 s/part. (The paper's "10 parts per second"
leaves out alpha.)

With several messages: at time t the workers' numbers of finished parts are independent, P(at least x) = P(X <= t / x).
The probability that a cluster is done is a sum over these numbers: around the circle by a transfer matrix for
correlated codes, by convolution for uncorrelated codes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np

from workbench.core.base.settings import SettingError
from workbench.core.base.types import Array
from workbench.core.theory._checks import divides, flag, positive, real, whole
from workbench.core.theory._quadrature import mean_time
from workbench.core.theory.order_statistics import exponential_order_mean, grouped_order_mean, last_group

__all__ = ["clustered_gc_completion", "gc_completion", "lcc_completion", "lcc_threshold", "mmc_completion"]

Undone = Callable[[Array], Array]  # P(finished = 0..r) (m, r + 1) -> P(a cluster is not done) (m,)


def gc_completion(workers: int, load: int, shift: float, rate: float) -> float:
    """Return the expected completion time of cyclic gradient coding: K - r + 1 workers with all their r parts.

    `workers`: K, also the number of parts. `load`: parts per worker, r, 1 to K. `shift`, `rate`: alpha, s/part, and
    mu, parts/s.

    Returns seconds: r (alpha + (H_K - H_(r-1)) / mu). Paper 5, section II and figure 1 (GC), with equation
    (5) for the delays.

    >>> round(gc_completion(40, 10, shift=0.01, rate=10), 4)
    1.5496
    """
    return clustered_gc_completion(workers, load, 1, shift, rate)


def clustered_gc_completion(workers: int, load: int, clusters: int, shift: float, rate: float) -> float:
    """Return the expected completion time of gradient coding in clusters, one message per worker.

    `workers`: K. `load`: parts per worker, r, 1 to K / P. With r = K / P (fractional repetition), one worker per
    cluster is enough. `clusters`: P, which must divide K. `shift`, `rate`: alpha, s/part, and mu, parts/s.

    Every cluster of K / P workers has K / P parts of its own and needs K / P - r + 1 of its workers.

    Returns seconds until the last cluster is done, in closed form for one cluster, else by quadrature. Paper 5,
    section III-C.

    >>> round(clustered_gc_completion(40, 10, 4, shift=0.01, rate=10), 4)
    0.3083
    """
    size = cluster_size(workers, clusters)
    load = whole("load", load, 1, size, f"a cluster has {size} parts")
    return _wait_for(size - load + 1, size, clusters, load, shift, rate)


def lcc_threshold(workers: int, load: int) -> int:
    """Return the number of workers that Lagrange coded computing needs for linear regression: 2 ceil(K / r) - 1.

    `workers`: K, also the number of parts. `load`: coded parts per worker, r, 1 to K.

    Returns the number of answers needed: one more than the degree 2 (ceil(K / r) - 1) of the polynomial to
    interpolate. Raises `SettingError` if more answers than workers are needed. Paper 5, section IV (LCC); S. Li et al.
    2018, "Polynomially coded regression".

    >>> lcc_threshold(40, 10)
    7
    """
    workers = whole("workers", workers, 1)
    least = -(-workers // ((workers + 1) // 2))  # from this load on, the threshold is at most K
    load = whole("load", load, least, workers, "2 ceil(workers / load) - 1 of them must answer")
    return 2 * -(-workers // load) - 1


def lcc_completion(workers: int, load: int, shift: float, rate: float) -> float:
    """Return the expected completion time of Lagrange coded computing: 2 ceil(K / r) - 1 workers with all r parts.

    `workers`: K, also the number of parts. `load`: coded parts per worker, r. `shift`, `rate`: alpha, s/part, and mu,
    parts/s.

    Returns seconds: r (alpha + (H_K - H_(K-k)) / mu), where k is the threshold. Paper 5, section IV and figure 1
    (LCC).

    >>> round(lcc_completion(40, 10, shift=0.01, rate=10), 4)
    0.2897
    """
    return _wait_for(lcc_threshold(workers, load), workers, 1, load, shift, rate)


def cluster_size(workers: int, clusters: int) -> int:
    """Return the number of workers per cluster, K / P. Raises `SettingError` unless P divides K."""
    workers = whole("workers", workers, 1)
    divides("clusters", whole("clusters", clusters, 1, workers), "workers", workers)
    return workers // clusters


def time_per_part(x: Array, shift: float, rate: float) -> Array:
    """Return P(X > x), X = alpha + Exp(rate mu): the seconds that a worker takes per part."""
    return np.asarray(np.exp(-rate * np.maximum(x - shift, 0.0)))


def _wait_for(k: int, size: int, clusters: int, load: int, shift: float, rate: float) -> float:
    """Return the mean time until k workers of every cluster have all their parts, s."""
    shift, rate = real("shift", shift), positive("rate", rate)
    if clusters == 1:
        return exponential_order_mean(k, size, load / rate, load * shift)
    return grouped_order_mean(lambda t: time_per_part(t / load, shift, rate), clusters, k, size)


def mmc_completion(
    workers: int,
    load: int,
    order: int | Sequence[int],
    clusters: int,
    shift: float,
    rate: float,
    hybrid: bool = False,
) -> float:
    """Return the expected completion time of gradient coding with multi-message communication (GC-MMC), by quadrature.

    Returns seconds until the last cluster is done. Paper 5, sections III-A to III-D and figure 1. Section III-A prints
    K - m - 1 = 5 for K = 6, m = 2. The correct expression is K - m + 1.

    Parameters
    ----------
    workers, load : int
        K, also the number of parts, and r, the number of parts per worker, 1 to K / P, which are computed in order.
    order : int or sequence of int
        An int m is a correlated code. A worker sends c_i, c_(i+1), ... after m, m + 1, ..., r parts. A cluster needs K
        / P - m + 1 different messages. m = 1 is UC-MMC. A list [m_0, m_1, ...] of length l is an uncorrelated code. A
        worker sends a message after each of these numbers of parts. A cluster of K / P workers needs any l K / P -
        sum(m_j) + 1 messages.
    clusters : int
        P, which must divide K.
    shift, rate : float
        alpha, s/part, and mu, parts/s.
    hybrid : bool
        Whether a worker with all its parts done sends their plain sum, which completes its cluster. Needs r = K / P.

    Examples
    --------
    >>> setting = dict(workers=40, load=10, shift=0.01, rate=10)
    >>> round(mmc_completion(order=1, clusters=1, **setting), 4)
    0.1689
    >>> round(mmc_completion(order=[6, 8, 10], clusters=4, hybrid=True, **setting), 4)
    0.3039
    """
    size = cluster_size(workers, clusters)
    load = whole("load", load, 1, size, f"a cluster has {size} parts")
    shift, rate = real("shift", shift), positive("rate", rate)
    undone = _undone(size, load, order, hybrid)

    def unfinished(t: Array) -> Array:
        finished = _finished(t, load, shift, rate)
        if hybrid:
            finished[:, load] = 0.0  # a worker with all its parts done completes the cluster
        return last_group(np.clip(undone(finished), 0.0, 1.0), clusters)

    return mean_time(unfinished)


def _finished(t: Array, load: int, shift: float, rate: float) -> Array:
    """Return P(a worker has finished x parts at t), x = 0..r; shape (m, r + 1)."""
    least = 1.0 - time_per_part(t[:, None] / np.arange(1, load + 1), shift, rate)
    return -np.diff(least, axis=1, prepend=1.0, append=0.0)  # at least 0 parts: 1, at least r + 1: 0


def _undone(size: int, load: int, order: int | Sequence[int], hybrid: bool) -> Undone:
    """Return the probability that a cluster is not done, as a function of the distribution of finished parts."""
    if flag("hybrid", hybrid) and load != size:
        why = f"load = {load} must be the cluster's size, {size}, or set hybrid to False"
        raise SettingError(f"hybrid = True: {why}")
    if isinstance(order, np.ndarray) and order.ndim == 0:
        order = order[()]
    if not isinstance(order, list | tuple | range | np.ndarray):
        m = whole("order", order, 1, load, f"load = {load}")
        return lambda finished: _uncovered(_sent(finished, range(m, load + 1)), size, m)
    orders = _checked(order, load, hybrid)
    needed = len(orders) * size - sum(orders) + 1
    return lambda finished: _too_few(_sent(finished, orders), size, needed)


def _checked(order: Sequence[int] | Array, load: int, hybrid: bool) -> list[int]:
    """Return the orders of a list, ascending. Raise `SettingError` as the scheme GC-MMC does."""
    orders = sorted(whole("order", m, 1, load, f"load = {load}") for m in order)
    if not orders:
        raise SettingError("order = []: give at least one number of parts, such as the load")
    if len(set(orders)) < len(orders):
        why = f"a worker would send two messages at once; take {sorted(set(orders))}"
        raise SettingError(f"order = {orders}: {why}")
    if orders[-1] < load and not hybrid:
        raise SettingError(
            f"order = {orders}: no message waits for more than {orders[-1]} of a worker's {load} parts; take"
            f" load = {orders[-1]} or {[*orders, load]}"
        )
    return orders


def _sent(finished: Array, after: Sequence[int]) -> Array:
    """Return P(a worker has sent 0..l messages) when it sends one after each of these numbers of parts."""
    edges = [0, *after, finished.shape[1]]
    return np.stack([finished[:, a:b].sum(1) for a, b in pairwise(edges)], axis=1)


def _too_few(sent: Array, size: int, needed: int) -> Array:
    """Return P(fewer than `needed` messages in all from `size` workers)."""
    total = np.zeros((len(sent), needed))
    total[:, 0] = 1.0
    for _ in range(size):
        total = np.sum([_delayed(total, k) * sent[:, k, None] for k in range(sent.shape[1])], axis=0)
    return total.sum(1)


def _delayed(a: Array, k: int) -> Array:
    """Return the columns shifted to the right by k, without those that are shifted out."""
    return a if k == 0 else np.pad(a, ((0, 0), (k, 0)))[:, : a.shape[1]]


def _uncovered(sent: Array, size: int, m: int) -> Array:
    """Return P(at least m of the `size` messages on a circle were sent by nobody).

    Worker i sends messages i, i+1, ... in order. The reach c is the number of messages from a position on that are
    known to be sent. From one worker to the next it becomes max(c - 1, own), which is a Markov chain. Once around the
    circle, c does not depend on the start. The trace of the matrix for one time around the circle therefore counts
    every outcome once. A second index counts the uncovered messages, up to m.
    """
    reach = sent.shape[1]
    step = _steps(sent)
    total = np.zeros(len(sent))
    for start in range(reach):
        state = np.zeros((len(sent), m + 1, reach))
        state[:, 0, start] = 1.0
        for _ in range(size):
            state = state @ step
            state[:, m, 0] += state[:, m - 1, 0]
            state[:, 1:m, 0] = state[:, : m - 1, 0].copy()
            state[:, 0, 0] = 0.0
        total += state[:, m, start]
    return total


def _steps(sent: Array) -> Array:
    """Return the probability to go from reach c to max(c - 1, own); shape (times, c, next)."""
    reach = sent.shape[1]
    step = np.zeros((len(sent), reach, reach))
    for c in range(reach):
        low = max(c - 1, 0)
        step[:, c, low] = sent[:, : low + 1].sum(1)
        step[:, c, low + 1 :] = sent[:, low + 1 :]
    return step
