"""Necklaces against enumeration of all words, and lemma 1 of paper 4 against the enumeration."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.core.theory import moebius, necklace_count, necklaces


def shifts(word: int, n: int) -> set[int]:
    return {(word >> k | word << (n - k)) & (2**n - 1) for k in range(n)}


@pytest.mark.parametrize("n", range(1, 13))
def test_necklaces_partition_all_words(n: int) -> None:
    """Each word is a shift of exactly one representative, the smallest of its class. The orders are the class sizes."""
    text, orders = necklaces(n)
    seen: set[int] = set()
    for word, order in zip(text.tolist(), orders.tolist(), strict=True):
        its = shifts(word, n)
        assert word == min(its)
        assert len(its) == order
        assert not seen & its
        seen |= its
    assert seen == set(range(2**n))


@pytest.mark.parametrize("n", [1, 2, 6, 8, 9, 12, 16, 20])
def test_necklace_count_lemma_1(n: int) -> None:
    """Lemma 1 gives the number of classes for each weight and order."""
    text, orders = necklaces(n)
    weights = np.array([word.bit_count() for word in text.tolist()])
    for r in range(n + 1):
        for e in range(1, n + 1):
            assert necklace_count(n, r, e) == np.count_nonzero((weights == r) & (orders == e))


@given(n=st.integers(1, 60))
def test_necklace_counts_sum_to_all_words(n: int) -> None:
    assert sum(e * necklace_count(n, r, e) for r in range(n + 1) for e in range(1, n + 1)) == 2**n


@given(n=st.integers(1, 5000))
def test_moebius_is_the_inverse_of_one(n: int) -> None:
    """The sum over all divisors is 1 for n = 1 and 0 otherwise."""
    assert sum(moebius(d) for d in range(1, n + 1) if n % d == 0) == (n == 1)
