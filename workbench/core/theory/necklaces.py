"""Binary necklaces: the cycle classes of paper 4's theorem 2, and their number by its lemma 1."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from workbench.core.theory._checks import whole

MAX_LENGTH = 28  # about 10 million classes


def necklaces(n: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return one representative of every class of n-letter binary words under cyclic shifts, and its size.

    All words are extended bit by bit (Fredricksen, Kessler and Maiorana). The next bit repeats the bit one period
    earlier. If that bit is 0, the next bit may also be 1, and then the whole word becomes the period. The words whose
    period divides n are the smallest of their classes, and the period is the order of the class.

    `n`: length of the words, 1 to 28.

    Returns words and orders, int64, both of shape (classes,). Words are the representatives. Bit n-1-j of a word is
    its j-th letter. Orders are the numbers of words in each class, e, which divide n. Paper 4, section IV-B (cycle
    classes, representatives and orders).

    >>> words, orders = necklaces(4)
    >>> [format(w, "04b") for w in words], orders.tolist()
    (['0000', '1111', '0101', '0001', '0011', '0111'], [1, 1, 2, 4, 4, 4])
    """
    n = whole("n", n, 1, MAX_LENGTH, f"there are about 2^n / n classes, 10 million for n = {MAX_LENGTH}")
    words, periods = np.array([0, 1]), np.array([1, 1])
    for length in range(1, n):
        again = words >> (periods - 1) & 1
        turn = again == 0
        words = np.concatenate([2 * words + again, 2 * words[turn] + 1])
        periods = np.concatenate([periods, np.full(np.count_nonzero(turn), length + 1)])
    whole_turns = n % periods == 0
    return words[whole_turns], periods[whole_turns]


def necklace_count(n: int, weight: int, order: int) -> int:
    """Return the number of classes of binary words of length n with a given weight (number of ones) and order (size).

    `n`: length of the words, at least 1. `weight`: ones per word, r, 0 to n. `order`: words per class, e. If e does
    not divide n, no class has that size.

    The number is the coefficient of x^r in (1/e) sum over d | e of mu(e/d) (1 + x^(n/d))^d, where mu is the Moebius
    function.

    Returns N(r, e). Paper 4, lemma 1, whose definition of mu is misprinted (see `moebius`).

    >>> necklace_count(8, 4, 8), necklace_count(8, 4, 4), necklace_count(8, 4, 2)
    (8, 1, 1)
    """
    n, e = whole("n", n, 1), whole("order", order, 1)
    r = whole("weight", weight, 0, n, f"words have n = {n} letters")
    if n % e:
        return 0
    divisors = [d for d in range(1, e + 1) if e % d == 0 and r * d % n == 0]
    return sum(moebius(e // d) * math.comb(d, r * d // n) for d in divisors) // e


def moebius(n: int) -> int:
    """Return the Moebius function: 1 for n = 1, 0 if a square above 1 divides n, else (-1)^(number of primes).

    `n`: at least 1.

    Returns -1, 0 or 1.

    >>> [moebius(n) for n in (1, 2, 4, 6, 30)]
    [1, -1, 0, 1, -1]
    """
    rest, sign, prime = whole("n", n, 1), 1, 2
    while rest > 1:
        if rest % prime == 0:
            rest, sign = rest // prime, -sign
            if rest % prime == 0:
                return 0
        prime += 1
    return sign
