"""Codes designed from the decoder's side: choose good decoding weights, then solve for the coefficients.

A code B over n messages decodes whatever s of them are missing if all weights a = a0 + c N with a B = target form a
space in which those s can be made zero. So choose a0 (m x n) and N (s x n) first. The column of B that belongs to one
part is supported on the messages that hold the part; with d = s + m of them the square system

    [N ; a0][:, holders] @ b = [0 ; I_m]

gives its coefficients. That is the construction of Ye and Abbe 2018, section 3, seen from the other side: their V
is a basis of the complement of N, and their blocks [X_i | I_m] V are these columns. For m = 1 it is a gradient code
of Tandon et al. 2017, whose H plays the part of V's complement on the encoding side.

Two kinds of small systems decide about the digits: the ones above, on d neighbouring columns, and N[:, missing], on
any columns. Random numbers make both ill-conditioned. Rows of a Fourier basis whose d frequencies are spread
evenly, k n / d rounded to integers, make the first kind orthogonal but for the rounding, B nearly a 0/1 matrix, and the second kind
about as good as chance allows. Where n and d have common factors some sets of columns would be exactly dependent: a
little seeded noise undoes that.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import combinations
from math import comb
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from workbench.protocol import Array
from workbench.settings import SettingError

NOISES = (0.03, 0.01, 0.1, 0.3)  # shares of noise that are tried; the first is the one for large codes
ALL_SETS = 10_000  # with no more sets of stragglers than that, candidates are judged by all of them, ...
SOME_SETS = 256  # ... else by so many random ones and by all runs of neighbours
EFFORT = 5e8  # multiplications that may be spent on choosing; at least one candidate is made
CANDIDATES = 25  # and at most so many


class Dual(NamedTuple):
    """A code and all of its decoding weights."""

    matrix: Array  # (n, parts * m)
    particular: Array  # (m, n)
    null: Array  # (s, n)


def harmonics(n: int, count: int, first: int = 1) -> Array:
    """Real Fourier vectors of evenly spread frequencies, (count, n), orthonormal, the `first` lowest in front.

    Row k is cos + sin (Hartley's form, so that one row serves one frequency) of frequency (k - (first-1)/2) n / count
    rounded to whole turns. For an even `first` half turns may be nearer: then all columns change their sign at the
    seam, which spoils nothing. The lowest frequencies lie symmetrically about zero; for first = 1 that is the
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


def gaussian(n: int, count: int, seed: int) -> Array:
    """Rows of equal length in random directions, (count, n), the first one constant."""
    rows = np.random.default_rng(seed).standard_normal((count, n)) / np.sqrt(n)
    rows[0] = 1 / np.sqrt(n)
    return rows


def dual(base: Array, first: int, holders: Sequence[NDArray[np.int64]]) -> Dual:
    """Code with decoding weights in the span of base's rows, the `first` of them particular.

    `base` is (d, n); holders[k] are the d messages that hold part k. Coefficients are scaled to at most 1.
    """
    rows = np.linalg.qr(base.T)[0].T
    d, n = rows.shape
    wanted = np.eye(d)[:, :first]
    matrix = np.zeros((n, len(holders), first))
    for part, held in enumerate(holders):
        matrix[held, part] = np.linalg.solve(rows[:, held], wanted)
    scale = np.abs(matrix).max()
    return Dual(matrix.reshape(n, -1) / scale, rows[:first] * scale, rows[first:])


def best_dual(base: Array, first: int, holders: Sequence[NDArray[np.int64]], seed: int) -> Dual:
    """Of several seeded perturbations of `base` the code whose worst weights are smallest."""
    sets = judged_sets(base.shape[1], len(base) - first)
    best, least = None, np.inf
    for candidate in _perturbed(base, first, seed, _affordable(base, len(holders), len(sets))):
        code = _attempt(candidate, first, holders)
        size = np.inf if code is None else large_weights(code, sets)
        if code is not None and (best is None or size < least):
            best, least = code, size
    if best is None:
        raise SettingError(f"seed = {seed}: its random numbers give no code; take {seed + 1}")
    return best


def _affordable(base: Array, parts: int, sets: int) -> int:
    d, n = base.shape
    return int(np.clip(EFFORT / (parts * d**3 + sets * d * d * (d + n)), 1, CANDIDATES))


def _perturbed(base: Array, first: int, seed: int, count: int) -> Iterator[Array]:
    """Base with noise on its null rows (the particular ones stay as they are), and without where many are tried."""
    rng = np.random.default_rng(seed)
    for number in range(count):
        noise = NOISES[number % len(NOISES)] if number < CANDIDATES - 1 else 0.0
        moved = base.copy()
        moved[first:] += noise / np.sqrt(base.shape[1]) * rng.standard_normal(moved[first:].shape)
        yield moved


def _attempt(base: Array, first: int, holders: Sequence[NDArray[np.int64]]) -> Dual | None:
    try:
        return dual(base, first, holders)
    except np.linalg.LinAlgError:
        return None


@lru_cache(maxsize=32)
def judged_sets(n: int, s: int) -> NDArray[np.int64]:
    """Sets of missing messages by which candidates are judged, (sets, s)."""
    if comb(n, s) <= ALL_SETS:
        return np.array(list(combinations(range(n), s)), dtype=np.int64).reshape(-1, s)
    random = np.argsort(np.random.default_rng(0).random((SOME_SETS, n)), axis=1)[:, :s]
    runs = (np.arange(n)[:, None] + np.arange(s)) % n
    return np.concatenate([random, runs])


def large_weights(code: Dual, sets: NDArray[np.int64]) -> float:
    """Sum of absolute weights that no set exceeds, or few where only some sets are judged; infinite if one fails.

    The sizes have a heavy tail, P(size > x) ~ C/x, as of any real numbers without special relations. A quantile
    measures C, the largest of some sets mostly luck.
    """
    systems = code.null[:, sets].transpose(1, 2, 0)
    right = -code.particular[:, sets].transpose(1, 2, 0)
    try:
        c = np.linalg.solve(systems, right)
    except np.linalg.LinAlgError:
        return float("inf")
    weights = code.particular.T + np.einsum("ksm,sn->knm", c, code.null, optimize=True)
    sizes = np.abs(weights).sum(axis=1).max(axis=1)
    certain = len(sets) == comb(len(code.matrix), len(code.null))
    return float(np.quantile(sizes, 1.0 if certain else 0.95))
