"""Values of messages on the virtual clock: coefficients, which are fast, or the real vectors, which check the codes.

The linear algebra of a program works with both. With coefficients, the value of a message is the vector of the weights
of its parts. A scheme then commits its decoding vector (the Unit problem). The gradient is computed later, in one
weighted pass over the data (see `learning`).

A scheme that treats coordinates separately (blocks of m, as in paper 2) sets `coordinates` = m in its plan. A value of
p floats is then an array (m, parts * m). Its row u has the weights of each part's coordinates for coordinates with
index u modulo m. Reshaping the first axis of a value has the same effect on both kinds.
"""

from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from workbench.core.base.types import Array
from workbench.core.contract.batches import BatchSampler
from workbench.core.contract.delays import CounterRNG
from workbench.core.contract.optimisers import Optimiser
from workbench.core.contract.plan import MASTER, Blend, Plan, Work
from workbench.core.contract.problem import in_round, regularised, rows_of
from workbench.core.contract.programs import plain_sum
from workbench.core.contract.protocol import Compute
from workbench.core.contract.weights import VERSION_STRIDE, Decoding, SparseWeights, VersionedWeights
from workbench.core.engine.compute_times import loaded
from workbench.core.problems.base import Problem, Quadratic, Slice

# If all messages of a round together have more weights than this (8 bytes each), they are stored as `SparseWeights`.
MIN_DENSE_PARTS = 2**24
# max distance of a decoding vector from all ones at which it counts as the full gradient
EXACT_TOLERANCE = 1e-8
BATCHES_STREAM = 1  # random stream of a worker's mini-batches; `contract.delays.base` lists all streams


def models_and_jobs(effect: Compute) -> tuple[tuple[Any, ...], tuple[int, ...]]:
    """Return, for each row of coefficients, the model and the commit whose random numbers are used.

    >>> from workbench.core.contract.plan import uncoded_plan
    >>> models_and_jobs(Compute(uncoded_plan(3, 10).work[1], model=5, round=7))
    ((5,), (7,))
    """
    rows = len(effect.work.coefficients) if effect.work.coefficients.ndim == 2 else 1
    job = effect.round if effect.job is None else effect.job
    models = effect.model if isinstance(effect.model, tuple) else (effect.model,) * rows
    return models, job if isinstance(job, tuple) else (job,) * rows


class _OnPlan:
    """Base of both kinds of arithmetic, with the plan and the mini-batches of the run."""

    plan: Plan
    sampler: BatchSampler | None = None

    def samples_of(self, effect: Compute, rank: int = MASTER) -> int:
        """Return the number of samples that a computation processes: those of its job's mini-batch, or all.

        `rank`: rank that computes. For work on all of its parts, the numbers are cached.
        """
        work, sampler = effect.work, self.sampler
        if sampler is None:
            return loaded(effect)
        if not isinstance(effect.model, tuple):
            job: Any = effect.round if effect.job is None else effect.job
            if isinstance(job, tuple):
                job = job[0]
            if work is self.plan.work[rank]:
                return sampler.loads(job, self.plan)[rank]
            return int(sampler.counts(job, self.plan.bounds)[work.parts].sum())
        rows = zip(work.coefficients, models_and_jobs(effect)[1], strict=True)
        return sum(
            int(sampler.counts(job, self.plan.bounds)[work.parts[row != 0]].sum()) for row, job in rows
        )


class Coefficients(_OnPlan):
    """Arithmetic in which messages carry the weights of parts, and a model is the number of its round.

    If the plan has several versions, messages carry weights of (part, version) pairs (see `contract.weights`).
    """

    l2 = 0.0

    def __init__(self, plan: Plan, sampler: BatchSampler | None = None) -> None:
        self.sampler = sampler
        self.weights: list[Decoding] = []  # committed weights of each round
        self.shares: list[float] = []  # share of the regularisation in each round's step (see `Commit`)
        self.turn(plan)

    def turn(self, plan: Plan) -> None:
        """Continue with another plan."""
        self.plan = plan
        self._rows: dict[int, tuple[Work, Any]] = {}
        self._own = plan.versions == 1  # all gradients of a round are at the model of that round
        self._thin = not self._own or (plan.ranks * plan.parts > MIN_DENSE_PARTS and plan.coordinates == 1)
        self._residual = 0.0  # residual of the newest round
        m = plan.coordinates
        self._ones = np.ones(plan.parts) if m == 1 else np.tile(np.eye(m), plan.parts)

    def start(self) -> int:
        """Return the model of the first round."""
        return len(self.weights)

    def compute(self, rank: int, effect: Compute) -> Any:
        """Return the row (or rows) of the encoding matrix for some work."""
        work = effect.work
        if (known := self._rows.get(id(work))) is not None:  # the most frequent case
            return known[1]
        if work.coefficients.ndim == 2 and (isinstance(effect.model, tuple) or not self._own):
            rows = zip(work.coefficients, *models_and_jobs(effect), strict=True)
            return [self._few(model, job, work.parts[row != 0], row[row != 0]) for row, model, job in rows]
        if self._thin and work.coefficients.ndim == 1:
            (model,), (job,) = models_and_jobs(effect)
            few = self._few(model, job, work.parts, work.coefficients)
            if self._own and work is self.plan.work[rank]:  # the same in all rounds
                self._rows[id(work)] = work, few
            return few
        weights = np.zeros((*work.coefficients.shape[:-1], self.plan.parts))
        if work.coefficients.ndim == 1:
            weights[work.parts] = work.coefficients
        else:  # several rows may contain the same part
            for row, coefficients in zip(weights, work.coefficients, strict=True):
                row += np.bincount(work.parts, coefficients, self.plan.parts)
        spread = self._spread(weights)
        spread.flags.writeable = False
        self._rows[id(work)] = (work, spread)
        return spread

    def _few(self, model: int, job: int, parts: NDArray[np.int64], coefficients: Array) -> SparseWeights:
        return SparseWeights(
            parts if self._own else (job - model) * VERSION_STRIDE + model * self.plan.parts + parts,
            coefficients,
        )

    def _spread(self, weights: Array) -> Array:
        """Return weights (..., parts) as a value of p floats (see the module's docstring)."""
        m = self.plan.coordinates
        if m == 1:
            return weights
        spread = np.einsum("...i,uv->...uiv", weights, np.eye(m))
        return spread.reshape(*weights.shape[:-1], m, self.plan.parts * m)

    def smoothness(self, work: Work) -> float:
        """Return 1, because there are no data."""
        return 1.0

    def constant(self, work: Work) -> float:
        """Return 0. Schemes that need the constant are `numeric`, and run with `Numbers`."""
        return 0.0

    def ring_sum(self, values: list[Any]) -> Any:
        """Return the sum of the workers' weights."""
        return plain_sum(values)

    def commit(self, round: int, gradient: Any, residual: float, share: float = 1.0) -> tuple[int, float]:
        """Store the decoding vector of the first node that commits a round, and return the next model and |b - 1|^2.

        b has the weight of each part, summed over the versions. `gradient` may be 0.
        """
        if round == len(self.weights):
            total, parts, stale = gradient, self.plan.parts, None
            if isinstance(gradient, SparseWeights):
                stale = None if self._own else VersionedWeights.of(gradient, parts)
                total = stale.total(parts) if stale else gradient.dense(parts)
            own = stale is None or stale.of_round(round)
            value = np.broadcast_to(total, self._ones.shape)
            off = (value - self._ones).ravel()
            exact = None if np.abs(off).max() <= EXACT_TOLERANCE else self._by_part(value)
            self.weights.append(exact if own else stale)
            self.shares.append(1.0 if exact is None else share)
            self._residual = float(off @ off) / self.plan.coordinates
        return round + 1, self._residual

    def _by_part(self, value: Array) -> Array:
        m = self.plan.coordinates
        if m == 1:
            return np.array(value)
        apart = value.reshape(m, self.plan.parts, m)
        return np.asarray(np.einsum("uiu->i", apart) / m)


class Numbers(_OnPlan):
    """Arithmetic in which messages carry the real vectors.

    `keep`: store all models and committed gradients, for checks. Without it, only the two newest models are stored.
    """

    def __init__(
        self, plan: Plan, problem: Problem, optimiser: Optimiser, seed: int = 0, keep: bool = True
    ) -> None:
        self.plan, self.problem, self.optimiser = plan, problem, optimiser
        self.sampler = getattr(problem, "sampler", None)
        self.keep, self.rounds_done = keep, 0
        self.models = [problem.start()]
        self.gradients: list[Array] = []
        self._state = optimiser.start(problem)
        self._keyed = CounterRNG(seed, BATCHES_STREAM)
        self._blocks: dict[int, tuple[Work, list[Array]]] = {}  # id of a work -> its encoded data

    def turn(self, plan: Plan) -> None:
        """Continue with another plan."""
        self.plan = plan

    def start(self) -> Array:
        """Return the model of the first round."""
        return self.models[-1]

    def compute(self, rank: int, effect: Compute) -> Array:
        """Return the weighted sum of the parts' gradients, or one sum for each row of coefficients."""
        work = effect.work
        if isinstance(work, Blend):
            return self._blended(work, effect.model)
        if work.coefficients.ndim == 2:
            return self._rows_of(rank, effect)
        if effect.batch is not None and effect.batch < work.samples:
            return self._batch(rank, effect, effect.batch)
        return self._problem(effect).gradient(self._slices(work), effect.model)

    def _problem(self, effect: Compute) -> Problem:
        """Return the problem with the random numbers of the commit for which a gradient is computed."""
        job: Any = effect.round if effect.job is None else effect.job
        (one,) = job if isinstance(job, tuple) else (job,)
        return in_round(self.problem, one)

    def _rows_of(self, rank: int, effect: Compute) -> Array:
        """Return a sum for each row of coefficients, each at its own model if there are several."""
        work, several = effect.work, isinstance(effect.model, tuple)
        sums = []
        for row, model, job in zip(work.coefficients, *models_and_jobs(effect), strict=True):
            taken = np.flatnonzero(row) if several else slice(None)
            own = Work(work.parts[taken], row[taken], work.samples)
            sums.append(self.compute(rank, effect._replace(work=own, model=model, job=job)))
        return np.stack(sums)

    @property
    def l2(self) -> float:
        """Regularisation constant of the objective."""
        return self.problem.l2

    @property
    def _quadratic(self) -> Quadratic:
        return cast(Quadratic, self.problem)  # `Scheme.check_problem` has refused other problems

    def _blended(self, work: Blend, model: Array) -> Array:
        """Return the sum over the work's blocks of encoded data, which are made once and cached for the run."""
        if id(work) not in self._blocks:
            numbers = np.unique(work.blocks)
            slices = [self._slices(work.block(number)) for number in numbers]
            self._blocks[id(work)] = (work, [self._quadratic.blend(s) for s in slices])
        blocks = self._blocks[id(work)][1]
        return np.asarray(sum(self._quadratic.curve(block, model) for block in blocks))

    def _slices(self, work: Work) -> list[Slice]:
        bounds = self.plan.bounds
        pairs = zip(work.parts, work.coefficients, strict=True)
        return [(int(bounds[p]), int(bounds[p + 1]), float(c)) for p, c in pairs]

    def _batch(self, rank: int, effect: Compute, size: int) -> Array:
        """Return the gradient of a mini-batch, drawn by (seed, draw, rank) and scaled up to represent the work."""
        places, weights = rows_of(self._slices(effect.work))
        draw = effect.round if effect.draw is None else effect.draw
        chosen = self._keyed.rng(draw, rank).choice(len(places), size, replace=False)
        scale = effect.work.samples / size
        picked = [(int(places[i]), int(places[i]) + 1, float(weights[i]) * scale) for i in np.sort(chosen)]
        return self._problem(effect).gradient(picked, effect.model)

    def smoothness(self, work: Work) -> float:
        """Return the smoothness of the mean loss over the work's samples."""
        return self.problem.smoothness(self._slices(work))

    def constant(self, work: Work) -> Array:
        """Return the constant part of the work's gradient."""
        return self._quadratic.constant(self._slices(work))

    def ring_sum(self, values: list[Array]) -> Array:
        """Return the sum of the values, added in the order of the ring, in which slice j starts at worker j."""
        n = len(values)
        pieces = [np.array_split(v, n) for v in values]
        total = [pieces[j][j] for j in range(n)]
        for k in range(1, n):
            total = [t + pieces[(j + k) % n][j] for j, t in enumerate(total)]
        return np.concatenate(total)

    def commit(self, round: int, gradient: Array, residual: float, share: float = 1.0) -> tuple[Array, float]:
        """Update the model and return it with the residual. A scheme without answers may commit 0."""
        if round == self.rounds_done:
            estimate, newest = np.broadcast_to(gradient, self.models[-1].shape), self.models[-1]
            problem = regularised(self.problem, share)
            model, self._state = self.optimiser.update(self._state, newest, estimate, problem, round)
            self.rounds_done = round + 1
            self.models.append(model)
            if self.keep:
                self.gradients.append(np.array(estimate))
            else:
                del self.models[:-2]
        return self.models[-1], residual  # all workers of a ring commit before the next round begins


Arithmetic = Coefficients | Numbers  # type of the object that computes and commits values
