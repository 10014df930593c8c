"""Sequential gradient coding, SR-SGC and M-SGC: codes over rounds, for stragglers that come in bursts.

M. N. Krishnan, R. Ebrahimi, A. Khisti, "Sequential gradient coding for straggler mitigation", ICLR 2023: sections 3.2
(SR-SGC) and 3.3 (M-SGC). Where the text is ambiguous, the authors' simulator (mamaj/Sequential-Gradient-Coding-2)
decides.

Job t is the full gradient at one model. Jobs are pipelined: job t begins in round t and ends at most T rounds later. It
uses the newest model that certainly exists when round t begins: version max(0, t - T). The run is therefore gradient
descent with gradients that are T commits old, for any stragglers. (The authors train several models in turn, so that no
job uses an old model. Here an experiment has one model.)
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
from workbench.core.codes import GradientCode, cyclic
from workbench.core.contract.plan import MASTER, Plan, star_plan
from workbench.core.contract.programs import (
    LostChildren,
    decoded,
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
    Send,
)
from workbench.core.contract.round_times import RoundTimes, SampledTimes, WaitResult, wait_for
from workbench.core.contract.scheme import Scheme, least_digits_field, log_spaced_ints

Late = frozenset[int]


class Bursts:
    """The (B, W, lambda)-bursty straggler model: the patterns of late workers that a code tolerates."""

    def __init__(self, burst: int, window: int, stragglers: int) -> None:
        self.burst, self.window, self.stragglers = burst, window, stragglers
        self.late: dict[int, Late] = {}  # round -> its late workers

    def follows(self, r: int, late: Late) -> bool:
        """Return whether the pattern of late workers is tolerated.

        At most lambda workers are late in W rounds, and no late worker was late B to W - 1 rounds before.
        """
        of = self.late
        recent = late.union(*(of.get(k, late) for k in range(r + 1 - self.window, r)))
        before = (of.get(k, frozenset()) for k in range(r + 1 - self.window, r + 1 - self.burst))
        return len(recent) <= self.stragglers and not any(late & them for them in before)

    def note(self, r: int, late: Late) -> None:
        """Record the workers whose late answers were dropped in a round."""
        self.late[r] = late
        self.late.pop(r - self.window, None)


class Step(NamedTuple):
    """Round of `round_times`: seconds, number of messages, and number of combined results for each decoded job."""

    seconds: float
    messages: int
    decoded: list[int]


class Sequential(Scheme):
    """Base of SR-SGC and M-SGC: parameters, rule for waiting, and round times without an event loop."""

    delayed: ClassVar[bool] = True
    precision_knob: ClassVar[tuple[str, int] | None] = ("stragglers", -1)
    burst: int = setting(1, "consecutive rounds in which a worker may be late (B)", ge=1)
    window: int = setting(
        2,
        "rounds in which at most `stragglers` workers are late (W); a late worker is on time B to W-1 rounds later",
        ge=2,
    )
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
        """Yield the rounds of a run in order, for drawn computing times."""

    @classmethod
    def candidates(cls, workers: int) -> list[dict[str, Any]]:
        """Return some configurations of the paper's search (`settings`): T up to three rounds, W up to four."""
        lambdas = set(log_spaced_ints(1, workers, 4))
        found = cls.settings(workers, longest=3, widest=4)
        return [each for each in found if each["stragglers"] in lambdas]

    def check(self, workers: int) -> None:
        """Raise `SettingError` if lambda exceeds the number of workers, or if the only worker may be late."""
        if self.stragglers > workers or workers == 1 == self.stragglers:
            why = f"there are {workers} workers; take 0 to {workers if workers > 1 else 0}"
            raise SettingError(f"scheme_args.stragglers = {self.stragglers}: {why}")

    def round_times(self, draws: SampledTimes, workers: int) -> RoundTimes:
        """Return the time of each job, round by round, because rounds depend on which workers were late before."""
        left: Iterator[tuple[float, float]]
        left = draws.state or _jobs(self.steps(draws, workers), draws)
        seconds, messages = np.array([next(left) for _ in draws.seconds]).T
        return RoundTimes(seconds, messages, messages * (draws.link.width * draws.floats), left)


def _jobs(steps: Iterator[Step], draws: SampledTimes) -> Iterator[tuple[float, float]]:
    """Yield for each job the seconds since the job before, and the number of messages received meanwhile."""
    seconds, messages = 0.0, 0
    for step in steps:
        seconds, messages = seconds + step.seconds, messages + step.messages
        for combined in step.decoded:
            yield seconds + float(draws.decode_seconds(combined)), messages
            seconds, messages = 0.0, 0


class Repeats:
    """State of SR-SGC's master: delivered results, requested repetitions, and the pattern of late workers."""

    def __init__(self, scheme: SRSGC, workers: int, first: int) -> None:
        self.bursts = Bursts(scheme.burst, scheme.window, scheme.stragglers)
        self.burst, self.spare, self.workers = scheme.burst, scheme.spare, workers
        self.first = self.done = first  # jobs before `done` are decoded
        self.delivered: dict[int, set[int]] = {}  # job -> ranks that have delivered a result

    def again(self, r: int, gone: Collection[int] = ()) -> Late:
        """Return the workers that repeat job r - B: if v > s have not delivered it, the first v - s living ones."""
        job = r - self.burst
        if job < self.first:
            return frozenset()
        missing = [rank for rank in range(1, self.workers + 1) if rank not in self.delivered[job]]
        alive = [rank for rank in missing if rank not in gone]
        return frozenset(alive[: max(0, len(missing) - self.spare)])

    def follows(self, r: int, again: Late, gone: Collection[int], late: Late) -> bool:
        """Return whether the master may drop the late workers of a round.

        A dead worker is late in every round, which the straggler model does not allow. After a death, the master drops
        living workers only if job r and the repeated job are complete without them.
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
        """Record a round.

        Its late workers do not count if no repetition was delivered and at most s workers were late.
        """
        everybody = set(range(1, self.workers + 1))
        self.delivered[r] = everybody - again - late
        if again:
            self.delivered[r - self.burst] |= again - late
        harmless = again <= late and len(late) <= self.spare
        self.bursts.note(r, frozenset() if harmless else late)

    def there(self, job: int) -> bool:
        """Return whether a job can be decoded, for which n - s results are enough."""
        return job < self.done or len(self.delivered.get(job, ())) >= self.workers - self.spare

    def decoded(self, r: int, rounds: int) -> list[int]:
        """Return the jobs that can be committed after a round, in order."""
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

    name = "SR-SGC"
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
        """Yield all settings: lambda from 1 to n, B from 1 to `longest`, and W = B + 1, 2 B + 1, ..."""
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
        """Return a plan with one part per worker.

        Each part is stored by s + 1 workers, and jobs use models up to B commits old.
        """
        return replace(star_plan(self.codes(workers)[0].matrix, samples), versions=self.burst + 1)

    def program(self, node: Node) -> Program:
        if node.rank == MASTER:
            return self._master(node)
        # A worker that repeats a job receives the model of that job. The last jobs are repeated after the last round.
        return worker_program(replace(node, rounds=node.rounds + self.burst), self._answer)

    def _answer(self, node: Node, model: Message) -> Program:
        """Compute the job of the round. If the model's message has the number 1, repeat the job of B rounds before."""
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
                continue  # the job is complete and needs no repetition
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
            forget(versions, max(node.first, r + 1 - self.burst))
            forget(models, r + 1 - self.burst)
            forget(answers, min(jobs.done, r + 1 - self.burst))
        yield Send(node.children, MODEL, node.rounds + self.burst, None, floats=0)

    def steps(self, draws: SampledTimes, workers: int) -> Iterator[Step]:
        jobs = Repeats(self, workers, first=0)
        for r in range(draws.total_rounds + self.burst):
            again = jobs.again(r)
            if r >= draws.total_rounds and jobs.there(r - self.burst):
                continue
            wait = wait_for(draws.block(range(r, r + 1)), self.tolerance)
            late, seconds, messages = dropped(wait, partial(jobs.bursts.follows, r))
            jobs.note(r, again, late)
            counts = {job: len(ranks) for job, ranks in jobs.delivered.items()}
            yield Step(seconds, messages, [counts[job] for job in jobs.decoded(r, draws.total_rounds)])


def dropped(wait: WaitResult, follows: Callable[[Late], bool]) -> tuple[Late, float, int]:
    """Return the late workers of a round that may be dropped, its seconds, and the number of received messages."""
    late: Late = frozenset((np.flatnonzero(wait.late_workers[0]) + 1).tolist())
    if follows(late):
        return late, float(wait.seconds[0]), int(wait.messages[0])
    return frozenset(), float(wait.last_answer[0]), wait.all


def forget(kept: dict[int, Any], before: int) -> None:
    """Delete entries of earlier rounds."""
    for key in [key for key in kept if key < before]:
        del kept[key]
