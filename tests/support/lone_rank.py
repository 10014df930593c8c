"""A rank without a process: a transport with given messages, and a context."""

from __future__ import annotations

from typing import Any

from workbench.core.contract.protocol import CODED
from workbench.mpi.engine.learner import Learner
from workbench.mpi.engine.ledger import Ledger
from workbench.mpi.engine.wakeup import WakeupPipe
from workbench.mpi.engine.wire import Envelope

ROUNDS = 5


class GivenMessages:
    """Transport with given messages: some are received at each poll."""

    def __init__(self, *received: list[tuple[int, int]]) -> None:
        self.received = list(received)  # sender and round of the messages of each poll
        self.arrives = 0.5
        self.wakeup, self.dead, self.needs_polling = WakeupPipe(), set[int](), False
        self.polls = 0

    def poll(self, now: float, awake: float = 0.0) -> list[tuple[Envelope, Any]]:
        self.polls += 1
        found = self.received.pop(0) if self.received else []
        return [(Envelope(1, r, src, 0, 1, 3, 0.5, self.arrives, CODED), (src, r)) for src, r in found]


class LoneContext:
    """Context of a rank without a process."""

    rank, reduce = 0, None

    def __init__(self, transport: Any, learner: Learner) -> None:
        self.transport, self.learner, self.ledger = transport, learner, Ledger(0, ROUNDS)

    def idle(self) -> float:
        return float("inf")

    def committed(self, round: int, residual: float, when: float) -> None: ...

    def arrived(self, answers: list[tuple[int, int, int]]) -> None: ...

    def crash(self, how: str) -> None: ...
