"""Discrete-event engine: programs on a virtual clock.

Time moves from event to event. A receiver's port takes one message at a time (see `links`); a message whose round is
over when its turn comes is refused, dropped and counted, and costs no port time (its header is enough to know).

Times that differ by rounding at most (`NEAR`) are one moment; see `moments` for the order of its events.
"""

import gc
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Any

import numpy as np

from workbench.core.base.errors import Deadlock, QuorumLost, RunError
from workbench.core.contract.adaptive import AdaptiveController
from workbench.core.contract.delays import DelayStream
from workbench.core.contract.links import Link
from workbench.core.contract.plan import Plan
from workbench.core.contract.protocol import (
    MODEL,
    PEER_LOST,
    REL_TOL,
    AllReduce,
    Close,
    Commit,
    Compute,
    Decode,
    Match,
    Message,
    Node,
    Recv,
    Send,
)
from workbench.core.contract.ring import bytes_sent, ring_finish
from workbench.core.contract.scheme import Scheme
from workbench.core.engine.compute_times import ComputeTimes, loaded
from workbench.core.engine.inbox import Inbox
from workbench.core.engine.timeline import Timeline
from workbench.core.engine.user_errors import note_interrupt, program_of, reraise_as_user_error
from workbench.core.engine.virtual.arithmetic import Arithmetic
from workbench.core.engine.virtual.event_order import (
    ARRIVED,
    COMPUTED,
    MODEL_ARRIVED,
    TIMER,
    TRANSFERRED,
    EventOrder,
    Queued,
    SortKey,
)


@dataclass(frozen=True)
class SimSetup:
    """All that a simulated run needs besides the scheme and its plan."""

    rounds: int
    floats: int  # model size p
    delays: DelayStream
    link: Link
    decode_rate: float | None = None  # floats/s, None: decoding is free
    deaths: Mapping[int, int] = field(default_factory=dict)  # rank -> round in which it dies
    record: bool = True  # keep the events
    watch: Callable[[Timeline], None] | None = None  # called after every round; what it raises ends the run
    controller: AdaptiveController | None = None  # sees who takes how long
    start: float = 0.0  # when it begins, s


class _Rank:
    """What the engine knows of one node while the run goes on."""

    __slots__ = ("alive", "done", "floor", "inbox", "port", "queue", "resume", "ticket", "unless", "waits")

    def __init__(self, resume: Callable[[Any], Any]) -> None:
        self.resume = resume
        self.inbox = Inbox()
        self.floor = self.inbox.floor
        self.queue: deque[tuple[Message, float, int]] = deque()  # at the port: message, sent at, floats
        self.port: tuple[Message, float, int, float] | None = None  # in transfer: ..., begun at
        self.waits: Match | None = None  # the match of a blocked Recv
        self.unless: Match | None = None  # the match that ends a running Compute
        self.ticket = 0  # a wake-up with an older ticket is void
        self.done = False
        self.alive = True


def simulate(
    scheme: Scheme, plan: Plan, setup: SimSetup, arithmetic: Arithmetic, line: Timeline | None = None
) -> Timeline:
    """Run every node's program on the virtual clock; raises `RunError` when the run cannot go on.

    `line`: rounds of this run that are over already, which goes on after them.
    """
    with _uncollected():  # nothing here is cyclic garbage, and looking for it costs a third of the time
        return _Simulation(scheme, plan, setup, arithmetic, line or Timeline()).run()


@contextmanager
def _uncollected() -> Iterator[None]:
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


class _Simulation:
    def __init__(
        self, scheme: Scheme, plan: Plan, setup: SimSetup, arithmetic: Arithmetic, line: Timeline
    ) -> None:
        self.scheme, self.plan, self.world, self.arithmetic = scheme, plan, setup, arithmetic
        self.now, self.serial = setup.start, 0
        self.last = setup.rounds - 1  # what follows on the last commit's round counts as of that round
        self.heap: list[Queued] = []
        self.event_order = EventOrder(plan, setup.delays).key
        self.due: list[SortKey] | None = None  # what is left of this moment, if there are several events
        self.ready: deque[tuple[int, Message, float, int]] = deque()  # deliveries at this very time
        self.line, first = line, len(line.times)
        if not first:
            line.open(setup.rounds)
        self.log = self.line.events.append if setup.record else (lambda row: None)
        self.open = len(plan.committers)
        self.committed = [0] * setup.rounds
        self.entries: dict[int, dict[int, tuple[float, Any]]] = {}
        self.port_free = np.full(plan.workers, setup.start)
        self.latency, self.width = setup.link.latency, setup.link.width
        self.instant = setup.delays.sending(0, 1.0) is None  # sending takes no time of its own
        self.transfers: dict[int, float] = {}  # seconds by floats
        self.compute_times = ComputeTimes(scheme, plan, setup.delays)
        self.samples_of = arithmetic.samples_of
        self.sending: dict[tuple[int, float], list[float] | None] = {}
        model, clock = arithmetic.start(), lambda: self.now
        facts = (arithmetic.smoothness, arithmetic.constant, arithmetic.l2)
        batched = arithmetic.sampler is not None
        nodes = [
            Node(r, plan, setup.rounds, setup.floats, model, clock, *facts, first, batched)
            for r in range(plan.ranks)
        ]
        self.ranks = [_Rank(program_of(scheme, node).send) for node in nodes]
        self.handlers: dict[type, Callable[[int, _Rank, Any], Any]] = {
            Compute: self._compute,
            Send: self._send,
            Recv: self._recv,
            Close: self._close,
            Decode: self._decode,
            AllReduce: self._all_reduce,
            Commit: self._commit,
        }

    # ---------------------------------------------------------------- the loop

    def run(self) -> Timeline:
        for r in range(self.plan.ranks):
            self._resume(r, None)
        heap, soon = self.heap, self.ready
        # In a ring every message has one possible sender.
        near = REL_TOL if self.plan.parent.max() >= 0 else -1.0
        while self.open:
            if soon:
                self._deliver(*soon.popleft())
            elif heap:
                event = heappop(heap)
                self.now = now = event[0]
                if heap and heap[0][0] <= now * near:
                    self._simultaneous(event)
                else:
                    event[3](*event[4])
            else:
                raise self._stalled()
        self.line.close()
        return self.line

    def _simultaneous(self, first: Queued) -> None:
        """Go through several events of one moment, and through what they cause at it."""
        heap, limit = self.heap, first[0] * REL_TOL
        due = self.due = []
        heappush(heap, first)
        while heap and heap[0][0] <= limit:
            event = heappop(heap)
            if event[2] == COMPUTED and not self.plan.children[event[4][0]]:
                self._fire(event)  # a leaf has computed: nothing else of this moment comes before that
            else:
                heappush(due, self.event_order(event))
        while due and self.open:
            self._fire(heappop(due)[4])
            while heap and heap[0][0] <= limit:
                heappush(due, self.event_order(heappop(heap)))
        self.due = None

    def _fire(self, event: Queued) -> None:
        time, _, _, what, args = event
        if time > self.now:
            self.now = time
        what(*args)
        while self.ready and self.open:
            self._deliver(*self.ready.popleft())

    def _at(self, time: float, stage: int, what: Callable[..., None], args: tuple[Any, ...]) -> None:
        self.serial += 1
        heappush(self.heap, (time, self.serial, stage, what, args))

    def _resume(self, r: int, answer: Any) -> None:
        rank, handlers = self.ranks[r], self.handlers
        try:
            while answer is not _BLOCKED:
                effect = rank.resume(answer)
                answer = handlers[type(effect)](r, rank, effect)
        except StopIteration:
            rank.done = True
            if r in self.plan.committers:
                self.open -= 1
        except Exception as error:
            reraise_as_user_error(error, self.scheme, r, len(self.line.times))
            raise
        except KeyboardInterrupt as error:
            note_interrupt(error, self.scheme, r, len(self.line.times))
            raise

    def _wake(self, r: int, ticket: int, answer: Any) -> None:
        rank = self.ranks[r]
        if rank.ticket == ticket:
            rank.ticket += 1
            rank.waits = None
            self._resume(r, answer)

    # ---------------------------------------------------------------- computing

    def _compute(self, r: int, rank: _Rank, effect: Compute) -> Any:
        if self.world.deaths and effect.round >= self.world.deaths.get(r, effect.round + 1):
            return self._die(r, rank)
        if rank.inbox and effect.unless and rank.inbox.find(effect.unless) is not None:
            return None
        rank.unless = effect.unless
        round, samples = effect.round, self.samples_of(effect)
        self.line.started[round if round < self.last else self.last] += samples
        end = self.compute_times.end(self.now, r, effect)
        self._at(end, COMPUTED, self._computed, (r, rank.ticket, effect, self.now, samples))
        return _BLOCKED

    def _computed(self, r: int, ticket: int, effect: Compute, start: float, samples: int) -> None:
        rank = self.ranks[r]
        if rank.ticket != ticket:
            return
        rank.ticket += 1
        rank.unless = None
        line, round = self.line, effect.round
        if round > self.last:
            round = self.last
        line.handled += 1
        line.samples[round] += samples
        self.log((round, r, "compute", start, start, self.now, -1, 0, 0))
        if self.world.controller is not None:
            self.world.controller.took(round, r, self.now - start, loaded(effect))
        self._resume(r, self.arithmetic.compute(r, effect))

    def _decode(self, r: int, rank: _Rank, effect: Decode) -> Any:
        if self.world.decode_rate is None:
            return None
        end = self.now + effect.floats / self.world.decode_rate
        round = max(rank.floor.values(), default=1) - 1
        self.log((round, r, "decode", self.now, self.now, end, -1, 0, 0))
        self._at(end, TIMER, self._wake, (r, rank.ticket, None))
        return _BLOCKED

    def _die(self, r: int, rank: _Rank) -> Any:
        rank.alive = False
        rank.done = True
        parent = int(self.plan.parent[r])
        if parent >= 0:
            self.ready.append((parent, Message(r, PEER_LOST, 0, 0, None), self.now, 0))
        elif self.plan.committers != (0,):
            raise QuorumLost(parent, self.world.deaths[r], [r])
        return _BLOCKED

    # ---------------------------------------------------------------- messages

    def _send(self, r: int, rank: _Rank, effect: Send) -> Any:
        floats = self.world.floats if effect.floats is None else effect.floats
        message = Message(r, effect.kind, effect.round, effect.number, effect.value)
        targets = (effect.to,) if isinstance(effect.to, int) else effect.to
        if effect.kind == MODEL:
            self._send_down(targets, message, floats)
            return None
        delay = self.latency
        if not self.instant:
            share = floats / self.world.floats if effect.share is None else effect.share
            delay += self._sending(r, effect.round if effect.draw is None else effect.draw, share)
        for to in targets:
            args = to, message, self.now, floats
            if delay:
                self._at(self.now + delay, ARRIVED, self._arrive, args)
            elif self.due is None:
                self._arrive(*args)
            else:
                self.serial += 1
                heappush(self.due, self.event_order((self.now, self.serial, ARRIVED, self._arrive, args)))
        return None

    def _send_down(self, targets: Iterable[int], message: Message, floats: int) -> None:
        """What comes from above has a way of its own: it never queues behind what comes from below."""
        link = self.world.link
        if not link.downloads:
            self.ready.extend((to, message, self.now, floats) for to in targets)
            return
        if to := tuple(targets):
            arrives = self.now + link.latency + link.transfer(floats)
            self._at(arrives, MODEL_ARRIVED, self._deliver_all, (message.src, to, message, self.now, floats))

    def _deliver_all(
        self, r: int, targets: tuple[int, ...], message: Message, sent: float, floats: int
    ) -> None:
        """What a node has told others."""
        self.ready.extend((to, message, sent, floats) for to in targets)

    def _sending(self, r: int, round: int, share: float) -> float:
        key = (round, share)
        if key not in self.sending:
            if len(self.sending) > 16:
                self.sending.clear()
            seconds = self.world.delays.sending(round, share)
            self.sending[key] = None if seconds is None else seconds.tolist()
        table = self.sending[key]
        return 0.0 if table is None else table[r - 1]

    def _arrive(self, to: int, message: Message, sent: float, floats: int) -> None:
        rank = self.ranks[to]
        if rank.port is not None:
            rank.queue.append((message, sent, floats))
        elif message.round < rank.floor.get(message.kind, 0):
            self._drop(to, message, sent, floats)
        else:
            self._transfer(to, rank, message, sent, floats)

    def _transfer(self, to: int, rank: _Rank, message: Message, sent: float, floats: int) -> None:
        seconds = self.transfers.get(floats)
        if seconds is None:
            seconds = self.transfers[floats] = self.world.link.transfer(floats)
        if seconds == 0.0:
            self.ready.append((to, message, sent, floats))
            return
        rank.port = current = (message, sent, floats, self.now)
        self._at(self.now + seconds, TRANSFERRED, self._transferred, (to, current))

    def _transferred(self, to: int, current: tuple[Message, float, int, float]) -> None:
        rank = self.ranks[to]
        if rank.port is not current:
            return  # cut off: its round was over
        message, sent, floats, begun = current
        rank.port = None
        self._deliver(to, message, sent, floats, begun)
        self._next_transfer(to, rank)

    def _next_transfer(self, to: int, rank: _Rank) -> None:
        rank.port = None
        while rank.queue and rank.port is None:
            message, sent, floats = rank.queue.popleft()
            if message.round < rank.floor.get(message.kind, 0):
                self._drop(to, message, sent, floats)
            else:
                self._transfer(to, rank, message, sent, floats)

    def _deliver(
        self, to: int, message: Message, sent: float, floats: int, begun: float | None = None
    ) -> None:
        rank, kind, round = self.ranks[to], message.kind, message.round
        if round < rank.floor.get(kind, 0) or not rank.alive:
            self._drop(to, message, sent, floats)
            return
        begun = self.now if begun is None else begun
        self._count(to, message, sent, floats, begun)
        if self.world.controller is not None and to == 0 and kind != PEER_LOST:
            self.world.controller.received(message.src, floats / self.world.floats, sent, begun, self.now)
        if rank.waits is not None and round >= rank.waits.get(kind, round + 1):
            rank.ticket += 1
            rank.waits = None
            self._resume(to, message)
            return
        rank.inbox.append((message,))
        if rank.unless is not None and round >= rank.unless.get(kind, round + 1):
            rank.ticket += 1
            rank.unless = None
            self._resume(to, None)

    def _count(self, to: int, message: Message, sent: float, floats: int, begun: float) -> None:
        if message.kind == PEER_LOST or (message.kind == MODEL and message.round > self.last):
            return
        line, round = self.line, message.round if message.round < self.last else self.last
        line.handled += 2  # a send and its receipt
        if message.kind == MODEL:
            line.downloads[round] += floats > 0  # without one it is a mere word: stop, or the end
        else:
            line.messages[round] += 1
            line.bytes[round] += self.width * floats
        self.log((round, message.src, "send", sent, begun, self.now, to, self.width * floats, 1))

    def _drop(self, to: int, message: Message, sent: float, floats: int) -> None:
        if message.kind not in (MODEL, PEER_LOST):
            self.line.handled += 1
            round = min(message.round, self.last)
            self.line.stale[round] += 1
            size = self.width * floats
            self.log((round, message.src, "drop", sent, self.now, self.now, to, size, 1))

    def _recv(self, r: int, rank: _Rank, effect: Recv) -> Any:
        inbox = rank.inbox
        if inbox and (i := inbox.find(effect.match)) is not None:
            (message,) = inbox.pop(i)
            while effect.latest and (i := inbox.find(effect.match)) is not None:
                (message,) = inbox.pop(i)
            return message
        if effect.until is not None:
            if effect.until * REL_TOL < self.now:
                return None
            self._at(max(effect.until, self.now), TIMER, self._wake, (r, rank.ticket, None))
        rank.waits = effect.match
        return _BLOCKED

    def _close(self, r: int, rank: _Rank, effect: Close) -> Any:
        kind, round = effect
        for (message,) in rank.inbox.close(kind, round):
            self._drop(r, message, self.now, 0)
        if rank.port is not None and rank.port[0].kind == kind and rank.port[0].round < round:
            message, sent, floats, _ = rank.port
            self._drop(r, message, sent, floats)
            self._next_transfer(r, rank)
        return None

    # ---------------------------------------------------------------- all-reduce and commit

    def _all_reduce(self, r: int, rank: _Rank, effect: AllReduce) -> Any:
        entered = self.entries.setdefault(effect.round, {})
        entered[r] = (self.now, effect.value)
        if len(entered) == self.plan.workers:
            self._ring(effect.round, self.entries.pop(effect.round))
        return _BLOCKED

    def _ring(self, round: int, entered: dict[int, tuple[float, Any]]) -> None:
        order = sorted(entered)
        entry = np.array([entered[r][0] for r in order])
        finish, self.port_free = ring_finish(entry, self.port_free, self.world.floats, self.world.link)
        total = self.arithmetic.ring_sum([entered[r][1] for r in order])
        n = len(order)
        steps, size = 2 * (n - 1), self.world.floats * self.width
        sent = [bytes_sent(self.world.floats, n, i, self.width) for i in range(n)]
        self.line.messages[round] += n * steps
        self.line.bytes[round] += steps * size
        self.line.handled += 2 * n * steps
        for i, r in enumerate(order):
            end = float(finish[i])
            start = float(entry[i])
            self.log((round, r, "send", start, start, end, order[(i + 1) % n], sent[i], steps))
            self._at(end, TIMER, self._wake, (r, self.ranks[r].ticket, total))

    def _commit(self, r: int, rank: _Rank, effect: Commit) -> Any:
        model, residual = self.arithmetic.commit(effect.round, effect.gradient, effect.residual)
        self.log((effect.round, r, "commit", self.now, self.now, self.now, -1, 0, 0))
        self.committed[effect.round] += 1
        if self.committed[effect.round] == len(self.plan.committers):
            self.line.times.append(self.now)
            self.line.residuals.append(residual)
            if self.world.watch:
                self.world.watch(self.line)
        return model

    def _stalled(self) -> RunError:
        round = len(self.line.times)
        dead = [r for r, rank in enumerate(self.ranks) if not rank.alive]
        blocked = [r for r, rank in enumerate(self.ranks) if not rank.done]
        waiting = f"ranks {_some(blocked)} wait; dead: {_some(dead)}"
        return Deadlock(round, waiting)


def _some(ranks: list[int]) -> str:
    text = ", ".join(map(str, ranks[:8]))
    return (text + ", ..." if len(ranks) > 8 else text) or "none"


class _Blocked:
    """The answer that is not one: the node waits for an event."""


_BLOCKED = _Blocked()
