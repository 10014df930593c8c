"""Order statistics: when the k-th of n workers answers. Times are in s. Means are exact or by quadrature.

H_n = 1 + 1/2 + ... + 1/n is the n-th harmonic number.
"""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from workbench.core.base.settings import SettingError, short
from workbench.core.base.types import Array
from workbench.core.theory._checks import numbers, positive, real, whole
from workbench.core.theory._quadrature import Survival, mean_time

__all__ = [
    "exponential_order_mean", "exponential_order_std", "grouped_order_mean", "harmonic",
    "max_of_minima_mean", "order_statistic_mean",
]  # fmt: skip


def harmonic(n: float) -> float:
    """Return the harmonic number H_n, for real n by H_x = digamma(x + 1) + Euler's constant.

    `n`: at least 0. A whole number gives the usual sum. Between whole numbers, H is smooth and concave.

    Returns H_n, a pure number. Paper 3 (CADA), below equation (10). Real n occur in its equations (13) and (16).

    >>> round(harmonic(4), 6), 1 + 1 / 2 + 1 / 3 + 1 / 4
    (2.083333, 2.083333333333333)
    """
    from scipy.special import digamma

    return float(digamma(real("n", n) + 1) + np.euler_gamma)


def exponential_order_mean(k: int, n: int, mean: float = 1.0, shift: float = 0.0) -> float:
    """Return the mean of the k-th smallest of n independent times shift + Exp(mean): shift + mean (H_n - H_(n-k)).

    `k`: position, 1 (first) to n (last); a in paper 3. `n`: number of times; b in paper 3. `mean`: mean of the
    exponential part, s; eta in paper 3. `shift`: least time, s.

    Returns seconds. Paper 3, equation (10); paper 1, appendix D, for k = n - s. That appendix prints log(i) < H_i <
    log(i+1). The right inequality is false (H_1 = 1 > log 2). Correct is log(i+1) < H_i <= 1 + log(i).

    >>> round(exponential_order_mean(9, 12, mean=2.0, shift=1.0), 6)
    3.539755
    """
    n = whole("n", n, 1)
    k = whole("k", k, 1, n, f"n = {n} times are compared")
    return real("shift", shift) + positive("mean", mean) * float(_inverses(k, n).sum())


def exponential_order_std(k: int, n: int, mean: float = 1.0) -> float:
    """Return the standard deviation of the k-th smallest of n independent (shifted) exponentials.

    `k`: position, 1 to n. `n`: number of times. `mean`: mean of the exponential part, s. A shift changes nothing.

    The gaps between neighbours are independent exponentials with means mean / (n - j), so the variances add.

    Returns seconds: mean * sqrt(sum of 1 / i^2 for i = n-k+1..n). Paper 1, appendix D, proof of lemma 2 (the
    gaps E_1, E_2, ...).

    >>> exponential_order_std(1, 4, mean=2.0)
    0.5
    """
    n = whole("n", n, 1)
    k = whole("k", k, 1, n, f"n = {n} times are compared")
    return positive("mean", mean) * float(np.sqrt((_inverses(k, n) ** 2).sum()))


def max_of_minima_mean(groups: int, size: int, mean: float = 1.0, shift: float = 0.0) -> float:
    """Return the mean time until every group has its first answer: shift + mean / size * H_groups.

    `groups`: number of groups; G-bar in paper 3. `size`: workers per group; M_G in paper 3. `mean`: mean of the
    exponential part of one worker's time, s; eta in paper 3. `shift`: least time, s.

    Every worker takes shift + Exp(mean). The first answer of a group then comes after shift + Exp(mean / size).

    Returns seconds. Fractional repetition (Tandon et al. 2017) and G-CADA (paper 3, equations (14) and (16)).

    >>> round(max_of_minima_mean(groups=4, size=10, mean=1.0, shift=0.1), 6)
    0.308333
    """
    groups, size = whole("groups", groups, 1), whole("size", size, 1)
    return exponential_order_mean(groups, groups, positive("mean", mean) / size, shift)


def order_statistic_mean(survival: Survival, k: int, n: int) -> float:
    """Return the mean of the k-th smallest of n independent times with any common distribution, by quadrature.

    P(k-th > t) = I_S(n-k+1, k) with S = P(T > t) and I the regularised incomplete beta function.

    Returns the mean in the unit of the times. Raises `SettingError` if k is not in 1..n, or the mean is infinite.

    `survival`: function from times (m,), in s, to P(T > t) (m,), for T >= 0. For a distribution function F, pass 1 -
    F. A separate survival function is more precise in the tail. `k`: position, 1 to n. `n`: number of times.

    >>> pareto = lambda t: np.maximum(t, 1.0) ** -2.0
    >>> round(order_statistic_mean(pareto, 5, 10), 6)
    1.396696
    """
    n = whole("n", n, 1)
    return grouped_order_mean(survival, 1, whole("k", k, 1, n, f"n = {n} times are compared"), n)


def grouped_order_mean(survival: Survival, groups: int, k: int, size: int) -> float:
    """Return the mean time until each of several equal groups has k answers of its `size` workers, by quadrature.

    Returns the mean of the maximum over the groups of the k-th smallest time, in the unit of the times.
    Raises `SettingError` if groups is below 1, k is not in 1..size, or the mean is infinite.

    `survival`: function from times (m,), in s, to P(T > t) (m,) of one worker, for T >= 0. `groups`: number of groups,
    whose workers are independent. `k`: answers needed per group, 1 to `size`. `size`: workers per group.

    >>> round(grouped_order_mean(lambda t: np.exp(-t), groups=3, k=1, size=2), 9)
    0.916666667
    """
    groups, size = whole("groups", groups, 1), whole("size", size, 1)
    k = whole("k", k, 1, size, f"a group has size = {size} workers")
    _check_survival(survival)
    return mean_time(lambda t: last_group(order_survival(survival(t), k, size), groups))


def _check_survival(survival: Any) -> None:
    """Raise `SettingError` unless it is a function of an array of times that returns numbers."""
    if not callable(survival):
        raise SettingError(f"survival = {short(survival)}: must be a function of times, such as a lambda")
    try:
        found = survival(np.zeros(1))
    except Exception as error:  # a user-defined function may raise anything
        why = " ".join(f"{type(error).__name__}: {error}".split())
        raise SettingError(
            f"survival: fails for an array of times ({why:.200}); give a function of it"
        ) from None
    numbers("survival", found)


def order_survival(survival: Array, k: int, n: int) -> Array:
    """Return P(k-th smallest of n > t) from P(T > t), elementwise."""
    from scipy.special import betainc

    # clipped, because rounding may exceed 0 to 1
    return cast(Array, betainc(n - k + 1, k, np.clip(survival, 0.0, 1.0)))


def last_group(survival: Array, groups: int) -> Array:
    """Return P(slowest of independent groups > t) from that of one: 1 - (1 - S)^groups, precise in the tail."""
    with np.errstate(divide="ignore"):  # S = 1: log(0), and the result is 1
        return cast(Array, -np.expm1(groups * np.log1p(-survival)))


def _inverses(k: int, n: int) -> Array:
    return 1.0 / np.arange(n - k + 1, n + 1)
