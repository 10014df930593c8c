"""User-defined loss in NumPy: one function of the model and of some samples."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from workbench.core.base.settings import SettingError, setting
from workbench.core.base.types import Array
from workbench.core.base.user_code import thing_of
from workbench.core.contract.plan import Plan
from workbench.core.problems.base import Evaluation, Named, Problem, Request, Slice, curvature
from workbench.core.problems.on_data import OnData

DIFFERENCE_STEP = 1e-4  # length of the steps of the finite differences of the curvature estimate


class Function:
    """Mean loss that a user-defined function computes; a `Problem`.

    `loss_and_gradient(model, X, y)`: returns the mean loss of the given samples, and its gradient, shape (p,).
    """

    # reason why `smoothness` is not a bound
    rough = "of such a function it is an estimate, at the first model"

    def __init__(
        self,
        loss_and_gradient: Callable[..., tuple[float, Array]],
        first: Array,
        X: Array,
        y: Any,
        l2: float = 0.0,
    ) -> None:
        self.function, self.X, self.y, self.l2 = loss_and_gradient, X, y, l2
        self.first = np.array(first, dtype=float)
        self.samples, self.size = len(X), self.first.size
        self.truth: Array | None = None

    def start(self) -> Array:
        """Return the first model."""
        return self.first.copy()

    def gradient(self, slices: Sequence[Slice], model: Array) -> Array:
        """Return the weighted sum of the slices' gradients, shape (p,)."""
        total = np.zeros(self.size)
        for a, b, weight in slices:
            if b > a:
                total += (b - a) * weight * self._mean(model, slice(a, b))[1]
        return total

    def rows_gradient(self, rows: NDArray[np.int64], weights: Array, model: Array) -> Array:
        """Return the weighted sum of the gradients of some samples, with one call for each weight."""
        total = np.zeros(self.size)
        for weight in np.unique(weights):
            chosen = rows[weights == weight]
            total += len(chosen) * weight * self._mean(model, chosen)[1]
        return total

    def evaluate(self, requests: Sequence[Request]) -> list[Evaluation]:
        """Evaluate the loss on all samples, and the gradient on consecutive samples with equal weights."""
        return [self._evaluate(request) for request in requests]

    def _evaluate(self, request: Request) -> Evaluation:
        loss, slope = self._mean(request.model, slice(0, self.samples))
        gradient = self.samples * slope
        if request.gradient and request.weights is not None:
            cuts = [0, *(np.flatnonzero(np.diff(request.weights)) + 1).tolist(), self.samples]
            slices = [(a, b, float(request.weights[a])) for a, b in pairwise(cuts)]
            gradient = self.gradient(slices, request.model)
        penalty = 0.5 * self.l2 * float(request.model @ request.model)
        return Evaluation(loss + penalty, gradient if request.gradient else None)

    def smoothness(self, slices: Sequence[Slice] | None = None) -> float:
        """Estimate the largest curvature at the first model. No bound holds everywhere."""
        ranges = [(a, b, 1.0) for a, b, _ in slices or [(0, self.samples, 1.0)]]
        number = sum(b - a for a, b, _ in ranges)
        if not number:
            return self.l2
        return self.l2 + curvature(lambda m: self.gradient(ranges, m) / number, self.first, DIFFERENCE_STEP)

    def _mean(self, model: Array, rows: slice | NDArray[np.int64]) -> tuple[float, Array]:
        found = self.function(model, self.X[rows], self.y[rows])
        if not (isinstance(found, tuple) and len(found) == 2 and np.shape(found[1]) == (self.size,)):
            why = f"return the mean loss and its gradient, which has the shape of the model, ({self.size},)"
            raise SettingError(f"problem_args.loss_and_gradient: gives something else; {why}")
        return float(found[0]), np.asarray(found[1], dtype=float)


class NumpyArgs(OnData):
    """User-defined loss in NumPy: one function returns the mean loss of some samples, and its gradient.

    >>> from workbench.core.problems.numpy import NumpyArgs
    >>> sorted(set(NumpyArgs.model_fields) - set(OnData.model_fields))
    ['first', 'loss_and_gradient', 'targets']
    """

    name = "numpy"
    loss_and_gradient: Named = setting(
        ...,
        "function of (model, X, y) that returns the mean loss of these samples and its gradient; or 'FILE.py:NAME'",
    )
    first: Named | None = setting(
        None, "function without arguments that returns the first model; empty = a zero for every column"
    )
    targets: Literal["numbers", "two classes", "classes"] = setting(
        "numbers", "values of y: numbers, 0 and 1, or 0 to K - 1"
    )

    def model_args(self) -> dict[str, Any]:
        names = {"loss_and_gradient": self.loss_and_gradient, "first": self.first}
        return {f: thing_of(name, f"problem_args.{f}") for f, name in names.items() if name is not None}

    def suits(self) -> str:
        return {"numbers": "regression", "two classes": "binary", "classes": "multiclass"}[self.targets]

    def size(self, plan: Plan | None) -> int:
        """Return the number of parameters of the first model."""
        return super().size(plan) if self.first is None else int(np.size(self.model_args()["first"]()))

    def build(self, plan: Plan) -> Problem:
        data, args = self.open(), self.model_args()
        first = args["first"]() if "first" in args else np.zeros(data.X.shape[1])
        y = data.y.astype(np.int64) if data.classes else data.y
        return Function(args["loss_and_gradient"], first, data.X, y, self.l2)
