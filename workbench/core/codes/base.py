"""A gradient code: an encoding matrix and its decoder."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from workbench.core.base.blas import one_thread
from workbench.core.base.types import Array

# max number of values (row numbers and weights) in the cache of decoded survivor sets
MAX_CACHED_NUMBERS = 2_000_000
MIN_LARGE_UNKNOWNS = 64  # min number of unknowns of a large system, whose solution takes longer than the call
# max number of cached survivor sets; each takes some hundred bytes in addition to its values
MAX_CACHED_SETS = 20_000
MAX_QUICK_RESIDUAL = 1e-16  # max squared residual at which the quick solution is accepted
RANK_TOLERANCE = 1e-13  # singular values below this share of the largest one count as zero
MIN_RECIPROCAL_CONDITION = 1e-8  # min reciprocal condition number of a square system that is solved by LU


class Decoding(NamedTuple):
    """Weights of the answers, in their order, and the residual |a B - 1|^2.

    The weights are (answers,), or (m, answers) for a code whose messages carry m coordinates each.
    """

    weights: Array
    residual: float


class Span(NamedTuple):
    """Set of rows of a code that suffices to decode.

    The vectors of decoding weights of these rows are `particular + c @ null`, for any c.
    """

    rows: NDArray[np.int64]  # (r,)
    particular: Array  # (m, r)
    null: Array  # (s, r), orthonormal and orthogonal to `particular`, so that the shortest c gives the shortest weights


@dataclass(frozen=True, eq=False)
class GradientCode:
    """Row i of `matrix` has the coefficients of the parts in worker i's message.

    Decoding solves a @ matrix[answered] = target, by least squares if there is no exact solution. All solutions are a =
    a0 + c N: a0 is one solution over all workers, and N (s x n) is a basis of the left null space. Only the s x s
    system a[missing] = 0 has to be solved. It takes microseconds, where a new least-squares problem takes milliseconds.

    A code may have disjoint `spans`, sets of rows that decode on their own. Then the span with the most spare rows is
    used. Without `spans`, all rows are one span, found by a singular value decomposition.

    >>> code = GradientCode(np.array([[0.5, 1, 0], [0, 1, -1], [0.5, 0, 1]]), stragglers=1)
    >>> code.decode((1, 2)).weights.round(12).tolist()
    [1.0, 2.0]
    """

    matrix: Array  # (messages, parts); a code with several coordinates per message: (messages, parts * m)
    stragglers: int  # number of missing rows that are tolerated, whichever they are
    # what the weighted sum of the rows should be: (columns,) or (m, columns); None = all ones
    target: Array | None = None
    spans: tuple[Span, ...] = ()
    instead: str = field(default="fewer stragglers", repr=False)  # what a warning recommends instead, as text
    _known: dict[tuple[int, ...], Decoding] = field(default_factory=dict, init=False, repr=False)

    @property
    def workers(self) -> int:
        """Number of rows."""
        return len(self.matrix)

    @cached_property
    def goal(self) -> Array:
        """Target as a matrix, (m, columns)."""
        return np.atleast_2d(np.ones(self.matrix.shape[1]) if self.target is None else self.target)

    def decode(self, answered: tuple[int, ...]) -> Decoding:
        """Return weights for the workers that answered (their row numbers, in any order)."""
        known = self._known.get(answered)
        if known is None:
            with one_thread(self.matrix.size):
                known = self._solve(np.asarray(answered, dtype=np.int64))
            if len(self._known) >= self._room:
                self._known.clear()
            self._known[answered] = known
        return known

    @cached_property
    def _room(self) -> int:
        return min(MAX_CACHED_SETS, max(1, MAX_CACHED_NUMBERS // (self.workers * (1 + len(self.goal)))))

    @cached_property
    def _spans(self) -> tuple[Span, ...]:
        return self.spans or (whole_span(self.matrix, self.goal),)

    @cached_property
    def _owner(self) -> NDArray[np.int64]:
        """Number of the span that each row belongs to."""
        owner = np.zeros(self.workers, dtype=np.int64)
        for number, span in enumerate(self._spans):
            owner[span.rows] = number
        return owner

    @cached_property
    def _spare(self) -> NDArray[np.int64]:
        return np.array([len(span.null) for span in self._spans])

    def _solve(self, answered: NDArray[np.int64]) -> Decoding:
        quick = self._from_span(answered)
        if quick is not None and quick.residual <= MAX_QUICK_RESIDUAL:
            return quick
        exact = least_squares(self.matrix[answered].T, self.goal.T).T
        miss = exact @ self.matrix[answered] - self.goal
        direct = self._decoding(exact, miss)
        return direct if quick is None or direct.residual < quick.residual else quick

    def _from_span(self, answered: NDArray[np.int64]) -> Decoding | None:
        """Solve within the span with the most spare rows. Return None if that is impossible or slower."""
        missing = np.ones(self.workers, dtype=bool)
        missing[answered] = False
        lost = np.bincount(self._owner[missing], minlength=len(self._spans))
        best = int(np.argmax(self._spare - lost))
        if lost[best] > min(self._spare[best], len(answered)):
            return None
        weights = np.zeros((len(self.goal), self.workers))
        weights[:, self._spans[best].rows] = without(self._spans[best], missing)
        return self._decoding(weights[:, answered], weights @ self.matrix - self.goal)

    def _decoding(self, weights: Array, miss: Array) -> Decoding:
        flat = self.target is None or self.target.ndim == 1
        return Decoding(weights[0] if flat else weights, float(np.vdot(miss, miss)))


def whole_span(matrix: Array, goal: Array) -> Span:
    """Return all rows as one span: the shortest solution, and the left null space."""
    u, sigma, vt = np.linalg.svd(matrix)
    rank = int(np.sum(sigma > sigma[0] * 10 * RANK_TOLERANCE * max(matrix.shape)))
    particular = (goal @ vt[:rank].T / sigma[:rank]) @ u[:, :rank].T
    return Span(np.arange(len(matrix)), particular, u[:, rank:].T)


def without(span: Span, missing: NDArray[np.bool_]) -> Array:
    """Return the shortest weights of a span, (m, r), that are zero on the missing rows."""
    gone = missing[span.rows]
    if not gone.any():
        return span.particular
    c = least_squares(span.null[:, gone].T, -span.particular[:, gone].T)
    weights = span.particular + c.T @ span.null
    weights[:, gone] = 0.0
    return weights


def least_squares(system: Array, right: Array) -> Array:
    """Return the shortest least-squares solution, (columns, m), of system @ x = right.

    QR with column pivoting (LAPACK gelsy) handles rank deficiency as well as the singular value decomposition, in a
    quarter of the time. Small systems spend most of their time in the call itself. Large, square and well conditioned
    systems are solved by LU instead, because column pivoting is slow.
    """
    from scipy.linalg import lapack  # imported late, so that importing the workbench is fast

    rows, columns = system.shape
    if not columns:
        return np.zeros((0, right.shape[1]))
    if rows == columns > MIN_LARGE_UNKNOWNS and (quick := _by_elimination(system, right)) is not None:
        return quick
    padded = np.zeros((max(rows, columns), right.shape[1]))
    padded[:rows] = right
    work = 2 * min(rows, columns) + 2 * columns + 64 * (columns + 1 + right.shape[1])
    pivots = np.zeros(columns, dtype=np.int32)
    solution = lapack.dgelsy(system, padded, pivots, RANK_TOLERANCE, work)[1]
    return np.asarray(solution[:columns])


def _by_elimination(system: Array, right: Array) -> Array | None:
    """Solve a square system by LU. Return None if it is too badly conditioned for that."""
    from scipy.linalg import lapack

    norm = float(np.abs(system).sum(axis=0).max())
    factors, pivots, singular = lapack.dgetrf(system)
    if singular or lapack.dgecon(factors, norm)[0] < MIN_RECIPROCAL_CONDITION:
        return None
    return np.asarray(lapack.dgetrs(factors, pivots, right)[0])
