"""Fractional repetition code: groups of s+1 workers hold the same s+1 parts (Tandon et al. 2017, section 3)."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from workbench.codes.base import GradientCode


@lru_cache(maxsize=32)
def fractional(workers: int, stragglers: int) -> GradientCode:
    """Code of n workers and n parts, (s+1) | n; one answer of every group decodes.

    >>> fractional(4, 1).matrix.astype(int).tolist()
    [[1, 1, 0, 0], [1, 1, 0, 0], [0, 0, 1, 1], [0, 0, 1, 1]]
    """
    size = stragglers + 1
    if workers % size:
        raise ValueError(f"stragglers = {stragglers}: groups of {size} do not divide {workers} workers")
    return GradientCode(np.kron(np.eye(workers // size), np.ones((size, size))), stragglers)
