"""Messages on the virtual clock: links, ports and inboxes.

A receiver's port takes one message at a time (see `links`). A message of a closed round is dropped and counted once it
is the first in the queue of the port. It takes no port time, because its header is enough to refuse it.
"""

from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Iterable
from heapq import heappush
from typing import Any

from workbench.core.contract.adaptive import AdaptiveController
from workbench.core.contract.delays import DelayStream
from workbench.core.contract.links import Link
from workbench.core.contract.plan import Plan
from workbench.core.contract.protocol import MODEL, PEER_LOST, REL_TOL, Close, Match, Message, Recv, Send
from workbench.core.engine.inbox import Inbox
from workbench.core.engine.timeline import Timeline
from workbench.core.engine.virtual.event_order import ARRIVED, MODEL_ARRIVED, TIMER, TRANSFERRED
from workbench.core.engine.virtual.loop import EventLoop


class Blocked:
    """Type of `BLOCKED`, the result of a handler if the node waits for an event."""


BLOCKED = Blocked()


class RankState:
    """State of one node: its program, its inbox and its port."""

    __slots__ = ("alive", "done", "floor", "inbox", "port", "queue", "resume", "ticket", "unless", "waits")

    def __init__(self, resume: Callable[[Any], Any]) -> None:
        self.resume = resume
        self.inbox = Inbox()
        self.floor = self.inbox.floor
        # messages that wait at the port: message, sent at, floats
        self.queue: deque[tuple[Message, float, int]] = deque()
        # in transfer: message, sent at, floats, begun at
        self.port: tuple[Message, float, int, float] | None = None
        self.waits: Match | None = None  # the match of a blocked Recv
        self.unless: Match | None = None  # the match that ends a running Compute
        self.ticket = 0  # events with an older ticket are ignored
        self.done = False
        self.alive = True


class Network(EventLoop):
    """Event loop with nodes that send and receive messages."""

    ranks: list[RankState]

    def __init__(
        self,
        plan: Plan,
        delays: DelayStream,
        link: Link,
        floats: int,
        timeline: Timeline,
        *,
        last: int,
        record: bool,
        start: float,
        controller: AdaptiveController | None,
    ) -> None:
        super().__init__(plan, delays, start)
        self.delays, self.link, self.floats, self.controller = delays, link, floats, controller
        # `last`: last round, in which messages of later rounds are counted
        self.timeline, self.last = timeline, last
        self.log = timeline.events.append if record else (lambda row: None)
        self.latency, self.width = link.latency, link.width
        # neither the delay model nor the links add sending time
        self.instant = delays.sending(0, 1.0) is None
        self.differ = bool(link.groups)  # links differ by worker
        self.ports = link.bandwidth is not None or self.differ  # whether a transfer may take time
        self.overtakes = delays.download is not None  # a model may arrive after a newer one
        # floats, sender (0: any) -> seconds of the transfer
        self.transfers: dict[tuple[int, int], float] = {}
        self.sending: dict[tuple[int, float], list[float] | None] = {}  # (round, share) -> seconds per worker

    @abstractmethod
    def _resume(self, r: int, answer: Any) -> None:
        """Continue a node's program with the result of its effect."""

    def _wake(self, r: int, ticket: int, answer: Any) -> None:
        rank = self.ranks[r]
        if rank.ticket == ticket:
            rank.ticket += 1
            rank.waits = None
            self._resume(r, answer)

    def _send(self, r: int, rank: RankState, effect: Send) -> Any:
        # to unpack a named tuple takes less time than to read a few of its fields
        to, kind, round, value, floats, number, share, draw, _ = effect
        floats = self.floats if floats is None else floats
        message = tuple.__new__(Message, (r, kind, round, number, value))  # without a call of Python code
        targets = (to,) if isinstance(to, int) else to
        if kind == MODEL:
            self._send_down(targets, message, floats)
            return None
        delay = self.latency
        if not self.instant:
            share = floats / self.floats if share is None else share
            delay += self._sending(r, round if draw is None else draw, share)
        for to in targets:
            args = to, message, self.now, floats
            if delay:
                self._at(self.now + delay, ARRIVED, self._arrive, args)
            elif self.due is None:
                self._arrive(to, message, self.now, floats)  # a call with * takes longer
            else:
                self.serial += 1
                heappush(self.due, self.event_order((self.now, self.serial, ARRIVED, self._arrive, args)))
        return None

    def _send_down(self, targets: Iterable[int], message: Message, floats: int) -> None:
        """Send a model to children. It does not pass their ports, and so never waits behind answers."""
        link = self.link
        if not link.downloads:
            self.ready.extend([(to, message, self.now, floats) for to in targets])
            return
        to = tuple(targets)
        drawn = self.delays.receiving(message.round)
        for arrives, same in (
            link.model_arrivals(self.now, floats, to, self.plan.workers, drawn) if to else ()
        ):
            self._at(
                arrives, MODEL_ARRIVED, self._deliver_all, (message.src, same, message, self.now, floats)
            )

    def _deliver_all(
        self, r: int, targets: tuple[int, ...], message: Message, sent: float, floats: int
    ) -> None:
        """Deliver a model to the receivers that it reaches at this time."""
        self.ready.extend((to, message, sent, floats) for to in targets)

    def _sending(self, r: int, round: int, share: float) -> float:
        key = (round, share)
        if key not in self.sending:
            if len(self.sending) > 16:
                self.sending.clear()
            seconds = self.delays.sending(round, share)
            self.sending[key] = None if seconds is None else seconds.tolist()
        table = self.sending[key]
        return 0.0 if table is None else table[r - 1]

    def _arrive(self, to: int, message: Message, sent: float, floats: int) -> None:
        rank = self.ranks[to]
        _, kind, round, _, _ = message
        if rank.port is not None:
            rank.queue.append((message, sent, floats))
        elif round < rank.floor.get(kind, 0):
            self._drop(to, message, sent, floats)
        elif self.ports:
            self._transfer(to, rank, message, sent, floats)
        else:
            self.ready.append((to, message, sent, floats))

    def _transfer(self, to: int, rank: RankState, message: Message, sent: float, floats: int) -> None:
        key = floats, message.src if self.differ else 0
        seconds = self.transfers.get(key)
        if seconds is None:
            seconds = self.transfers[key] = self.link.transfer(floats, message.src)
        if seconds == 0.0:
            self.ready.append((to, message, sent, floats))
            return
        rank.port = current = (message, sent, floats, self.now)
        self._at(self.now + seconds, TRANSFERRED, self._transferred, (to, current))

    def _transferred(self, to: int, current: tuple[Message, float, int, float]) -> None:
        rank = self.ranks[to]
        if rank.port is not current:
            return  # the transfer was cancelled, because its round had been closed
        message, sent, floats, begun = current
        rank.port = None
        self._deliver(to, message, sent, floats, begun)
        self._next_transfer(to, rank)

    def _next_transfer(self, to: int, rank: RankState) -> None:
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
        rank = self.ranks[to]
        src, kind, round, _, _ = message
        if round < rank.floor.get(kind, 0) or not rank.alive:
            self._drop(to, message, sent, floats)
            return
        begun = self.now if begun is None else begun
        if self.overtakes and kind == MODEL:
            rank.floor[MODEL] = round
        if kind != PEER_LOST and (kind != MODEL or round <= self.last):
            line, size = self.timeline, self.width * floats
            row = round if round < self.last else self.last
            line.handled += 2  # a send and its receipt
            if kind == MODEL:
                # a message without floats is not a model, but a stop or the end
                line.downloads[row] += floats > 0
            else:
                line.messages[row] += 1
                line.bytes[row] += size
            self.log((row, src, "send", sent, begun, self.now, to, size, 1))
            if self.controller is not None and to == 0:
                self.controller.received(src, floats / self.floats, sent, begun, self.now)
        waits = rank.waits
        if waits is not None and kind in waits and round >= waits[kind]:
            rank.ticket += 1
            rank.waits = None
            self._resume(to, message)
            return
        rank.inbox.append((message,))
        if rank.unless is not None and round >= rank.unless.get(kind, round + 1):
            rank.ticket += 1
            rank.unless = None
            self._resume(to, None)

    def _drop(self, to: int, message: Message, sent: float, floats: int) -> None:
        if message.kind not in (MODEL, PEER_LOST):
            self.timeline.handled += 1
            round = min(message.round, self.last)
            self.timeline.stale[round] += 1
            size = self.width * floats
            self.log((round, message.src, "drop", sent, self.now, self.now, to, size, 1))

    def _recv(self, r: int, rank: RankState, effect: Recv) -> Any:
        inbox = rank.inbox
        match, until, latest = effect
        if inbox and (i := inbox.find(match)) is not None:
            (message,) = inbox.pop(i)
            while latest and (i := inbox.find(match)) is not None:
                (message,) = inbox.pop(i)
            return message
        if until is not None:
            if until * REL_TOL < self.now:
                return None
            self._at(max(until, self.now), TIMER, self._wake, (r, rank.ticket, None))
        rank.waits = match
        return BLOCKED

    def _close(self, r: int, rank: RankState, effect: Close) -> Any:
        kind, round = effect
        for (message,) in rank.inbox.close(kind, round):
            self._drop(r, message, self.now, 0)
        if rank.port is not None and rank.port[0].kind == kind and rank.port[0].round < round:
            message, sent, floats, _ = rank.port
            self._drop(r, message, sent, floats)
            self._next_transfer(r, rank)
        return None
