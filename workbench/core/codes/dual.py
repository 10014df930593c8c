"""Codes designed from the decoder's side: choose good decoding weights, then solve for the coefficients.

A code B over n messages decodes with any s of them missing under one condition. The decoding weights a = a0 + c N of B,
with a B = target, form a space in which any s weights can be made zero. So a0 (m x n) and N (s x n) are chosen first.
The column of B of one part is supported on the messages that contain the part. With d = s + m of them, the square
system

    [N ; a0][:, holders] @ b = [0 ; I_m]

gives its coefficients. This is the construction of Ye and Abbe 2018, section 3, in dual form. Their V is a basis of the
complement of N, and their blocks [X_i | I_m] V are these columns. With m = 1, these are the gradient codes of Tandon et
al. 2017.

Two kinds of small systems decide how many digits are lost: the systems above, on d neighbouring columns, and N[:,
missing], on any columns. Random numbers make both ill-conditioned. Instead, the rows are those of a Fourier basis
with d evenly spread frequencies, k n / d rounded to integers. Then the first kind is orthogonal up to the rounding, and
B is nearly a 0/1 matrix. The second kind is about as good as with random choices. If n and d have common factors, some
sets of columns would be exactly dependent. A little seeded noise prevents that.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import combinations
from math import comb
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from workbench.core.base.blas import one_thread
from workbench.core.base.settings import SettingError
from workbench.core.base.types import Array

NOISE_SHARES = (0.03, 0.01, 0.1, 0.3)  # shares of noise that are tried; large codes use only the first
# Max number of straggler sets for which candidates are evaluated on all sets.
MAX_ENUMERATED_SETS = 10_000
# if there are more sets, this number of random ones is evaluated, and all runs of neighbours in addition
RANDOM_SETS = 256
MAX_MULTIPLICATIONS = 2e8  # max multiplications spent on choosing a code; at least one candidate is made
MAX_CANDIDATES = 25  # max number of candidates
# least number of neighbouring parts that share one factorisation, if their systems are large
PARTS_PER_BLOCK = 64
# unknowns of a system for each part that shares its factorisation, if this allows more parts
UNKNOWNS_PER_PART = 10
MIN_BLOCKED_UNKNOWNS = 4 * PARTS_PER_BLOCK  # min number of unknowns of a large system


class Dual(NamedTuple):
    """Code and all of its decoding weights."""

    matrix: Array  # (n, parts * m)
    particular: Array  # (m, n)
    null: Array  # (s, n)


def harmonics(n: int, count: int, first: int = 1) -> Array:
    """Return real Fourier vectors of evenly spread frequencies, (count, n), orthonormal, the `first` lowest in front.

    Row k is cos + sin of frequency (k - (first-1)/2) n / count, rounded to whole turns. (In this form, by Hartley,
    one row is enough for a frequency.) For an even `first`, half turns may be nearer. Then all columns change their
    sign at the seam, which is harmless. The lowest frequencies are symmetric about zero. For first = 1 that is the
    constant vector.

    >>> harmonics(4, 2).round(2).tolist()
    [[0.5, 0.5, 0.5, 0.5], [0.5, -0.5, 0.5, -0.5]]
    """
    exact = (np.arange(count) - (first - 1) / 2) * n / count
    turns = [np.floor(exact + 0.5), np.floor(exact) + 0.5]
    whole, half = (np.abs(t - exact).sum() for t in turns)
    nearer = int(first % 2 == 0 and half < whole - 0.1)
    angle = 2 * np.pi * np.outer(turns[nearer], np.arange(n)) / n
    return np.asarray((np.cos(angle) + np.sin(angle)) / np.sqrt(n))


def dual(particular: Array, null: Array, holders: Sequence[NDArray[np.int64]]) -> Dual:
    """Return the code with the decoding weights particular + c @ null, its coefficients scaled to at most 1.

    `particular` is (m, n), and `null` (s, n) with orthonormal rows, orthogonal to it. holders[k] are the s + m
    messages that contain part k.
    """
    rows = np.concatenate([null, particular])
    wanted = np.eye(len(rows))[:, len(null) :]
    matrix = np.zeros((rows.shape[1], len(holders), len(particular)))
    if len(rows) <= MIN_BLOCKED_UNKNOWNS:
        for part, stored in enumerate(holders):
            matrix[stored, part] = np.linalg.solve(rows[:, stored], wanted)
    else:
        block = max(PARTS_PER_BLOCK, len(rows) // UNKNOWNS_PER_PART)
        for first in range(0, len(holders), block):
            together = Neighbours(rows, holders[first : first + block])
            matrix[together.stored, first : first + block] = together.solve(wanted)
    scale = max(matrix.max(), -matrix.min())
    matrix /= scale
    return Dual(matrix.reshape(len(matrix), -1), particular * scale, null)


class Neighbours:
    """Systems rows[:, holders[k]] @ b = wanted of parts with nearly the same holders, solved with one factorisation.

    W are the columns of the first part's holders, X = W^-1 rows[:, others] and y = W^-1 wanted. In another system the
    columns `gone` are replaced by the columns `new` of the others. Its solution is c on `new`, with X[gone, new] c =
    y[gone], and y - X[:, new] c on the remaining columns (Sherman, Morrison and Woodbury). One step of refinement
    makes its residual as small as with a separate factorisation.
    """

    def __init__(self, rows: Array, holders: Sequence[NDArray[np.int64]]) -> None:
        from scipy.linalg import lu_factor, lu_solve  # here, so that importing the workbench stays quick

        d = len(rows)
        self.stored = np.concatenate([holders[0], np.setdiff1d(np.concatenate(holders), holders[0])])
        self.columns = rows[:, self.stored]
        self.factors = lu_factor(self.columns[:, :d], check_finite=False)
        if not np.diag(self.factors[0]).all():
            raise np.linalg.LinAlgError("singular")
        self.others = lu_solve(self.factors, self.columns[:, d:])
        self.swaps = []
        for stored in holders:
            here = np.isin(self.stored, stored)
            self.swaps.append((np.flatnonzero(~here[:d]), np.flatnonzero(here[d:])))

    def solve(self, wanted: Array) -> Array:
        """Return the solutions of all parts, (holders, parts, m), zero where a part is not stored."""
        each = np.repeat(wanted[:, None], len(self.swaps), axis=1)
        found = self._once(each)
        return found + self._once(each - np.tensordot(self.columns, found, axes=1))

    def _once(self, right: Array) -> Array:
        """Solve for right-hand sides (d, parts, m), up to the rounding of two factorisations."""
        from scipy.linalg import lu_solve

        d = len(right)
        found = np.zeros((len(self.stored), *right.shape[1:]))
        found[:d] = lu_solve(self.factors, right.reshape(d, -1)).reshape(right.shape)
        for part, (gone, new) in enumerate(self.swaps):
            c = np.linalg.solve(self.others[np.ix_(gone, new)], found[gone, part])
            found[:d, part] -= self.others[:, new] @ c
            found[gone, part] = 0.0
            found[d + new, part] = c
        return found


def best_dual(candidates: Iterable[Array], first: int, holders: Sequence[NDArray[np.int64]]) -> Dual:
    """Return the code with the smallest weights among the candidates.

    The rows of a candidate span its decoding weights.

    A candidate is (d, n), and its `first` rows are the particular weights. A single candidate is not evaluated.
    """
    with one_thread():
        made = (_attempt(np.linalg.qr(rows.T)[0].T, first, holders) for rows in candidates)
        codes = [code for code in made if code is not None]
        if not codes:
            raise SettingError("seed: its random numbers give no code; take the next one")
        if len(codes) == 1:
            return codes[0]
        sets = judged_sets(len(codes[0].matrix), len(codes[0].null))
        return min(codes, key=lambda code: large_weights(code, sets))


def perturbed(base: Array, first: int, seed: int) -> Iterator[Array]:
    """Yield the base with noise on its null rows, and last without noise if all sets of missing messages are judged.

    Without noise, some sets of columns are exactly dependent, such as every seventh of 70, or 0, 2, 3, 4, 9, 10, 13,
    18, 24, 25, 28 and 29 of 30. Few of the sets that are drawn for a large code are among them. The `first` rows,
    which are the particular weights, stay as they are.
    """
    rng = np.random.default_rng(seed)
    count, n = base.shape
    for number in range(affordable(count, n)):
        plain = number == MAX_CANDIDATES - 1 and _certain(n, count - first)
        noise = 0.0 if plain else NOISE_SHARES[number % len(NOISE_SHARES)]
        moved = base.copy()
        moved[first:] += noise / np.sqrt(base.shape[1]) * rng.standard_normal(moved[first:].shape)
        yield moved


def gaussian(n: int, count: int, seed: int) -> Iterator[Array]:
    """Yield candidates, each (count, n): a constant first row, and other rows with normal random numbers."""
    rng = np.random.default_rng(seed)
    for _ in range(affordable(count, n)):
        rows = rng.standard_normal((count, n))
        rows[0] = 1.0
        yield rows


def affordable(d: int, n: int) -> int:
    """Return the number of candidates that may be tried for n messages, d of them per part."""
    sets = comb(n, d - 1) if _certain(n, d - 1) else RANDOM_SETS + n
    return int(np.clip(MAX_MULTIPLICATIONS / (n * d**3 + sets * d * d * (d + n)), 1, MAX_CANDIDATES))


def _attempt(rows: Array, first: int, holders: Sequence[NDArray[np.int64]]) -> Dual | None:
    try:
        return dual(rows[:first], rows[first:], holders)
    except np.linalg.LinAlgError:
        return None


@lru_cache(maxsize=32)
def judged_sets(n: int, s: int) -> NDArray[np.int64]:
    """Return the sets of missing messages on which candidates are evaluated, (sets, s)."""
    if _certain(n, s):
        return np.array(list(combinations(range(n), s)), dtype=np.int64).reshape(comb(n, s), s)
    random = np.argsort(np.random.default_rng(0).random((RANDOM_SETS, n)), axis=1)[:, :s]
    runs = (np.arange(n)[:, None] + np.arange(s)) % n
    return np.concatenate([random, runs])


def large_weights(code: Dual, sets: NDArray[np.int64]) -> float:
    """Return a bound on the sum of absolute weights. If only some sets are evaluated, few sets exceed it.

    The bound is infinite if a set cannot be decoded.

    The sizes have a heavy tail, P(size > x) ~ C/x, as for any real numbers without special relations. A quantile
    estimates C. The maximum over some sets would mostly reflect sampling error.
    """
    systems = code.null[:, sets].transpose(1, 2, 0)
    right = -code.particular[:, sets].transpose(1, 2, 0)
    try:
        c = np.linalg.solve(systems, right)
    except np.linalg.LinAlgError:
        return float("inf")
    weights = code.particular.T + np.einsum("ksm,sn->knm", c, code.null, optimize=True)
    sizes = np.abs(weights).sum(axis=1).max(axis=1)
    return float(np.quantile(sizes, 1.0 if _certain(len(code.matrix), len(code.null)) else 0.95))


def _certain(n: int, s: int) -> bool:
    return comb(n, s) <= MAX_ENUMERATED_SETS
