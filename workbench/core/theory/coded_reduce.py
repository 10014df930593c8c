"""Paper 1, CodedReduce (CR): load per worker, resiliency for a load, and simultaneous communications.

A. Reisizadeh, S. Prakash, R. Pedarsani, A. S. Avestimehr, "CodedReduce: A fast and robust framework for
gradient aggregation in distributed learning". In a regular (n, L) tree, every parent has n `children`, and there are L
`layers` of workers: N = n + n^2 + ... + n^L. Every parent tolerates s `stragglers` among its children.
The parallelisation gain beta is the number of communications that go on at the same time; a receiver takes one at
a time.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from fractions import Fraction

from workbench.core.base.settings import SettingError
from workbench.core.theory._checks import positive, real, whole

__all__ = [
    "cr_load", "cr_parallelisation", "cr_resiliency", "cr_stragglers", "cr_time_bounds", "cr_workers",
    "gc_load", "parallelisation_order", "rar_parallelisation",
]  # fmt: skip

MAX_LAYERS = 1000  # with two children per parent, this tree has 2^1001 workers


def cr_workers(children: int, layers: int) -> int:
    """Return the number of workers of a regular tree: N = n + n^2 + ... + n^L.

    `children`: children per parent, n >= 1. `layers`: layers of workers below the master, L >= 1.

    Returns N, without the master. Paper 1, section III-A. The paper gives (12, 2) for both its clusters;
    84 workers are a (4, 3) tree.

    >>> cr_workers(12, 2), cr_workers(4, 3)
    (156, 84)
    """
    n, depth = whole("children", children, 1), whole("layers", layers, 1, MAX_LAYERS)
    return sum(n**layer for layer in range(1, depth + 1))


def cr_load(children: int, layers: int, stragglers: int) -> float:
    """Return the computation load of CodedReduce, the least possible: 1 / (q + q^2 + ... + q^L), q = n / (s + 1).

    `children`: children per parent, n >= 1. `layers`: layers of workers, L >= 1. `stragglers`: stragglers tolerated
    per parent, s, from 0 to n - 1.

    Returns the share of the data set that every worker processes per round (0 to 1), from an exact fraction. Paper 1,
    theorem 1 (equation 5): no scheme on this tree with this resiliency has a smaller load.

    >>> cr_load(3, 2, 1) == 4 / 15
    True
    """
    return float(exact_load(*checked_tree(children, layers, stragglers)))


def gc_load(workers: int, stragglers: int) -> float:
    """Return the computation load of gradient coding: (S + 1) / N.

    `workers`: N >= 1, all of them children of the master. `stragglers`: stragglers tolerated, S, from 0 to N - 1.

    Returns the share of the data set that every worker processes per round. Paper 1, section II-C. It equals `cr_load`
    of a tree with one layer.

    >>> gc_load(3, 1) == 2 / 3
    True
    """
    workers = whole("workers", workers, 1)
    stragglers = whole("stragglers", stragglers, 0, workers - 1, f"fewer than workers = {workers}")
    return (stragglers + 1) / workers


def cr_stragglers(children: int, layers: int, load: float) -> int:
    """Return the max number of stragglers per parent that CodedReduce tolerates with a load of at most `load`.

    `children`, `layers`: n and L of the tree. `load`: share of the data set that a worker may process, r, up to 1. Use
    layers=1 for gradient coding.

    Returns the largest s with cr_load(n, L, s) <= r. The resiliency is alpha = s / n. Raises `SettingError` if the
    load is below cr_load(n, L, 0), because then not even s = 0 fits. Paper 1, theorem 1, solved for s. Table I
    gives its limit for many children, `cr_resiliency`.

    >>> cr_stragglers(12, 2, 1 / 6), cr_stragglers(156, 1, 1 / 6)
    (5, 25)
    """
    n, depth, _ = checked_tree(children, layers, 0)
    limit = real("load", load, 0.0, 1.0)
    fitting = bisect_right(range(n), limit, key=lambda s: float(exact_load(n, depth, s)))
    if fitting == 0:
        least = cr_load(n, depth, 0)
        raise SettingError(f"load = {limit:g}: this tree needs at least {least:.6g}, even without stragglers")
    return fitting - 1


def cr_resiliency(load: float, layers: int) -> float:
    """Return the straggler resiliency alpha = r^(1/L) for a load, in a tree with very many children per parent.

    `load`: share of the data set per worker, r, from 0 to 1. `layers`: L >= 1; 1 is gradient coding, with alpha = r.
    (Ring all-reduce has alpha = 0.)

    Returns the share of the children of every parent that may straggle. `cr_stragglers` is exact for a given
    tree. Paper 1, remark 1 and table I.

    >>> cr_resiliency(0.125, 1), cr_resiliency(0.125, 3)
    (0.125, 0.5)
    """
    return real("load", load, 0.0, 1.0) ** (1 / whole("layers", layers, 1))


def checked_tree(children: int, layers: int, stragglers: int) -> tuple[int, int, int]:
    """Return (n, L, s) as ints within their ranges. Raises `SettingError`."""
    n, depth = whole("children", children, 1), whole("layers", layers, 1, MAX_LAYERS)
    return n, depth, whole("stragglers", stragglers, 0, n - 1, f"fewer than children = {n}")


def exact_load(n: int, depth: int, s: int) -> Fraction:
    """Return theorem 1 as a fraction."""
    q = Fraction(n, s + 1)
    return 1 / sum((q**layer for layer in range(1, depth + 1)), Fraction(0))


def cr_parallelisation(children: int, layers: int) -> int:
    """Count the simultaneous communications in the tree.

    `children`, `layers`: n and L of the tree.

    Returns beta = N / n = 1 + n + ... + n^(L-1), the number of parents, including the master. Each receives one
    message at a time. Paper 1, remark 4: beta = Theta(N / n) = Theta(N^(1 - 1/L)), see `parallelisation_order`. One
    layer is gradient coding: beta = 1.

    >>> cr_parallelisation(12, 2), cr_parallelisation(156, 1)
    (13, 1)
    """
    return cr_workers(children, layers) // children


def rar_parallelisation(workers: int) -> int:
    """Count the simultaneous communications in ring all-reduce.

    `workers`: N >= 1.

    Returns beta = N, one per worker. Paper 1, section II-B and table I: beta = Theta(N), the largest possible order.

    >>> rar_parallelisation(156)
    156
    """
    return whole("workers", workers, 1)


def parallelisation_order(workers: int, layers: int) -> float:
    """Return N^(1 - 1/L): the order of CodedReduce's communication parallelisation gain.

    `workers`: N >= 1. `layers`: L >= 1. With 1, gradient coding, the order is 1; for many layers it tends to that of a
    ring, N.

    Returns the expression inside the paper's Theta. The exact count is `cr_parallelisation`. Paper 1, remark
    1 and table I.

    >>> round(parallelisation_order(156, 2), 3)
    12.49
    """
    return float(whole("workers", workers, 1) ** (1 - 1 / whole("layers", layers, 1)))


def cr_time_bounds(
    children: int, layers: int, stragglers: int, samples: float, shift: float, rate: float, transfer: float
) -> tuple[float, float]:
    """Return leading terms of the bounds on CodedReduce's expected round time, for many children per parent.

    Both are (r d / mu) log(1 / alpha) + a r d, alpha = s / n, plus (n (1 - alpha) + L - 1) t_c or n L t_c.

    Returns the lower and the upper term, s. Raises `SettingError` if stragglers is 0. Paper 1, theorem 2 (equations 7
    and 8), without the o(.) terms. These are limits, not bounds at a given n. The exact mean at any n is `cr_time`.
    For figure 13's tree, the lower term is 1.180 s and the mean 1.135 s. With one layer and t_c = 0, the lower term is
    always above the mean, because H_n - H_s < log(n / s). For large t_c it is far below the mean: every layer passes
    on n - s messages one after another. The communication therefore takes at least L (n - s) t_c. By appendix D, it
    does not add more than that either.

    Parameters
    ----------
    children, layers, stragglers : int
        n, L and s. At least one straggler, because log(1 / alpha) is infinite without.
    samples, shift : float
        Samples of the whole data set, d; least time per sample, a, s/sample.
    rate : float
        Rate of the exponential part, mu, samples/s: r d samples take a r d + Exp(mean r d / mu).
    transfer : float
        Time that one message occupies the receiver's port, t_c, s.

    Examples
    --------
    >>> [round(t, 4) for t in cr_time_bounds(12, 2, 5, 49920, 5e-5, 2e4, 0.05)]
    [1.1802, 1.9802]
    """
    n, depth, s = checked_tree(children, layers, stragglers)
    if s == 0:
        why = "theorem 2 needs at least 1 (log(n / s) is infinite); cr_time works for 0 too"
        raise SettingError(f"stragglers = 0: {why}")
    work = float(exact_load(n, depth, s)) * positive("samples", samples)
    compute = work / positive("rate", rate) * math.log(n / s) + real("shift", shift) * work
    t_c = real("transfer", transfer)
    return compute + (n - s + depth - 1) * t_c, compute + n * depth * t_c
