"""Paper 1, CodedReduce (CR): what a worker computes on, and what resiliency that buys.

A. Reisizadeh, S. Prakash, R. Pedarsani, A. S. Avestimehr, "CodedReduce: A fast and robust framework for
gradient aggregation in distributed learning". A regular (n, L) tree: every parent has n `children`, there are
L `layers` of workers, N = n + n^2 + ... + n^L; every parent tolerates s `stragglers` among its children.
"""

from __future__ import annotations

from bisect import bisect_right
from fractions import Fraction

from workbench.base.settings import SettingError
from workbench.theory._checks import real, whole

__all__ = ["cr_load", "cr_resiliency", "cr_stragglers", "cr_workers", "gc_load"]

MOST_LAYERS = 1000  # two children each are 2^1001 workers by then


def cr_workers(children: int, layers: int) -> int:
    """Workers of a regular tree: N = n + n^2 + ... + n^L.

    Parameters
    ----------
    children : int
        Children per parent, n >= 1.
    layers : int
        Layers of workers below the master, L >= 1.

    Returns
    -------
    int
        N, the master not counted.

    Notes
    -----
    Paper 1, section III-A. The paper gives (12, 2) for both its clusters; 84 workers are a (4, 3) tree.

    Examples
    --------
    >>> cr_workers(12, 2), cr_workers(4, 3)
    (156, 84)
    """
    n, depth = whole("children", children, 1), whole("layers", layers, 1, MOST_LAYERS)
    return sum(n**layer for layer in range(1, depth + 1))


def cr_load(children: int, layers: int, stragglers: int) -> float:
    """Computation load of CodedReduce, the least possible: 1 / (q + q^2 + ... + q^L), q = n / (s + 1).

    Parameters
    ----------
    children : int
        Children per parent, n >= 1.
    layers : int
        Layers of workers, L >= 1.
    stragglers : int
        Stragglers tolerated per parent, s, from 0 to n - 1.

    Returns
    -------
    float
        Share of the data set that every worker computes on per round (0 to 1), from an exact fraction.

    Notes
    -----
    Paper 1, theorem 1 (equation 5): no scheme on this tree with this resiliency has a smaller load.

    Examples
    --------
    >>> cr_load(3, 2, 1) == 4 / 15
    True
    """
    return float(exact_load(*checked_tree(children, layers, stragglers)))


def gc_load(workers: int, stragglers: int) -> float:
    """Computation load of gradient coding: (S + 1) / N.

    Parameters
    ----------
    workers : int
        N >= 1, all of them children of the master.
    stragglers : int
        Stragglers tolerated, S, from 0 to N - 1.

    Returns
    -------
    float
        Share of the data set that every worker computes on per round.

    Notes
    -----
    Paper 1, section II-C. The same as `cr_load` of a tree with one layer.

    Examples
    --------
    >>> gc_load(3, 1) == 2 / 3
    True
    """
    workers = whole("workers", workers, 1)
    stragglers = whole("stragglers", stragglers, 0, workers - 1, f"fewer than workers = {workers}")
    return (stragglers + 1) / workers


def cr_stragglers(children: int, layers: int, load: float) -> int:
    """Most stragglers per parent that CodedReduce tolerates when a worker may compute on `load`.

    Parameters
    ----------
    children, layers : int
        The tree, (n, L).
    load : float
        Share of the data set that a worker may compute on, r, up to 1. Use layers=1 for gradient coding.

    Returns
    -------
    int
        The largest s with cr_load(n, L, s) <= r; the resiliency is alpha = s / n.

    Raises
    ------
    SettingError
        If an argument is out of its range, or the load is below cr_load(n, L, 0): not even s = 0 fits.

    Notes
    -----
    Paper 1, theorem 1, solved for s. Table I gives its limit for many children, `cr_resiliency`.

    Examples
    --------
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
    """Straggler resiliency alpha = r^(1/L) that a load buys in a tree with very many children per parent.

    Parameters
    ----------
    load : float
        Share of the data set per worker, r, from 0 to 1.
    layers : int
        L >= 1; 1 is gradient coding, alpha = r. (Ring all-reduce has alpha = 0.)

    Returns
    -------
    float
        Share of the children of every parent that may straggle. `cr_stragglers` is exact for a given tree.

    Notes
    -----
    Paper 1, remark 1 and table I.

    Examples
    --------
    >>> cr_resiliency(0.125, 1), cr_resiliency(0.125, 3)
    (0.125, 0.5)
    """
    return real("load", load, 0.0, 1.0) ** (1 / whole("layers", layers, 1))


def checked_tree(children: int, layers: int, stragglers: int) -> tuple[int, int, int]:
    """(n, L, s) as ints within their ranges; raises `SettingError`."""
    n, depth = whole("children", children, 1), whole("layers", layers, 1, MOST_LAYERS)
    return n, depth, whole("stragglers", stragglers, 0, n - 1, f"fewer than children = {n}")


def exact_load(n: int, depth: int, s: int) -> Fraction:
    """Theorem 1 as a fraction."""
    q = Fraction(n, s + 1)
    return 1 / sum((q**layer for layer in range(1, depth + 1)), Fraction(0))
