"""Paper 2, communication-efficient gradient coding (CEGC): achievable loads, and iteration times.

M. Ye, E. Abbe, "Communication-computation efficient gradient coding", ICML 2018. There are n workers, d parts per
worker, and s stragglers. With reduction m, a message has p / m numbers for the p coordinates of the model.
"""

from __future__ import annotations

import numpy as np

from workbench.core.base.types import Array
from workbench.core.theory._checks import numbers, positive, real, whole
from workbench.core.theory._quadrature import mean_time
from workbench.core.theory.order_statistics import order_survival


def cegc_achievable(n: int, d: int, s: int, m: int, parts: int | None = None) -> bool:
    """Return whether there is a code with load d, s stragglers and reduction m: exactly if d / k >= (s + m) / n.

    `n`: number of workers. `d`: parts per worker, 1 to the number of parts. `s`: stragglers tolerated, at least 0.
    `m`: reduction, at least 1 (1 is plain gradient coding). `parts`: parts of the data set, k, by default n.

    Returns True if (d, s, m) is achievable. Paper 2, theorem 1; with k = n it reads d >= s + m (equation 5).

    >>> cegc_achievable(5, 3, 1, 2), cegc_achievable(5, 3, 2, 2)
    (True, False)
    """
    n = whole("n", n, 1)
    k = n if parts is None else whole("parts", parts, 1)
    d = whole("d", d, 1, k, f"there are {k} parts")
    return d * n >= k * (whole("s", s, 0) + whole("m", m, 1))


def cegc_survival(t: Array, d: int, m: int, lambda1: float, lambda2: float, t1: float, t2: float) -> Array:
    """Return P(a worker needs longer than t): T = d (t1 + Exp(lambda1)) + (t2 + Exp(lambda2)) / m.

    The random part is hypoexponential with rates lambda1 / d and lambda2 m. The form used here has no cancellation if
    these are (nearly) equal.

    Returns probabilities in the shape of t. Paper 2, section 5, assumptions 1 to 3.

    Parameters
    ----------
    t : Array
        Times, s, any shape.
    d, m : int
        Parts per worker and reduction, at least 1.
    lambda1, lambda2 : float
        Rates of the exponential parts of computing one part and of sending a whole vector, 1/s.
    t1, t2 : float
        Least times to compute one part, and to send a whole vector, s.

    Examples
    --------
    >>> cegc_survival(np.array([0.0, 2.0]), 1, 1, 1.0, 1.0, 0.0, 0.0).round(6)  # Erlang: (1 + t) exp(-t)
    array([1.      , 0.406006])
    """
    d, m = whole("d", d, 1), whole("m", m, 1)
    rates = positive("lambda1", lambda1) / d, positive("lambda2", lambda2) * m
    slow, fast = min(rates), max(rates)
    x = np.maximum(numbers("t", t) - _least(d, m, t1, t2), 0.0)
    gap = (fast - slow) * x
    # (1 - exp(-gap)) / gap, which tends to 1 for equal rates
    mixed = np.divide(-np.expm1(-gap), gap, out=np.ones_like(gap), where=gap > 0)
    return np.asarray(np.exp(-slow * x) * (1.0 + slow * x * mixed))


def cegc_time(
    n: int,
    d: int,
    m: int,
    lambda1: float,
    lambda2: float,
    t1: float,
    t2: float,
    stragglers: int | None = None,
) -> float:
    """Return the expected iteration time of CEGC, until the (n-s)-th of n workers answers, by quadrature.

    Returns E[T_tot], s. Raises `SettingError` if d < s + m, which is not achievable. Paper 2, section 5 and table
    3 (n = 8, lambda1 = 0.8, lambda2 = 0.1, t1 = 1.6, t2 = 6). A worker computes all its parts at the same
    speed: its time for d parts is d times one draw, not a sum of d draws.

    Parameters
    ----------
    n, d : int
        Number of workers, and of parts, and number of parts per worker, 1 to n.
    m : int
        Reduction, 1 to d.
    lambda1, lambda2 : float
        Rates of the exponential parts of computing one part and of sending a whole vector, 1/s.
    t1, t2 : float
        Least times to compute one part, and to send a whole vector, s.
    stragglers : int, optional
        s, 0 to d - m, by default d - m, with which rounds are shortest.

    Examples
    --------
    >>> round(cegc_time(8, 4, 3, 0.8, 0.1, 1.6, 6), 4)
    21.3697
    """
    n = whole("n", n, 1)
    d = whole("d", d, 1, n, f"there are n = {n} parts")
    m = whole("m", m, 1, d, f"d = {d}, and d < s + m is not achievable")
    why = "d < s + m is not achievable"
    s = d - m if stragglers is None else whole("stragglers", stragglers, 0, d - m, why)

    def unfinished(t: Array) -> Array:
        return order_survival(cegc_survival(t, d, m, lambda1, lambda2, t1, t2), n - s, n)

    return mean_time(unfinished, _least(d, m, t1, t2))


def cegc_table(n: int, lambda1: float, lambda2: float, t1: float, t2: float) -> Array:
    """Return the expected iteration times of all loads and reductions with s = d - m, as in paper 2's table 3.

    `n`: number of workers. `lambda1`, `lambda2`, `t1`, `t2`: as in `cegc_time`.

    Returns times, s, shape (n, n), in row m - 1 and column d - 1. They are NaN if m > d.

    >>> cegc_table(2, 0.8, 0.1, 1.6, 6).round(4)
    array([[23.9194, 16.45  ],
           [    nan, 16.6167]])
    """
    n = whole("n", n, 1)
    table = np.full((n, n), np.nan)
    for m in range(1, n + 1):
        for d in range(m, n + 1):
            table[m - 1, d - 1] = cegc_time(n, d, m, lambda1, lambda2, t1, t2)
    return table


def cegc_best(n: int, lambda1: float, lambda2: float, t1: float, t2: float) -> tuple[int, int]:
    """Return the load d and reduction m with the least expected iteration time (s = d - m).

    `n`: number of workers. `lambda1`, `lambda2`, `t1`, `t2`: as in `cegc_time`.

    Returns d, m. Paper 2, section 5: d = 4, m = 3 for table 3.

    >>> cegc_best(8, 0.8, 0.1, 1.6, 6)
    (4, 3)
    """
    table = cegc_table(n, lambda1, lambda2, t1, t2)
    row, column = np.unravel_index(np.nanargmin(table), table.shape)
    return int(column) + 1, int(row) + 1


def _least(d: int, m: int, t1: float, t2: float) -> float:
    """Return the least time of a worker, s."""
    return d * real("t1", t1) + real("t2", t2) / m
