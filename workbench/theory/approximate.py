"""Paper 4, approximate gradient coding: expected optimal decoding errors of FRC and CRC.

The error of an iteration is min over weights x of |x B_survivors - 1|^2, B with a row per worker and a column
per part; every part is on s workers. An uncovered part costs 1, so no code with s workers per part has a
smaller expected error than n q^s (q: probability that a worker straggles), and fractional repetition has
exactly that.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from workbench.base.types import Array
from workbench.theory._checks import divides, whole
from workbench.theory._residuals import mean_errors
from workbench.theory.access import mean_over_slow, straggler_probability, survivor_distribution

Coefficients = Literal["ones"] | Array


def frc_error(n: int, s: int, p_slow: float, p_ss: float, p_as: float) -> float:
    """Expected decoding error of the fractional repetition code, over who is slow and who straggles.

    Returns the mean of the squared distance to the all-ones vector, 0 to n (parts): n q^s, with q from
    `straggler_probability`. Paper 4, theorem 1 and remark 2. For n = 8, s = 2, p-hat = 0.3, p_ss = 0.8, p_as
    = 0.01 it prints 1.976, which is the value for s = 1. Shuffling does not change this mean, only how
    unevenly the parts bear it.

    `n`: workers, and parts. `s`: workers per part, must divide n; s - 1 stragglers are always tolerated. `p_slow`:
    probability that a worker is slow, p-hat. `p_ss`, `p_as`: probability per iteration that a slow, an active worker
    straggles.

    >>> round(frc_error(8, 2, 0.3, 0.8, 0.01), 4), round(frc_error(8, 1, 0.3, 0.8, 0.01), 4)
    (0.4881, 1.976)
    """
    errors = _frc_errors(n, s)
    return mean_over_slow(n, p_slow, lambda slow: float(survivor_distribution(n, slow, p_ss, p_as) @ errors))


def frc_error_given_slow(n: int, s: int, slow: int, p_ss: float, p_as: float) -> float:
    """Expected decoding error of FRC with random shuffling when m of the n workers are slow.

    `n`, `s`: workers (and parts), and workers per part; s must divide n. `slow`: slow workers, m, 0 to n.
    `p_ss`, `p_as`: probability per iteration that a slow, an active worker straggles.

    Returns n * sum over r of P_r C(n-s, r) / C(n, r): squared distance, in parts. Paper 4, theorem 1, with
    the corrected P_r of `survivor_distribution`.

    >>> round(frc_error_given_slow(8, 2, 2, 0.8, 0.01), 6)
    0.210714
    """
    return float(survivor_distribution(n, slow, p_ss, p_as) @ _frc_errors(n, s))


def crc_error(
    n: int, s: int, p_slow: float, p_ss: float, p_as: float, coefficients: Coefficients = "ones"
) -> float:
    """Expected decoding error of the cyclic repetition code, over who is slow and who straggles.

    Returns the mean of the squared distance to the all-ones vector, 0 to n (parts); never below n q^s. Raises
    `SettingError` where the coefficients do not fit n and s. Paper 4, theorem 2 and remark 2. For n = 8, s =
    2, p-hat = 0.3, p_ss = 0.8, p_as = 0.01 it prints 0.5173; plain sums give 0.6244, Tandon's random
    coefficients mostly 1.0 to 1.9.

    Parameters
    ----------
    n : int
        Workers, and parts: up to 26 for plain sums, 20 for other circulant codes, 16 for any other code.
    s : int
        Workers per part; worker i has parts i, ..., i + s - 1 (modulo n).
    p_slow : float
        Probability that a worker is slow, p-hat.
    p_ss, p_as : float
        Probability per iteration that a slow, an active worker straggles.
    coefficients : "ones" or array (n, n)
        The code: every worker's plain sum, or a matrix whose row i has no other entries than in worker i's
        parts.

    Examples
    --------
    >>> round(crc_error(8, 2, 0.3, 0.8, 0.01), 4)
    0.6244
    """
    straggler_probability(p_slow, p_ss, p_as)  # its checks, before the work
    errors = crc_errors(n, s, coefficients)
    return mean_over_slow(n, p_slow, lambda slow: float(survivor_distribution(n, slow, p_ss, p_as) @ errors))


def crc_error_given_slow(
    n: int, s: int, slow: int, p_ss: float, p_as: float, coefficients: Coefficients = "ones"
) -> float:
    """Expected decoding error of CRC with random shuffling when m of the n workers are slow.

    `slow`: slow workers, m, 0 to n. `n`, `s`, `p_ss`, `p_as`, `coefficients`: as in `crc_error`.

    Returns the squared distance, in parts. Raises `SettingError` where the coefficients do not fit n and s.
    Paper 4, theorem 2.

    >>> round(crc_error_given_slow(8, 2, 2, 0.8, 0.01), 4)
    0.3401
    """
    errors = crc_errors(n, s, coefficients)
    return float(survivor_distribution(n, slow, p_ss, p_as) @ errors)


def crc_errors(n: int, s: int, coefficients: Coefficients = "ones") -> Array:
    """Mean decoding error of CRC when r workers answer, every set of r as likely, for r = 0..n.

    `n`, `s`: workers (and parts), and workers per part, as in `crc_error`. `coefficients`: as in `crc_error`.

    Sets that are cyclic shifts of one another have the same error if the code is circulant; then one
    least-squares problem per necklace is enough. Any other matrix takes all 2^n sets.

    Returns shape (n + 1,): squared distances, in parts; n for r = 0. Raises `SettingError` where the
    coefficients do not fit n and s. Paper 4, theorem 2, which prints ``|A A^+ - 1|^2`` for ``|A A^+ 1 -
    1|^2`` and stops at r = n - s: right only for codes that tolerate s - 1 stragglers. The plain sums do so
    if s divides n, so here r runs to n. Its proof wants equal columns up to shifts, which Tandon's random
    cyclic code does not have: only its zeros are cyclic.

    >>> crc_errors(4, 2).round(4)
    array([4.    , 2.    , 0.8889, 0.    , 0.    ])
    """
    n = whole("n", n, 1)
    return mean_errors(n, whole("s", s, 1, n, f"there are n = {n} parts"), coefficients)


def _frc_errors(n: int, s: int) -> Array:
    """Mean decoding error of FRC when r workers answer, r = 0..n: n C(n-s, r) / C(n, r), as a product."""
    n = whole("n", n, 1)
    s = whole("s", s, 1, n, f"there are n = {n} workers")
    divides("s", s, "n", n)
    answered, others = np.arange(n + 1), np.arange(s)[:, None]  # s workers, one after another, did not answer
    return np.asarray(n * np.prod(np.maximum(n - answered - others, 0) / (n - others), axis=0))
