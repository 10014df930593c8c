"""Schemes that ignore any number of stragglers: expected squared distance of their weights from all ones.

The set of the first workers is drawn uniformly, as with independent times of one distribution.
"""

from __future__ import annotations

from math import comb, exp

from workbench.core.theory._checks import divides, positive, real, whole


def is_gc_error(workers: int, replication: int, wait_for: int) -> float:
    """Return the expected error of IS-GC with fractional repetition; with replication 1, that of backup workers.

    `workers`: n, also the number of parts. `replication`: c, number of workers that store the same c parts; it must
    divide n. `wait_for`: w, answers that the master waits for, 1 to n.

    Returns the mean squared distance to all ones, in parts: n E[g / m - 1], where m of the g = n/c groups have
    answered, with probability C(g, m) sum_j (-1)^j C(m, j) C((m - j) c, w) / C(n, w).

    >>> is_gc_error(8, 2, 7), is_gc_error(8, 1, 4), round(is_gc_error(8, 2, 3), 6)
    (0.0, 8.0, 4.952381)
    """
    n = whole("workers", workers, 1)
    c = whole("replication", replication, 1, n, f"there are workers = {n} workers")
    divides("replication", c, "workers", n)
    w = whole("wait_for", wait_for, 1, n, f"there are workers = {n} workers")
    groups = n // c
    mean = 0.0
    for m in range(1, groups + 1):
        sets = comb(groups, m) * sum((-1) ** j * comb(m, j) * comb((m - j) * c, w) for j in range(m + 1))
        mean += sets / comb(n, w) * (groups / m - 1)
    return n * mean


def pgc_error(workers: int, stragglers: int) -> float:
    """Return the expected error of pipelined gradient coding after its first round, with all versions of a part summed.

    `workers`: n, also the number of parts. `stragglers`: s, 0 to n - 1; s + 1 workers store every part.

    Returns the mean squared distance to all ones, in parts: n s (n - s - 1) / ((n - s) (s + 1) (n - 1)). Of a part's s
    + 1 workers, a hypergeometric number is among the first n - s. Each of these counts n / ((n - s) (s + 1)). The
    error does not include the age of the gradients.

    >>> pgc_error(7, 0), round(pgc_error(7, 2), 6), pgc_error(7, 6)
    (0.0, 0.622222, 0.0)
    """
    n = whole("workers", workers, 1)
    s = whole("stragglers", stragglers, 0, n - 1, f"of workers = {n} workers one must answer")
    return n * s * (n - s - 1) / ((n - s) * (s + 1) * max(1, n - 1))


def cagc_straggler_probability(rate: float, deadline: float) -> float:
    """Return the probability that a worker of CAGC (ICML 2026) misses the deadline of a round.

    `rate`: rate of the exponential time, above 0. `deadline`: Z, 0 or more, in units of a task without stragglers.

    Returns exp(-rate (Z - 1)), and 1 for a deadline of 1 or less: a worker's time is 1 plus an exponential time. For
    several workers the values are `straggles` of the delay model "heterogeneous".

    >>> round(cagc_straggler_probability(2.0, 1.5), 4), cagc_straggler_probability(2.0, 0.5)
    (0.3679, 1.0)
    """
    late = real("deadline", deadline) - 1
    return exp(-positive("rate", rate) * max(late, 0.0))
