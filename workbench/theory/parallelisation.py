"""Paper 1, CodedReduce: parallelisation gains, and theorem 2 on the expected round time.

The gain beta is the number of communications that go on at the same time; a receiver takes one at a time.
"""

from __future__ import annotations

import math

from workbench.base.settings import SettingError
from workbench.theory._checks import positive, real, whole
from workbench.theory.coded_reduce import checked_tree, cr_workers, exact_load


def cr_parallelisation(children: int, layers: int) -> int:
    """Communications that go on at the same time in the tree: its parents, N / n = 1 + n + ... + n^(L-1).

    Parameters
    ----------
    children, layers : int
        The tree, (n, L).

    Returns
    -------
    int
        beta: every parent, the master among them, receives one message at a time.

    Notes
    -----
    Paper 1, remark 4: beta = Theta(N / n) = Theta(N^(1 - 1/L)), see `parallelisation_order`. With one layer
    this is gradient coding, beta = 1.

    Examples
    --------
    >>> cr_parallelisation(12, 2), cr_parallelisation(156, 1)
    (13, 1)
    """
    return cr_workers(children, layers) // children


def rar_parallelisation(workers: int) -> int:
    """Communications that go on at the same time in ring all-reduce: one per worker, N.

    Parameters
    ----------
    workers : int
        N >= 1.

    Returns
    -------
    int
        beta.

    Notes
    -----
    Paper 1, section II-B and table I: Theta(N), the most there can be.

    Examples
    --------
    >>> rar_parallelisation(156)
    156
    """
    return whole("workers", workers, 1)


def parallelisation_order(workers: int, layers: int) -> float:
    """N^(1 - 1/L): the order of CodedReduce's communication parallelisation gain.

    Parameters
    ----------
    workers : int
        N >= 1.
    layers : int
        L >= 1; 1 is gradient coding (order 1), and L without bound tends to the ring's N.

    Returns
    -------
    float
        The expression inside the paper's Theta; the exact count is `cr_parallelisation`.

    Notes
    -----
    Paper 1, remark 1 and table I.

    Examples
    --------
    >>> round(parallelisation_order(156, 2), 3)
    12.49
    """
    return float(whole("workers", workers, 1) ** (1 - 1 / whole("layers", layers, 1)))


def cr_time_bounds(
    children: int, layers: int, stragglers: int, samples: float, shift: float, rate: float, transfer: float
) -> tuple[float, float]:
    """Leading terms of the bounds on CodedReduce's expected round time, for many children per parent.

    Both are (r d / mu) log(1 / alpha) + a r d, alpha = s / n, plus (n (1 - alpha) + L - 1) t_c or n L t_c.

    Parameters
    ----------
    children, layers, stragglers : int
        n, L and s; at least one straggler (log(1 / alpha) is infinite without).
    samples : float
        Samples of the whole data set, d.
    shift : float
        Least time per sample, a, s/sample.
    rate : float
        Rate of the exponential part, mu, samples/s: r d samples take a r d + Exp(mean r d / mu).
    transfer : float
        Time that one message occupies the receiver's port, t_c, s.

    Returns
    -------
    (float, float)
        Lower and upper, s.

    Raises
    ------
    SettingError
        If an argument is out of its range, or stragglers is 0.

    Notes
    -----
    Paper 1, theorem 2 (equations 7 and 8), without the o(.) terms: these are limits, not bounds at a given n;
    the exact mean at any n is `cr_time`. For figure 13's tree the lower term is 1.180 s and the mean 1.135 s,
    and with one layer and t_c = 0 it is always above the mean, since H_n - H_s < log(n / s). For large t_c it
    is loose: every layer passes on n - s messages one after another, so the communication takes at least
    L (n - s) t_c, which by appendix D is also the most it adds.

    Examples
    --------
    >>> [round(t, 4) for t in cr_time_bounds(12, 2, 5, 49920, 5e-5, 2e4, 0.05)]
    [1.1802, 1.9802]
    """
    n, depth, s = checked_tree(children, layers, stragglers)
    if s == 0:
        raise SettingError(
            "stragglers = 0: theorem 2 needs at least 1 (log(n / s) is infinite); cr_time works for 0 too"
        )
    work = float(exact_load(n, depth, s)) * positive("samples", samples)
    compute = work / positive("rate", rate) * math.log(n / s) + real("shift", shift) * work
    t_c = real("transfer", transfer)
    return compute + (n - s + depth - 1) * t_c, compute + n * depth * t_c
