"""Asynchronous SGD: the master updates on every arrival, or on every K-th, and nobody waits for anybody.

W. Zhang, S. Gupta, X. Lian, J. Liu, "Staleness-aware async-SGD for distributed deep learning", IJCAI 2016: a gradient
that is t updates old counts 1/t. C. Xie, S. Koyejo, I. Gupta, "Asynchronous federated optimization", 2019: it counts
(1 + t)^-a. J. Nguyen et al., "Federated learning with buffered asynchronous aggregation", AISTATS 2022: the master
updates with the mean of every K arrivals, weighted 1 / sqrt(1 + t).

Workers hold a part of the data each. An answer is a gradient over all of its worker's part, weighted as if it were one
over all data; so without damping the weights are one on average wherever all workers are equally fast, and lean towards
the fast ones where they are not. A worker that answers again before the next commit answers with the same gradient,
which then counts twice: a buffer is worth having below the number of workers. With n workers an answer is (n - 1) / K
commits old on average, whatever the delays.
"""

from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import replace
from heapq import heappop, heappush
from typing import Any, ClassVar

import numpy as np

from workbench.core.base.settings import setting
from workbench.core.base.types import Array
from workbench.core.contract.links import BYTES_PER_FLOAT
from workbench.core.contract.plan import MASTER, Plan, uncoded_plan
from workbench.core.contract.programs import LostChildren, plain_sum
from workbench.core.contract.protocol import (
    CODED,
    MODEL,
    PEER_LOST,
    REL_TOL,
    Commit,
    Compute,
    Decode,
    Message,
    Node,
    Program,
    Recv,
    Send,
)
from workbench.core.contract.round_times import RoundTimes, SampledTimes
from workbench.core.contract.scheme import Scheme, log_spaced_ints

DAMPING = "an answer whose model is t commits old counts (1 + t)^-damping; 0 = as much as any"
# what happens at one moment, in the event engine's order
TRANSFERRED, ARRIVED, MODEL_ARRIVED, DECODED = range(4)
Ended = tuple[float, int]  # when a commit is, and answers received since the one before


class Asynchronous(Scheme):
    """Base of those whose master takes answers as they come, and gives a worker that has answered the newest model.

    `damping`: an answer whose model is t commits old counts (1 + t)^-damping.
    """

    damping: float

    exact: ClassVar[bool] = False
    self_paced: ClassVar[bool] = True
    non_preemptive: ClassVar[bool] = True

    @property
    def size(self) -> int:
        """Answers that make one commit (K)."""
        return 1

    def plan(self, workers: int, samples: int) -> Plan:
        """One part per worker; every worker may be at a model of its own, and so may every answer that is held."""
        return replace(uncoded_plan(workers, samples), versions=workers + self.size)

    def program(self, node: Node) -> Program:
        return self._master(node) if node.rank == MASTER else _worker(node)

    def _master(self, node: Node) -> Program:
        lost, answers = LostChildren(), list[tuple[int, float, Any]]()
        version, model = node.first, node.model
        yield Send(node.children, MODEL, version, model)
        while version < node.rounds:
            message: Message = yield Recv({CODED: 0, PEER_LOST: 0})
            if message.kind == CODED:
                yield Decode(node.floats)
                answers.append((message.src, self.weight(version - message.round, node.plan), message.value))
                if len(answers) == self.size:
                    total = plain_sum([value * weight for _, weight, value in answers])
                    model = yield Commit(total, version, _residual(answers, node.plan))
                    version, answers = version + 1, []
            else:
                lost.add(message)
                if lost.gone.issuperset(node.children):
                    raise lost.quorum_lost(node.rank, version, lost.gone)
            # Who answered, or was refused, goes on.
            if version < node.rounds and message.src not in lost.gone:
                yield Send(message.src, MODEL, version, model)
        yield Send(node.children, MODEL, node.rounds, None, floats=0)

    def weight(self, staleness: int, plan: Plan) -> float:
        """Of an answer in its commit: it stands for as many parts as there are."""
        return float(plan.parts / self.size * (1.0 + staleness) ** -self.damping)

    def round_times(self, draws: SampledTimes, workers: int) -> RoundTimes:
        """Arrivals one by one, as each depends on those before: the event engine's, without its programs."""
        commits: Iterator[Ended] = draws.state or _commits(draws, workers, self.size)
        ended = np.array([next(commits) for _ in range(len(draws.seconds))])
        return RoundTimes(ended[:, 0], ended[:, 1], ended[:, 1] * (BYTES_PER_FLOAT * draws.floats), commits)


class ASGD(Asynchronous):
    """Asynchronous SGD: each answer is a commit of its own; `damping` 1 is the staleness-aware step of Zhang et al.

    >>> ASGD().loads(workers=6, samples=60).tolist()
    [10, 10, 10, 10, 10, 10]
    """

    name: ClassVar[str] = "ASGD"
    title: ClassVar[str] = "Asynchronous SGD"
    paper: ClassVar[str] = "Zhang et al. 2016; Xie et al. 2019"
    damping: float = setting(1.0, DAMPING, ge=0)

    @classmethod
    def candidates(cls, workers: int) -> list[dict[str, Any]]:
        """All alike, and old answers for less."""
        return [{"damping": a} for a in (0.0, 0.5, 1.0)]


class FedBuff(Asynchronous):
    """Buffered asynchronous aggregation: K answers make a commit, each for less the older its model is.

    >>> FedBuff(buffer=4).plan(workers=6, samples=60).versions
    10
    """

    name: ClassVar[str] = "FedBuff"
    title: ClassVar[str] = "Buffered asynchronous SGD"
    paper: ClassVar[str] = "Nguyen et al. 2022"
    buffer: int = setting(4, "answers that make a commit (K)", ge=1)
    damping: float = setting(0.5, DAMPING, ge=0)

    @classmethod
    def candidates(cls, workers: int) -> list[dict[str, Any]]:
        """Buffers of two to all workers' answers."""
        return [{"buffer": k} for k in log_spaced_ints(2, workers, 5)]

    @property
    def size(self) -> int:
        return self.buffer


def _worker(node: Node) -> Program:
    """Compute at the newest model that is told; its j-th answer takes its j-th drawn time."""
    job = node.step
    while True:
        model: Message = yield Recv({MODEL: 0}, latest=True)
        if model.round == node.rounds:
            return
        batch = None if node.sampler is None else job  # its own step's
        value = yield Compute(node.work, model.value, model.round, {MODEL: node.rounds}, draw=job, job=batch)
        if value is not None:
            yield Send(node.parent, CODED, model.round, value, draw=job)
        job += 1


def _residual(answers: Sequence[tuple[int, float, Any]], plan: Plan) -> float:
    """Squared distance from all ones of the parts' weights in one commit."""
    weights = np.zeros(plan.parts)
    for rank, weight, _ in answers:
        weights[plan.work[rank].parts] += weight
    return float(((weights - 1.0) ** 2).sum())


class _Moments:
    """Events in order of time; those of one moment by what they are, then by the tie of whose answer arrives."""

    def __init__(self, tie: Callable[[int], float]) -> None:
        self.tie = tie
        self.ahead: list[tuple[float, int, int, tuple[int, ...]]] = []
        self.due: list[tuple[int, float, int, float, tuple[int, ...]]] = []
        self.now, self.limit, self.serial = 0.0, -1.0, 0

    def add(self, time: float, what: int, who: tuple[int, ...]) -> None:
        """Something will happen."""
        self.serial += 1
        heappush(self.ahead, (time, self.serial, what, who))

    def next(self) -> tuple[int, tuple[int, ...]]:
        """What happens next, and to whom."""
        ahead, due = self.ahead, self.due
        if not due:
            time, _, what, who = first = heappop(ahead)
            self.limit = time * REL_TOL
            if not ahead or ahead[0][0] > self.limit:  # mostly: no ties are drawn
                self.now = max(self.now, time)
                return what, who
            heappush(ahead, first)
        while ahead and ahead[0][0] <= self.limit:
            time, serial, what, who = heappop(ahead)
            heappush(due, (what, self.tie(who[0]) if what == ARRIVED else time, serial, time, who))
        what, _, _, time, who = heappop(due)
        self.now = max(self.now, time)
        return what, who


class _Master:
    """The port, the master behind it, and workers that go on as soon as they are told a model."""

    def __init__(self, draws: SampledTimes, workers: int, size: int) -> None:
        self.job, self.sent, self.tie = draws.load_seconds, draws.send_seconds, draws.tie_order_of
        self.events, self.port, self.inbox = _Moments(self._tie), deque[int](), deque[int]()
        self.link, self.floats, self.size = draws.link, draws.floats, size
        self.transfer, self.decode = draws.link.transfer(draws.floats), draws.decode_seconds(1)
        self.jobs, self.versions = [0] * workers, [0] * workers
        self.times: dict[int, tuple[Array, Array]] = {}  # of everybody's j-th job: computing, sending
        self.version = self.stored = self.received = 0

    def _tie(self, worker: int) -> float:
        return float(self.tie(self.versions[worker])[worker])

    def tell(self, who: tuple[int, ...]) -> None:
        """Workers get the newest model."""
        for worker in who:
            self.versions[worker] = self.version
        if self.link.downloads:
            self.events.add(
                self.events.now + self.link.latency + self.link.transfer(self.floats), MODEL_ARRIVED, who
            )
        else:
            self.send_model(who)

    def send_model(self, who: tuple[int, ...]) -> None:
        """They compute, and their answers arrive."""
        for worker in who:
            job = self.jobs[worker]
            if job not in self.times:
                seconds = self.job(job)
                self.times[job] = seconds, np.broadcast_to(self.sent([job], 1.0), (1, len(seconds)))[0]
            seconds, sending = self.times[job]
            self.jobs[worker] += 1
            transit = self.link.latency + float(sending[worker])
            self.events.add(self.events.now + float(seconds[worker]) + transit, ARRIVED, (worker,))

    def arrived(self, worker: int) -> None:
        """An answer is at the port."""
        self.port.append(worker)
        if self.transfer == 0.0:
            self.through()
        elif len(self.port) == 1:
            self.events.add(self.events.now + self.transfer, TRANSFERRED, (worker,))

    def through(self) -> None:
        """It is through the port, and the next one comes."""
        self.received += 1
        self.inbox.append(self.port.popleft())
        if self.port:
            self.events.add(self.events.now + self.transfer, TRANSFERRED, (self.port[0],))
        if self.decode and len(self.inbox) == 1:
            self.events.add(self.events.now + self.decode, DECODED, (self.inbox[0],))

    def taken(self) -> bool:
        """The master takes the oldest one; is that a commit?"""
        worker = self.inbox.popleft()
        self.stored += 1
        if full := self.stored == self.size:
            self.version, self.stored = self.version + 1, 0
        self.tell((worker,))
        if self.decode and self.inbox:
            self.events.add(self.events.now + self.decode, DECODED, (self.inbox[0],))
        return full


def _commits(draws: SampledTimes, workers: int, size: int) -> Generator[Ended, None, None]:
    """Seconds from commit to commit, and answers received meanwhile, for ever."""
    master, before = _Master(draws, workers, size), 0.0
    master.tell(tuple(range(workers)))
    while True:
        what, who = master.events.next()
        if what == MODEL_ARRIVED:
            master.send_model(who)
        elif what == ARRIVED:
            master.arrived(who[0])
        elif what == TRANSFERRED:
            master.through()
        if (what == DECODED or not master.decode) and master.inbox and master.taken():
            now, received = master.events.now, master.received
            master.received = 0
            yield now - before, received
            before = now
