"""What messages carry on the virtual clock: coefficients (cheap) or the real vectors (to check the codes).

All linear algebra of a program works on either. With coefficients, the value of a message is the vector of
weights that its parts have in it, so what a scheme commits is its decoding vector (the Unit problem), and the
gradient is evaluated later, once, as one weighted pass over the data (see `learning`).
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from workbench.optimisers import Optimiser
from workbench.problems.base import Problem
from workbench.protocol import Array, Plan, Work

EXACT = 1e-8  # a decoding vector this close to all ones is the full gradient


class Arithmetic(Protocol):
    """How an engine computes values and commits them."""

    def start(self) -> Any:
        """Model of round 0."""

    def compute(self, work: Work, model: Any) -> Any:
        """Coded gradient of `work` at `model`."""

    def ring_sum(self, values: list[Any]) -> Any:
        """Sum over the workers, in the ring's order of additions."""

    def commit(self, round: int, gradient: Any, residual: float) -> tuple[Any, float]:
        """Take a gradient estimate; return the next model and the residual |b - 1|^2."""


class Coefficients:
    """Messages carry weights over parts; a model is just its round's number."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.weights: list[Array | None] = []  # per round; None stands for all ones
        self._rows: dict[int, tuple[Work, Array]] = {}

    def start(self) -> int:
        """Model of round 0."""
        return 0

    def compute(self, work: Work, model: Any) -> Array:
        """Row of the encoding matrix."""
        known = self._rows.get(id(work))
        if known is None:
            row = np.zeros(self.plan.parts)
            row[work.parts] = work.coefficients
            row.flags.writeable = False
            known = self._rows[id(work)] = (work, row)
        return known[1]

    def ring_sum(self, values: list[Array]) -> Array:
        """Sum of the workers' weights."""
        return np.asarray(np.sum(values, axis=0))

    def commit(self, round: int, gradient: Array, residual: float) -> tuple[int, float]:
        """Keep the decoding vector."""
        off = gradient - 1.0
        if round == len(self.weights):
            self.weights.append(None if np.abs(off).max() <= EXACT else np.array(gradient))
        return round + 1, float(off @ off)


class Numbers:
    """Messages carry the real vectors."""

    def __init__(self, plan: Plan, problem: Problem, optimiser: Optimiser) -> None:
        self.plan, self.problem, self.optimiser = plan, problem, optimiser
        self.models = [problem.start()]
        self.gradients: list[Array] = []
        self._state = optimiser.start(problem)

    def start(self) -> Array:
        """Model of round 0."""
        return self.models[0]

    def compute(self, work: Work, model: Array) -> Array:
        """Weighted sum of the parts' gradients."""
        bounds = self.plan.bounds
        slices = [(int(bounds[p]), int(bounds[p + 1]), float(c)) for p, c in zip(work.parts, work.coefficients, strict=True)]
        return self.problem.gradient(slices, model)

    def ring_sum(self, values: list[Array]) -> Array:
        """Sum slice by slice in the order in which the ring adds: slice j starts at worker j."""
        n = len(values)
        pieces = [np.array_split(v, n) for v in values]
        total = [pieces[j][j] for j in range(n)]
        for k in range(1, n):
            total = [t + pieces[(j + k) % n][j] for j, t in enumerate(total)]
        return np.concatenate(total)

    def commit(self, round: int, gradient: Array, residual: float) -> tuple[Array, float]:
        """Update the model."""
        if round + 1 == len(self.models):
            model, self._state = self.optimiser.update(self._state, self.models[-1], gradient, self.problem, round)
            self.gradients.append(gradient)
            self.models.append(model)
        return self.models[round + 1], residual
