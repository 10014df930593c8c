"""Sequential gradient coding, SR-SGC and M-SGC: codes over rounds, for stragglers that come in bursts.

M. N. Krishnan, R. Ebrahimi, A. Khisti, "Sequential gradient coding for straggler mitigation", ICLR 2023: sections 3.2
(SR-SGC) and 3.3 (M-SGC). Where the text is ambiguous, the authors' simulator (mamaj/Sequential-Gradient-Coding-2)
decides.

Job t is the full gradient at one model. Jobs are pipelined: job t begins in round t and ends at most T rounds later.
So it uses the newest model that is certain to exist when round t begins: version max(0, t - T). The run is gradient
descent with gradients that are T commits old, whatever the stragglers. (The authors train several models in turn, so
that no job uses an old model. Here an experiment has one model.)
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, NamedTuple

import numpy as np

from workbench.core.base.settings import SettingError, setting
from workbench.core.base.types import Array
from workbench.core.codes import GradientCode, cyclic
from workbench.core.contract.plan import MASTER, Plan, Work, even_sizes, star_plan
from workbench.core.contract.programs import (
    LostChildren,
    decoded,
    plain_sum,
    tolerant_answers,
    worker_program,
)
from workbench.core.contract.protocol import (
    CODED,
    MODEL,
    Commit,
    Compute,
    Decode,
    Message,
    Node,
    Program,
    Recv,
    Send,
)
from workbench.core.contract.round_times import RoundTimes, SampledTimes, WaitResult, wait_for
from workbench.core.contract.scheme import Scheme, least_digits_field, log_spaced_ints

Late = frozenset[int]
CODED_PART = -1  # chunk number of a minitask's coded part, which repeats no own chunk


class Bursts:
    """The (B, W, lambda)-bursty straggler model: the patterns of late workers that a code tolerates."""

    def __init__(self, burst: int, window: int, stragglers: int) -> None:
        self.burst, self.window, self.stragglers = burst, window, stragglers
        self.late: dict[int, Late] = {}  # late workers of each round

    def follows(self, r: int, late: Late) -> bool:
        """Return whether (a) at most lambda are late in any W rounds, (b) none late now was B to W-1 rounds ago."""
        of = self.late
        recent = late.union(*(of.get(k, late) for k in range(r + 1 - self.window, r)))
        before = (of.get(k, frozenset()) for k in range(r + 1 - self.window, r + 1 - self.burst))
        return len(recent) <= self.stragglers and not any(late & them for them in before)

    def note(self, r: int, late: Late) -> None:
        """Record which workers were late in a round, and had their answers dropped."""
        self.late[r] = late
        self.late.pop(r - self.window, None)


class Step(NamedTuple):
    """Round of `round_times`: seconds, messages received, and how many results each decoded job combines."""

    seconds: float
    messages: int
    decoded: list[int]


class Sequential(Scheme):
    """Base of SR-SGC and M-SGC: their parameters, the wait rule, and round times without an event loop."""

    delayed: ClassVar[bool] = True
    precision_knob: ClassVar[tuple[str, int] | None] = ("stragglers", -1)
    burst: int = setting(1, "consecutive rounds in which a worker may be late (B)", ge=1)
    window: int = setting(2, "a worker that was late is on time W-1 rounds later (W)", ge=2)
    stragglers: int = setting(1, "different workers that may be late within W rounds (lambda)", ge=0)
    tolerance: float = setting(
        1.0, "the master waits for 1 + tolerance times the time of the fastest worker (mu)", ge=0
    )
    least_digits: int = least_digits_field()

    @property
    @abstractmethod
    def lag(self) -> int:
        """Delay T in rounds: a job that begins in round t is decoded after round t + T."""

    @classmethod
    @abstractmethod
    def settings(cls, workers: int, longest: int, widest: int) -> Iterator[dict[str, int]]:
        """Yield all configurations with a delay T of at most `longest` and windows of at most `widest` rounds."""

    @abstractmethod
    def steps(self, draws: SampledTimes, workers: int) -> Iterator[Step]:
        """Yield the rounds of a run in order."""

    @classmethod
    def candidates(cls, workers: int) -> list[dict[str, Any]]:
        """Return configurations of the paper's search (`settings`) with delays of up to three rounds."""
        lambdas = set(log_spaced_ints(1, workers, 4))
        found = cls.settings(workers, longest=3, widest=4)
        return [each for each in found if each["stragglers"] in lambdas]

    def check(self, workers: int) -> None:
        """Raise `SettingError` unless at least one worker must be on time."""
        if self.stragglers > workers or workers == 1 == self.stragglers:
            why = f"there are {workers} workers; take 0 to {workers if workers > 1 else 0}"
            raise SettingError(f"scheme_args.stragglers = {self.stragglers}: {why}")

    def round_times(self, draws: SampledTimes, workers: int) -> RoundTimes:
        """Compute the time of each job, round by round, as rounds depend on which workers were late before."""
        left: Iterator[tuple[float, float]]
        left = draws.state or _jobs(self.steps(draws, workers), draws)
        seconds, messages = np.array([next(left) for _ in draws.seconds]).T
        return RoundTimes(seconds, messages, messages * (draws.link.width * draws.floats), left)


def _jobs(steps: Iterator[Step], draws: SampledTimes) -> Iterator[tuple[float, float]]:
    """Yield for each job the seconds since the job before, and the messages that came in between."""
    seconds, messages = 0.0, 0
    for step in steps:
        seconds, messages = seconds + step.seconds, messages + step.messages
        for combined in step.decoded:
            yield seconds + float(draws.decode_seconds(combined)), messages
            seconds, messages = 0.0, 0


# ---------------------------------------------------------------------------------------------- selective repeat


class Repeats:
    """Jobs of SR-SGC's master: delivered results, repetitions to request, and patterns that count."""

    def __init__(self, scheme: SRSGC, workers: int, first: int) -> None:
        self.bursts = Bursts(scheme.burst, scheme.window, scheme.stragglers)
        self.burst, self.spare, self.workers = scheme.burst, scheme.spare, workers
        self.first = self.done = first  # jobs before `done` are decoded
        self.delivered: dict[int, set[int]] = {}  # job -> ranks

    def again(self, r: int, gone: Collection[int] = ()) -> Late:
        """Return the workers that repeat job r - B: if v > s have not delivered it, the first v - s that are alive."""
        job = r - self.burst
        if job < self.first:
            return frozenset()
        missing = [rank for rank in range(1, self.workers + 1) if rank not in self.delivered[job]]
        alive = [rank for rank in missing if rank not in gone]
        return frozenset(alive[: max(0, len(missing) - self.spare)])

    def follows(self, r: int, again: Late, gone: Collection[int], late: Late) -> bool:
        """Return whether the master may drop the late workers of a round.

        A dead worker is late in every round, which no pattern of bursts allows. From the first death on, the master
        drops living workers only if job r and the repeated job are complete without them.
        """
        if not gone:
            return self.bursts.follows(r, late)
        old = r - self.burst
        repeated = len(again - late) + (self.workers if old < self.done else len(self.delivered.get(old, ())))
        in_time = old < self.first or repeated >= self.workers - self.spare
        return in_time and (
            len(late | again) <= self.spare or (late <= set(gone) and len(late) <= self.spare)
        )

    def note(self, r: int, again: Late, late: Late) -> None:
        """Record a round. Its pattern does not count if all results are of its own job and at most s workers late."""
        everybody = set(range(1, self.workers + 1))
        self.delivered[r] = everybody - again - late
        if again:
            self.delivered[r - self.burst] |= again - late
        harmless = again <= late and len(late) <= self.spare
        self.bursts.note(r, frozenset() if harmless else late)

    def there(self, job: int) -> bool:
        """Return whether a job can be decoded: n - s of its results are enough."""
        return job < self.done or len(self.delivered.get(job, ())) >= self.workers - self.spare

    def decoded(self, r: int, rounds: int) -> list[int]:
        """Return the jobs that can be committed after a round, in their order."""
        begin = self.done
        while self.done <= min(r, rounds - 1) and self.there(self.done):
            self.done += 1
        for job in [job for job in self.delivered if job < min(self.done, r + 1 - self.burst)]:
            del self.delivered[job]
        return list(range(begin, self.done))


class SRSGC(Sequential):
    """Selective repeat: if too many workers were late for a job, some of them repeat it B rounds later.

    >>> SRSGC(burst=1, window=2, stragglers=3).loads(workers=6, samples=60).tolist()
    [30, 30, 30, 30, 30, 30]
    """

    name: ClassVar[str] = "SR-SGC"
    title: ClassVar[str] = "Sequential gradient coding, selective repeat"
    paper: ClassVar[str] = "Krishnan et al. 2023, section 3.2"

    @property
    def lag(self) -> int:
        return self.burst

    @property
    def spare(self) -> int:
        """Number of missing answers that a job's code tolerates: s = ceil(B lambda / (W - 1 + B))."""
        return math.ceil(self.burst * self.stragglers / (self.window - 1 + self.burst))

    @classmethod
    def settings(cls, workers: int, longest: int, widest: int) -> Iterator[dict[str, int]]:
        """Yield values of lambda from 1 to n, B from 1 to `longest`, and W of B + 1, 2 B + 1, ..."""
        for stragglers in range(1, workers + 1 if workers > 1 else 1):
            for burst in range(1, longest + 1):
                for window in range(burst + 1, widest + 1, burst):
                    yield {"burst": burst, "window": window, "stragglers": stragglers}

    def check(self, workers: int) -> None:
        if (self.window - 1) % self.burst:
            low = self.burst * ((self.window - 1) // self.burst) + 1
            near = [w for w in (low, low + self.burst) if w > 1]
            raise SettingError(
                f"scheme_args.window = {self.window}: burst = {self.burst} does not divide {self.window - 1} (W - 1);"
                f" take window = {' or '.join(map(str, near))}"
            )
        super().check(workers)

    def codes(self, workers: int) -> list[GradientCode]:
        """Return one cyclic (n, s) code, used for every job."""
        return [cyclic(workers, self.spare)]

    def plan(self, workers: int, samples: int) -> Plan:
        """Return a plan with one part per worker, each stored by s + 1; models of jobs are up to B commits old."""
        return replace(star_plan(self.codes(workers)[0].matrix, samples), versions=self.burst + 1)

    def program(self, node: Node) -> Program:
        if node.rank == MASTER:
            return self._master(node)
        # A worker that repeats a job is sent that job's model. The last jobs are repeated after the last round.
        return worker_program(replace(node, rounds=node.rounds + self.burst), self._answer)

    def _answer(self, node: Node, model: Message) -> Program:
        """Compute the round's job, or if the model's message has number 1, repeat that of B rounds before."""
        r = model.round
        value = yield Compute(node.work, model.value, r, {MODEL: r + 1}, job=r - self.burst * model.number)
        if value is not None:
            yield Send(node.parent, CODED, r, value)

    def _master(self, node: Node) -> Program:
        jobs, lost = Repeats(self, node.plan.workers, node.first), LostChildren()
        code = self.codes(node.plan.workers)[0]
        versions, models, answers = {node.first: node.model}, dict[int, Any](), dict[int, dict[int, Any]]()
        for r in range(node.first, node.rounds + self.burst):
            old, again = r - self.burst, jobs.again(r, lost.gone)
            if r >= node.rounds and jobs.there(old):
                continue  # skip jobs of the last B rounds that are complete
            models[r] = versions[max(node.first, old)] if r < node.rounds else models[old]
            yield Send(sorted(again), MODEL, r, models[max(node.first, old)], number=1)
            yield Send([rank for rank in node.children if rank not in again], MODEL, r, models[r])
            follows = partial(jobs.follows, r, again, lost.gone)
            got, late = yield from tolerant_answers(node, r, self.tolerance, follows, lost)
            jobs.note(r, again, late)
            for rank, (value,) in got.items():
                answers.setdefault(old if rank in again else r, {})[rank - 1] = value
            for job in jobs.decoded(r, node.rounds):
                gradient, residual = decoded(code.decode, answers[job])
                yield Decode(len(answers[job]) * node.floats)
                versions[job + 1] = yield Commit(gradient, job, residual)
            _forget(versions, max(node.first, r + 1 - self.burst))
            _forget(models, r + 1 - self.burst)
            _forget(answers, min(jobs.done, r + 1 - self.burst))
        yield Send(node.children, MODEL, node.rounds + self.burst, None, floats=0)

    def steps(self, draws: SampledTimes, workers: int) -> Iterator[Step]:
        jobs = Repeats(self, workers, first=0)
        for r in range(draws.total_rounds + self.burst):
            again = jobs.again(r)
            if r >= draws.total_rounds and jobs.there(r - self.burst):
                continue
            wait = wait_for(draws.block(range(r, r + 1)), self.tolerance)
            late, seconds, messages = _dropped(wait, partial(jobs.bursts.follows, r))
            jobs.note(r, again, late)
            counts = {job: len(ranks) for job, ranks in jobs.delivered.items()}
            yield Step(seconds, messages, [counts[job] for job in jobs.decoded(r, draws.total_rounds)])


# ------------------------------------------------------------------------------------------------- multiplexed


class Diagonals:
    """Minitasks of M-SGC: minitask m of round r belongs to job r - m, so the minitasks of a job form a diagonal."""

    def __init__(self, scheme: MSGC, workers: int, first: int, rounds: int) -> None:
        self.own, self.minitasks = scheme.window - 1, scheme.lag + 1
        self.first, self.rounds = first, rounds
        self.missed: dict[int, Late] = dict.fromkeys(range(1, workers + 1), frozenset())  # by rank: rounds

    def jobs(self, r: int) -> list[tuple[int, int]]:
        """Return the minitasks of a round whose job exists, each with its job."""
        return [(m, r - m) for m in range(self.minitasks) if self.first <= r - m < self.rounds]

    def chunk(self, job: int, m: int, rank: int) -> int:
        """Return the own chunk that is computed by a worker's minitask, or `CODED_PART`.

        The first W - 1 minitasks are one chunk each. Each of the last B repeats a missing chunk, if there is one.
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
        """Record the late workers of a round; delete rounds that are too old for all jobs."""
        for rank in late:
            self.missed[rank] = frozenset(k for k in self.missed[rank] if k > r - self.minitasks) | {r}

    def tasks(self, r: int, rank: int) -> tuple[int, ...]:
        """Return a worker's minitasks of a round: own chunk c as c, the coded part of group j as W - 1 + j."""
        places = [(self.chunk(job, m, rank), m) for m, job in self.jobs(r)]
        return tuple(m if chunk == CODED_PART else chunk for chunk, m in places)


class MSGC(Sequential):
    """Multiplexed: each round, a worker does one piece of each of W - 1 + B jobs; late pieces are repeated.

    A worker answers with W - 1 + B messages, one for each job. The first and the last rounds have fewer jobs.

    >>> MSGC(burst=1, window=2, stragglers=2).loads(workers=4, samples=32).tolist()
    [12, 12, 12, 12]
    """

    name: ClassVar[str] = "M-SGC"
    title: ClassVar[str] = "Sequential gradient coding, multiplexed"
    paper: ClassVar[str] = "Krishnan et al. 2023, section 3.3"

    @property
    def lag(self) -> int:
        return self.window - 2 + self.burst

    @classmethod
    def settings(cls, workers: int, longest: int, widest: int) -> Iterator[dict[str, int]]:
        """Yield values of lambda from 1 to n, W from 2 on, and B < W, with a delay W - 2 + B of at most `longest`."""
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
        """Return a plan with W - 1 own chunks per worker and B groups of n smaller parts; minitasks have one size."""
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
        sums, coded = dict[int, Any](), dict[int, list[dict[int, Any]]]()  # per job: own chunks; groups
        model, late = node.model, frozenset[int]()
        for r in range(node.first, node.rounds + self.lag):
            # The message contains whether the worker was late.
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
        """Return how many results make a job: all own chunks, and n - lambda of each group."""
        return workers * (self.window - 1) + self.burst * (workers - self.stragglers)

    def _decoded(
        self, codes: list[GradientCode], chunks: Any, groups: list[dict[int, Any]]
    ) -> tuple[Any, float]:
        """Return a job's gradient, the sum of its own chunks and of the decoded groups, and its residual."""
        total, residual = chunks, 0.0
        for code in codes:
            for group in groups:
                rows = sorted(group)[: code.workers - self.stragglers]
                value, off = decoded(code.decode, {row: group[row] for row in rows})
                total, residual = total + value, residual + off
        return total, residual

    def _worker(self, node: Node) -> Program:
        """Do a round's minitasks, each at the model of its job. The master sends who was late in the round before."""
        rows = Diagonals(self, node.plan.workers, node.first, node.rounds)
        models, works = dict[int, Any](), dict[tuple[int, ...], Work]()
        while (model := (yield Recv({MODEL: 0}))).round < node.rounds + self.lag:
            r: int = model.round
            if model.number:
                rows.note(r - 1, frozenset({node.rank}))
            models[r] = model.value
            _forget(models, r - self.lag)
            tasks, jobs = rows.tasks(r, node.rank), rows.jobs(r)
            if tasks not in works:
                works[tasks] = self._work(node, tasks)
            at, own = tuple(models[job] for _, job in jobs), tuple(job for _, job in jobs)
            values = yield Compute(works[tasks], at, r, {MODEL: r + 1}, job=own)
            if values is not None:
                for value, (m, _) in zip(values, jobs, strict=True):
                    yield Send(node.parent, CODED, r, value, number=m, share=float(len(jobs)))

    def _columns(self, task: int, held: int) -> range:
        """Return the places of a minitask's parts among the `held` parts of a worker."""
        own, size = self.window - 1, self.stragglers + 1
        first, length = (task, 1) if task < own else (own + (task - own) * size, size)
        return range(first, min(first + length, held))  # no groups where lambda = n

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
        """Apply the wait rule to drawn times. A repeated chunk may be one sample longer than the chunk it replaces."""
        plan = self.plan(workers, draws.samples)
        rows = Diagonals(self, workers, 0, draws.total_rounds)
        bursts = Bursts(self.burst, self.window, self.stragglers)
        for r in range(draws.total_rounds + self.lag):
            row = draws.block(range(r, r + 1))  # although it may be after the last commit
            row = replace(row, seconds=self._seconds(row, plan, rows, r))
            wait = wait_for(row, self.tolerance, len(rows.jobs(r)))
            late, seconds, messages = _dropped(wait, partial(bursts.follows, r))
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


def _dropped(wait: WaitResult, follows: Callable[[Late], bool]) -> tuple[Late, float, int]:
    """Return the late workers of a round that may be dropped, its seconds, and the messages received."""
    late: Late = frozenset((np.flatnonzero(wait.late_workers[0]) + 1).tolist())
    if follows(late):
        return late, float(wait.seconds[0]), int(wait.messages[0])
    return frozenset(), float(wait.last_answer[0]), wait.all


def _forget(kept: dict[int, Any], before: int) -> None:
    """Delete entries of earlier rounds."""
    for key in [key for key in kept if key < before]:
        del kept[key]
