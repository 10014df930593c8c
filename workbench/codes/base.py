"""A gradient code: an encoding matrix and its decoder."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np

from workbench.protocol import Array

REMEMBERED = 20_000  # survivor sets whose weights are kept
GOOD = 1e-10  # squared residual below which the quick solution is taken as it is


class Decoding(NamedTuple):
    """Weights of the answers, in their order, and what they miss: |a B - 1|^2."""

    weights: Array
    residual: float


@dataclass(frozen=True)
class GradientCode:
    """Row i of `matrix` holds the coefficients of worker i's message over the parts.

    Decoding solves a @ matrix[answered] = 1, by least squares where it cannot be met. With a = a0 + c N, a0 any
    solution over all workers and N a basis of the left null space (s x n), only the s x s system a[missing] = 0
    is left to solve: microseconds instead of the milliseconds of a fresh least-squares problem.
    """

    matrix: Array  # (workers, parts)
    stragglers: int  # any so many may be missing
    _known: dict[tuple[int, ...], Decoding] = field(default_factory=dict, repr=False, compare=False)

    @property
    def workers(self) -> int:
        """Number of rows."""
        return len(self.matrix)

    def decode(self, answered: tuple[int, ...]) -> Decoding:
        """Weights for the workers that answered (their row numbers, in any order)."""
        known = self._known.get(answered)
        if known is None:
            known = self._solve(np.asarray(answered, dtype=int))
            if len(self._known) >= REMEMBERED:
                self._known.clear()
            self._known[answered] = known
        return known

    @cached_property
    def _solutions(self) -> tuple[Array, Array]:
        u, sigma, vt = np.linalg.svd(self.matrix)
        rank = int(np.sum(sigma > sigma[0] * 1e-12 * max(self.matrix.shape)))
        ones = np.ones(self.matrix.shape[1])
        particular = u[:, :rank] @ ((vt[:rank] @ ones) / sigma[:rank])
        return particular, u[:, rank:].T

    def _solve(self, answered: np.ndarray) -> Decoding:
        particular, null = self._solutions
        missing = np.setdiff1d(np.arange(self.workers), answered)
        weights = particular
        if len(missing) and len(missing) <= len(null):
            c = np.linalg.lstsq(null[:, missing].T, -particular[missing], rcond=None)[0]
            weights = particular + c @ null
        decoding = self._residual(weights[answered], answered)
        if decoding.residual <= GOOD:
            return decoding
        exact = np.linalg.lstsq(self.matrix[answered].T, np.ones(self.matrix.shape[1]), rcond=None)[0]
        return min(decoding, self._residual(exact, answered), key=lambda d: d.residual)

    def _residual(self, weights: Array, answered: np.ndarray) -> Decoding:
        off = weights @ self.matrix[answered] - 1.0
        return Decoding(weights, float(off @ off))
