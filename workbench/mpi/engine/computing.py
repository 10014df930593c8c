"""Real computations, each followed by a wait until its drawn time is over."""

from __future__ import annotations

import math
import time
from typing import Any

from workbench.core.contract.protocol import Compute, Match
from workbench.core.engine.compute_times import ComputeTimes, loaded
from workbench.mpi.engine.learner import Learner
from workbench.mpi.engine.lookahead import LookaheadWork, lookahead_ranks
from workbench.mpi.engine.mailbox import Mailbox
from workbench.mpi.engine.setup import NodeClock, Setup

# a computation counts as overrun if it exceeds its drawn time by more than this, s
OVERRUN_TOLERANCE_S = 1e-4


class Computing:
    """Computations of one rank. They take the drawn time, and are abandoned if a message makes them useless."""

    def __init__(self, setup: Setup, learner: Learner, mailbox: Mailbox, clock: NodeClock) -> None:
        self.rank, self.rounds = mailbox.rank, setup.rounds
        self.learner, self.ledger, self.mailbox, self.clock = learner, mailbox.ledger, mailbox, clock
        draws = setup.emulate != "nothing"
        self.times = ComputeTimes(setup.scheme, setup.plan, setup.delays) if draws else None
        ahead = clock.emulated and self.rank in lookahead_ranks(setup.scheme, setup.plan)
        self.lookahead = LookaheadWork(self.ledger) if ahead else None

    def compute(self, effect: Compute) -> Any:
        """Return the value, or None if the work was abandoned."""
        ledger, clock, times = self.ledger, self.clock, self.times
        clock.reach_round(effect.round)
        if self._given_up(effect.unless):
            return None
        samples = self.learner.samples_of(effect)
        start = clock.sending_time()
        end = start if times is None else times.end(start, self.rank, effect)
        if effect.slowdown != 1.0:
            end = start + effect.slowdown * (end - start)
        if self.lookahead is not None and effect.unless is not None:
            return self._look_ahead(self.lookahead, effect, samples, start, end)
        ledger.add("started", min(effect.round, self.rounds - 1), samples)
        value = self._compute_real(effect)
        timed = times is not None or effect.slowdown > 1.0
        if times is None:
            end = start + effect.slowdown * (time.monotonic() - start)
        if value is None or (timed and self.cut(effect, end)):
            ledger.add("abandoned", effect.round)
            return None
        clock.advance(end)
        self.mailbox.defer(ledger.computed, effect.round, samples, loaded(effect), start, clock.now)
        return value

    def _look_ahead(self, work: LookaheadWork, effect: Compute, count: int, start: float, end: float) -> Any:
        """Compute, and continue as if the drawn time were over (see `lookahead`)."""
        value = self._compute_real(effect)
        if value is None:
            work.add(effect.round, count, loaded(effect), start, math.inf)
            return None
        overrun = time.monotonic() > end + OVERRUN_TOLERANCE_S
        self.clock.advance(end)
        work.add(effect.round, count, loaded(effect), start, self.clock.now, overrun)
        return value

    def resolve_lookahead(self, moment: float) -> None:
        """Record a leaf's lookahead work up to `moment`, and set the node's clock back to it.

        `moment`: time at which a newer model arrived or the run ended, s.
        """
        if self.lookahead is not None and self.lookahead.work:
            self.lookahead.resolve(moment)
            self.clock.now = min(self.clock.now, moment)

    def cut(self, effect: Compute, end: float) -> bool:
        """Sleep until the drawn time is over. Return whether a message ended it early."""
        now = time.monotonic()
        if now > end + OVERRUN_TOLERANCE_S:
            self.ledger.add("overrun", effect.round)

        def overtaken() -> bool | None:
            return self.mailbox.find(effect.unless or {}, end) is not None or None

        return now < end and bool(self.mailbox.wait(overtaken, self.mailbox.timer_interval, end))

    def _compute_real(self, effect: Compute) -> Any:
        """Return the value, or None if the work is abandoned at the border of a part."""
        value, used = None, time.process_time()
        for value in self.learner.steps(self.rank, effect):
            if self._given_up(effect.unless):
                value = None
                break
        now = time.process_time()
        self.mailbox.defer(self.ledger.spent, effect.round, now, now - used)
        return value

    def _given_up(self, unless: Match | None) -> bool:
        """Return whether a message has made the work useless."""
        mailbox = self.mailbox
        mailbox.poll_if_stale()
        return unless is not None and bool(mailbox.inbox or mailbox.port) and mailbox.find(unless) is not None
