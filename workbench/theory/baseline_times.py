"""Paper 1: exact expected round times of what CodedReduce is compared with: FRC, UMW, SGD, RAR.

The model is that of `cr_time`: x samples take a x + Exp(mean x / mu), a receiver takes one message at a time.
"""

from __future__ import annotations

from workbench.theory._checks import divides, positive, real, whole
from workbench.theory.coded_reduce import gc_load
from workbench.theory.order_statistics import exponential_order_mean, max_of_minima_mean
from workbench.theory.round_times import gc_time, tree_time


def frc_time(workers: int, stragglers: int, samples: float, shift: float, rate: float) -> float:
    """Expected round time of gradient coding with fractional repetition: one answer per group of S + 1.

    Parameters
    ----------
    workers, stragglers : int
        N and S; S + 1 must divide N.
    samples, shift, rate : float
        d samples, a s/sample, mu samples/s. Transfers take no time.

    Returns
    -------
    float
        Seconds: load d (a + H_(N/(S+1)) / (mu (S + 1))).

    Notes
    -----
    Tandon et al. 2017; paper 5, section III-C, names it as the clustered code with one worker needed per
    cluster.

    Examples
    --------
    >>> round(frc_time(40, 9, samples=40, shift=0.01, rate=10), 4)
    0.3083
    """
    load = gc_load(workers, stragglers) * positive("samples", samples)
    divides("stragglers + 1", stragglers + 1, "workers", workers)
    shift = load * real("shift", shift)
    return max_of_minima_mean(
        workers // (stragglers + 1), stragglers + 1, load / positive("rate", rate), shift
    )


def umw_time(workers: int, samples: float, shift: float, rate: float, transfer: float = 0.0) -> float:
    """Expected round time of the uncoded master-worker scheme: all N answers, each on d / N samples.

    Parameters
    ----------
    workers : int
        N >= 1.
    samples, shift, rate, transfer : float
        As in `cr_time`.

    Returns
    -------
    float
        E[T_UMW], s; without transfer times d / N (a + H_N / mu).

    Notes
    -----
    Paper 1, section IV-A (UMW): gradient coding with S = 0.

    Examples
    --------
    >>> round(umw_time(4, samples=8, shift=0.0, rate=2.0), 6)
    2.083333
    """
    return gc_time(workers, 0, samples, shift, rate, transfer)


def sgd_time(
    workers: int, stragglers: int, samples: float, shift: float, rate: float, transfer: float = 0.0
) -> float:
    """Expected round time when stragglers are ignored: the first N - S answers, each on d / N samples.

    Parameters
    ----------
    workers, stragglers : int
        N and S, 0 <= S < N.
    samples, shift, rate, transfer : float
        As in `cr_time`.

    Returns
    -------
    float
        E[T_SGD], s; without transfer times d / N (a + (H_N - H_S) / mu).

    Notes
    -----
    Paper 1, section IV-A (SGD).

    Examples
    --------
    >>> round(sgd_time(4, 3, samples=8, shift=0.0, rate=2.0), 6)
    0.25
    """
    gc_load(workers, stragglers)  # its checks
    load = positive("samples", samples) / workers
    return tree_time(workers, 1, workers - stragglers, load, shift, rate, transfer)


def rar_time(workers: int, samples: float, shift: float, rate: float, step: float = 0.0) -> float:
    """Expected round time of ring all-reduce: the slowest worker, then 2 (N - 1) steps.

    After that many steps every worker's start has reached every other one, so the last start decides.

    Parameters
    ----------
    workers : int
        N >= 1; each computes on d / N samples.
    samples, shift, rate : float
        d samples, a s/sample, mu samples/s.
    step : float
        Time to pass on one slice of p / N numbers, s: t_c / N if only bandwidth costs. With a latency added to it
        this is an upper bound: the latencies of slices that wait for a late worker overlap.

    Returns
    -------
    float
        E[T_RAR], s.

    Notes
    -----
    Ring of Patarasuk and Yuan (paper 1, section II-B) with the delays of section III-C.

    Examples
    --------
    >>> round(rar_time(4, samples=8, shift=0.0, rate=2.0, step=0.5), 6)
    5.083333
    """
    n = whole("workers", workers, 1)
    load = positive("samples", samples) / n
    slowest = exponential_order_mean(n, n, load / positive("rate", rate), load * real("shift", shift))
    return slowest + 2 * (n - 1) * real("step", step)
