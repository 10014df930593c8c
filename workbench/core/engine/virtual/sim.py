"""Discrete-event engine: programs on a virtual clock.

`loop` handles the events, `network` the messages, and this module the computations of the nodes.
"""

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from heapq import heappush
from typing import Any

import numpy as np

from workbench.core.base.errors import Deadlock, QuorumLost, RunError
from workbench.core.contract.adaptive import AdaptiveController
from workbench.core.contract.delays import DelayStream
from workbench.core.contract.faults import Fault
from workbench.core.contract.links import Link
from workbench.core.contract.plan import Plan
from workbench.core.contract.protocol import (
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
    Recv,
    Send,
)
from workbench.core.contract.ring import bytes_sent, ring_finish
from workbench.core.contract.scheme import Scheme
from workbench.core.engine.compute_times import ComputeTimes, loaded
from workbench.core.engine.timeline import Timeline
from workbench.core.engine.user_errors import note_interrupt, program_of, reraise_as_user_error
from workbench.core.engine.virtual.arithmetic import Arithmetic
from workbench.core.engine.virtual.event_order import COMPUTED, TIMER
from workbench.core.engine.virtual.network import BLOCKED, Network, RankState

MANY_OBJECTS = 100_000  # new objects of a run; a search of fewer takes less than 50 ms


@dataclass(frozen=True)
class SimSetup:
    """Settings of a simulated run, apart from the scheme and its plan."""

    rounds: int
    floats: int  # model size p
    delays: DelayStream
    link: Link
    decode_rate: float | None = None  # speed of decoding, floats/s; None: decoding takes no time
    faults: Sequence[Fault] = ()
    record: bool = True  # store the events
    watch: Callable[[Timeline], None] | None = None  # called after every round; an exception ends the run
    controller: AdaptiveController | None = None  # receives the measured times
    start: float = 0.0  # time at which the run starts, s


def simulate(
    scheme: Scheme, plan: Plan, setup: SimSetup, arithmetic: Arithmetic, timeline: Timeline | None = None
) -> Timeline:
    """Run the programs of all nodes on the virtual clock. Raises `RunError` if the run cannot continue.

    `timeline`: finished rounds of this run, after which it continues.
    """
    # programs make no cyclic garbage, and the search for it would take a third of the time
    with _uncollected():
        return _Simulation(scheme, plan, setup, arithmetic, timeline or Timeline()).run()


@contextmanager
def _uncollected() -> Iterator[None]:
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            if gc.get_count()[0] > MANY_OBJECTS and not gc.get_freeze_count():
                gc.freeze()  # these two calls make all objects old ones, so that the next search skips the events
                gc.unfreeze()
            gc.enable()


class _Simulation(Network):
    """Programs on the virtual clock: computing, decoding, all-reduce and commits."""

    def __init__(
        self, scheme: Scheme, plan: Plan, setup: SimSetup, arithmetic: Arithmetic, timeline: Timeline
    ) -> None:
        first = len(timeline.times)
        if not first:
            timeline.open(setup.rounds)
        super().__init__(
            plan,
            setup.delays,
            setup.link,
            setup.floats,
            timeline,
            last=setup.rounds - 1,
            record=setup.record,
            start=setup.start,
            controller=setup.controller,
        )
        self.scheme, self.setup, self.arithmetic = scheme, setup, arithmetic
        self.committed = [0] * setup.rounds
        self.entries: dict[int, dict[int, tuple[float, Any]]] = {}
        self.port_free = np.full(plan.workers, setup.start)
        self.compute_times = ComputeTimes(scheme, plan, setup.delays)
        self.samples_of, self.mini_batches = arithmetic.samples_of, arithmetic.sampler is not None
        model, clock = arithmetic.start(), lambda: self.now
        facts = (arithmetic.smoothness, arithmetic.constant, arithmetic.l2)
        nodes = [
            Node(r, plan, setup.rounds, setup.floats, model, clock, *facts, first, arithmetic.sampler)
            for r in range(plan.ranks)
        ]
        self.ranks = [RankState(program_of(scheme, node, setup.faults).send) for node in nodes]
        self.handlers: dict[type, Callable[[int, RankState, Any], Any]] = {
            Compute: self._compute,
            Send: self._send,
            Recv: self._recv,
            Close: self._close,
            Decode: self._decode,
            AllReduce: self._all_reduce,
            Commit: self._commit,
            Hold: self._hold,
            Crash: self._crash,
        }

    def run(self) -> Timeline:
        """Run all programs to their end."""
        for r in range(self.plan.ranks):
            self._resume(r, None)
        self.loop()
        self.timeline.close()
        return self.timeline

    def _resume(self, r: int, answer: Any) -> None:
        rank, handlers = self.ranks[r], self.handlers
        try:
            while answer is not BLOCKED:
                effect = rank.resume(answer)
                answer = handlers[type(effect)](r, rank, effect)
        except StopIteration:
            rank.done = True
            if r in self.plan.committers:
                self.open -= 1
        except Exception as error:
            reraise_as_user_error(error, self.scheme, r, len(self.timeline.times))
            raise
        except KeyboardInterrupt as error:
            note_interrupt(error, self.scheme, r, len(self.timeline.times))
            raise

    def _compute(self, r: int, rank: RankState, effect: Compute) -> Any:
        work, _, round, unless, batch, _, _, slowdown = effect
        if unless and rank.inbox and rank.inbox.find(unless) is not None:
            return None
        rank.unless = unless
        now, samples = self.now, work.samples  # the most frequent case: a whole load
        if batch or self.mini_batches:
            samples = self.samples_of(effect, r)
        self.timeline.started[round if round < self.last else self.last] += samples
        end = self.compute_times.end(now, r, effect)
        if slowdown != 1.0:
            end = now + slowdown * (end - now)
        self.serial += 1  # as `_at` does, without its call: this is the most frequent event
        args = (r, rank.ticket, effect, now, samples)
        heappush(self.heap, (end, self.serial, COMPUTED, self._computed, args))
        return BLOCKED

    def _computed(self, r: int, ticket: int, effect: Compute, start: float, samples: int) -> None:
        rank = self.ranks[r]
        if rank.ticket != ticket:
            return
        rank.ticket += 1
        rank.unless = None
        timeline, round = self.timeline, effect.round
        if round > self.last:
            round = self.last
        timeline.handled += 1
        timeline.samples[round] += samples
        self.log((round, r, "compute", start, start, self.now, -1, 0, 0))
        if self.controller is not None:
            self.controller.took(round, r, self.now - start, loaded(effect))
        self._resume(r, self.arithmetic.compute(r, effect))

    def _decode(self, r: int, rank: RankState, effect: Decode) -> Any:
        if self.setup.decode_rate is None:
            return None
        end = self.now + effect.floats / self.setup.decode_rate
        round = max(rank.floor.values(), default=1) - 1
        self.log((round, r, "decode", self.now, self.now, end, -1, 0, 0))
        self._at(end, TIMER, self._wake, (r, rank.ticket, None))
        return BLOCKED

    def _hold(self, r: int, rank: RankState, effect: Hold) -> Any:
        end = self.now + effect.seconds
        self.log((effect.round, r, "fault", self.now, self.now, end, -1, 0, 0))
        if not effect.seconds:
            return None
        self._at(end, TIMER, self._wake, (r, rank.ticket, None))
        return BLOCKED

    def _crash(self, r: int, rank: RankState, effect: Crash) -> Any:
        self.log((effect.round, r, "dead", self.now, self.now, self.now, -1, 0, 0))
        rank.alive = False
        rank.done = True
        parent = int(self.plan.parent[r])
        if parent >= 0:
            self.ready.append((parent, Message(r, PEER_LOST, 0, 0, None), self.now, 0))
        elif self.plan.committers != (0,):
            raise QuorumLost(parent, effect.round, [r])
        return BLOCKED

    def _all_reduce(self, r: int, rank: RankState, effect: AllReduce) -> Any:
        entered = self.entries.setdefault(effect.round, {})
        entered[r] = (self.now, effect.value)
        if len(entered) == self.plan.workers:
            self._ring(effect.round, self.entries.pop(effect.round))
        return BLOCKED

    def _ring(self, round: int, entered: dict[int, tuple[float, Any]]) -> None:
        order = sorted(entered)
        entry = np.array([entered[r][0] for r in order])
        transit = self.delays.transit
        extra = None if transit is None else partial(transit, round)
        finish, self.port_free = ring_finish(entry, self.port_free, self.floats, self.link, extra)
        total = self.arithmetic.ring_sum([entered[r][1] for r in order])
        n = len(order)
        steps, size = 2 * (n - 1), self.floats * self.width
        sent = [bytes_sent(self.floats, n, i, self.width) for i in range(n)]
        self.timeline.messages[round] += n * steps
        self.timeline.bytes[round] += steps * size
        self.timeline.handled += 2 * n * steps
        for i, r in enumerate(order):
            end = float(finish[i])
            start = float(entry[i])
            self.log((round, r, "send", start, start, end, order[(i + 1) % n], sent[i], steps))
            self._at(end, TIMER, self._wake, (r, self.ranks[r].ticket, total))

    def _commit(self, r: int, rank: RankState, effect: Commit) -> Any:
        gradient, round, residual, share = effect
        model, residual = self.arithmetic.commit(round, gradient, residual, share)
        self.log((effect.round, r, "commit", self.now, self.now, self.now, -1, 0, 0))
        self.committed[effect.round] += 1
        if self.committed[effect.round] == len(self.plan.committers):
            self.timeline.times.append(self.now)
            self.timeline.residuals.append(residual)
            if self.setup.watch:
                self.setup.watch(self.timeline)
        return model

    def _stalled(self) -> RunError:
        round = len(self.timeline.times)
        dead = [r for r, rank in enumerate(self.ranks) if not rank.alive]
        blocked = [r for r, rank in enumerate(self.ranks) if not rank.done]
        waiting = f"ranks {_some(blocked)} wait; dead: {_some(dead)}"
        return Deadlock(round, waiting)


def _some(ranks: list[int]) -> str:
    text = ", ".join(map(str, ranks[:8]))
    return (text + ", ..." if len(ranks) > 8 else text) or "none"
