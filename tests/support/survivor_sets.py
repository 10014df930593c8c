"""Survivor sets for the tests of codes, and the error of a decoding."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

import numpy as np

from workbench.core.codes import GradientCode

Answered = tuple[int, ...]


def every(code: GradientCode, most: int | None = None) -> Iterator[Answered]:
    """Yield all survivor sets with at most that many rows missing (`stragglers` by default)."""
    for missing in range((code.stragglers if most is None else most) + 1):
        yield from combinations(range(code.workers), code.workers - missing)


def some(n: int, s: int, count: int, seed: int = 0) -> Iterator[Answered]:
    """Yield random survivor sets with s rows missing."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        yield tuple(np.sort(rng.permutation(n)[s:]).tolist())


def neighbours(n: int, s: int) -> Iterator[Answered]:
    """Yield survivor sets with s neighbours missing."""
    for first in range(n):
        yield tuple(sorted((first + row) % n for row in range(s, n)))


def strides(n: int, s: int) -> Iterator[Answered]:
    """Yield survivor sets without every k-th row, cyclically, s rows in total."""
    for k in range(2, n // 2):
        gone = {first * k % n for first in range(s)}
        if len(gone) == s:
            yield tuple(sorted(set(range(n)) - gone))


def miss(code: GradientCode, answered: Answered) -> float:
    """Return |a B - 1| in the largest coordinate, computed independently."""
    weights = code.decode(answered).weights
    return float(np.abs(weights @ code.matrix[list(answered)] - 1).max())


def window(n: int, size: int) -> np.ndarray:
    """Return the support of a cyclic code: row i has parts i, ..., i+size-1."""
    return np.array([[(part - row) % n < size for part in range(n)] for row in range(n)])
