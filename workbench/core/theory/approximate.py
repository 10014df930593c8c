"""Paper 4, approximate gradient coding for heterogeneous nodes: who answers, which parts are missed, decoding errors.

A. Johri, A. Yardi, T. Bodas. A worker is slow with probability p-hat, for the whole run; a slow one straggles
in an iteration with probability p_ss, an active one with p_as. Every part is on s workers.

The error of an iteration is min over weights x of |x B_survivors - 1|^2, B with a row per worker and a column
per part. An uncovered part costs 1. No code with s workers per part therefore has a smaller expected error than n q^s,
where q is the probability that a worker straggles. Fractional repetition has exactly this error.
"""

from __future__ import annotations

from collections.abc import Callable
from math import comb
from typing import Literal

import numpy as np

from workbench.core.base.types import Array
from workbench.core.theory._checks import divides, probability, real, whole
from workbench.core.theory._residuals import mean_errors


def survivor_distribution(n: int, slow: int, p_ss: float, p_as: float) -> Array:
    """Return P_r: the probability that r of n workers answer, when `slow` of them are slow.

    `n`: number of workers, at least 1. `slow`: number of slow workers, m, 0 to n. `p_ss`, `p_as`: probabilities per
    iteration that a slow worker straggles, and that an active one does.

    Returns P_0, ..., P_n, shape (n + 1,). Paper 4, theorem 1: P_r = sum_i C(m,i) C(n-m,r-i) (1-p_ss)^i
    p_ss^(m-i) (1-p_as)^(r-i) p_as^(n-m-r+i). The paper prints C(m,i') C(n-m,r-i') with i' = min(i, m), which also
    counts impossible terms (i > m). Its P_r add up to more than 1.

    >>> survivor_distribution(2, 1, 0.8, 0.1).round(2)
    array([0.08, 0.74, 0.18])
    """
    n = whole("n", n, 1)
    slow = whole("slow", slow, 0, n, f"there are n = {n} workers")
    p_ss, p_as = probability("p_ss", p_ss), probability("p_as", p_as)
    return np.convolve(_binomial(slow, 1 - p_ss), _binomial(n - slow, 1 - p_as))


def missed_unshuffled(s: int, slow_holders: int, p_ss: float, p_as: float) -> float:
    """Return the probability that a part is missed if its workers are fixed: p_ss^k p_as^(s-k).

    `s`: number of workers that store the part, at least 1. `slow_holders`: number of slow ones among them, k_i, 0 to
    s. `p_ss`, `p_as`: probabilities per iteration that a slow worker straggles, and that an active one does.

    Returns the probability per iteration. Paper 4, proposition 1, without shuffling.

    >>> round(missed_unshuffled(2, 2, 0.8, 0.01), 6), round(missed_unshuffled(2, 0, 0.8, 0.01), 6)
    (0.64, 0.0001)
    """
    s = whole("s", s, 1)
    k = whole("slow_holders", slow_holders, 0, s, f"s = {s} workers hold a part")
    return float(probability("p_ss", p_ss) ** k * probability("p_as", p_as) ** (s - k))


def missed_shuffled(s: int, p_slow: float, p_ss: float, p_as: float) -> float:
    """Return the probability that a part is missed if its workers are drawn in every round.

    It is (p-hat p_ss + (1-p-hat) p_as)^s.

    `s`: number of workers that store a part, at least 1. `p_slow`: probability that a worker is slow, p-hat. `p_ss`,
    `p_as`: probabilities per iteration that a slow worker straggles, and that an active one does.

    Returns the probability per iteration, the same for every part. Paper 4, proposition 1, with shuffling:
    the mean over who is slow. Within one run, where m workers are slow, the probability is
    `missed_given_slow`.

    >>> round(missed_shuffled(2, 0.3, 0.8, 0.01), 6)
    0.061009
    """
    q = straggler_probability(p_slow, p_ss, p_as)
    return float(q ** whole("s", s, 1))


def missed_given_slow(n: int, s: int, slow: int, p_ss: float, p_as: float) -> float:
    """Return the probability that a part is missed in an iteration with shuffling, when m of the n workers are slow.

    `n`: number of workers. `s`: number of workers that store a part, 1 to n. `slow`: number of slow workers, m, 0 to
    n. `p_ss`, `p_as`: probabilities per iteration that a slow worker straggles, and that an active one does.

    Of the s workers that store the part, a hypergeometric number is slow.

    Returns the probability per iteration, the same for every part. This is proposition 1 of paper 4 within one run.
    Its mean over m ~ Binomial(n, p-hat) is `missed_shuffled`.

    >>> round(missed_given_slow(8, 2, 2, 0.8, 0.01), 6)
    0.026339
    """
    n = whole("n", n, 1)
    s = whole("s", s, 1, n, f"there are n = {n} workers")
    slow = whole("slow", slow, 0, n, f"there are n = {n} workers")
    p_ss, p_as = probability("p_ss", p_ss), probability("p_as", p_as)
    ways = [comb(slow, k) * comb(n - slow, s - k) / comb(n, s) for k in range(s + 1)]
    return float(sum(way * p_ss**k * p_as ** (s - k) for k, way in enumerate(ways)))


def expected_accesses(iterations: float, missed: float) -> float:
    """Return the expected number of iterations that use a part: L (1 - probability that it is missed).

    `iterations`: L >= 0. `missed`: probability per iteration that the part is missed, from one of the functions above.

    Returns a number of iterations. L minus this number is the count that paper 4 states. Paper 4, proposition 1.

    >>> expected_accesses(300, 0.64)
    108.0
    """
    return real("iterations", iterations) * (1 - probability("missed", missed))


def straggler_probability(p_slow: float, p_ss: float, p_as: float) -> float:
    """Return the probability that a worker straggles, whether slow or not: q = p-hat p_ss + (1 - p-hat) p_as.

    `p_slow`: probability that a worker is slow, p-hat. `p_ss`, `p_as`: probabilities that a slow worker straggles, and
    that an active one does.

    Returns q. Paper 4, proposition 1.

    >>> round(straggler_probability(0.3, 0.8, 0.01), 6)
    0.247
    """
    p_slow = probability("p_slow", p_slow)
    return p_slow * probability("p_ss", p_ss) + (1 - p_slow) * probability("p_as", p_as)


def _mean_over_slow(n: int, p_slow: float, given: Callable[[int], float]) -> float:
    """Return the mean of given(m) over m ~ Binomial(n, p-hat), the number of slow workers (paper 4, remark 2)."""
    chances = _binomial(n, probability("p_slow", p_slow))
    return float(sum(chance * given(m) for m, chance in enumerate(chances) if chance > 0))


def _binomial(n: int, p: float) -> Array:
    """Return the probabilities of 0..n successes, by convolution: exact at p = 0 and 1, and nothing overflows."""
    if n == 0:
        return np.ones(1)
    half = _binomial(n // 2, p)
    both = np.convolve(half, half)
    return np.convolve(both, [1 - p, p]) if n % 2 else both


Coefficients = Literal["ones"] | Array


def frc_error(n: int, s: int, p_slow: float, p_ss: float, p_as: float) -> float:
    """Return the expected decoding error of the fractional repetition code, over who is slow and who straggles.

    Returns the mean of the squared distance to the all-ones vector, 0 to n (parts): n q^s, with q from
    `straggler_probability`. Paper 4, theorem 1 and remark 2. For n = 8, s = 2, p-hat = 0.3, p_ss = 0.8, p_as = 0.01
    the paper prints 1.976, which is the value for s = 1. Shuffling does not change this mean, but spreads the error
    more evenly over the parts.

    `n`: number of workers, and of parts. `s`: number of workers per part, which must divide n; s - 1 stragglers are
    always tolerated. `p_slow`: probability that a worker is slow, p-hat. `p_ss`, `p_as`: probabilities per iteration
    that a slow worker straggles, and that an active one does.

    >>> round(frc_error(8, 2, 0.3, 0.8, 0.01), 4), round(frc_error(8, 1, 0.3, 0.8, 0.01), 4)
    (0.4881, 1.976)
    """
    errors = _frc_errors(n, s)
    return _mean_over_slow(n, p_slow, lambda slow: float(survivor_distribution(n, slow, p_ss, p_as) @ errors))


def frc_error_given_slow(n: int, s: int, slow: int, p_ss: float, p_as: float) -> float:
    """Return the expected decoding error of FRC with random shuffling when m of the n workers are slow.

    `n`: number of workers, and of parts. `s`: number of workers per part, which must divide n. `slow`: number of slow
    workers, m, 0 to n. `p_ss`, `p_as`: probabilities per iteration that a slow worker straggles, and that an active
    one does.

    Returns the squared distance, in parts: n * sum over r of P_r C(n-s, r) / C(n, r). Paper 4, theorem 1, with
    the corrected P_r of `survivor_distribution`.

    >>> round(frc_error_given_slow(8, 2, 2, 0.8, 0.01), 6)
    0.210714
    """
    return float(survivor_distribution(n, slow, p_ss, p_as) @ _frc_errors(n, s))


def crc_error(
    n: int, s: int, p_slow: float, p_ss: float, p_as: float, coefficients: Coefficients = "ones"
) -> float:
    """Return the expected decoding error of the cyclic repetition code, over who is slow and who straggles.

    Returns the mean of the squared distance to the all-ones vector, n q^s to n (parts). Raises `SettingError` if the
    coefficients do not fit n and s. Paper 4, theorem 2 and remark 2. For n = 8, s = 2, p-hat = 0.3, p_ss = 0.8, p_as =
    0.01 the paper prints 0.5173. Plain sums give 0.6244, and Tandon's random coefficients mostly 1.0 to 1.9.

    Parameters
    ----------
    n : int
        Workers, and parts: up to 26 for plain sums, 20 for other circulant codes, 16 for any other code.
    s : int
        Workers per part; worker i has parts i, ..., i + s - 1 (modulo n).
    p_slow : float
        Probability that a worker is slow, p-hat.
    p_ss, p_as : float
        Probabilities per iteration that a slow worker straggles, and that an active one does.
    coefficients : "ones" or array (n, n)
        Coefficients of the code: "ones" for plain sums, or a matrix whose row i is 0 outside worker i's parts.

    Examples
    --------
    >>> round(crc_error(8, 2, 0.3, 0.8, 0.01), 4)
    0.6244
    """
    straggler_probability(p_slow, p_ss, p_as)  # checks the arguments first
    errors = crc_errors(n, s, coefficients)
    return _mean_over_slow(n, p_slow, lambda slow: float(survivor_distribution(n, slow, p_ss, p_as) @ errors))


def crc_error_given_slow(
    n: int, s: int, slow: int, p_ss: float, p_as: float, coefficients: Coefficients = "ones"
) -> float:
    """Return the expected decoding error of CRC with random shuffling when m of the n workers are slow.

    `slow`: number of slow workers, m, 0 to n. `n`, `s`, `p_ss`, `p_as`, `coefficients`: as in `crc_error`.

    Returns the squared distance, in parts. Raises `SettingError` if the coefficients do not fit n and s.
    Paper 4, theorem 2.

    >>> round(crc_error_given_slow(8, 2, 2, 0.8, 0.01), 4)
    0.3401
    """
    errors = crc_errors(n, s, coefficients)
    return float(survivor_distribution(n, slow, p_ss, p_as) @ errors)


def crc_errors(n: int, s: int, coefficients: Coefficients = "ones") -> Array:
    """Return the mean decoding error of CRC over all sets of r workers that answer, for r = 0..n.

    `n`, `s`, `coefficients`: as in `crc_error`.

    If the code is circulant, sets that are cyclic shifts of one another have the same error. Then one least-squares
    problem per necklace is enough. Any other matrix needs all 2^n sets.

    Returns squared distances, in parts, shape (n + 1,). The first one is n. Raises `SettingError` if the coefficients
    do not fit n and s. Paper 4, theorem 2, which prints ``|A A^+ - 1|^2`` for ``|A A^+ 1 - 1|^2``. The theorem stops
    at r = n - s, which is right only for codes that tolerate s - 1 stragglers. Plain sums tolerate them only if s
    divides n, so here r runs to n. The proof assumes columns that are equal up to shifts. Tandon's random cyclic code
    has no such columns: only its zeros are cyclic.

    >>> crc_errors(4, 2).round(4)
    array([4.    , 2.    , 0.8889, 0.    , 0.    ])
    """
    n = whole("n", n, 1)
    return mean_errors(n, whole("s", s, 1, n, f"there are n = {n} parts"), coefficients)


def _frc_errors(n: int, s: int) -> Array:
    """Return the mean decoding error of FRC when r workers answer, r = 0..n: n C(n-s, r) / C(n, r), as a product."""
    n = whole("n", n, 1)
    s = whole("s", s, 1, n, f"there are n = {n} workers")
    divides("s", s, "n", n)
    answered, others = np.arange(n + 1), np.arange(s)[:, None]  # s workers, one after another, did not answer
    return np.asarray(n * np.prod(np.maximum(n - answered - others, 0) / (n - others), axis=0))
