"""Mailbox of a rank: messages from the transport pass the port of the emulated link into the inbox of the program.

A rank never blocks. It alternately polls and sleeps, and its sleeps grow while no message arrives.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

from workbench.core.base.errors import QuorumLost
from workbench.core.contract.protocol import MODEL, PEER_LOST, Close, Match, Message
from workbench.core.engine.inbox import Inbox
from workbench.mpi.engine import polling
from workbench.mpi.engine.lookahead import ModelArrivals, lookahead_ranks
from workbench.mpi.engine.ports import Port
from workbench.mpi.engine.setup import NodeClock, RankContext, Setup
from workbench.mpi.engine.wire import named

MAX_DEFERRED = 100  # max number of deferred calls, which a node without waits makes at once
INTERVAL_GROWTH = 1.6  # growth of successive sleeps while no message arrives
# reasons for which a rejected message is only a copy, so that the answer itself may still arrive
LATE_COPIES = ("sent twice", "of another run", "of another sender")


class Mailbox:
    """Mailbox of one rank, and the waiting for messages."""

    def __init__(self, setup: Setup, context: RankContext, clock: NodeClock) -> None:
        self.plan, self.rank, self.clock = setup.plan, context.rank, clock
        self.transport, self.ledger, self.idle = context.transport, context.ledger, context.idle
        self.idle_at = 0.0  # time of the next call of `idle`
        # Entries: message, time at which it passed the port, time of sending, length.
        self.inbox = Inbox()
        self.port: Port | None = None  # None with real links, which need no emulation
        if clock.emulated:
            models = ModelArrivals(lookahead_ranks(setup.scheme, setup.plan))
            self.port = Port(setup.link, self.inbox.late, setup.delays.ties, models)
        self.polled_at = 0.0  # time of the last poll
        self.notified = False  # whether a lost child was reported since the last poll
        self.eager = 0.0  # time of polling before the rank sleeps, s
        self.broken: QuorumLost | None = None  # why the run cannot continue
        self.known_dead: set[int] = set()
        # Work to be done while this node waits, so that it delays no other node
        self.deferred: list[tuple[Callable[..., object], tuple[Any, ...]]] = []
        self.wakeable = self.transport.wakeup.enabled
        self.idle_interval = polling.IDLE_EMULATED if clock.emulated else polling.IDLE
        self.timer_interval = polling.TIMER_EMULATED if clock.emulated else polling.TIMER

    def defer(self, work: Callable[..., object], *arguments: Any) -> None:
        """Call a function while this node waits. It is called at once if this node has not waited for long."""
        self.deferred.append((work, arguments))
        if len(self.deferred) > MAX_DEFERRED:
            self.run_deferred()

    def run_deferred(self) -> None:
        """Run the deferred work, in order."""
        while self.deferred:
            work, arguments = self.deferred.pop(0)
            work(*arguments)

    def wait(self, check: Callable[[], Any], interval: polling.PollInterval, until: float = math.inf) -> Any:
        """Poll until `check` returns something other than None, and return it. Return None at time `until`."""
        answer = check()  # first without a poll, for messages that were received already
        return self.poll(check, interval, until) if answer is None else answer

    def poll(self, check: Callable[[], Any], interval: polling.PollInterval, until: float) -> Any:
        """Poll the transport, then wait as `wait` does."""
        transport, port = self.transport, self.port
        wakeable, sleep = self.wakeable and interval is not polling.COLLECTIVE, interval.min_s
        eager, awake, woken = self.eager, 0.0, False
        while True:
            moved = self.poll_transport(awake)
            if (answer := check()) is not None:
                return answer
            if self.deferred:
                self.run_deferred()
                if not eager:
                    continue
            now = time.monotonic() if awake else self.polled_at
            if now >= until:
                return None
            if eager:
                awake, eager = min(now + eager, until), 0.0
                continue
            awake = 0.0
            if wakeable:  # woken, but the message is not (fully) visible yet: poll again soon
                sleep = polling.WAKEABLE.min_s if woken or transport.needs_polling else polling.WAKEABLE.max_s
            pause = min(sleep, until - now, port.wake() - now) if port else min(sleep, until - now)
            if not (wakeable and moved):
                woken = pause > 0 and transport.wakeup.sleep(pause)
            sleep = interval.min_s if moved else min(sleep * INTERVAL_GROWTH, interval.max_s)

    def sleep_until(self, until: float) -> None:
        """Sleep until a moment. Messages that pass the port meanwhile go to the inbox."""
        self.wait(lambda: self.find({}, until), self.timer_interval, until)

    def poll_transport(self, awake: float = 0.0) -> bool:
        """Receive the messages that have arrived, or that arrive until `awake`. Return whether there are any."""
        self.polled_at = now = time.monotonic()
        if now >= self.idle_at or self.transport.wakeup.control_pending:
            self.idle_at = self.idle()
        letters = self.transport.poll(now, awake)
        if letters and self.port is None:
            now = time.monotonic()  # a message cannot arrive before it was sent
        floor = self.inbox.floor
        for (_, round, sender, number, _, floats, sent, arrives, kind), value in letters:
            message = named(Message, (sender, kind, round, number, value))
            if self.port is not None:
                self.port.put(message, sent, arrives, floats)
            elif round < floor.get(kind, 0):
                self.ledger.received(message, floats, sent, now, now, late=True)
            else:
                self.inbox.append((message, now, sent, floats))
        if len(self.transport.dead) > len(self.known_dead):
            self._mark_dead()
        notified, self.notified = self.notified, False
        if notified and self.broken is not None:
            raise self.broken
        return notified or bool(letters)

    def poll_if_stale(self) -> None:
        """Poll the transport, unless it was polled a moment ago."""
        if time.monotonic() - self.polled_at > polling.POLL_TTL_S:
            self.poll_transport()

    def _mark_dead(self) -> None:
        """Report dead children to the program. A ring ends when any rank dies."""
        for rank in sorted(self.transport.dead - self.known_dead):
            self.known_dead.add(rank)
            parent = int(self.plan.parent[rank])
            if parent == self.rank:
                self.notify_lost(rank, None, 0)
            elif parent < 0 and rank > 0:
                raise QuorumLost(-1, self.clock.round, [rank])

    def notify_lost(self, rank: int, reason: str | None, round: int) -> None:
        """Report that a child will not answer any longer or, with a reason, not in this round."""
        self.notified = True
        message, now = Message(rank, PEER_LOST, round, 0, reason), time.monotonic()
        if self.port is not None:
            self.port.put(message, self.clock.now, self.clock.now, 0)
        else:
            self.inbox.append((message, now, now, 0))

    def refused(self, sender: int, round: int, reason: str) -> None:
        """Report a rejected message as a missing answer, or end the run of a ring."""
        self.ledger.refused(sender, round, reason)
        if reason in LATE_COPIES:
            return
        round = self.clock.round if round < 0 else round
        if int(self.plan.parent[sender]) == self.rank:
            self.notify_lost(sender, reason, round)
        elif self.plan.committers != (0,):  # a ring needs all messages
            self.broken, self.notified = QuorumLost(-1, round, [sender], {sender: reason}), True

    def _take_in(self, port: Port, until: float = math.inf) -> bool:
        """Move one message from the port to the inbox, or drop it. Return False if none has passed the port."""
        got = port.next(min(time.monotonic(), until))
        if got is None:
            return False
        (_, _, message, sent, floats), begun, end, late = got
        self.ledger.received(message, floats, sent, begun, end, late)
        if not late:
            self.inbox.append((message, end, sent, floats))
            if message.kind == MODEL:  # an older model that comes later is dropped
                self.inbox.floor[MODEL] = message.round
        return True

    def find(self, match: Match, until: float = math.inf) -> int | None:
        """Return the index of the first matching message in the inbox, after taking in messages until a time."""
        place = self.inbox.find(match) if self.inbox else None
        while place is None and self.port and self._take_in(self.port, until):
            place = self.inbox.find(match)
        return place

    def newer(self, match: Match) -> int | None:
        """Return the index of the first matching message, after taking in all messages that have passed the port."""
        while self.port and self._take_in(self.port):
            pass
        return self.inbox.find(match) if self.inbox else None

    def overdue(self, check: Callable[[], int | None], port: Port, end: float) -> int | None:
        """Wait for a message that is due, from a rank that sends ahead.

        Such a rank sends before its answer is due. The answer is missing only if a machine is slow.
        """
        self.poll(lambda: check() if port.awaits(self.transport.dead) else -1, self.idle_interval, end)
        return check()

    def take(self, place: int) -> tuple[Message, float]:
        """Remove a message from the inbox. Record it if it came over a real link."""
        message, through, sent, floats = self.inbox.pop(place)
        if self.port is None:
            self.ledger.received(message, floats, sent, through, through)
        return message, through

    def close(self, effect: Close) -> None:
        """Drop the messages that are no longer wanted."""
        now = self.clock.now
        # these messages were received and not used
        for message, through, sent, floats in self.inbox.close(*effect):
            if self.port is None:
                self.ledger.received(message, floats, sent, through, through)
            self.ledger.add("stale", message.round)
            self.ledger.log(message.round, message.src, "drop", now, now, now, self.rank, 0, 1)
        if self.port is not None and (cut := self.port.cut(now)) is not None:
            (_, _, message, sent, floats), begun, end, _ = cut
            self.ledger.received(message, floats, sent, begun, end, late=True)
