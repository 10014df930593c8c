"""Protocol of a problem: losses, and weighted gradient sums over slices of its data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from workbench.core.base.types import Array

Slice = tuple[int, int, float]  # first sample, last sample + 1, weight


def rows_of(slices: Sequence[Slice]) -> tuple[NDArray[np.int64], Array]:
    """Return the samples of some slices, one slice after the other, and the weight of each; both (samples,).

    >>> rows_of([(3, 5, 0.5), (0, 1, 2.0)])
    (array([3, 4, 0]), array([0.5, 0.5, 2. ]))
    """
    counts = np.array([b - a for a, b, _ in slices], dtype=np.int64)
    rows = np.concatenate([np.arange(0), *(np.arange(a, b) for a, b, _ in slices)])
    return rows, np.repeat(np.array([w for *_, w in slices], dtype=float), counts)


def stretch(rows: NDArray[np.int64]) -> Any:
    """Return the indices of consecutive samples as a slice, so that indexing copies nothing.

    Other indices are returned unchanged.

    >>> stretch(np.array([3, 4, 5])), stretch(np.array([3, 5]))
    (slice(3, 6, None), array([3, 5]))
    """
    together = len(rows) > 0 and (np.diff(rows) == 1).all()
    return slice(int(rows[0]), int(rows[-1]) + 1) if together else rows


@dataclass(frozen=True)
class Evaluation:
    """Values of a problem at one model.

    `loss`: mean, with regularisation. `gradient`: weighted sum over samples, (p,), without regularisation. `metrics`:
    by name.

    >>> Evaluation(loss=0.5, gradient=None, metrics={"accuracy": 0.9}).loss
    0.5
    """

    loss: float  # mean loss plus regularisation
    gradient: Array | None  # weighted sum over the samples, shape (p,), without regularisation
    metrics: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Request:
    """Model at which a problem is evaluated, with a weight for each sample.

    `model`: (p,). `weights`: (samples,), or None for all ones. `gradient`: False if only the loss is needed. `round`:
    round whose random numbers the gradient uses (dropout), or None. `test`: also evaluate held-out samples.

    >>> import numpy as np
    >>> Request(np.zeros(3), weights=np.ones(10)).gradient
    True
    """

    model: Array
    weights: Array | None = None
    gradient: bool = True  # False: only the loss is needed
    round: int | None = None
    test: bool = False


class Problem(Protocol):
    """Objective to minimise: (1/d) sum of the samples' losses + ``(l2/2) |model|^2``. Gradients are sums over samples.

    >>> import workbench as wb
    >>> problem = wb.Experiment(scheme="UMW", problem="least_squares", workers=4).build_problem()
    >>> problem.samples, problem.size, problem.gradient([(0, 10, 1.0)], problem.start()).shape
    (1000, 20, (20,))
    """

    samples: int
    size: int  # number of parameters p
    l2: float
    truth: Array | None  # the model that generated the data, if known

    def start(self) -> Array:
        """Return the model of round 0, shape (p,)."""

    def gradient(self, slices: Sequence[Slice], model: Array) -> Array:
        """Return the weighted sum of the gradients over slices of the data, shape (p,). Workers compute this."""

    def evaluate(self, requests: Sequence[Request]) -> list[Evaluation]:
        """Return loss, metrics and weighted gradient at several models, in one pass over the data."""

    def smoothness(self, slices: Sequence[Slice] | None = None) -> float:
        """Return the Lipschitz constant of the objective's gradient.

        With `slices`, the objective is their mean loss plus l2.
        """


class Around:
    """Problem that wraps another one and forwards all calls, except those that a subclass overrides."""

    def __init__(self, problem: Problem) -> None:
        self.whole = problem
        self.samples, self.size = problem.samples, problem.size
        self.l2, self.truth = problem.l2, problem.truth
        self.start, self.smoothness = problem.start, problem.smoothness

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["whole"], name)

    def gradient(self, slices: Sequence[Slice], model: Array) -> Array:
        """Return the gradient over all samples of the slices."""
        return self.whole.gradient(slices, model)

    def evaluate(self, requests: Sequence[Request]) -> list[Evaluation]:
        """Return losses and gradients over the whole data set."""
        return self.whole.evaluate(requests)


def regularised(problem: Problem, share: float) -> Problem:
    """Return the problem with `share` times its l2, for a commit whose parts have the mean weight `share`.

    Gradient and regularisation are then in the proportion of the objective. Otherwise a scheme that commits the sum of
    (N-S)/N of the parts would minimise another objective, with N/(N-S) times the l2.

    >>> import workbench as wb
    >>> problem = wb.Experiment(problem="least_squares", problem_args={"l2": 0.5}).build_problem()
    >>> regularised(problem, 0.5).l2, regularised(problem, 1.0) is problem
    (0.25, True)
    """
    if share == 1.0 or not problem.l2:
        return problem
    scaled = Around(problem)
    scaled.l2 = share * problem.l2
    return scaled


def gradient_of_rows(problem: Problem, rows: NDArray[np.int64], weights: Array, model: Array) -> Array:
    """Return the weighted sum of the gradients of some samples, shape (p,).

    The method `rows_gradient(rows, weights, model)` of the problem is called, if it has one. Otherwise `gradient` is
    called with slices.

    >>> import workbench as wb
    >>> problem = wb.Experiment(problem="least_squares").build_problem()
    >>> gradient_of_rows(problem, np.array([3, 4, 9]), np.ones(3), problem.start()).shape
    (20,)
    """
    own = getattr(problem, "rows_gradient", None)
    if own is not None:
        return np.asarray(own(rows, weights, model))
    if not len(rows):
        return np.zeros(problem.size)
    apart = np.flatnonzero((np.diff(rows) != 1) | (np.diff(weights) != 0)) + 1
    first, last = np.concatenate([[0], apart]), np.concatenate([apart, [len(rows)]])
    found = zip(rows[first].tolist(), (rows[last - 1] + 1).tolist(), weights[first].tolist(), strict=True)
    return problem.gradient(list(found), model)


def in_round(problem: Problem, round: int, batch: NDArray[np.int64] | None = None) -> Problem:
    """Return the problem whose gradients are for the commit of a round.

    A problem with random numbers, such as dropout, defines the method `at(round)`. `batch`: samples of the mini-batch,
    ascending, for problems with a method `among(batch)`.

    >>> import workbench as wb
    >>> problem = wb.Experiment(problem="least_squares").build_problem()
    >>> in_round(problem, 3) is problem
    True
    """
    at = getattr(problem, "at", None)
    found = problem if at is None else cast(Problem, at(round))
    among = getattr(found, "among", None)
    return found if batch is None or among is None else cast(Problem, among(batch))


class Quadratic(Protocol):
    """Problem whose gradient sum is X^T X model + constant, so that its data can be encoded, not only its gradients."""

    def blend(self, slices: Sequence[Slice]) -> Array:
        """Return the weighted elementwise sum of the slices, shape (rows, p). Short slices are padded with zeros."""

    def curve(self, block: Array, model: Array) -> Array:
        """Return block^T (block @ model), shape (p,)."""

    def constant(self, slices: Sequence[Slice]) -> Array:
        """Return the weighted sum of -X^T y over the slices, shape (p,)."""
