"""Least-squares decoding errors of a cyclic code over all survivor sets, in batches."""

from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from math import comb

import numpy as np
from numpy.typing import NDArray

from workbench.core.base.settings import SettingError, short
from workbench.core.base.types import Array, chop
from workbench.core.theory._checks import numbers, whole
from workbench.core.theory.necklaces import necklaces

Integers = NDArray[np.int64]
Errors = Callable[[Integers], Array]  # survivor sets (b, r), by their workers -> squared distances (b,)

# max numbers of workers for plain sums, circulant codes and other codes; each takes half a minute
MAX_WORKERS_SUMS, MAX_WORKERS_CIRCULANT, MAX_WORKERS_ANY = 26, 20, 16
# number of matrix entries that are processed at once, which fit into the processor's cache
ENTRIES_PER_BATCH = 200_000
# regularisation, so that dependent rows can be solved; the relative error is (RIDGE / eigenvalue)^2
RIDGE = 1e-8
RELATIVE_ZERO = 1e-10  # singular values below this share of the largest count as zero


def mean_errors(n: int, s: int, coefficients: object) -> Array:
    """Return the mean of min |x B_F - 1|^2 over the sets F of r survivors, for r = 0..n; see `crc_errors`."""
    if isinstance(coefficients, str):
        if coefficients != "ones":
            raise SettingError(
                f'coefficients = {short(coefficients)}: give "ones" or a matrix of shape ({n}, {n})'
            )
        return _plain_sums(n, s).copy()
    matrix = _checked(n, s, coefficients)
    errors = partial(_by_svd, matrix)
    if all(np.allclose(matrix[i], np.roll(matrix[0], i)) for i in range(n)):
        whole(
            "n", n, 1, MAX_WORKERS_CIRCULANT, "a circulant code takes 2^n / n singular value decompositions"
        )
        return _mean_by_size(n, *necklaces(n), errors)
    whole("n", n, 1, MAX_WORKERS_ANY, "a code that is not circulant takes 2^n singular value decompositions")
    return _mean_by_size(n, np.arange(2**n), np.ones(2**n, dtype=np.int64), errors)


@lru_cache(maxsize=64)
def _plain_sums(n: int, s: int) -> Array:
    whole("n", n, 1, MAX_WORKERS_SUMS, "the plain sums take 2^n / n least-squares problems")
    matrix = np.where(_window(n, s), 1.0, 0.0)
    gram = matrix @ matrix.T
    return _mean_by_size(n, *necklaces(n), lambda rows: _by_gram(gram, rows))


def _window(n: int, s: int) -> NDArray[np.bool_]:
    """Return whether a worker stores a part, (workers, parts)."""
    return np.asarray((np.arange(n) - np.arange(n)[:, None]) % n < s)


def _checked(n: int, s: int, coefficients: object) -> Array:
    matrix = numbers("coefficients", coefficients)
    if matrix.shape != (n, n):
        why = f"shape {matrix.shape} must be ({n}, {n}), a row per worker, a column per part"
        raise SettingError(f"coefficients: {why}")
    outside = np.argwhere((matrix != 0) & ~_window(n, s))
    if len(outside):
        i, j = (int(place) for place in outside[0])
        held = f"parts {i} to {(i + s - 1) % n} (modulo {n}, counted from 0)"
        raise SettingError(f"coefficients[{i}, {j}] = {matrix[i, j]:g}: must be 0, worker {i} has {held}")
    return matrix


def _mean_by_size(n: int, sets: Integers, times: Integers, errors: Errors) -> Array:
    """Return the weighted mean error of the sets of each size. A set is an n-bit word that stands for `times` sets."""
    totals = np.zeros(n + 1)
    totals[0] = n  # no answer has arrived
    for rows, weights in _batches(n, sets, times):
        totals[rows.shape[1]] += weights @ errors(rows)
    return totals / [comb(n, r) for r in range(n + 1)]


def _batches(n: int, sets: Integers, times: Integers) -> Iterator[tuple[Integers, Integers]]:
    """Yield batches of sets as lists of workers, (b, r), and the number of sets that each stands for, (b,)."""
    sizes = sum((sets >> bit & 1 for bit in range(n)), np.zeros_like(sets))
    for r in range(1, n + 1):
        chosen = np.flatnonzero(sizes == r)
        for some in np.array_split(chosen, max(1, len(chosen) * r * r // ENTRIES_PER_BATCH)):
            workers = np.nonzero(sets[some, None] >> np.arange(n) & 1)[1]
            yield workers.reshape(-1, r), times[some]


def _by_gram(gram: Array, rows: Integers) -> Array:
    """Return errors from inner products of 0/1 rows.

    A ridge has little effect, as |x B - 1|^2 is flat at its minimum.
    """
    inner = gram[rows[:, :, None], rows[:, None, :]]
    sums = gram[rows, rows]  # a 0/1 row times the all-ones vector is its number of ones
    x = np.linalg.solve(inner + RIDGE * np.eye(rows.shape[1]), sums[:, :, None])[:, :, 0]
    left = len(gram) - 2 * (x * sums).sum(1) + np.einsum("bi,bij,bj->b", x, inner, x)
    return np.maximum(chop(left, len(gram)), 0.0)


def _by_svd(matrix: Array, rows: Integers) -> Array:
    """Return errors of any rows: the squared distance of the all-ones vector from their span."""
    _, sigma, vt = np.linalg.svd(matrix[rows], full_matrices=False)
    spanning = sigma > RELATIVE_ZERO * sigma[:, :1]
    inside = vt.sum(2) ** 2  # squared projections of the all-ones vector
    return np.maximum(chop(matrix.shape[1] - (inside * spanning).sum(1), matrix.shape[1]), 0.0)
