"""MPI engine: one rank of a real run executes one node's program.

The programs are those of the virtual clock, with real vectors, messages and times. Drawn times (computing, links) can
be added to the real ones:

* emulate = "all": messages contain the time at which they would be at the receiver's port on the emulated link, and
  are held back until then. A node's own clock follows those times, so the machine's own time for passing messages is
  hidden in the waits, if these are long enough. Otherwise the node is late, by at most `NodeClock.slack`, and its
  clock is then set forward. A relay sleeps for the rest of its drawn time after really computing. A leaf sends ahead
  (`lookahead`).
* emulate = "delays": only computing times are drawn, and every node sleeps for them. Messages take their real time.
* emulate = "nothing": a real cluster as it is.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator
from functools import partial
from typing import Any

import numpy as np

from workbench.core.contract.protocol import (
    ABS_TOL,
    MODEL,
    NO_RANK,
    PEER_LOST,
    AllReduce,
    Close,
    Commit,
    Compute,
    Crash,
    Decode,
    Hold,
    Message,
    Node,
    Program,
    Recv,
    Send,
)
from workbench.core.contract.ring import ring_steps
from workbench.core.engine.user_errors import program_of, reraise_as_user_error
from workbench.mpi.engine import polling
from workbench.mpi.engine.computing import Computing
from workbench.mpi.engine.mailbox import Mailbox
from workbench.mpi.engine.setup import NodeClock, RankContext, Setup
from workbench.mpi.engine.wire import Envelope, named

# max share of the time to a deadline by which a slow machine may be late; above it, the deadline moves (`_patience`)
MAX_HIDDEN_SHARE = 0.5


class RankEngine:
    """Interpreter of one node's program, with one method for each effect."""

    def __init__(self, setup: Setup, context: RankContext) -> None:
        self.setup, self.context, self.rank = setup, context, context.rank
        self.transport, self.learner, self.ledger = context.transport, context.learner, context.ledger
        # answers that the program has received, in order: round, rank, number
        self.answers: list[tuple[int, int, int]] = []
        # number of answers of each worker that the program has received, if workers count their own steps
        self.steps = np.zeros(0, dtype=np.int64)
        if setup.scheme.self_paced:
            self.steps = np.array([setup.step_of(worker) for worker in range(1, setup.plan.ranks)])
        self.emulated = setup.emulate == "all"
        self.clock = NodeClock(self.emulated, setup.first)
        self.mailbox = Mailbox(setup, context, self.clock)
        self.computing = Computing(setup, self.learner, self.mailbox, self.clock)
        self.ledger.used = time.process_time()
        # Time at which the newest model was sent, and the node's delay behind its clock then, s.
        self.begun = self.clock.now, 0.0
        # slices of the explicit ring that arrived before their turn
        self.slices: dict[tuple[int, int], Any] = {}
        self.handlers: dict[type, Callable[[Any], Any]] = {
            Compute: self.computing.compute,
            Send: self._send,
            Recv: self._recv,
            Close: self._close,
            Decode: self._decode,
            AllReduce: self._all_reduce,
            Commit: self._commit,
            Hold: self._hold,
            Crash: self._crash,
        }
        # Created here, so that its preparations do not slow down the first round
        self.program = self._program()
        if self.computing.times is not None and self.rank > 0:
            self.computing.times.draw(setup.step_of(self.rank))

    def _program(self) -> Program:
        setup, learner = self.setup, self.learner
        node = Node(
            rank=self.rank,
            plan=setup.plan,
            rounds=setup.rounds,
            floats=setup.floats,
            model=learner.start(),
            clock=self.clock.elapsed,
            smoothness=learner.smoothness,
            constant=learner.constant,
            l2=learner.l2,
            first=setup.first,
            sampler=learner.sampler,
            step=setup.step_of(self.rank),
        )
        return program_of(setup.scheme, node, setup.faults)

    def run(self, zero: float) -> None:
        """Execute the whole program. `zero`: beginning of the run on the machine's clock, s."""
        self.clock.start(zero)
        try:
            self.drive(self.program)
        finally:
            self.computing.resolve_lookahead(time.monotonic())  # for work whose drawn time is not over
            self.mailbox.run_deferred()

    def drive(self, program: Generator[Any, Any, Any]) -> Any:
        """Execute the effects of a program until it ends. Return its return value."""
        answer = None
        try:
            while True:
                effect = program.send(answer)
                answer = self.handlers[type(effect)](effect)
        except StopIteration as end:
            return end.value
        except Exception as error:
            reraise_as_user_error(error, self.setup.scheme, self.rank, self.clock.round)
            raise

    def _recv(self, effect: Recv) -> Message | None:
        match, until, end, mailbox, clock = effect.match, math.inf, math.inf, self.mailbox, self.clock
        if effect.until is not None:  # rounded up, so that the node's clock is not before the time afterwards
            until = max(math.nextafter(clock.zero + effect.until, math.inf), clock.now)
            end = self._patience(until)
        limit = until + ABS_TOL  # a message that arrives exactly at a deadline counts as before it
        if (place := mailbox.find(match, limit)) is None:
            check = partial(mailbox.find, match, limit)
            gathers = not mailbox.wakeable and any(kind not in (MODEL, PEER_LOST) for kind in match)
            place = mailbox.poll(check, polling.GATHER if gathers else mailbox.idle_interval, end)
            if place is None and mailbox.port is not None:
                place = mailbox.overdue(check, mailbox.port, until + clock.slack)
            if place is None:
                clock.advance(until)
                # with several versions, the answers do not show where rounds end, so deadlines are logged
                if self.setup.plan.versions > 1:
                    self.answers.append((clock.round, NO_RANK, 0))
                return None
        message, through = mailbox.take(place)
        self.computing.resolve_lookahead(through)
        while effect.latest and (place := mailbox.newer(match)) is not None:
            message, through = mailbox.take(place)
        src, kind, round, number, _ = message
        if kind != PEER_LOST:
            clock.reach_round(round)
        if kind not in (MODEL, PEER_LOST):
            self.answers.append((round, src, number))
            if len(self.steps):
                self.steps[src - 1] += 1
        clock.advance(through)
        return message

    def _patience(self, until: float) -> float:
        """Return the time at which polling for a deadline ends, on the machine's clock, s.

        On a slow machine, the model is sent later than the node's clock shows. If this delay is more than
        `MAX_HIDDEN_SHARE` of the time to the deadline, workers have hardly any time to answer. The deadline is then
        moved by the delay, so that the round lasts as long as on the virtual clock.
        """
        start, behind = self.begun
        return until + behind if behind > MAX_HIDDEN_SHARE * (until - start) else until

    def _note(self) -> None:
        """Pass on the answers that the program took, for the replay of the run."""
        if self.answers:
            self.context.arrived(self.answers)
            self.answers = []

    def _close(self, effect: Close) -> None:
        self._note()
        self.mailbox.close(effect)

    def _send(self, effect: Send) -> None:
        to, kind, round, value, floats, number, _, _, every = effect
        clock, floats = self.clock, self.setup.floats if floats is None else floats
        if kind == MODEL:  # the model begins a round
            clock.advance(clock.now)
            self.begun = clock.now, time.monotonic() - clock.now
        sent = clock.sending_time()
        to = (to,) if isinstance(to, int) else to
        if kind == MODEL and value is not None:
            clock.reach_round(round)
        for arrives, ranks in self._arrivals(effect, sent, tuple(to), floats):
            if kind == MODEL and self.mailbox.port is not None:
                self.mailbox.port.sent_down(round, arrives, ranks)
            header = (0, round, self.rank, number, 0, floats, sent, arrives, kind)
            newest = kind == MODEL and not every
            self.transport.send(ranks, named(Envelope, header), value, newest=newest)

    def _arrivals(
        self, effect: Send, sent: float, to: tuple[int, ...], floats: int
    ) -> list[tuple[float, tuple[int, ...]]]:
        """Return when a message arrives, and at which ranks: at their ports, or for a model at the ranks themselves."""
        if not self.emulated or not to:
            return [(sent, to)]
        if effect.kind == MODEL:
            setup = self.setup
            drawn = setup.delays.receiving(effect.round)
            return setup.link.model_arrivals(sent, floats, to, setup.plan.workers, drawn)
        return [(sent + self._transit(effect, floats), to)]

    def _transit(self, effect: Send, floats: int) -> float:
        """Return the seconds until an answer is at the receiver's port."""
        setup, link = self.setup, self.setup.link
        share = floats / setup.floats if effect.share is None else effect.share
        draw = effect.round if effect.draw is None else effect.draw
        sending = setup.delays.sending(draw, share) if self.rank else None
        return link.latency + (0.0 if sending is None else float(sending[self.rank - 1]))

    def _hold(self, effect: Hold) -> None:
        clock = self.clock
        clock.reach_round(effect.round)
        start = clock.sending_time()
        end = start + effect.seconds
        self.ledger.log(effect.round, self.rank, "fault", start, start, end, -1, 0, 0)
        if effect.seconds:
            self.mailbox.sleep_until(end)
            clock.advance(end)

    def _crash(self, effect: Crash) -> None:
        self.context.crash(effect.how)

    def _decode(self, effect: Decode) -> None:
        if self.setup.decode_rate is not None and self.emulated:
            clock = self.clock
            start, end = clock.now, clock.now + effect.floats / self.setup.decode_rate
            self.mailbox.sleep_until(end)
            clock.advance(end)
            self.ledger.log(clock.round, self.rank, "decode", start, start, clock.now, -1, 0, 0)

    def _all_reduce(self, effect: AllReduce) -> Any:
        if effect.algorithm == "ring":
            node = Node(self.rank, self.setup.plan, self.setup.rounds, self.setup.floats, None, lambda: 0.0)
            return self.drive(ring_steps(node, effect.value, effect.round, self.slices))
        assert self.context.reduce is not None
        return self.context.reduce(self, effect)

    def _commit(self, effect: Commit) -> Any:
        self._note()
        self.mailbox.run_deferred()  # deferred work may need the current model
        gradient, round, residual, share = effect
        model, residual = self.learner.commit(round, gradient, residual, share)
        # recorded while this node waits, so that the next model is not delayed
        when = time.monotonic()
        self.mailbox.defer(self._record_commit, round, when, time.process_time(), residual)
        self.context.committed(round, residual, when)
        return model

    def _record_commit(self, round: int, when: float, used: float, residual: float) -> None:
        self.ledger.commit(round, when, residual)
        self.ledger.log(round, self.rank, "commit", when, when, when, -1, 0, 0)
        self.ledger.spent(round, used)
