"""Fractional repetition code: groups of s+1 workers store the same s+1 parts (Tandon et al. 2017, section 3)."""

import numpy as np

from workbench.core.codes.base import GradientCode
from workbench.core.codes.checks import groups_divide, remembered, stragglers_fit


@remembered
def fractional(workers: int, stragglers: int) -> GradientCode:
    """Return a code of n workers and n parts, (s+1) | n. One answer of every group decodes.

    >>> fractional(4, 1).matrix.astype(int).tolist()
    [[1, 1, 0, 0], [1, 1, 0, 0], [0, 0, 1, 1], [0, 0, 1, 1]]
    """
    stragglers_fit(workers, stragglers)
    size = stragglers + 1
    groups_divide("stragglers", stragglers, workers, size)
    matrix = np.asarray(np.kron(np.eye(workers // size), np.ones((size, size))), dtype=np.float64)
    return GradientCode(matrix, stragglers)
