"""Problems with a linear model: least squares, logistic (two classes), softmax (several).

Loss and gradient use the same two products with the data. No array as large as the data is ever copied.
"""

import itertools
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from workbench.core.base.blas import one_thread
from workbench.core.base.types import Array
from workbench.core.contract.plan import Plan
from workbench.core.contract.problem import rows_of, stretch
from workbench.core.problems.base import Evaluation, Problem, Request, Slice
from workbench.core.problems.on_data import OnData

# max bytes of data in one product: smaller blocks cost more in calls than they save in caches
BLOCK_BYTES = 512 * 2**20
MIN_TILED_BYTES = 32 * 2**20  # min bytes of data above which two requests share tiles
TILE_SAMPLES = 80  # samples in a tile: 3 MB with 5000 features
THREAD_RANGES = 4  # number of ranges of samples, which are computed in parallel on the available cores
MIN_SLICE_SAMPLES = 16  # min average length of a slice, in samples; shorter slices are gathered first
MAX_GRAM_FEATURES = 256  # max number of features for which the Gram matrix is formed


@lru_cache(maxsize=1)
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(min(THREAD_RANGES, os.cpu_count() or 1), thread_name_prefix="workbench-problem")


@dataclass
class _Sums:
    gradient: Array | None
    loss: float = 0.0
    right: float = 0.0


class LinearProblem(ABC):
    """Base of all linear models: blocks, passes, smoothness. X is (d, features), y is (d,)."""

    columns = 1  # parameters per feature
    curvature = 1.0  # upper bound of the second derivative of the loss of a sample

    def __init__(self, X: Array, y: Array, l2: float = 0.0, truth: Array | None = None) -> None:
        self.X, self.y, self.l2, self.truth = np.asarray(X), np.asarray(y), l2, truth
        self.samples, self.features = X.shape
        self.size = self.features * self.columns
        self.block = max(64, BLOCK_BYTES // (8 * self.features))
        self._excerpt: tuple[Sequence[Slice], Array, Array, Array] | None = None  # cache of `_gathered`

    @abstractmethod
    def losses(self, z: Array, y: Array) -> tuple[Any, Array, Any]:
        """Return the sum of losses, the derivative of each by its score z, and the number of right answers.

        The number is NaN for regression. Scores of one parameter per feature may have several rows, (k, samples).
        Then the sums are (k,).
        """

    def slope(self, z: Array, y: Array) -> Array:
        """Return the derivative of each loss by its score, which is all that a gradient needs."""
        return self.losses(z, y)[1]

    def start(self) -> Array:
        """Return a model of zeros."""
        return np.zeros(self.size)

    def gradient(self, slices: Sequence[Slice], model: Array) -> Array:
        """Return the weighted sum of the slices' gradients, shape (p,)."""
        known = self._excerpt is not None and self._excerpt[0] is slices
        if known or sum(b - a for a, b, _ in slices) < MIN_SLICE_SAMPLES * len(slices):
            return self._gathered(slices, model)
        total = np.zeros(self.size)
        for first, last, weight in slices:
            for a, b in self._blocks(first, last):
                X = self.X[a:b]
                slope = self.slope(self._scores(X, model), self.y[a:b])
                total += weight * self._back(slope, X)
        return total

    def _gathered(self, slices: Sequence[Slice], model: Array) -> Array:
        """Return the gradient of many short slices, such as a mini-batch, whose rows are gathered first."""
        # the rows are cached, because a worker often needs the same slices again
        if self._excerpt is None or self._excerpt[0] is not slices:
            taken, weights = self._taken(slices)
            self._excerpt = slices, self.X[taken], self.y[taken], weights
        return self._weighted(*self._excerpt[1:], model)

    @staticmethod
    def _taken(slices: Sequence[Slice]) -> tuple[Any, Array]:
        """Return the samples of some slices, as a slice if they are consecutive, and the weight of each."""
        if len(slices) == 1:
            first, last, weight = slices[0]
            return slice(first, last), np.full(last - first, float(weight))
        rows, weights = rows_of(slices)
        return stretch(rows), weights  # the ranks of a host share the pages of the file

    def rows_gradient(self, rows: NDArray[np.int64], weights: Array, model: Array) -> Array:
        """Return the weighted sum of the gradients of some samples, whose rows are gathered."""
        return self._weighted(self.X.take(rows, axis=0), self.y.take(rows), weights, model)

    def _weighted(self, X: Array, y: Array, weights: Array, model: Array) -> Array:
        slope = (self.slope(self._scores(X, model), y).T * weights).T
        # for a single row, this is five times as fast
        return slope[0] * X[0] if len(X) == self.columns == 1 else self._back(slope, X)

    def evaluate(self, requests: Sequence[Request]) -> list[Evaluation]:
        """Evaluate all requests in one pass over memory; the bits of a result do not depend on the other requests."""
        if self.columns == 1 and self.X.nbytes >= MIN_TILED_BYTES:
            return [e for i in range(0, len(requests), 2) for e in self._pair(requests[i : i + 2])]
        # in short products, threads would wait for each other longer than they compute
        with one_thread() if self.X.nbytes < MIN_TILED_BYTES else nullcontext():
            return self._blockwise(requests)

    def _blockwise(self, requests: Sequence[Request]) -> list[Evaluation]:
        """Evaluate every request in turn on each block of the data."""
        found = [_Sums(np.zeros(self.size) if r.gradient else None) for r in requests]
        for a, b in self._blocks(0, self.samples):
            X, y = self.X[a:b], self.y[a:b]
            for request, sums in zip(requests, found, strict=True):
                loss, slope, right = self.losses(self._scores(X, request.model), y)
                sums.loss += float(loss)
                sums.right += float(right)
                if sums.gradient is not None:
                    weighted = slope if request.weights is None else (slope.T * request.weights[a:b]).T
                    sums.gradient += self._back(weighted, X)
        return [self._evaluation(sums, r.model) for sums, r in zip(found, requests, strict=True)]

    def _pair(self, requests: Sequence[Request]) -> list[Evaluation]:
        """Evaluate two requests (or one, twice) on large data: a tile in a core's cache is used in four products.

        The ranges of samples do not depend on the number of cores, and are added up in order.
        """
        pair = (requests[0], requests[-1])
        models = np.stack([r.model for r in pair])
        cuts = np.linspace(0, self.samples, THREAD_RANGES + 1).astype(int).tolist()
        ranges = itertools.pairwise(cuts)
        with one_thread():
            parts = list(_threads().map(lambda cut: self._range(models, pair, *cut), ranges))
        totals = np.sum([total for total, _ in parts], axis=0)
        gradients = np.sum([gradient for _, gradient in parts], axis=0)
        return [
            self._evaluation(_Sums(gradients[i] if r.gradient else None, *totals[i].tolist()), r.model)
            for i, r in enumerate(requests)
        ]

    def _range(self, models: Array, pair: Sequence[Request], first: int, last: int) -> tuple[Array, Array]:
        """Return sums (loss, right answers), (2, 2), and gradients, (2, p), of each request over a range of samples."""
        totals, gradients = np.zeros((2, 2)), np.zeros((2, self.size))
        for a in range(first, last, TILE_SAMPLES):
            b = min(a + TILE_SAMPLES, last)
            X = self.X[a:b]
            loss, slope, right = self.losses(models @ X.T, self.y[a:b])
            totals[:, 0] += loss
            totals[:, 1] += right
            for i, request in enumerate(pair):
                if request.weights is not None:
                    slope[i] *= request.weights[a:b]
            if any(request.gradient for request in pair):
                gradients += slope @ X
        return totals, gradients

    def _evaluation(self, sums: _Sums, model: Array) -> Evaluation:
        metrics = {} if np.isnan(sums.right) else {"accuracy": sums.right / self.samples}
        penalty = 0.5 * self.l2 * float(model @ model) if self.l2 else 0.0
        return Evaluation(sums.loss / self.samples + penalty, sums.gradient, metrics)

    def smoothness(self, slices: Sequence[Slice] | None = None) -> float:
        """Return the curvature bound * largest eigenvalue of X^T X / d, plus l2. That of all samples is stored."""
        if slices is None:
            return self._smoothness
        ranges = [(a, b) for a, b, _ in slices if b > a]
        count = sum(b - a for a, b in ranges)
        blocks = [block for a, b in ranges for block in self._blocks(a, b)]
        return self.curvature * self._top_eigenvalue(blocks) / max(count, 1) + self.l2

    @cached_property
    def _smoothness(self) -> float:
        return self.smoothness([(0, self.samples, 1.0)])

    def _top_eigenvalue(self, blocks: list[tuple[int, int]]) -> float:
        """Return the largest eigenvalue of X^T X. Lanczos has a fixed start, so that its bits are reproducible."""
        if self.features <= MAX_GRAM_FEATURES:
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

    def losses(self, z: Array, y: Array) -> tuple[Any, Array, Any]:
        """Return losses with the residuals as slopes."""
        slope = self.slope(z, y)
        return 0.5 * (slope * slope).sum(axis=-1), slope, np.nan

    def slope(self, z: Array, y: Array) -> Array:
        return z - y

    def blend(self, slices: Sequence[Slice]) -> Array:
        """Return the weighted sum of the slices' rows, element by element.

        Shorter slices are padded with rows of zeros.
        """
        total = np.zeros((max((last - first for first, last, _ in slices), default=0), self.features))
        for first, last, weight in slices:
            total[: last - first] += weight * self.X[first:last]
        return total

    def curve(self, block: Array, model: Array) -> Array:
        return np.asarray((block @ model) @ block)

    def constant(self, slices: Sequence[Slice]) -> Array:
        """Return the gradient at the model 0: the weighted sum of the slices' -X^T y."""
        return self.gradient(slices, self.start())


def _sigmoid(z: Array, small: Array) -> Array:
    """Return 1 / (1 + exp(-z)) without overflow. `small`: exp(-|z|)."""
    return np.where(z >= 0, 1.0, small) / (1.0 + small)


class Logistic(LinearProblem):
    """Sample loss log(1 + exp(-t x.model)), t = -1 or 1 for labels 0 and 1."""

    curvature = 0.25

    def losses(self, z: Array, y: Array) -> tuple[Any, Array, Any]:
        """Return losses and the slope sigmoid(z) - y, both computed without overflow."""
        small = np.exp(-np.abs(z))
        loss = np.log1p(small) + np.maximum(z, 0.0) - y * z
        return loss.sum(axis=-1), _sigmoid(z, small) - y, ((z > 0) == (y > 0.5)).sum(axis=-1)

    def slope(self, z: Array, y: Array) -> Array:
        """Return sigmoid(z) - y."""
        return _sigmoid(z, np.exp(-np.abs(z))) - y

    def scores(self, model: Array) -> Array:
        """Return the score of class 1 for each sample, (samples,)."""
        return self._scores(self.X, model)


class Softmax(LinearProblem):
    """Multi-class logistic: the model is (features, classes) row by row, and the loss is the cross-entropy."""

    curvature = 0.5

    def __init__(self, X: Array, y: Array, classes: int, l2: float = 0.0) -> None:
        self.columns = classes
        super().__init__(X, y, l2)

    def losses(self, z: Array, y: Array) -> tuple[float, Array, float]:
        """Return losses and the slope softmax(z) - one-hot(y), shape (samples, classes)."""
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

    def scores(self, model: Array) -> Array | None:
        """Return the score of class 1 minus that of class 0 for each sample, (samples,), if there are two classes."""
        return self._scores(self.X, model) @ np.array([-1.0, 1.0]) if self.columns == 2 else None


class LeastSquaresArgs(OnData):
    """Linear regression: mean of (x.model - y)^2 / 2."""

    name = "least_squares"
    task: ClassVar[str] = "regression"

    def build(self, plan: Plan) -> Problem:
        data = self.open()
        return LeastSquares(data.X, data.y, self.l2, data.truth)


class LogisticArgs(OnData):
    """Logistic regression of two classes."""

    name = "logistic"
    task: ClassVar[str] = "binary"

    def build(self, plan: Plan) -> Problem:
        """Open the data.

        The distance from the true model is not a metric, because it does not minimise the loss of noisy labels.
        """
        data = self.open()
        return Logistic(data.X, data.y, self.l2)


class SoftmaxArgs(OnData):
    """Logistic regression of several classes (cross-entropy).

    >>> SoftmaxArgs(data="digits").count()
    1797
    """

    name = "softmax"
    task: ClassVar[str] = "multiclass"

    def size(self, plan: Plan | None) -> int:
        """Return the number of columns times the number of classes."""
        known = self.known()
        if known and (known[2] or self.data == "synthetic"):
            return known[1] * (known[2] or 10)
        data = self.open()
        return data.X.shape[1] * data.classes

    def build(self, plan: Plan) -> Problem:
        data = self.open()
        return Softmax(data.X, data.y, data.classes, self.l2)
