"""A problem with drawn gradients, as with dropout: in each commit, each sample has a weight of 0, 1 or 2."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy

import numpy as np

from workbench.core.base.types import Array
from workbench.core.contract.plan import Plan
from workbench.core.contract.problem import rows_of
from workbench.core.problems import Evaluation, Request
from workbench.core.problems.base import Problem, Slice
from workbench.core.problems.linear import LeastSquares, LeastSquaresArgs


class Drawn(LeastSquares):
    """Least squares in which `at(job)` draws the weights of the samples. A gradient without `at` raises an error."""

    job: int | None = None

    def at(self, job: int) -> Drawn:
        other = copy(self)
        other.job = job
        return other

    def gradient(self, slices: Sequence[Slice], model: Array) -> Array:
        assert self.job is not None
        drawn = np.random.default_rng([7, self.job]).integers(0, 3, self.samples)
        rows, weights = rows_of(slices)
        each = [(int(i), int(i) + 1, float(w * drawn[i])) for i, w in zip(rows, weights, strict=True)]
        return super().gradient(each, model)

    def evaluate(self, requests: Sequence[Request]) -> list[Evaluation]:
        return [self._evaluate(asked) for asked in requests]

    def _evaluate(self, asked: Request) -> Evaluation:
        (plain,) = super().evaluate([Request(asked.model, gradient=False)])
        if not asked.gradient or asked.round is None:
            return plain
        weights = np.ones(self.samples) if asked.weights is None else asked.weights
        slices = [(i, i + 1, float(w)) for i, w in enumerate(weights)]
        return Evaluation(plain.loss, self.at(asked.round).gradient(slices, asked.model))


class DrawnArgs(LeastSquaresArgs):
    name = "drawn"

    def build(self, plan: Plan) -> Problem:
        data = self.open()
        return Drawn(np.asarray(data.X), np.asarray(data.y))
