"""Problems with a linear model: least squares, logistic (two classes), softmax (several).

Data are gone through in blocks that fit a processor's cache, so loss and gradient at several models cost one
pass over memory.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from workbench.problems.base import Evaluation, Request, Slice
from workbench.protocol import Array

BLOCK_BYTES = 12_000_000
GATHERED = 16  # slices shorter than this on average are copied together
DENSE = 256  # features up to which the Gram matrix is formed


@dataclass
class _Sums:
    gradient: Array | None
    loss: float = 0.0
    right: float = 0.0


class LinearProblem(ABC):
    """Shared by all linear models: blocks, passes, smoothness. X is (d, features), y is (d,)."""

    columns = 1  # parameters per feature
    curvature = 1.0  # bound on the second derivative of the sample loss

    def __init__(self, X: Array, y: Array, l2: float = 0.0, truth: Array | None = None) -> None:
        self.X, self.y, self.l2, self.truth = X, y, l2, truth
        self.samples, self.features = X.shape
        self.size = self.features * self.columns
        self.block = max(64, BLOCK_BYTES // (8 * self.features))

    @abstractmethod
    def losses(self, z: Array, y: Array) -> tuple[float, Array, float]:
        """Sum of losses, derivative of each by its score z, number of right answers (NaN for regression)."""

    def start(self) -> Array:
        """All zeros."""
        return np.zeros(self.size)

    def gradient(self, slices: Sequence[Slice], model: Array) -> Array:
        """Weighted sum of the slices' gradients, shape (p,)."""
        if sum(b - a for a, b, _ in slices) < GATHERED * len(slices):
            return self._gathered(slices, model)
        total = np.zeros(self.size)
        for first, last, weight in slices:
            for a, b in self._blocks(first, last):
                X = self.X[a:b]
                _, slope, _ = self.losses(self._scores(X, model), self.y[a:b])
                total += weight * self._back(slope, X)
        return total

    def _gathered(self, slices: Sequence[Slice], model: Array) -> Array:
        """The same for many short slices, such as a mini-batch: their rows are copied together first."""
        rows = np.concatenate([np.arange(a, b) for a, b, _ in slices])
        weights = np.repeat([w for *_, w in slices], [b - a for a, b, _ in slices])
        X = self.X[rows]
        _, slope, _ = self.losses(self._scores(X, model), self.y[rows])
        return self._back((slope.T * weights).T, X)

    def evaluate(self, requests: Sequence[Request]) -> list[Evaluation]:
        """One pass over memory for all requests; a request's bits do not depend on its company."""
        found = [_Sums(np.zeros(self.size) if r.gradient else None) for r in requests]
        for a, b in self._blocks(0, self.samples):
            X, y = self.X[a:b], self.y[a:b]
            for request, sums in zip(requests, found, strict=True):
                loss, slope, right = self.losses(self._scores(X, request.model), y)
                sums.loss += loss
                sums.right += right
                if sums.gradient is not None:
                    weighted = slope if request.weights is None else (slope.T * request.weights[a:b]).T
                    sums.gradient += self._back(weighted, X)
        return [self._evaluation(sums, r.model) for sums, r in zip(found, requests, strict=True)]

    def _evaluation(self, sums: _Sums, model: Array) -> Evaluation:
        metrics = {} if np.isnan(sums.right) else {"accuracy": sums.right / self.samples}
        penalty = 0.5 * self.l2 * float(model @ model) if self.l2 else 0.0
        return Evaluation(sums.loss / self.samples + penalty, sums.gradient, metrics)

    def smoothness(self, slices: Sequence[Slice] | None = None) -> float:
        """Curvature bound * largest eigenvalue of X^T X / d, plus l2."""
        ranges = [(0, self.samples)] if slices is None else [(a, b) for a, b, _ in slices if b > a]
        count = sum(b - a for a, b in ranges)
        blocks = [block for a, b in ranges for block in self._blocks(a, b)]
        return self.curvature * self._top_eigenvalue(blocks) / max(count, 1) + self.l2

    def _top_eigenvalue(self, blocks: list[tuple[int, int]]) -> float:
        """Largest eigenvalue of X^T X: Lanczos from a fixed start, so that it has the same bits every time."""
        if self.features <= DENSE:
            gram = np.zeros((self.features, self.features))
            for a, b in blocks:
                gram += self.X[a:b].T @ self.X[a:b]
            return float(np.linalg.eigvalsh(gram)[-1])
        from scipy.sparse.linalg import LinearOperator, eigsh

        def product(v: Array) -> Array:
            pieces = (self.X[a:b] for a, b in blocks)
            return np.asarray(sum((X @ v.ravel()) @ X for X in pieces))

        start = np.random.default_rng(0).standard_normal(self.features)
        operator = LinearOperator((self.features, self.features), matvec=product, dtype=float)
        return float(eigsh(operator, k=1, v0=start, tol=1e-3, return_eigenvectors=False)[0])

    def _blocks(self, first: int, last: int) -> Iterator[tuple[int, int]]:
        for a in range(first, last, self.block):
            yield a, min(a + self.block, last)

    def _scores(self, X: Array, model: Array) -> Array:
        return np.asarray(X @ model)

    def _back(self, slope: Array, X: Array) -> Array:
        return np.asarray(slope @ X)


class LeastSquares(LinearProblem):
    """Sample loss (x.model - y)^2 / 2."""

    def losses(self, z: Array, y: Array) -> tuple[float, Array, float]:
        """Residuals are the slopes."""
        slope = z - y
        return 0.5 * float(slope @ slope), slope, np.nan

    def blend(self, slices: Sequence[Slice]) -> Array:
        """Weighted sum of the slices' rows, number by number, shorter slices filled up with rows of zeros."""
        total = np.zeros((max((last - first for first, last, _ in slices), default=0), self.features))
        for first, last, weight in slices:
            total[: last - first] += weight * self.X[first:last]
        return total

    def curve(self, block: Array, model: Array) -> Array:
        """block^T (block @ model)."""
        return np.asarray((block @ model) @ block)

    def constant(self, slices: Sequence[Slice]) -> Array:
        """The gradient at the model 0: the weighted sum of the slices' -X^T y."""
        return self.gradient(slices, self.start())


class Logistic(LinearProblem):
    """Sample loss log(1 + exp(-t x.model)), t = -1 or 1 for labels 0 and 1."""

    curvature = 0.25

    def losses(self, z: Array, y: Array) -> tuple[float, Array, float]:
        """Slope is sigmoid(z) - y; both are computed without overflow."""
        small = np.exp(-np.abs(z))
        loss = np.log1p(small) + np.maximum(z, 0.0) - y * z
        probability = np.where(z >= 0, 1.0, small) / (1.0 + small)
        return float(loss.sum()), probability - y, float(np.count_nonzero((z > 0) == (y > 0.5)))


class Softmax(LinearProblem):
    """Multi-class logistic: model is (features, classes) row by row; loss is the cross-entropy."""

    curvature = 0.5

    def __init__(self, X: Array, y: Array, classes: int, l2: float = 0.0) -> None:
        self.columns = classes
        super().__init__(X, y, l2)

    def losses(self, z: Array, y: Array) -> tuple[float, Array, float]:
        """Slope is softmax(z) - one-hot(y), shape (samples, classes)."""
        rows, label = np.arange(len(y)), y.astype(int)
        z = z - z.max(axis=1, keepdims=True)
        e = np.exp(z)
        total = e.sum(axis=1)
        loss = float(np.log(total).sum() - z[rows, label].sum())
        right = float(np.count_nonzero(z.argmax(axis=1) == label))
        slope = e / total[:, None]
        slope[rows, label] -= 1.0
        return loss, slope, right

    def _scores(self, X: Array, model: Array) -> Array:
        return np.asarray(X @ model.reshape(self.features, self.columns))

    def _back(self, slope: Array, X: Array) -> Array:
        return np.asarray(X.T @ slope).ravel()
