"""The Unit problem: part j has the gradient e_j, so what a scheme commits is its decoding vector."""

from collections.abc import Sequence
from typing import Annotated, ClassVar

import numpy as np
from numpy.typing import NDArray

from workbench.core.base.settings import at_most, setting
from workbench.core.base.types import Array
from workbench.core.contract.plan import Plan
from workbench.core.problems.base import Evaluation, Problem, ProblemArgs, Request, Slice
from workbench.core.problems.on_data import MAX_SAMPLES


class Unit:
    """One coordinate per part; all ones = exact, the squared distance is the approximation error."""

    l2 = 0.0

    def __init__(self, sizes: NDArray[np.int64]) -> None:
        self.bounds = np.concatenate([[0], np.cumsum(sizes)])
        self.samples = int(self.bounds[-1])
        self.size = len(sizes)
        self.truth: Array | None = None

    def start(self) -> Array:
        """All zeros."""
        return np.zeros(self.size)

    def gradient(self, slices: Sequence[Slice], model: Array) -> Array:
        """Weights of the parts that the slices start at, shape (parts,)."""
        total = np.zeros(self.size)
        for first, last, weight in slices:
            a, b = np.searchsorted(self.bounds, [first, last])
            total[a:b] += weight
        return total

    def blend(self, slices: Sequence[Slice]) -> Array:
        """One row, the weights of the parts: as if part j held the one sample e_j."""
        return self.gradient(slices, self.start())[None]

    def curve(self, block: Array, model: Array) -> Array:
        """block^T (block @ all ones), whatever the model: the sum over all parts is all ones."""
        return np.asarray(block.sum(axis=1) @ block)

    def constant(self, slices: Sequence[Slice]) -> Array:
        """Nothing: all of the gradient is in the data."""
        return self.start()

    def evaluate(self, requests: Sequence[Request]) -> list[Evaluation]:
        """Gradient = the weight of each part; loss = 0."""
        out = []
        for r in requests:
            gradient = np.ones(self.size)  # a part without samples carries nothing that could be missed
            if r.weights is not None:
                nonempty = np.diff(self.bounds) > 0
                gradient[nonempty] = r.weights[self.bounds[:-1][nonempty]]
            out.append(Evaluation(0.0, gradient if r.gradient else None))
        return out

    def smoothness(self, slices: Sequence[Slice] | None = None) -> float:
        """A constant: nothing curves here."""
        return 1.0


class UnitArgs(ProblemArgs):
    """Part j has the gradient e_j: what a scheme commits is its decoding vector."""

    name: ClassVar[str] = "unit"
    samples: Annotated[int, at_most(MAX_SAMPLES)] = setting(
        1000, "samples that are cut into parts (d)", "samples", ge=1
    )

    def count(self) -> int:
        return self.samples

    def size(self, plan: Plan | None) -> int:
        """Number of parts (1 without a plan)."""
        return plan.parts if plan is not None else 1

    def build(self, plan: Plan) -> Problem:
        return Unit(plan.sizes)
