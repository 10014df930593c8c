"""What a problem must offer: losses and weighted gradient sums of slices of its data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from workbench.core.base.types import Array

Slice = tuple[int, int, float]  # first sample, one past the last, weight


def rows_of(slices: Sequence[Slice]) -> tuple[NDArray[np.int64], Array]:
    """Samples of some slices, one slice after the other, and the weight of each; both (samples,).

    >>> rows_of([(3, 5, 0.5), (0, 1, 2.0)])
    (array([3, 4, 0]), array([0.5, 0.5, 2. ]))
    """
    counts = np.array([b - a for a, b, _ in slices], dtype=np.int64)
    rows = np.concatenate([np.arange(0), *(np.arange(a, b) for a, b, _ in slices)])
    return rows, np.repeat(np.array([w for *_, w in slices], dtype=float), counts)


def stretch(rows: NDArray[np.int64]) -> Any:
    """Samples as a slice where they follow one another, so that taking them copies nothing; else as they are.

    >>> stretch(np.array([3, 4, 5])), stretch(np.array([3, 5]))
    (slice(3, 6, None), array([3, 5]))
    """
    together = len(rows) > 0 and (np.diff(rows) == 1).all()
    return slice(int(rows[0]), int(rows[-1]) + 1) if together else rows


@dataclass(frozen=True)
class Evaluation:
    """A problem at one model.

    `loss`: mean, with regularisation. `gradient`: weighted sum over samples, (p,), without. `metrics`: by name.

    >>> Evaluation(loss=0.5, gradient=None, metrics={"accuracy": 0.9}).loss
    0.5
    """

    loss: float  # mean loss plus regularisation
    gradient: Array | None  # weighted sum over the samples, shape (p,), without regularisation
    metrics: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Request:
    """One model at which to evaluate, with a weight for every sample (None: all ones).

    `weights`: one a sample, or None. `gradient`: False where only the loss is wanted. `round`: whose draws the gradient
    takes, of a problem that draws; None: none. `test`: the metrics of held-out samples are wanted as well.

    >>> import numpy as np
    >>> Request(np.zeros(3), weights=np.ones(10)).gradient
    True
    """

    model: Array
    weights: Array | None = None
    gradient: bool = True  # False: only the loss is wanted
    round: int | None = None
    test: bool = False


class Problem(Protocol):
    """The objective is (1/d) sum of sample losses + ``(l2/2) |model|^2``; gradients are sums, as workers send them.

    >>> import workbench as wb
    >>> problem = wb.Experiment(scheme="UMW", problem="least_squares", workers=4).build_problem()
    >>> problem.samples, problem.size, problem.gradient([(0, 10, 1.0)], problem.start()).shape
    (1000, 20, (20,))
    """

    samples: int
    size: int  # number of parameters p
    l2: float
    truth: Array | None  # the model that generated the data, where known

    def start(self) -> Array:
        """Model of round 0, shape (p,)."""

    def gradient(self, slices: Sequence[Slice], model: Array) -> Array:
        """Weighted sum of the gradients of some slices of the data, shape (p,): what a worker computes."""

    def evaluate(self, requests: Sequence[Request]) -> list[Evaluation]:
        """Loss and weighted gradient at several models in one pass over the data."""

    def smoothness(self, slices: Sequence[Slice] | None = None) -> float:
        """Lipschitz constant of the gradient of the objective (of the mean loss over some slices, with l2)."""


class Around:
    """A problem with another one inside, whose answers it gives but for those that a subclass changes."""

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


def gradient_of_rows(problem: Problem, rows: NDArray[np.int64], weights: Array, model: Array) -> Array:
    """Return the weighted sum of the gradients of some samples, shape (p,).

    A problem may have a method `rows_gradient(rows, weights, model)` for it; others are asked for slices.

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
    """Return the problem as gradients for a commit are taken of it: what one that draws, dropout say, gives as `at`.

    `batch`: the samples of its mini-batch, ascending; a problem may have `among(batch)` for it.

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
    """A problem whose gradient sum is X^T X model + constant: its data, and not only its gradients, can be encoded."""

    def blend(self, slices: Sequence[Slice]) -> Array:
        """Weighted sum of the slices' rows, number by number, short slices filled up with rows of zeros: (rows, p)."""

    def curve(self, block: Array, model: Array) -> Array:
        """block^T (block @ model), shape (p,)."""

    def constant(self, slices: Sequence[Slice]) -> Array:
        """The weighted sum of the slices' -X^T y, shape (p,)."""
