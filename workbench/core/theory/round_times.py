"""Paper 1: exact expected round times of CodedReduce, gradient coding, FRC, UMW, SGD and RAR, at any size.

Model of section III-C: computing on x of the d samples takes a x + Exp(mean x / mu). A parent takes one message at a
time, t_c each, while its children continue to compute. Times are in s, a (shift) in s/sample, mu (rate) in samples/s.
"""

from __future__ import annotations

from typing import cast

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from workbench.core.base.settings import SettingError
from workbench.core.base.types import Array
from workbench.core.theory._checks import divides, positive, real, whole
from workbench.core.theory._quadrature import mean_time
from workbench.core.theory.coded_reduce import checked_tree, cr_load, gc_load
from workbench.core.theory.order_statistics import exponential_order_mean, max_of_minima_mean, order_survival

__all__ = ["cr_time", "frc_time", "gc_time", "rar_time", "sgd_time", "umw_time"]

# numbers of arrivals in one transfer time are neglected if they are less probable
NEGLIGIBLE_PROBABILITY = 1e-20
# number of times that are evaluated together, because neighbouring times have similar probabilities and fit the cache
TIMES_PER_BATCH = 256
# max numbers of children per parent with transfer times, in a star and in a tree; each takes half a minute
MAX_CHILDREN_STAR, MAX_CHILDREN_TREE = 400, 64


def cr_time(
    children: int,
    layers: int,
    stragglers: int,
    samples: float,
    shift: float,
    rate: float,
    transfer: float = 0.0,
) -> float:
    """Return the expected round time of CodedReduce on a given tree, by exact recursion over its layers and quadrature.

    A relay sends when its own work is done and the first n - s messages of its children have passed its port. Sibling
    subtrees are independent, so that the distribution is computed layer by layer from the leaves.

    Returns E[T_CR], s. With transfer > 0, children may be up to 64 (400 in one layer). The recursion is our own; paper
    1 gives the limit for many children (theorem 2, `cr_time_bounds`).

    Parameters
    ----------
    children, layers, stragglers : int
        n, L and s (per parent), 0 <= s < n.
    samples, shift : float
        Number of samples of the whole data set, d, and least time per sample, a, s/sample.
    rate : float
        Rate of the exponential part, mu, samples/s.
    transfer : float
        Time that one message occupies its receiver's port, t_c, s.

    Examples
    --------
    >>> round(cr_time(12, 2, 5, 49920, 5e-5, 2e4, 0.05), 4)  # figure 13
    1.135
    """
    n, depth, s = checked_tree(children, layers, stragglers)
    load = cr_load(n, depth, s)
    return tree_time(n, depth, n - s, load * positive("samples", samples), shift, rate, transfer)


def gc_time(
    workers: int, stragglers: int, samples: float, shift: float, rate: float, transfer: float = 0.0
) -> float:
    """Return the expected round time of gradient coding with a cyclic code: the first N - S answers.

    `workers`, `stragglers`: N and S, 0 <= S < N. `samples`, `shift`, `rate`, `transfer`: d, a, mu and t_c, as in
    `cr_time`.

    Returns E[T_GC], s. Without transfer times it is load d (a + (H_N - H_S) / mu). Paper 1, sections II-C and III-C.
    Remark 4 gives its order as Theta(1) + Theta(N).

    >>> round(gc_time(40, 9, samples=40, shift=0.01, rate=10), 4)
    1.5496
    """
    load = gc_load(workers, stragglers) * positive("samples", samples)
    return tree_time(workers, 1, workers - stragglers, load, shift, rate, transfer)


def tree_time(n: int, depth: int, k: int, load: float, shift: float, rate: float, transfer: float) -> float:
    """Return the mean time until the master has k of n sums, if every parent waits for k of n. `load`: samples."""
    start, mean = load * real("shift", shift), load / positive("rate", rate)
    t_c = real("transfer", transfer)
    if t_c and n > (MAX_CHILDREN_STAR if depth == 1 else MAX_CHILDREN_TREE):
        limits = (
            f"at most {MAX_CHILDREN_STAR} workers in one layer or {MAX_CHILDREN_TREE} children in several"
        )
        why = f"with {n} per parent give 0, or {limits}; wb.forecast samples any size"
        raise SettingError(f"transfer = {t_c:g}: {why}")
    if depth == 1 and t_c == 0.0:
        return exponential_order_mean(k, n, mean, start)

    def unfinished(t: Array) -> Array:
        """Return 1 - P(the master is done by t)."""
        back = t_c * np.arange(depth * k + 1) if t_c else np.zeros(1)
        computed = -np.expm1(-np.maximum(t[:, None] - back - start, 0.0) / mean)
        sent = computed  # P(a leaf has sent) at the times t, t - t_c, t - 2 t_c, ...
        for _ in range(depth):
            received = _through(sent, k, n) if t_c else 1.0 - order_survival(1.0 - sent, k, n)
            sent = received * computed[:, : received.shape[1]]
        return 1.0 - received[:, 0]

    return mean_time(unfinished, start + depth * k * t_c)  # each layer passes on k messages one by one


def _through(sent: Array, k: int, n: int) -> Array:
    """Return P(k of n have passed the port) at t, t - t_c, ..., from P(sent) at these times; k columns fewer."""
    windows = sliding_window_view(sent[:, 1:], k, axis=1)[:, :, ::-1]
    return through(windows.reshape(-1, k), n).reshape(windows.shape[:2])


def frc_time(workers: int, stragglers: int, samples: float, shift: float, rate: float) -> float:
    """Return the expected round time of gradient coding with fractional repetition: one answer per group of S + 1.

    `workers`, `stragglers`: N and S, where S + 1 must divide N. `samples`, `shift`, `rate`: d, a and mu, as in
    `cr_time`. Transfers take no time.

    Returns seconds: load d (a + H_(N/(S+1)) / (mu (S + 1))). Tandon et al. 2017. In paper 5, section III-C, it is the
    clustered code that needs one worker per cluster.

    >>> round(frc_time(40, 9, samples=40, shift=0.01, rate=10), 4)
    0.3083
    """
    load = gc_load(workers, stragglers) * positive("samples", samples)
    divides("stragglers + 1", stragglers + 1, "workers", workers)
    size, start = stragglers + 1, load * real("shift", shift)
    return max_of_minima_mean(workers // size, size, load / positive("rate", rate), start)


def umw_time(workers: int, samples: float, shift: float, rate: float, transfer: float = 0.0) -> float:
    """Return the expected round time of the uncoded master-worker scheme: all N answers, each on d / N samples.

    `workers`: N >= 1. `samples`, `shift`, `rate`, `transfer`: as in `cr_time`.

    Returns E[T_UMW], s. Without transfer times it is d / N (a + H_N / mu). Paper 1, section IV-A (UMW): gradient
    coding with S = 0.

    >>> round(umw_time(4, samples=8, shift=0.0, rate=2.0), 6)
    2.083333
    """
    return gc_time(workers, 0, samples, shift, rate, transfer)


def sgd_time(
    workers: int, stragglers: int, samples: float, shift: float, rate: float, transfer: float = 0.0
) -> float:
    """Return the expected round time when stragglers are ignored: the first N - S answers, each on d / N samples.

    `workers`, `stragglers`: N and S, 0 <= S < N. `samples`, `shift`, `rate`, `transfer`: as in `cr_time`.

    Returns E[T_SGD], s. Without transfer times it is d / N (a + (H_N - H_S) / mu). Paper 1, section IV-A (SGD).

    >>> round(sgd_time(4, 3, samples=8, shift=0.0, rate=2.0), 6)
    0.25
    """
    gc_load(workers, stragglers)  # checks the arguments
    load = positive("samples", samples) / workers
    return tree_time(workers, 1, workers - stragglers, load, shift, rate, transfer)


def rar_time(workers: int, samples: float, shift: float, rate: float, step: float = 0.0) -> float:
    """Return the expected round time of ring all-reduce: the slowest worker, then 2 (N - 1) steps.

    After that many steps every worker's start has reached every other one, so the last start decides.

    Returns E[T_RAR], s. Ring of Patarasuk and Yuan (paper 1, section II-B) with the delays of section III-C.

    `workers`: N >= 1. Each processes d / N samples. `samples`, `shift`, `rate`: d, a and mu, as in `cr_time`. `step`:
    time to pass on one slice of p / N numbers, s. It is t_c / N if only bandwidth takes time. If it includes a
    latency, the result is an upper bound, because the latencies of slices that wait for a late worker overlap.

    >>> round(rar_time(4, samples=8, shift=0.0, rate=2.0, step=0.5), 6)
    5.083333
    """
    n = whole("workers", workers, 1)
    load = positive("samples", samples) / n
    slowest = exponential_order_mean(n, n, load / positive("rate", rate), load * real("shift", shift))
    return slowest + 2 * (n - 1) * real("step", step)


# Times at which k of n independent messages have passed a receiver that takes one message at a time.


def through(arrived: Array, n: int) -> Array:
    """Return P(the first k of n messages are through the port by t), if every transfer takes the same time t_c.

    `arrived`: P(a message arrived by t - i t_c) for i = k, ..., 1 (increasing along the row), for m times t, (m, k).
    `n`: number of messages on their way, n >= k.

    The first k messages arrive at t_(1) <= ... <= t_(k), and the last is through at max_j t_(j) + (k-j+1) t_c. At least
    j messages must therefore have arrived by t - (k-j+1) t_c, for every j. The number of arrivals at these k times is a
    Poisson process conditioned on n arrivals in total. All terms are positive, so nothing cancels.

    Returns (m,) probabilities.
    """
    result = (arrived[:, -1] > 0).astype(float)
    uncertain = np.flatnonzero((arrived[:, -1] > 0) & (arrived[:, 0] < 1))  # probabilities other than 0 and 1
    for some in np.array_split(uncertain, -(-len(uncertain) // TIMES_PER_BATCH) or 1):
        result[some] = _path(arrived[some].T, n)
    return result


def _path(arrived: Array, n: int) -> Array:
    """Return the probabilities of `through` for a few times, one per column."""
    # limited, because rounding may make differences negative
    moments = np.maximum(np.diff(arrived, axis=0, prepend=0.0), 0.0)
    counts = np.zeros((n + 1, arrived.shape[1]))
    counts[0] = 1.0
    for j, moment in enumerate(moments):
        counts = _add(counts, _poisson(n * moment, n), j)
        counts[: j + 1] = 0.0
    after = _poisson(n * np.maximum(1.0 - arrived[-1], 0.0), n)
    return np.asarray((counts * after[::-1]).sum(0) / _poisson(np.array([float(n)]), n)[n])


def _poisson(mean: Array, most: int) -> Array:
    """Return Poisson probabilities of 0..most for every mean; shape (most + 1, m)."""
    from scipy.special import gammaln, xlogy

    counts = np.arange(most + 1)[:, None]
    return cast(Array, np.exp(xlogy(counts, mean) - mean - gammaln(counts + 1)))


def _add(counts: Array, more: Array, least: int) -> Array:
    """Return the distribution of a sum, column by column and cut off at the last row. Counts are at least `least`."""
    total = np.zeros_like(counts)
    for extra in np.flatnonzero((more > NEGLIGIBLE_PROBABILITY).any(1)):
        total[least + extra :] += counts[least : len(counts) - extra] * more[extra]
    return total
