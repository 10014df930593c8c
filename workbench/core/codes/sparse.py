"""Codes for approximate aggregation: least-squares weights of the answers that come before a deadline."""

from math import gcd
from typing import Literal

import numpy as np

from workbench.core.base.settings import SettingError
from workbench.core.codes.base import GradientCode
from workbench.core.codes.checks import between, groups_divide, nearest, remembered, seed_fits, some_are_there
from workbench.core.codes.cyclic import textbook


@remembered
def circulant(
    workers: int, replication: int, coefficients: Literal["ones", "random"] = "ones", seed: int = 0
) -> GradientCode:
    """Return the cyclic repetition code of the approximate scheme CRC: every part on s = `replication` workers.

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
def hybrid(workers: int, replication: int, inside: int, groups: int) -> GradientCode:
    """Return the hybrid placement of IS-GC: c1 cyclic copies inside each group, and c - c1 around all workers.

    "On arbitrary ignorance of stragglers with gradient coding", 2023, after `IS_GC_HR.partition` of its authors'
    program. There are `groups` (g) groups of n/g workers and as many parts. Worker i stores the c1 = `inside` parts
    before its own, cyclically inside its group, and the `replication` - `inside` parts i, i+1, ... of all. Workers of
    one group share a part if and only if c <= n/g <= c + c1 (below that sum if c1 = c).

    >>> hybrid(6, replication=2, inside=1, groups=2).matrix.astype(int).tolist()[:3]
    [[1, 0, 1, 0, 0, 0], [1, 1, 0, 0, 0, 0], [0, 1, 1, 0, 0, 0]]
    """
    some_are_there("workers", workers)
    between("replication", replication, 1, workers, f"each part is stored by some of the {workers} workers")
    between("inside", inside, 0, replication, "some of the copies of a part are inside its group")
    between("groups", groups, 1, workers, f"there are {workers} workers")
    groups_divide("groups", groups, workers)
    size, low, high = workers // groups, replication, replication + inside - (inside == replication)
    if not low <= size <= high:
        fits = [workers // k for k in range(low, high + 1) if workers % k == 0]
        what = f"{size} workers in a group do not fit {replication} copies, {inside} of them inside the group"
        take = nearest(groups, fits) if fits else f"replication = {size}"
        raise SettingError(f"groups = {groups}: {what}; take {take}")
    matrix, here = np.zeros((workers, workers)), np.arange(workers)[:, None]
    before = here - here % size + (here - 1 - np.arange(inside)) % size
    np.put_along_axis(matrix, before, 1.0, axis=1)
    np.put_along_axis(matrix, (here + np.arange(replication - inside)) % workers, 1.0, axis=1)
    return GradientCode(matrix, 0)


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
