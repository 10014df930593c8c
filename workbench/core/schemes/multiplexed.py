"""M-SGC, the multiplexed code of sequential gradient coding (see `sequential`)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

import numpy as np

from workbench.core.base.settings import SettingError
from workbench.core.base.types import Array
from workbench.core.codes import GradientCode, cyclic
from workbench.core.contract.plan import MASTER, Plan, Work, even_sizes, star_plan
from workbench.core.contract.programs import LostChildren, decoded, plain_sum, tolerant_answers
from workbench.core.contract.protocol import (
    CODED,
    MODEL,
    Commit,
    Compute,
    Decode,
    Node,
    Program,
    Recv,
    Send,
)
from workbench.core.contract.round_times import SampledTimes, wait_for
from workbench.core.schemes.sequential import Bursts, Late, Sequential, Step, dropped, forget

CODED_PART = -1  # in place of the number of a chunk: the minitask computes a coded part


class Diagonals:
    """Minitasks of M-SGC: minitask m of round r belongs to job r - m. The minitasks of a job form a diagonal."""

    def __init__(self, scheme: MSGC, workers: int, first: int, rounds: int) -> None:
        self.own, self.minitasks = scheme.window - 1, scheme.lag + 1
        self.first, self.rounds = first, rounds
        # rank -> rounds in which it was late
        self.missed: dict[int, Late] = dict.fromkeys(range(1, workers + 1), frozenset())

    def jobs(self, r: int) -> list[tuple[int, int]]:
        """Return the minitasks of a round whose job exists, each with its job."""
        return [(m, r - m) for m in range(self.minitasks) if self.first <= r - m < self.rounds]

    def chunk(self, job: int, m: int, rank: int) -> int:
        """Return which of its own chunks a worker computes in a minitask, or `CODED_PART`.

        The first W - 1 minitasks are one chunk each. Each of the last B minitasks repeats a missing chunk, if there is
        one.
        """
        if m < self.own:
            return m
        missed = self.missed[rank]
        owed = [c for c in range(self.own) if job + c in missed] if missed else []
        for earlier in range(self.own, m):
            if owed and job + earlier not in missed:
                owed.pop(0)
        return owed[0] if owed else CODED_PART

    def note(self, r: int, late: Late) -> None:
        """Record the late workers of a round, and delete rounds that no job needs."""
        for rank in late:
            self.missed[rank] = frozenset(k for k in self.missed[rank] if k > r - self.minitasks) | {r}

    def tasks(self, r: int, rank: int) -> tuple[int, ...]:
        """Return a worker's minitasks of a round: c for its own chunk c, W - 1 + j for the coded part of group j."""
        places = [(self.chunk(job, m, rank), m) for m, job in self.jobs(r)]
        return tuple(m if chunk == CODED_PART else chunk for chunk, m in places)


class MSGC(Sequential):
    """Multiplexed: in each round, a worker does one piece of each of W - 1 + B jobs. Late pieces are repeated.

    A worker answers with W - 1 + B messages, one for each job. The first and last rounds have fewer jobs.

    >>> MSGC(burst=1, window=2, stragglers=2).loads(workers=4, samples=32).tolist()
    [12, 12, 12, 12]
    """

    name = "M-SGC"
    title: ClassVar[str] = "Sequential gradient coding, multiplexed"
    all_models: ClassVar[bool] = True
    paper: ClassVar[str] = "Krishnan et al. 2023, section 3.3"

    @property
    def lag(self) -> int:
        return self.window - 2 + self.burst

    @classmethod
    def settings(cls, workers: int, longest: int, widest: int) -> Iterator[dict[str, int]]:
        """Yield settings: lambda from 1 to n, W from 2 on, B < W, and a delay W - 2 + B of at most `longest`."""
        for stragglers in range(1, workers + 1 if workers > 1 else 1):
            for window in range(2, widest + 1):
                for burst in range(1, min(window, longest + 3 - window)):
                    yield {"burst": burst, "window": window, "stragglers": stragglers}

    def check(self, workers: int) -> None:
        if self.burst >= self.window:
            raise SettingError(
                f"scheme_args.burst = {self.burst}: bursts are shorter than window = {self.window}; take burst ="
                f" {self.window - 1} or less, or window = {self.burst + 1}"
            )
        super().check(workers)

    def codes(self, workers: int) -> list[GradientCode]:
        """Return one cyclic (n, lambda) code, used for every group; none if all workers may be late (lambda = n)."""
        return [] if self.stragglers == workers else [cyclic(workers, self.stragglers)]

    def plan(self, workers: int, samples: int) -> Plan:
        """Return a plan with W - 1 own chunks per worker and B groups of n smaller parts. Minitasks have one size."""
        own, codes = self.window - 1, self.codes(workers)
        groups, size = (self.burst, self.stragglers + 1) if codes else (0, 1)  # size of a chunk, in parts
        pieces = even_sizes(samples, workers * (own * size + groups))
        chunks = pieces[: workers * own * size].reshape(-1, size).sum(axis=1)
        blocks = [np.kron(np.eye(workers), np.ones((1, own)))]
        blocks += [np.tile(code.matrix, (1, groups)) for code in codes]
        return replace(
            star_plan(np.concatenate(blocks, axis=1, dtype=float), samples),
            sizes=np.concatenate([chunks, pieces[workers * own * size :]]),
            answers=self.lag + 1,
            versions=self.lag + 1,
        )

    def program(self, node: Node) -> Program:
        return self._master(node) if node.rank == MASTER else self._worker(node)

    def _master(self, node: Node) -> Program:
        n = node.plan.workers
        rows, lost = Diagonals(self, n, node.first, node.rounds), LostChildren()
        bursts, codes = Bursts(self.burst, self.window, self.stragglers), self.codes(n)
        # job -> sum of its chunks; job -> answers of its groups
        sums, coded = dict[int, Any](), dict[int, list[dict[int, Any]]]()
        model, late = node.model, frozenset[int]()
        for r in range(node.first, node.rounds + self.lag):
            # the field `number` of a model's message is 1 for workers that were late, else 0
            for missed, ranks in ((1, late), (0, set(node.children) - late)):
                yield Send(sorted(ranks), MODEL, r, model, number=missed, every=True)
            jobs = rows.jobs(r)
            follows = partial(bursts.follows, r)
            got, late = yield from tolerant_answers(node, r, self.tolerance, follows, lost, len(jobs))
            bursts.note(r, late)
            rows.note(r, late)
            for place, (m, job) in enumerate(jobs):
                groups = coded.setdefault(job, [{} for _ in range(self.burst)])
                chunks = []
                for rank in sorted(got):
                    if rows.chunk(job, m, rank) == CODED_PART:
                        groups[m - rows.own][rank - 1] = got[rank][place]
                    else:
                        chunks.append(got[rank][place])
                sums[job] = sums.get(job, 0) + plain_sum(chunks)
            if (job := r - self.lag) >= node.first:
                gradient, residual = self._decoded(codes, sums.pop(job), coded.pop(job))
                yield Decode(self._combined(n) * node.floats)
                model = yield Commit(gradient, job, residual)
        yield Send(node.children, MODEL, node.rounds + self.lag, None, floats=0, every=True)

    def _combined(self, workers: int) -> int:
        """Return the number of results that a job combines: all own chunks, and n - lambda of each group."""
        return workers * (self.window - 1) + self.burst * (workers - self.stragglers)

    def _decoded(
        self, codes: list[GradientCode], chunks: Any, groups: list[dict[int, Any]]
    ) -> tuple[Any, float]:
        """Return a job's gradient (the sum of all own chunks and of the decoded groups), and its residual."""
        total, residual = chunks, 0.0
        for code in codes:
            for group in groups:
                rows = sorted(group)[: code.workers - self.stragglers]
                value, off = decoded(code.decode, {row: group[row] for row in rows})
                total, residual = total + value, residual + off
        return total, residual

    def _worker(self, node: Node) -> Program:
        """Run a worker: each minitask uses the model of its job.

        The master sends which workers were late in the round before.
        """
        rows = Diagonals(self, node.plan.workers, node.first, node.rounds)
        models, works = dict[int, Any](), dict[tuple[int, ...], Work]()
        while (model := (yield Recv({MODEL: 0}))).round < node.rounds + self.lag:
            r: int = model.round
            if model.number:
                rows.note(r - 1, frozenset({node.rank}))
            models[r] = model.value
            forget(models, r - self.lag)
            tasks, jobs = rows.tasks(r, node.rank), rows.jobs(r)
            if tasks not in works:
                works[tasks] = self._work(node, tasks)
            at, own = tuple(models[job] for _, job in jobs), tuple(job for _, job in jobs)
            values = yield Compute(works[tasks], at, r, {MODEL: r + 1}, job=own)
            if values is not None:
                for value, (m, _) in zip(values, jobs, strict=True):
                    yield Send(node.parent, CODED, r, value, number=m, share=float(len(jobs)))

    def _columns(self, task: int, held: int) -> range:
        """Return the positions of a minitask's parts among the `held` parts of a worker."""
        own, size = self.window - 1, self.stragglers + 1
        first, length = (task, 1) if task < own else (own + (task - own) * size, size)
        return range(first, min(first + length, held))  # there are no groups if lambda = n

    def _work(self, node: Node, tasks: tuple[int, ...]) -> Work:
        """Return a row of coefficients for each minitask, over its own parts."""
        own = node.work
        columns = [self._columns(task, len(own.parts)) for task in tasks]
        places = np.array([place for of in columns for place in of], dtype=np.int64)
        rows = np.repeat(np.arange(len(tasks)), [len(of) for of in columns])
        coefficients = np.zeros((len(tasks), len(places)))
        coefficients[rows, np.arange(len(places))] = own.coefficients[places]
        parts = own.parts[places]
        return Work(parts, coefficients, int(node.plan.sizes[parts].sum()))

    def steps(self, draws: SampledTimes, workers: int) -> Iterator[Step]:
        """Yield the rounds for drawn times.

        A repeated chunk may be one sample longer than the chunk that it replaces.
        """
        plan = self.plan(workers, draws.samples)
        rows = Diagonals(self, workers, 0, draws.total_rounds)
        bursts = Bursts(self.burst, self.window, self.stragglers)
        for r in range(draws.total_rounds + self.lag):
            row = draws.block(range(r, r + 1))  # by `block`, because the round may be after the last commit
            row = replace(row, seconds=self._seconds(row, plan, rows, r))
            wait = wait_for(row, self.tolerance, len(rows.jobs(r)))
            late, seconds, messages = dropped(wait, partial(bursts.follows, r))
            bursts.note(r, late)
            rows.note(r, late)
            yield Step(seconds, messages, [self._combined(workers)] if r >= self.lag else [])

    def _seconds(self, row: SampledTimes, plan: Plan, rows: Diagonals, r: int) -> Array:
        """Return the time that each worker takes for its minitasks of a round, (1, workers), s."""
        held = int(plan.indptr[2])  # number of parts of worker 1, which is the same for all workers
        sizes = plan.sizes[plan.indices].reshape(-1, held)
        usual = tuple(m for m, _ in rows.jobs(r))
        loads, counts = np.zeros(plan.workers, dtype=np.int64), np.zeros(plan.workers, dtype=np.int64)
        of_all: dict[tuple[int, ...], list[int]] = {usual: []}
        for rank, missed in rows.missed.items():
            of_all.setdefault(rows.tasks(r, rank) if missed else usual, []).append(rank - 1)
        for tasks, places in of_all.items():
            columns = [place for task in tasks for place in self._columns(task, held)]
            loads[places], counts[places] = sizes[np.ix_(places, columns)].sum(axis=1), len(columns)
        whole = (loads == plan.loads[1:]) & (counts == held)
        if whole.all():
            return row.seconds
        return np.where(whole, row.seconds, row.progress(loads[:, None], slice(0, 1))[:, :, 0])
