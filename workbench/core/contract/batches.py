"""Mini-batches that every rank can compute without messages: the samples of a batch follow from the seed and the job.

A job is the number of the commit that a gradient is for. A batch is a set of samples of the data set. All workers that
store a part therefore use the same samples of it. By linearity, the commit of an exact code is the gradient of the
batch. An approximate code commits the same weights of parts as without batches.

The data set is cut into strata of consecutive samples, one for each sample of a batch. A batch takes one sample from
each stratum. Each epoch permutes the strata again, so that an epoch contains every sample once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workbench.core.base.types import Array
from workbench.core.contract.delays import CounterRNG
from workbench.core.contract.plan import Plan
from workbench.core.contract.problem import Around, Problem, Slice, gradient_of_rows, in_round

BATCH_STREAM = 8  # number of the random stream; `contract.delays.base` lists all streams
CACHED_EPOCHS = 4  # epochs whose order is cached, because asynchronous workers are in different epochs
CACHED_JOBS = 64  # jobs whose samples per rank are cached, because asynchronous workers are in different jobs


class BatchSampler:
    """Samples of each job's mini-batch.

    `samples`: size of the data set (d). `batch`: samples asked for (b). A batch has at most b samples, and d / ceil(d /
    b) on average, because the last stratum may be shorter.

    >>> sampler = BatchSampler(samples=10, batch=4, seed=0)
    >>> sampler.batches_per_epoch, sampler.rows(0).tolist()
    (3, [0, 5, 7, 9])
    >>> sorted(int(row) for job in range(3) for row in sampler.rows(job)) == list(range(10))
    True
    """

    def __init__(self, samples: int, batch: int, seed: int) -> None:
        self.samples, self.batch, self.seed = samples, batch, seed
        self.batches_per_epoch = -(-samples // batch)
        self.strata = -(-samples // self.batches_per_epoch)
        self._random = CounterRNG(seed, BATCH_STREAM)
        self._orders: dict[int, NDArray[np.int64]] = {}
        # cached last call of `counts`: job, bounds and result
        self._counts: tuple[int, NDArray[np.int64], NDArray[np.int64]] | None = None
        self._plan: Plan | None = None
        self._loads: dict[int, list[int]] = {}  # results of `loads` for this plan, by job

    @property
    def share(self) -> float:
        """Mean share of the data set in a batch."""
        return 1 / self.batches_per_epoch

    def rows(self, job: int) -> NDArray[np.int64]:
        """Return the samples of a job's batch, ascending."""
        epoch, place = divmod(job, self.batches_per_epoch)
        rows = self._order(epoch)[place]
        return rows if rows[-1] < self.samples else rows[:-1]

    def counts(self, job: int, bounds: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return how many samples of a job's batch are in each part, (parts,). `bounds`: as in `Plan`."""
        if self._counts is None or self._counts[0] != job or self._counts[1] is not bounds:
            self._counts = job, bounds, np.diff(np.searchsorted(self.rows(job), bounds))
        return self._counts[2]

    def loads(self, job: int, plan: Plan) -> list[int]:
        """Return how many samples of a job's batch each rank processes, (ranks,), for work on all of its parts."""
        if self._plan is not plan:
            self._plan, self._loads = plan, {}
        if job not in self._loads:
            if len(self._loads) == CACHED_JOBS:
                del self._loads[min(self._loads)]
            done = np.concatenate([[0], np.cumsum(self.counts(job, plan.bounds)[plan.indices])])
            self._loads[job] = np.diff(done[plan.indptr]).tolist()
        return self._loads[job]

    def _order(self, epoch: int) -> NDArray[np.int64]:
        """Return the samples of each batch of an epoch, (batches, strata).

        In the last stratum, indices may exceed the data set.
        """
        if epoch not in self._orders:
            if len(self._orders) == CACHED_EPOCHS:
                del self._orders[min(self._orders)]
            strata = np.arange(self.strata * self.batches_per_epoch).reshape(self.strata, -1)
            order = np.ascontiguousarray(strata.T)
            self._orders[epoch] = self._random.rng(epoch).permuted(order, axis=0, out=order)
        return self._orders[epoch]


class Batched(Around):
    """Problem whose gradients are those of a job's mini-batch, scaled up to the size of the data set.

    Losses, metrics and smoothness are those of the whole data set. `at(job)` takes gradients of the job's batch.
    """

    def __init__(self, problem: Problem, sampler: BatchSampler) -> None:
        super().__init__(problem)
        self.sampler = sampler

    @property
    def key(self) -> tuple[int, int, int]:
        """Key that is equal for problems whose models can be computed together."""
        return id(self.whole), self.sampler.batch, self.sampler.seed

    def at(self, job: int) -> Problem:
        """Return the problem with the gradients of a job's batch."""
        return _OfJob(self, job)


class _OfJob:
    """A problem with the gradients of one job's batch."""

    def __init__(self, batched: Batched, job: int) -> None:
        self.batched, self.job = batched, job
        self.rows = batched.sampler.rows(job)
        self.problem = in_round(batched.whole, job, self.rows)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.batched, name)

    def gradient(self, slices: Sequence[Slice], model: Array) -> Array:
        """Return the weighted sum of the gradients of the batch's samples in the slices, times d / batch."""
        chosen = chosen_rows(slices, self.rows)
        scale = self.batched.samples / len(self.rows)
        return gradient_of_rows(self.problem, chosen[0], scale * chosen[1], model)


def key_of(problem: Problem) -> object:
    """Return a key that is equal for problems whose models can be computed together."""
    return getattr(problem, "key", id(problem))


def with_batches(problem: Problem, sampler: BatchSampler | None) -> Problem:
    """Return the problem with gradients of mini-batches. Without a sampler, the problem is returned unchanged."""
    return problem if sampler is None else Batched(problem, sampler)


def chosen_rows(slices: Sequence[Slice], rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], Array]:
    """Return those of the `rows` that are in the slices, slice after slice, and the weight of each.

    >>> chosen_rows([(5, 9, 0.5), (0, 3, 2.0)], np.array([1, 4, 6, 8]))
    (array([6, 8, 1]), array([0.5, 0.5, 2. ]))
    """
    if len(slices) == 1:
        ((first, last, weight),) = slices
        chosen = rows[slice(*np.searchsorted(rows, (first, last)))] if first < last else rows[:0]
        return chosen, np.full(len(chosen), weight)
    bounds = np.array([(first, last) for first, last, _ in slices], dtype=np.int64).reshape(-1, 2)
    begin, end = np.searchsorted(rows, bounds).T
    counts = np.maximum(end - begin, 0)
    before = np.cumsum(counts) - counts
    places = np.arange(counts.sum()) + np.repeat(begin - before, counts)
    return rows[places], np.repeat(np.array([weight for *_, weight in slices], dtype=float), counts)
