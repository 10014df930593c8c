"""Problems with a linear model: least squares, logistic (two classes), softmax (several).

Data are gone through in blocks that fit a processor's cache, so loss and gradient at several models cost one
pass over memory.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence

import numpy as np

from workbench.problems.base import Evaluation, Request, Slice
from workbench.protocol import Array

BLOCK_BYTES = 6_000_000


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
        total = np.zeros(self.size)
        for first, last, weight in slices:
            for a, b in self._blocks(first, last):
                X = self.X[a:b]
                _, slope, _ = self.losses(self._scores(X, model), self.y[a:b])
                total += weight * self._back(X, slope)
        return total

    def evaluate(self, requests: Sequence[Request]) -> list[Evaluation]:
        """One pass over the data for all requests."""
        sums = [[0.0, 0.0] for _ in requests]
        gradients = [np.zeros(self.size) if r.gradient else None for r in requests]
        for a, b in self._blocks(0, self.samples):
            X, y = self.X[a:b], self.y[a:b]
            for request, total, gradient in zip(requests, sums, gradients, strict=True):
                loss, slope, right = self.losses(self._scores(X, request.model), y)
                total[0] += loss
                total[1] += right
                if gradient is not None:
                    weighted = slope if request.weights is None else (slope.T * request.weights[a:b]).T
                    gradient += self._back(X, weighted)
        return [self._evaluation(*sums[i], gradients[i], r.model) for i, r in enumerate(requests)]

    def smoothness(self) -> float:
        """Curvature bound * largest eigenvalue of X^T X / d + l2, by power iteration."""
        v = np.random.default_rng(0).standard_normal(self.features)
        value = 0.0
        for _ in range(60):
            v /= np.linalg.norm(v)
            w = np.zeros(self.features)
            for a, b in self._blocks(0, self.samples):
                w += (self.X[a:b] @ v) @ self.X[a:b]
            before, value = value, float(v @ w)
            if abs(value - before) <= 1e-3 * value:
                break
            v = w
        return self.curvature * value / self.samples + self.l2

    def _blocks(self, first: int, last: int) -> Iterator[tuple[int, int]]:
        for a in range(first, last, self.block):
            yield a, min(a + self.block, last)

    def _scores(self, X: Array, model: Array) -> Array:
        return np.asarray(X @ model)

    def _back(self, X: Array, slope: Array) -> Array:
        return np.asarray(slope @ X)

    def _evaluation(self, loss: float, right: float, gradient: Array | None, model: Array) -> Evaluation:
        metrics = {} if np.isnan(right) else {"accuracy": right / self.samples}
        penalty = 0.5 * self.l2 * float(model @ model) if self.l2 else 0.0
        return Evaluation(loss / self.samples + penalty, gradient, metrics)


class LeastSquares(LinearProblem):
    """Sample loss (x.model - y)^2 / 2."""

    def losses(self, z: Array, y: Array) -> tuple[float, Array, float]:
        """Residuals are the slopes."""
        slope = z - y
        return 0.5 * float(slope @ slope), slope, np.nan


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

    def _back(self, X: Array, slope: Array) -> Array:
        return np.asarray(X.T @ slope).ravel()
