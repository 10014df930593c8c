"""Computations of a rank of a real run: the same values as on the virtual clock, in pieces that can be abandoned.

Pieces end at borders of parts that depend on the plan alone, so that equal work gives equal bits.
"""

import math
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np

from workbench.core.base.types import Array
from workbench.core.contract.delays import CounterRNG
from workbench.core.contract.optimisers import Optimiser, State
from workbench.core.contract.plan import Blend, Plan, Work
from workbench.core.contract.problem import regularised
from workbench.core.contract.protocol import Compute
from workbench.core.engine.virtual.arithmetic import BATCHES_STREAM, Numbers
from workbench.core.problems.base import Problem, Slice

# data values processed before a rank checks whether its work is still wanted
NUMBERS_PER_PIECE = 2**21


class Learner(Numbers):
    """Arithmetic of one rank. Only a committer has the newest model and optimiser state."""

    def __init__(
        self, plan: Plan, problem: Problem, optimiser: Optimiser, seed: int, model: Array, state: State
    ) -> None:
        self.plan, self.problem, self.optimiser = plan, problem, optimiser
        self.sampler = getattr(problem, "sampler", None)
        self.model, self.state = model, state
        self.gradient: Array | None = None  # newest committed gradient, until the program changes it
        # Newest work of this rank: round, job, model, result.
        self.latest: tuple[int, Any, Array, Array] | None = None
        self._keyed = CounterRNG(seed, BATCHES_STREAM)
        self._blocks: dict[int, tuple[Work, list[Array]]] = {}
        self._newest: tuple[Work, list[Slice]] | None = None

    def _slices(self, work: Work) -> list[Slice]:
        """Return the same list object for the same work, so that the problem can recognise it."""
        if self._newest is None or self._newest[0] is not work:
            self._newest = work, super()._slices(work)
        return self._newest[1]

    def turn(self, plan: Plan) -> None:
        """Switch to another plan."""
        self.plan, self._newest = plan, None

    def start(self) -> Array:
        """Return the model at the start of the run."""
        return self.model

    @property
    def finite(self) -> bool:
        """Whether the model is finite. Its squares may overflow even if it is."""
        return math.isfinite(np.vdot(self.model, self.model)) or bool(np.isfinite(self.model).all())

    def pieces(self, effect: Compute) -> list[Compute]:
        """Split work into consecutive pieces. Most work is a single piece.

        Local batch normalisation uses the statistics of all of a rank's samples, so its work is not split.
        """
        work, piece = effect.work, NUMBERS_PER_PIECE * (self.sampler.batches_per_epoch if self.sampler else 1)
        whole = isinstance(work, Blend) or effect.batch is not None or getattr(self.problem, "local", None)
        if whole or work.samples * self.problem.size <= piece:
            return [effect]
        samples = np.cumsum(self.plan.sizes[work.parts])
        number = (samples - 1) * self.problem.size // piece  # index of the piece in which each part ends
        cuts = [0, *(np.flatnonzero(np.diff(number)) + 1).tolist(), len(work.parts)]
        return [effect._replace(work=self._segment_of(work, slice(a, b))) for a, b in pairwise(cuts)]

    def _segment_of(self, work: Work, which: slice) -> Work:
        parts = work.parts[which]
        return Work(parts, work.coefficients[..., which], int(self.plan.sizes[parts].sum()))

    def steps(self, rank: int, effect: Compute) -> Iterator[Any]:
        """Yield the sum over the first piece, the first two pieces, ..., all pieces."""
        first, *others = self.pieces(effect)
        total = self.compute(rank, first)
        yield total
        for piece in others:
            total = total + self.compute(rank, piece)
            yield total
        self.latest = (effect.round, effect.job, effect.model, total)

    def whole(self, rank: int, effect: Compute) -> Any:
        """Return the last value of `steps`."""
        total: Any = None
        for total in self.steps(rank, effect):  # noqa: B007 - the last one counts
            pass
        return total

    def commit(self, round: int, gradient: Any, residual: float, share: float = 1.0) -> tuple[Array, float]:
        """Update the model. `gradient` may be 0 if the scheme has received no answer."""
        estimate = np.asarray(gradient, dtype=float)
        if estimate.shape != self.model.shape:
            estimate = np.full(self.model.shape, estimate)
        estimate = estimate.view()  # the program may keep the array, so optimisers must not write into it
        estimate.flags.writeable = False
        problem = regularised(self.problem, share)
        self.model, self.state = self.optimiser.update(self.state, self.model, estimate, problem, round)
        self.gradient = estimate
        return self.model, residual
