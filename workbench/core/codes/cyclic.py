"""Cyclic repetition code: worker i stores the window of parts {i, ..., i+s}, and any s workers may be missing.

There are two constructions. `stable`, the default, loses few digits:

* If s+1 divides n, B is the 0/1 matrix of the windows. The workers c, c+(s+1), c+2(s+1), ... tile the parts, so
  each of these s+1 classes decodes with weights 1. With s missing workers, one class is still complete.
* If g = gcd(n, s+1) > 1, g neighbouring parts count as one, and workers in steps of g form a class. Each of the g
  classes is a cyclic code (n/g, (s+1)/g - 1). A class fails only if (s+1)/g of its workers are missing. All classes
  fail only if s+1 workers are missing, so one class decodes. That leaves systems of (s+1)/g - 1 unknowns instead of
  s.
* If n and s+1 have no common factor, the code is designed from the decoder's side: see `workbench.core.codes.dual`.

`tandon` is the matrix of the textbook (Tandon et al. 2017, Algorithms 1 and 2).
"""

from math import gcd
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from workbench.core.base.types import Array
from workbench.core.codes.base import GradientCode, Span
from workbench.core.codes.checks import remembered, seed_fits, stragglers_fit
from workbench.core.codes.dual import Dual, best_dual, harmonics, perturbed

Construction = Literal["stable", "tandon"]


@remembered
def cyclic(
    workers: int, stragglers: int, seed: int = 0, construction: Construction = "stable"
) -> GradientCode:
    """Return a code of n workers and n parts that any n-s answers decode. `matrix` is (n, n).

    Weights are found among the workers of one class, so fewer than n-s answers may be enough.

    >>> cyclic(4, 1).matrix.astype(int).tolist()
    [[1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 1, 1], [1, 0, 0, 1]]
    >>> cyclic(4, 1).decode((1, 2, 3)).weights.round(12).tolist()
    [1.0, 0.0, 1.0]
    """
    stragglers_fit(workers, stragglers)
    seed_fits(seed)
    if construction == "tandon":
        return GradientCode(textbook(workers, stragglers, seed), stragglers, instead="code = 'cyclic'")
    classes = gcd(workers, stragglers + 1)
    inner = coprime(workers // classes, (stragglers + 1) // classes, seed)
    matrix = np.zeros((workers, workers))
    parts = np.arange(workers)
    for first in range(classes):
        place = np.ix_(parts[first::classes], (first + parts) % workers)
        matrix[place] = np.kron(inner.matrix, np.ones(classes))
    spans = tuple(Span(parts[first::classes], inner.particular, inner.null) for first in range(classes))
    return GradientCode(matrix, stragglers, spans=spans)


def coprime(n: int, window: int, seed: int) -> Dual:
    """Return a cyclic code of n workers with windows of `window` parts. n and `window` must have no common factor."""
    if window == 1:
        return Dual(np.eye(n), np.ones((1, n)), np.zeros((0, n)))
    return best_dual(perturbed(harmonics(n, window), 1, seed), 1, cyclic_holders(n, window))


def cyclic_holders(n: int, window: int) -> list[NDArray[np.int64]]:
    """Return the workers that store each part if worker i stores {i, ..., i+window-1}.

    >>> [holders.tolist() for holders in cyclic_holders(3, 2)]
    [[0, 2], [1, 0], [2, 1]]
    """
    return [(part - np.arange(window)) % n for part in range(n)]


def textbook(n: int, s: int, seed: int) -> Array:
    """Return B of Tandon et al. 2017, Algorithm 2, (n, n).

    H is (s, n) and standard normal. Its last column is minus the sum of the others, so H @ 1 = 0. Every row of the
    code is in the null space of H, which has dimension n-s and contains the all-ones vector.
    """
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
