"""Cyclic repetition code: part windows {i, ..., i+s} (Tandon et al. 2017, Algorithm 1 and 2)."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from workbench.codes.base import GradientCode
from workbench.protocol import Array


@lru_cache(maxsize=32)
def cyclic(workers: int, stragglers: int, seed: int = 0) -> GradientCode:
    """Code of n workers and n parts that any n-s answers decode.

    H is (s, n), standard normal, its last column minus the sum of the others, so H @ 1 = 0. Every row of the
    code lies in H's null space, which has dimension n-s and holds the all-ones vector.

    >>> cyclic(4, 1).matrix.shape
    (4, 4)
    """
    return GradientCode(_matrix(workers, stragglers, seed), stragglers)


def _matrix(n: int, s: int, seed: int) -> Array:
    if s == 0:
        return np.eye(n)
    H = np.random.default_rng(seed).standard_normal((s, n))
    H[:, -1] = -H[:, :-1].sum(axis=1)
    B = np.zeros((n, n))
    for i in range(n):
        window = (i + np.arange(s + 1)) % n
        B[i, window[0]] = 1.0
        B[i, window[1:]] = -np.linalg.solve(H[:, window[1:]], H[:, window[0]])
    return B
