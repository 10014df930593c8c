"""Asynchronous SGD: the master updates on every arrival, or on every K-th, and workers never wait for each other.

W. Zhang, S. Gupta, X. Lian, J. Liu, "Staleness-aware async-SGD for distributed deep learning", IJCAI 2016: a gradient
that is t updates old has the weight 1/t. C. Xie, S. Koyejo, I. Gupta, "Asynchronous federated optimization", 2019: the
weight is (1 + t)^-a. J. Nguyen et al., "Federated learning with buffered asynchronous aggregation", AISTATS 2022:
the master updates with the mean of every K arrivals, weighted 1 / sqrt(1 + t).

Each worker stores one part of the data. An answer is the gradient over that part, weighted as if it were the gradient
over all data. Without damping, the weights of all parts average to one if all workers are equally fast. If they are
not, parts of fast workers weigh more. A worker that answers twice before the next commit sends the same gradient twice,
and both count. A buffer is therefore useful only if K is smaller than the number of workers. With n workers, an answer
is (n - 1) / K commits old on average, for any delays.
"""

from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import replace
from heapq import heappop, heappush
from itertools import count
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

DAMPING = "weight (1 + t)^-damping for an answer whose model is t commits old; 0 = all weights are equal"
# kinds of events, in the order in which the event engine handles simultaneous ones
TRANSFERRED, ARRIVED, MODEL_ARRIVED, DECODED = range(4)
Ended = tuple[float, int]  # time of a commit, and number of answers received since the commit before


class Asynchronous(Scheme):
    """Base of schemes whose master uses answers when they arrive, and sends the newest model to workers that answered.

    `damping`: an answer whose model is t commits old has the weight (1 + t)^-damping.
    """

    damping: float

    exact: ClassVar[bool] = False
    self_paced: ClassVar[bool] = True
    non_preemptive: ClassVar[bool] = True

    @property
    def size(self) -> int:
        """Number of answers in one commit (K)."""
        return 1

    def plan(self, workers: int, samples: int) -> Plan:
        """Return a plan with one part per worker.

        Its `versions` counts the models in use: one for each worker, and one for each answer of a commit.
        """
        return replace(uncoded_plan(workers, samples), versions=workers + self.size)

    def program(self, node: Node) -> Program:
        return self._master(node) if node.rank == MASTER else _worker(node)

    def _master(self, node: Node) -> Program:
        lost, answers = LostChildren(), list[tuple[int, int, Any]]()
        version, model = node.first, node.model
        yield Send(node.children, MODEL, version, model)
        while version < node.rounds:
            message: Message = yield Recv({CODED: 0, PEER_LOST: 0})
            if message.kind == CODED:
                yield Decode(node.floats)
                answers.append((message.src, version - message.round, message.value))
                if len(answers) == self.size:
                    model = yield self._commit(node.plan, version, answers)
                    version, answers = version + 1, []
            else:
                lost.add(message)
                if lost.gone.issuperset(node.children):
                    raise lost.quorum_lost(node.rank, version, lost.gone)
            # a worker whose answer was used or refused gets the next model
            if version < node.rounds and message.src not in lost.gone:
                yield Send(message.src, MODEL, version, model)
        yield Send(node.children, MODEL, node.rounds, None, floats=0)

    def _commit(self, plan: Plan, version: int, answers: Sequence[tuple[int, int, Any]]) -> Commit:
        """Return the commit of answers (rank, staleness, value)."""
        weighted = [(rank, self.weight(age, plan), value) for rank, age, value in answers]
        total = plain_sum([value * weight for _, weight, value in weighted])
        share = sum(self.damped(age) for _, age, _ in answers) / self.size
        return Commit(total, version, _residual(weighted, plan), share)

    def damped(self, staleness: int) -> float:
        """Return the factor of an answer whose model is `staleness` commits old."""
        return float((1.0 + staleness) ** -self.damping)

    def weight(self, staleness: int, plan: Plan) -> float:
        """Return the weight of an answer in its commit, scaled as if it came from all parts."""
        return plan.parts / self.size * self.damped(staleness)

    def round_times(self, draws: SampledTimes, workers: int) -> RoundTimes:
        """Simulate arrivals one by one, with the same times as the event engine but without its programs."""
        commits: Iterator[Ended] = draws.state or _commits(draws, workers, self.size)
        ended = np.array([next(commits) for _ in range(len(draws.seconds))])
        return RoundTimes(ended[:, 0], ended[:, 1], ended[:, 1] * (BYTES_PER_FLOAT * draws.floats), commits)


class ASGD(Asynchronous):
    """Asynchronous SGD: each answer is one commit. `damping` 1 is the staleness-aware step of Zhang et al.

    >>> ASGD().loads(workers=6, samples=60).tolist()
    [10, 10, 10, 10, 10, 10]
    """

    name = "ASGD"
    title: ClassVar[str] = "Asynchronous SGD"
    paper: ClassVar[str] = "Zhang et al. 2016; Xie et al. 2019"
    damping: float = setting(1.0, DAMPING, ge=0)

    @classmethod
    def candidates(cls, workers: int) -> list[dict[str, Any]]:
        """Return no damping, and two degrees of damping for old answers."""
        return [{"damping": a} for a in (0.0, 0.5, 1.0)]


class FedBuff(Asynchronous):
    """Buffered asynchronous aggregation: a commit is made of K answers, weighted by the age of their models.

    >>> FedBuff(buffer=4).plan(workers=6, samples=60).versions
    10
    """

    name = "FedBuff"
    title: ClassVar[str] = "Buffered asynchronous SGD"
    paper: ClassVar[str] = "Nguyen et al. 2022"
    buffer: int = setting(4, "answers that make a commit (K)", ge=1)
    damping: float = setting(0.5, DAMPING, ge=0)

    @classmethod
    def candidates(cls, workers: int) -> list[dict[str, Any]]:
        """Return buffer sizes from two to the number of workers."""
        return [{"buffer": k} for k in log_spaced_ints(2, workers, 5)]

    @property
    def size(self) -> int:
        return self.buffer


def _worker(node: Node) -> Program:
    """Compute at the newest model received. The j-th answer takes the j-th drawn time."""
    for job in count(node.step):
        model: Message = yield Recv({MODEL: 0}, latest=True)
        if model.round == node.rounds:
            return
        batch = None if node.sampler is None else job  # the worker's number of jobs seeds its mini-batch
        value = yield Compute(node.work, model.value, model.round, {MODEL: node.rounds}, draw=job, job=batch)
        if value is not None:
            yield Send(node.parent, CODED, model.round, value, draw=job)


def _residual(answers: Sequence[tuple[int, float, Any]], plan: Plan) -> float:
    """Return the squared distance of the parts' weights in one commit from all ones."""
    weights = np.zeros(plan.parts)
    for rank, weight, _ in answers:
        weights[plan.work[rank].parts] += weight
    return float(((weights - 1.0) ** 2).sum())


class _Moments:
    """Queue of events by time. Simultaneous events are ordered by kind, then by the tie-break of the answer."""

    def __init__(self, tie: Callable[[int], float]) -> None:
        self.tie = tie
        self.ahead: list[tuple[float, int, int, tuple[int, ...]]] = []
        self.due: list[tuple[int, float, int, float, tuple[int, ...]]] = []
        self.now, self.limit, self.serial = 0.0, -1.0, 0

    def add(self, time: float, what: int, who: tuple[int, ...]) -> None:
        """Add a future event."""
        self.serial += 1
        heappush(self.ahead, (time, self.serial, what, who))

    def next(self) -> tuple[int, tuple[int, ...]]:
        """Remove the next event, and return its kind and its workers."""
        ahead, due = self.ahead, self.due
        if not due:
            time, _, what, who = first = heappop(ahead)
            self.limit = time * REL_TOL
            # usually the next event is later, so that no tie-break is needed
            if not ahead or ahead[0][0] > self.limit:
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
    """State of a simulated run: port, inbox and versions of the master, and jobs of the workers."""

    def __init__(self, draws: SampledTimes, workers: int, size: int) -> None:
        self.job, self.sent, self.tie = draws.load_seconds, draws.send_seconds, draws.tie_order_of
        self.events, self.port, self.inbox = _Moments(self._tie), deque[int](), deque[int]()
        self.link, self.floats, self.size, self.model_of = draws.link, draws.floats, size, draws.model_of
        self.transfers = np.broadcast_to(draws.transfer(draws.floats), workers).tolist()
        self.decode = draws.decode_seconds(1)
        self.jobs, self.versions = [0] * workers, [0] * workers
        # computing and sending times of every worker's j-th job, by j
        self.times: dict[int, tuple[Array, Array]] = {}
        self.version = self.stored = self.received = 0

    def _tie(self, worker: int) -> float:
        return float(self.tie(self.versions[worker])[worker])

    def tell(self, who: tuple[int, ...]) -> None:
        """Send the newest model to these workers."""
        for worker in who:
            self.versions[worker] = self.version
        if self.link.downloads:
            ranks = tuple(worker + 1 for worker in who)
            drawn = self.model_of(self.version)
            for arrives, same in self.link.model_arrivals(
                self.events.now, self.floats, ranks, len(self.jobs), drawn
            ):
                self.events.add(arrives, MODEL_ARRIVED, tuple(rank - 1 for rank in same))
        else:
            self.send_model(who)

    def send_model(self, who: tuple[int, ...]) -> None:
        """Start the next job of these workers, and queue the arrivals of their answers."""
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
        """Put an answer into the queue of the port."""
        self.port.append(worker)
        if len(self.port) == 1 and self.transfers[worker] == 0.0:
            self.through()
        elif len(self.port) == 1:
            self._transfer()

    def _transfer(self) -> None:
        """Start the transfer of the first answer in the queue."""
        self.events.add(self.events.now + self.transfers[self.port[0]], TRANSFERRED, (self.port[0],))

    def through(self) -> None:
        """Move the answer that has passed the port into the inbox, and start the next transfer."""
        self.received += 1
        self.inbox.append(self.port.popleft())
        if self.port:
            self._transfer()
        if self.decode and len(self.inbox) == 1:
            self.events.add(self.events.now + self.decode, DECODED, (self.inbox[0],))

    def taken(self) -> bool:
        """Take the oldest answer from the inbox, and return whether it completes a commit."""
        worker = self.inbox.popleft()
        self.stored += 1
        if full := self.stored == self.size:
            self.version, self.stored = self.version + 1, 0
        self.tell((worker,))
        if self.decode and self.inbox:
            self.events.add(self.events.now + self.decode, DECODED, (self.inbox[0],))
        return full


def _commits(draws: SampledTimes, workers: int, size: int) -> Generator[Ended, None, None]:
    """Yield for each commit the seconds since the commit before, and the number of answers received meanwhile."""
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
