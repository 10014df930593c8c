"""Codes for approximate aggregation: least-squares weights of the answers that come before a deadline."""

from math import gcd
from typing import Literal

import numpy as np

from workbench.core.codes.base import GradientCode
from workbench.core.codes.checks import between, remembered, seed_fits, some_are_there
from workbench.core.codes.cyclic import textbook


@remembered
def circulant(
    workers: int, replication: int, coefficients: Literal["ones", "random"] = "ones", seed: int = 0
) -> GradientCode:
    """Return the cyclic repetition code of the approximate scheme CRC: every part on `replication` (its s) workers.

    A. Johri, A. Yardi, T. Bodas, "Approximate gradient coding for heterogeneous nodes", sections II and IV-B. With
    "ones" a worker sends the plain sum of its window {i, ..., i+s-1} (Theorem 2 needs a circulant matrix). Then any
    gcd(n, s) - 1 workers may be missing without an error. With "random", the coefficients of Tandon et al. 2017, any
    s-1 may be missing.

    >>> circulant(4, 2).matrix.astype(int).tolist()
    [[1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 1, 1], [1, 0, 0, 1]]
    """
    some_are_there("workers", workers)
    between("replication", replication, 1, workers, f"each part is stored by some of the {workers} workers")
    seed_fits(seed)
    if coefficients == "random":
        random = textbook(workers, replication - 1, seed)
        return GradientCode(random, replication - 1, instead="coefficients = 'ones'")
    matrix = np.zeros((workers, workers))
    window = (np.arange(workers)[:, None] + np.arange(replication)) % workers
    np.put_along_axis(matrix, window, 1.0, axis=1)
    return GradientCode(matrix, gcd(workers, replication) - 1)


@remembered
def bernoulli(workers: int, parts: int, load: float, seed: int = 0) -> GradientCode:
    """Return the Bernoulli gradient code: every worker stores every part with probability load / parts, independently.

    Z. Charles, D. Papailiopoulos, J. Ellenberg, "Approximate gradient coding via sparse random graphs", 2017, section
    5. `load` is the expected number of parts per worker. A worker may store no part, and a part may have no worker.
    No number of stragglers is guaranteed to be tolerated, so `stragglers` is 0.

    >>> bernoulli(6, 4, load=2.0).matrix.shape
    (6, 4)
    """
    some_are_there("workers", workers)
    some_are_there("parts", parts)
    between("load", load, 0, parts, f"a worker stores some of the {parts} parts")
    seed_fits(seed)
    held = np.random.default_rng(seed).random((workers, parts)) < load / parts
    return GradientCode(held.astype(np.float64), 0)
