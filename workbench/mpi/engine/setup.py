"""Inputs of a rank for a run, the context of its process, and the node's clock."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

from workbench.core.contract.delays import DelayStream
from workbench.core.contract.faults import Fault
from workbench.core.contract.links import Link
from workbench.core.contract.plan import Plan
from workbench.core.contract.protocol import AllReduce
from workbench.core.contract.scheme import Scheme
from workbench.mpi.engine.learner import Learner
from workbench.mpi.engine.ledger import Ledger

if TYPE_CHECKING:  # only for types: a notebook that follows runs needs no MPI, whose import takes a second
    from workbench.mpi.engine.transport import Transport

Emulate = Literal["all", "delays", "nothing"]


@dataclass(frozen=True)
class Setup:
    """Scheme, plan, delays and options of a run, which are the same on all ranks."""

    scheme: Scheme
    plan: Plan
    rounds: int
    floats: int
    delays: DelayStream
    link: Link
    emulate: Emulate = "all"
    decode_rate: float | None = None
    first: int = 0  # first round
    # number of the first step of each worker, if workers count their own steps; empty if steps are rounds
    steps: Sequence[int] = ()
    record: bool = True  # whether to record events
    faults: Sequence[Fault] = ()

    def step_of(self, rank: int) -> int:
        """Return the number of the step that a worker begins with, see `steps`."""
        return self.steps[rank - 1] if 0 < rank <= len(self.steps) else self.first


class NodeClock:
    """Time and round of a node. Without emulated links, the time is the machine's."""

    slack = 0.05  # max time by which a node's clock may be behind the machine's, s

    def __init__(self, emulated: bool, first: int) -> None:
        self.emulated, self.round = emulated, first
        self.zero = self.now = time.monotonic()  # the run's beginning, and the node's time, s

    def start(self, zero: float) -> None:
        """Set the run's beginning, and the node's time, to `zero`."""
        self.zero = self.now = zero

    def elapsed(self) -> float:
        """Return the node's time since the run's beginning, s."""
        return self.now - self.zero

    def sending_time(self) -> float:
        """Return the time of the node's current action."""
        return self.now if self.emulated else time.monotonic()

    def advance(self, moment: float) -> None:
        """Move the node's time forward to `moment`. It stays at most `slack` behind the machine's."""
        now = time.monotonic()
        self.now = max(self.now, moment, now - self.slack) if self.emulated else now

    def reach_round(self, round: int) -> None:
        """Record that the node has work of a round."""
        self.round = max(self.round, round)


class RankContext(Protocol):
    """Interface of an engine to the process that it runs in."""

    rank: int
    transport: Transport
    learner: Learner
    ledger: Ledger

    @property
    def reduce(self) -> Callable[[Any, AllReduce], Any] | None:
        """All-reduce of the MPI library, or None if there is none."""

    @property
    def arrived(self) -> Callable[[list[tuple[int, int, int]]], None]:
        """Callback that records the answers that the program took."""

    def idle(self) -> float:
        """Do background work while the node waits. Return the time of the next call. May end the run."""

    def committed(self, round: int, residual: float, when: float) -> None:
        """Record that the node committed a round at the time `when` of the monotonic clock."""

    def crash(self, how: str) -> None:
        """Die as a faulty process does."""
