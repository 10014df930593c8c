"""Paper 4, approximate gradient coding for heterogeneous nodes: who answers, and how often a part is missed.

A. Johri, A. Yardi, T. Bodas. A worker is slow with probability p-hat, for the whole run; a slow one straggles
in an iteration with probability p_ss, an active one with p_as. Every part is on s workers.
"""

from __future__ import annotations

from collections.abc import Callable
from math import comb

import numpy as np

from workbench.base.types import Array
from workbench.theory._checks import probability, real, whole

__all__ = [
    "expected_accesses", "missed_given_slow", "missed_shuffled", "missed_unshuffled",
    "straggler_probability", "survivor_distribution",
]  # fmt: skip


def survivor_distribution(n: int, slow: int, p_ss: float, p_as: float) -> Array:
    """P_r: the probability that r of n workers answer, when `slow` of them are slow.

    `n`, `slow`: workers, at least 1; slow workers, m, 0 to n. `p_ss`, `p_as`: probability per iteration that
    a slow, an active worker straggles.

    Returns shape (n + 1,): P_0, ..., P_n. Paper 4, theorem 1: P_r = sum_i C(m,i) C(n-m,r-i) (1-p_ss)^i
    p_ss^(m-i) (1-p_as)^(r-i) p_as^(n-m-r+i). The paper prints C(m,i') C(n-m,r-i') with i' = min(i, m), which
    counts impossible terms (i > m) too; its P_r add up to more than 1.

    >>> survivor_distribution(2, 1, 0.8, 0.1).round(2)
    array([0.08, 0.74, 0.18])
    """
    n = whole("n", n, 1)
    slow = whole("slow", slow, 0, n, f"there are n = {n} workers")
    p_ss, p_as = probability("p_ss", p_ss), probability("p_as", p_as)
    return np.convolve(_binomial(slow, 1 - p_ss), _binomial(n - slow, 1 - p_as))


def missed_unshuffled(s: int, slow_holders: int, p_ss: float, p_as: float) -> float:
    """Probability that a part is missed, its workers fixed: p_ss^k p_as^(s-k).

    `s`, `slow_holders`: workers that hold the part, at least 1; how many of them are slow, k_i, 0 to s.
    `p_ss`, `p_as`: probability per iteration that a slow, an active worker straggles.

    Returns the probability per iteration. Paper 4, proposition 1, without shuffling.

    >>> round(missed_unshuffled(2, 2, 0.8, 0.01), 6), round(missed_unshuffled(2, 0, 0.8, 0.01), 6)
    (0.64, 0.0001)
    """
    s = whole("s", s, 1)
    k = whole("slow_holders", slow_holders, 0, s, f"s = {s} workers hold a part")
    return float(probability("p_ss", p_ss) ** k * probability("p_as", p_as) ** (s - k))


def missed_shuffled(s: int, p_slow: float, p_ss: float, p_as: float) -> float:
    """Probability that a part is missed, its workers drawn anew: (p-hat p_ss + (1-p-hat) p_as)^s.

    `s`: workers that hold a part, at least 1. `p_slow`: probability that a worker is slow, p-hat. `p_ss`,
    `p_as`: probability per iteration that a slow, an active worker straggles.

    Returns the probability per iteration, the same for every part. Paper 4, proposition 1, with shuffling:
    the mean over who is slow. Within one run, where m workers are slow, the probability is
    `missed_given_slow`.

    >>> round(missed_shuffled(2, 0.3, 0.8, 0.01), 6)
    0.061009
    """
    q = straggler_probability(p_slow, p_ss, p_as)
    return float(q ** whole("s", s, 1))


def missed_given_slow(n: int, s: int, slow: int, p_ss: float, p_as: float) -> float:
    """Probability that a part is missed in an iteration with shuffling, when m of the n workers are slow.

    `n`, `s`: workers; workers that hold a part, 1 to n. `slow`: slow workers, m, 0 to n. `p_ss`, `p_as`:
    probability per iteration that a slow, an active worker straggles.

    Of the s workers that hold the part, a hypergeometric number is slow.

    Returns the probability per iteration, the same for every part. What proposition 1 of paper 4 says within
    one run; its mean over m ~ Binomial(n, p-hat) is `missed_shuffled`.

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
    """Expected number of iterations that use a part: L (1 - probability that it is missed).

    `iterations`, `missed`: L >= 0; probability per iteration that the part is missed, from one of the
    functions above.

    Returns iterations; L minus this is the count that paper 4 states. Paper 4, proposition 1.

    >>> expected_accesses(300, 0.64)
    108.0
    """
    return real("iterations", iterations) * (1 - probability("missed", missed))


def straggler_probability(p_slow: float, p_ss: float, p_as: float) -> float:
    """Probability that a worker straggles, be it slow or not: q = p-hat p_ss + (1 - p-hat) p_as.

    `p_slow`, `p_ss`, `p_as`: probability that a worker is slow, that a slow one straggles, that an active one
    straggles.

    Returns q. Paper 4, proposition 1.

    >>> round(straggler_probability(0.3, 0.8, 0.01), 6)
    0.247
    """
    p_slow = probability("p_slow", p_slow)
    return p_slow * probability("p_ss", p_ss) + (1 - p_slow) * probability("p_as", p_as)


def mean_over_slow(n: int, p_slow: float, given: Callable[[int], float]) -> float:
    """Mean of given(m) over m ~ Binomial(n, p-hat), the number of slow workers (paper 4, remark 2)."""
    chances = _binomial(n, probability("p_slow", p_slow))
    return float(sum(chance * given(m) for m, chance in enumerate(chances) if chance > 0))


def _binomial(n: int, p: float) -> Array:
    """Probabilities of 0..n successes, by convolution: exact at p = 0 and 1, and nothing overflows."""
    if n == 0:
        return np.ones(1)
    half = _binomial(n // 2, p)
    both = np.convolve(half, half)
    return np.convolve(both, [1 - p, p]) if n % 2 else both
