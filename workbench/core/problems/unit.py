"""The Unit problem: part j has the gradient e_j, so a commit is the decoding vector of its scheme."""

from collections.abc import Sequence
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from workbench.core.base.settings import at_most, setting
from workbench.core.base.types import Array
from workbench.core.contract.plan import Plan
from workbench.core.problems.base import Evaluation, Problem, ProblemArgs, Request, Slice
from workbench.core.problems.on_data import MAX_SAMPLES


class Unit:
    """Problem with one coordinate per part.

    A commit of all ones is exact. The squared distance of a commit from all ones is its error.
    """

    l2 = 0.0

    def __init__(self, sizes: NDArray[np.int64]) -> None:
        self.bounds = np.concatenate([[0], np.cumsum(sizes)])
        self.samples = int(self.bounds[-1])
        self.size = len(sizes)
        self.truth: Array | None = None

    def start(self) -> Array:
        """Return a model of zeros."""
        return np.zeros(self.size)

    def gradient(self, slices: Sequence[Slice], model: Array) -> Array:
        """Return the sum of the weights of the slices that contain each part, shape (parts,)."""
        total = np.zeros(self.size)
        for first, last, weight in slices:
            a, b = np.searchsorted(self.bounds, [first, last])
            total[a:b] += weight
        return total

    def blend(self, slices: Sequence[Slice]) -> Array:
        """Return the weights of the parts as one row. Part j is a single sample, the unit vector e_j."""
        return self.gradient(slices, self.start())[None]

    def curve(self, block: Array, model: Array) -> Array:
        """Return block^T (block @ all ones) for every model, because the full sum is all ones."""
        return np.asarray(block.sum(axis=1) @ block)

    def constant(self, slices: Sequence[Slice]) -> Array:
        """Return zeros, because the gradient has no constant part."""
        return self.start()

    def evaluate(self, requests: Sequence[Request]) -> list[Evaluation]:
        """Return the weight of each part as the gradient, and 0 as the loss."""
        out = []
        for r in requests:
            gradient = np.ones(self.size)  # a part without samples counts as present
            if r.weights is not None:
                nonempty = np.diff(self.bounds) > 0
                gradient[nonempty] = r.weights[self.bounds[:-1][nonempty]]
            out.append(Evaluation(0.0, gradient if r.gradient else None))
        return out

    def smoothness(self, slices: Sequence[Slice] | None = None) -> float:
        """Return a constant, because the loss has no curvature."""
        return 1.0


class UnitArgs(ProblemArgs):
    """Part j has the gradient e_j, so a commit is the decoding vector of its scheme."""

    name = "unit"
    samples: Annotated[int, at_most(MAX_SAMPLES)] = setting(
        1000, "samples that are cut into parts (d)", "samples", ge=1
    )

    def count(self) -> int:
        return self.samples

    def size(self, plan: Plan | None) -> int:
        """Return the number of parts (1 without a plan)."""
        return plan.parts if plan is not None else 1

    def build(self, plan: Plan) -> Problem:
        return Unit(plan.sizes)
