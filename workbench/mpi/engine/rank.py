"""MPI engine: one rank of a real run drives one node's program.

The very programs that run on the virtual clock run here, with real vectors, real messages and real time. A rank
never blocks: it polls, and naps in between, the longer the less there is to do. What is drawn (computing times,
links) can be put on top of what really happens:

* emulate = "all": messages carry the time at which they would be at the receiver's port on the emulated link, and are
  held until then. A node's own clock follows those times, so what the machine needs for passing messages is hidden
  behind the waits, where they are long enough. Where they are not, the node is late, by SLACK at most: then its clock
  is set forward. A relay sleeps what is left of its drawn time after really computing, a leaf sends ahead (`ahead`).
* emulate = "delays": computing times only, slept by all; messages take what they take.
* emulate = "nothing": a real cluster as it is.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Protocol

from workbench.core.base.errors import QuorumLost
from workbench.core.contract.delays import DelayStream
from workbench.core.contract.links import Link
from workbench.core.contract.plan import Plan
from workbench.core.contract.protocol import (
    ABS_TOL,
    MODEL,
    NO_RANK,
    PEER_LOST,
    AllReduce,
    Close,
    Commit,
    Compute,
    Decode,
    Match,
    Message,
    Node,
    Program,
    Recv,
    Send,
)
from workbench.core.contract.ring import ring_steps
from workbench.core.contract.scheme import Scheme
from workbench.core.engine.compute_times import ComputeTimes
from workbench.core.engine.inbox import Inbox
from workbench.core.engine.user_errors import program_of, reraise_as_user_error
from workbench.mpi.engine import polling
from workbench.mpi.engine.learner import Learner
from workbench.mpi.engine.ledger import Ledger
from workbench.mpi.engine.lookahead import LookaheadWork, ModelArrivals, lookahead_ranks
from workbench.mpi.engine.ports import Port
from workbench.mpi.engine.wire import Envelope, named

if TYPE_CHECKING:  # a notebook that follows runs needs no MPI: importing it starts it, which takes a second
    from workbench.mpi.engine.transport import Transport

Emulate = Literal["all", "delays", "nothing"]
SLACK = 0.05  # s by which a node's clock may be behind the machine's
HIDDEN = 0.5  # share of a wait that being behind may eat up, or else the wait is given all its time
TOLERANCE = 1e-4  # s after which work counts as longer than drawn
GROWTH = 1.6  # of naps while nothing comes


@dataclass(frozen=True)
class Setup:
    """All that a rank needs for a run besides its own place in it."""

    scheme: Scheme
    plan: Plan
    rounds: int
    floats: int
    delays: DelayStream
    link: Link
    emulate: Emulate = "all"
    decode_rate: float | None = None
    first: int = 0  # round to begin with
    record: bool = True  # keep events
    crashes: Mapping[int, tuple[int, str]] = field(default_factory=dict)  # rank -> round, how it dies


class RankContext(Protocol):
    """What an engine needs of the process that it runs in."""

    rank: int
    transport: Transport
    learner: Learner
    ledger: Ledger

    @property
    def reduce(self) -> Callable[[RankEngine, AllReduce], Any] | None:
        """The MPI library's all-reduce; None where there is none."""

    @property
    def arrived(self) -> Callable[[list[tuple[int, int, int]]], None]:
        """Hears of the answers that the program took."""

    def idle(self) -> float:
        """Called while the node waits, also when rung for a word: may end the run; says when to call it again."""

    def committed(self, round: int, residual: float) -> None:
        """Hear that the node has committed a round."""

    def crash(self, how: str) -> None:
        """Die as a faulty process does."""


class RankEngine:
    """Drives one node's program; all else is its surroundings' business."""

    def __init__(self, setup: Setup, context: RankContext) -> None:
        self.setup, self.context, self.rank = setup, context, context.rank
        self.transport, self.learner, self.ledger = context.transport, context.learner, context.ledger
        self.idle, self.idle_at = context.idle, 0.0  # when to call it next
        self.answers: list[tuple[int, int, int]] = []  # round, rank, number: what the program took, in order
        plan = setup.plan
        self.emulated = setup.emulate == "all"
        draws = setup.emulate != "nothing"
        self.compute_times = ComputeTimes(setup.scheme, plan, setup.delays) if draws else None
        # A message, the time at which it was through the port, when it was sent, and its length.
        self.inbox = Inbox()
        self.port: Port | None = None  # real links have their own
        self.lookahead: LookaheadWork | None = None
        if self.emulated:
            ahead = lookahead_ranks(setup.scheme, plan)
            self.port = Port(setup.link, self.inbox.late, setup.delays.ties, ModelArrivals(ahead))
            self.lookahead = LookaheadWork(self.ledger) if self.rank in ahead else None
        self.pumped = 0.0  # when this rank looked last
        self.heard = False  # word of a child came since
        self.eager = 0.0  # s for which it looks on before it sleeps
        self.ledger.used = time.process_time()
        self.broken: QuorumLost | None = None  # why the run cannot go on
        self.zero = self.logical = time.monotonic()
        self.begun = (self.logical, 0.0)  # when the newest model was sent, and how far behind the node was, s
        self.round = setup.first
        self.known_dead: set[int] = set()
        self.slices: dict[tuple[int, int], Any] = {}  # of the explicit ring, that came before their turn
        self.deferred: list[Callable[[], None]] = []  # what is done when this node waits: nobody waits for it
        self.handlers: dict[type, Callable[[Any], Any]] = {
            Compute: self._compute,
            Send: self._send,
            Recv: self._recv,
            Close: self._close,
            Decode: self._decode,
            AllReduce: self._all_reduce,
            Commit: self._commit,
        }
        self.wakeable = self.transport.wakeup.enabled
        self.idle_interval = polling.IDLE_EMULATED if self.emulated else polling.IDLE
        self.timer_interval = polling.TIMER_EMULATED if self.emulated else polling.TIMER
        self.program = self._program()  # what is made once must not fall into the first round
        if self.compute_times is not None and self.rank > 0:
            self.compute_times.draw(setup.first)

    def _program(self) -> Program:
        setup, learner = self.setup, self.learner
        node = Node(
            rank=self.rank,
            plan=setup.plan,
            rounds=setup.rounds,
            floats=setup.floats,
            model=learner.start(),
            clock=lambda: self.logical - self.zero,
            smoothness=learner.smoothness,
            constant=learner.constant,
            l2=learner.l2,
            first=setup.first,
            batched=learner.sampler is not None,
        )
        return program_of(setup.scheme, node)

    def run(self, zero: float) -> None:
        """Go through the whole program; `zero` is the run's beginning on the machine's clock, s."""
        self.zero = self.logical = zero
        try:
            self.drive(self.program)
        finally:
            self._resolve_lookahead(time.monotonic())  # what is still open
            self.run_deferred()

    def drive(self, program: Generator[Any, Any, Any]) -> Any:
        """Answer a program's effects until it ends; returns what it returns."""
        answer = None
        try:
            while True:
                effect = program.send(answer)
                answer = self.handlers[type(effect)](effect)
        except StopIteration as end:
            return end.value
        except Exception as error:
            reraise_as_user_error(error, self.setup.scheme, self.rank, self.round)
            raise

    def run_deferred(self) -> None:
        """Do what is due, in order."""
        while self.deferred:
            self.deferred.pop(0)()

    def advance_clock(self, moment: float) -> None:
        """The node's clock goes on to `moment`; without emulated links it is the machine's clock."""
        now = time.monotonic()
        self.logical = max(self.logical, moment, now - SLACK) if self.emulated else now

    def wait(self, check: Callable[[], Any], interval: polling.PollInterval, until: float = math.inf) -> Any:
        """Poll until `check` answers something that is not None (that), or until a moment (None)."""
        answer = check()  # what is here already is taken first
        return self._poll(check, interval, until) if answer is None else answer

    def _poll(self, check: Callable[[], Any], interval: polling.PollInterval, until: float) -> Any:
        """As `wait`, with a look at what has come before anything else."""
        post, port = self.transport, self.port
        wakeable, nap = self.wakeable and interval is not polling.COLLECTIVE, interval.min_s
        eager, awake, woken = self.eager, 0.0, False
        while True:
            moved = self._poll_transport(awake)
            if (answer := check()) is not None:
                return answer
            if self.deferred:
                self.run_deferred()
                continue
            now = time.monotonic() if awake else self.pumped
            if now >= until:
                return None
            if eager:
                awake, eager = min(now + eager, until), 0.0
                continue
            awake = 0.0
            if wakeable:  # who was woken for what is not to be seen yet, or not all of it, looks again soon
                nap = polling.WAKEABLE.min_s if woken or post.needs_polling else polling.WAKEABLE.max_s
            pause = min(nap, until - now, port.wake() - now) if port else min(nap, until - now)
            if not (wakeable and moved):
                woken = pause > 0 and post.wakeup.sleep(pause)
            nap = interval.min_s if moved else min(nap * GROWTH, interval.max_s)

    def sleep_until(self, until: float) -> None:
        """Sleep until a moment; what is through the port meanwhile goes to the inbox."""
        self.wait(lambda: self._match({}, until), self.timer_interval, until)

    def _poll_transport(self, awake: float = 0.0) -> bool:
        """Take in what has come, or comes while it looks on; True if something has."""
        self.pumped = now = time.monotonic()
        if now >= self.idle_at or self.transport.wakeup.control_pending:
            self.idle_at = self.idle()
        letters = self.transport.poll(now, awake)
        if letters and not self.emulated:
            now = time.monotonic()  # nothing comes before it was sent
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
        heard, self.heard = self.heard, False
        if heard and self.broken is not None:
            raise self.broken
        return heard or bool(letters)

    def _mark_dead(self) -> None:
        """Tell the program of dead children; a ring ends when anybody dies."""
        for rank in sorted(self.transport.dead - self.known_dead):
            self.known_dead.add(rank)
            parent = int(self.setup.plan.parent[rank])
            if parent == self.rank:
                self.tell_lost(rank, None, 0)
            elif parent < 0 and rank > 0:
                raise QuorumLost(-1, self.round, [rank])

    def tell_lost(self, rank: int, reason: str | None, round: int) -> None:
        """Word of a child that will not answer: for good, or (with a reason) in one round."""
        self.heard = True
        message, now = Message(rank, PEER_LOST, round, 0, reason), time.monotonic()
        if self.port is not None:
            self.port.put(message, self.logical, self.logical, 0)
        else:
            self.inbox.append((message, now, now, 0))

    def refused(self, sender: int, round: int, reason: str) -> None:
        """A message of `sender` was no good. What was sent twice, or for another run, replaces nothing."""
        self.ledger.refused(sender, round, reason)
        if reason in ("sent twice", "of another run", "of another sender"):
            return
        plan, round = self.setup.plan, self.round if round < 0 else round
        if int(plan.parent[sender]) == self.rank:
            self.tell_lost(sender, reason, round)
        elif plan.committers != (0,):  # a ring can do without nobody's
            self.broken, self.heard = QuorumLost(-1, round, [sender], {sender: reason}), True

    def _take_in(self, port: Port, until: float = math.inf) -> bool:
        """Move one message from the port to the inbox, or drop it; False if none is through (by some moment)."""
        got = port.next(min(time.monotonic(), until))
        if got is None:
            return False
        (_, _, message, sent, floats), begun, end, late = got
        self.ledger.received(message, floats, sent, begun, end, late)
        if not late:
            self.inbox.append((message, end, sent, floats))
        return True

    def _match(self, match: Match, until: float = math.inf) -> int | None:
        """Place of the first message in the inbox that matches; takes in what is through until there is one."""
        place = self.inbox.find(match) if self.inbox else None
        while place is None and self.port and self._take_in(self.port, until):
            place = self.inbox.find(match)
        return place

    def _recv(self, effect: Recv) -> Message | None:
        match, until, end = effect.match, math.inf, math.inf
        if effect.until is not None:  # rounded up: the node's clock must not show less afterwards
            until = max(math.nextafter(self.zero + effect.until, math.inf), self.logical)
            end = self._patience(until)
        limit = until + ABS_TOL  # what arrives at the very moment of a bell comes before it
        if (place := self._match(match, limit)) is None:
            check = partial(self._match, match, limit)
            gathers = not self.wakeable and any(kind not in (MODEL, PEER_LOST) for kind in match)
            place = self._poll(check, polling.GATHER if gathers else self.idle_interval, end)
            if place is None and self.port is not None:
                place = self._overdue(check, self.port, until + SLACK)
            if place is None:
                self.advance_clock(until)
                if self.setup.plan.versions > 1:  # whose rounds' ends the answers do not tell
                    self.answers.append((self.round, NO_RANK, 0))
                return None
        message, through = self._taken(place)
        self._resolve_lookahead(through)
        while effect.latest and (place := self._newer(match)) is not None:
            message, through = self._taken(place)
        if message.kind != PEER_LOST:
            self.round = max(self.round, message.round)
        if message.kind not in (MODEL, PEER_LOST):
            self.answers.append((message.round, message.src, message.number))
        self.advance_clock(through)
        return message

    def _patience(self, until: float) -> float:
        """When to stop looking for what has come by a moment: later, where most of the round would else be over.

        A node that was held up (by the disk, by others) sends its next model late. What is asked for by then has to be
        computed all the same: the round lasts as long as on the virtual clock, from its own start.
        """
        start, behind = self.begun
        return until + behind if behind > HIDDEN * (until - start) else until

    def _overdue(self, check: Callable[[], int | None], port: Port, end: float) -> int | None:
        """What was to come by a moment that is over and does not because the machine is late, as far as that shows.

        Who sends ahead is heard of before that, whenever its answer is due, unless it, or this node, was held up.
        """
        self._poll(lambda: check() if port.awaits(self.transport.dead) else -1, self.idle_interval, end)
        return check()

    def _taken(self, place: int) -> tuple[Message, float]:
        """Hand a message of the inbox to the program; what came over a real link is in the books from now on."""
        message, through, sent, floats = self.inbox.pop(place)
        if self.port is None:
            self.ledger.received(message, floats, sent, through, through)
        return message, through

    def _newer(self, match: Match) -> int | None:
        while self.port and self._take_in(self.port):
            pass
        return self.inbox.find(match) if self.inbox else None

    def _note(self) -> None:
        """Hand on what the program took, for those who go through the run again."""
        if self.answers:
            self.context.arrived(self.answers)
            self.answers = []

    def _close(self, effect: Close) -> None:
        self._note()
        for message, through, sent, floats in self.inbox.close(*effect):  # they were received, for nothing
            if self.port is None:
                self.ledger.received(message, floats, sent, through, through)
            now = self.logical
            self.ledger.add("stale", message.round)
            self.ledger.log(message.round, message.src, "drop", now, now, now, self.rank, 0, 1)
        if self.port is not None and (cut := self.port.cut(self.logical)) is not None:
            (_, _, message, sent, floats), begun, end, _ = cut
            self.ledger.received(message, floats, sent, begun, end, late=True)

    def _send(self, effect: Send) -> None:
        floats, kind = self.setup.floats if effect.floats is None else effect.floats, effect.kind
        if kind == MODEL:  # a round begins
            self.advance_clock(self.logical)
            self.begun = self.logical, time.monotonic() - self.logical
        sent = self.logical if self.emulated else time.monotonic()
        to = (effect.to,) if isinstance(effect.to, int) else effect.to
        arrives = sent + self._way(effect, floats) if self.emulated else sent
        if kind == MODEL and effect.value is not None:
            self.round = max(self.round, effect.round)
        if kind == MODEL and self.port is not None:
            self.port.sent_down(effect.round, arrives, to)
        words = named(Envelope, (0, effect.round, self.rank, effect.number, 0, floats, sent, arrives, kind))
        self.transport.send(to, words, effect.value, newest=kind == MODEL and not effect.every)

    def _way(self, effect: Send, floats: int) -> float:
        """Seconds until a message is at the receiver's port, or, of a model, until the receiver has it."""
        setup, link = self.setup, self.setup.link
        if effect.kind == MODEL:
            return link.latency + link.transfer(floats) if link.downloads else 0.0
        share = floats / setup.floats if effect.share is None else effect.share
        draw = effect.round if effect.draw is None else effect.draw
        sending = setup.delays.sending(draw, share) if self.rank else None
        return link.latency + (0.0 if sending is None else float(sending[self.rank - 1]))

    def _compute(self, effect: Compute) -> Any:
        setup, ledger, times = self.setup, self.ledger, self.compute_times
        if self.rank in setup.crashes and effect.round >= setup.crashes[self.rank][0]:
            self.context.crash(setup.crashes[self.rank][1])
        self.round = max(self.round, effect.round)
        if self._given_up(effect.unless):
            return None
        samples = self.learner.samples_of(effect)
        start = self.logical if self.emulated else time.monotonic()
        end = start if times is None else times.end(start, self.rank, effect)
        if self.lookahead is not None and effect.unless is not None:
            return self._look_ahead(self.lookahead, effect, samples, start, end)
        ledger.add("started", min(effect.round, setup.rounds - 1), samples)
        value = self._compute_real(effect)
        if value is None or (times is not None and self._cut(effect, end)):
            ledger.add("abandoned", effect.round)
            return None
        self.advance_clock(end)
        ledger.computed(effect.round, samples, start, self.logical)
        return value

    def _look_ahead(self, work: LookaheadWork, effect: Compute, count: int, start: float, end: float) -> Any:
        """Really compute, then go on as if the drawn time were over already."""
        value = self._compute_real(effect)
        if value is None:
            work.add(effect.round, count, start, math.inf)
            return None
        overrun = time.monotonic() > end + TOLERANCE
        self.advance_clock(end)
        work.add(effect.round, count, start, self.logical, overrun)
        return value

    def _resolve_lookahead(self, moment: float) -> None:
        """A leaf has a newer model: what it has done ahead of that moment, it has not done."""
        if self.lookahead is not None and self.lookahead.work:
            self.lookahead.resolve(moment)
            self.logical = min(self.logical, moment)

    def _cut(self, effect: Compute, end: float) -> bool:
        """Sleep what is left of the drawn time; True if that was cut short."""
        now = time.monotonic()
        if now > end + TOLERANCE:
            self.ledger.add("overrun", effect.round)

        def overtaken() -> bool | None:
            return self._match(effect.unless or {}, end) is not None or None

        return now < end and bool(self.wait(overtaken, self.timer_interval, end))

    def _compute_real(self, effect: Compute) -> Any:
        """The value, or None where it is given up at a part border."""
        value, used = None, time.process_time()
        for value in self.learner.steps(self.rank, effect):
            if self._given_up(effect.unless):
                value = None
                break
        self.ledger.spent(effect.round, used)
        return value

    def _given_up(self, unless: Match | None) -> bool:
        """Is work overtaken? Takes in what has come, unless this rank has looked a moment ago."""
        if time.monotonic() - self.pumped > polling.POLL_TTL_S:
            self._poll_transport()
        return unless is not None and bool(self.inbox or self.port) and self._match(unless) is not None

    def _decode(self, effect: Decode) -> None:
        if self.setup.decode_rate is not None and self.emulated:
            start, end = self.logical, self.logical + effect.floats / self.setup.decode_rate
            self.sleep_until(end)
            self.advance_clock(end)
            self.ledger.log(self.round, self.rank, "decode", start, start, self.logical, -1, 0, 0)

    def _all_reduce(self, effect: AllReduce) -> Any:
        if effect.algorithm == "ring":
            node = Node(self.rank, self.setup.plan, self.setup.rounds, self.setup.floats, None, lambda: 0.0)
            return self.drive(ring_steps(node, effect.value, effect.round, self.slices))
        assert self.context.reduce is not None
        return self.context.reduce(self, effect)

    def _commit(self, effect: Commit) -> Any:
        self._note()
        self.run_deferred()  # it may be about the model as it is
        model, residual = self.learner.commit(effect.round, effect.gradient, effect.residual)
        now = time.monotonic()
        self.ledger.commit(effect.round, now, residual)
        self.ledger.log(effect.round, self.rank, "commit", now, now, now, -1, 0, 0)
        self.context.committed(effect.round, residual)
        self.ledger.spent(effect.round)
        return model
