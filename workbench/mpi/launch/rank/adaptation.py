"""Adaptive selection in a real run.

Rank 0 evaluates rounds while others compute, and changes the scheme between rounds. With many workers and short rounds,
it does not evaluate every round, as it also has to receive answers.
"""

import time
from collections.abc import Callable
from time import perf_counter

from workbench.core.contract.adaptive import AdaptiveController, Change
from workbench.core.contract.plan import MASTER
from workbench.core.engine.timeline import SchemeChanged
from workbench.mpi.engine.control import Control
from workbench.mpi.engine.ledger import Ledger
from workbench.mpi.engine.mailbox import Mailbox
from workbench.mpi.engine.polling import IDLE_EMULATED
from workbench.mpi.engine.setup import Setup
from workbench.mpi.launch.task import Task

MAX_EVALUATION_SHARE = 0.25  # share of the time since the start, from which rank 0 evaluates no further round


def report_compute_times(task: Task, control: Control, ledger: Ledger) -> None:
    """Let a worker report the duration of each computation to rank 0, in a control message."""

    def done(round: int, seconds: float, samples: int) -> None:
        message = {"what": "took", "round": round, "seconds": seconds, "samples": samples}
        control.send(MASTER, {**message, "run": task.run})

    ledger.done = done


class Adaptation:
    """Adaptive controller on rank 0, and the change of scheme that it has decided."""

    def __init__(self, controller: AdaptiveController, setup: Setup, mailbox: Mailbox) -> None:
        self.controller, self.mailbox, self.rounds, floats = controller, mailbox, setup.rounds, setup.floats
        self.change: Change | None = None  # change of scheme that was decided, and is made after this round
        self.evaluated_s = 0.0  # time in which rounds were evaluated, s
        # round before, its end and time 0 on the messages' clock: only now have all its times been reported
        self.last: tuple[int, float, float] | None = None
        mailbox.ledger.came = lambda rank, size, *when: controller.received(rank, size / floats, *when)

    def committed(
        self, round: int, time: float, zero: float, offset: float, complete: Callable[[], bool]
    ) -> None:
        """Let the controller evaluate the round before, or make a change that it has decided.

        `time`: s since this start of the ranks, which is `zero` on the messages' clock. `offset`: duration of the run
        before this start, s. `complete`: whether all ranks are alive.
        """
        if self.change is not None:
            self.mailbox.run_deferred()
            raise SchemeChanged(self.change._replace(round=round + 1, time=time + offset))
        self.mailbox.defer(self._judge, round, time, zero, complete)

    def _judge(self, round: int, time: float, zero: float, complete: Callable[[], bool]) -> None:
        last, self.last = self.last, (round, time, zero)
        left = self.rounds - round - 2  # a change is made after the next round
        if last and left > 0 and complete() and self.evaluated_s <= MAX_EVALUATION_SHARE * time:
            began = perf_counter()
            self.change = self.controller.committed(*last[:2], left, last[2])
            self.evaluated_s += perf_counter() - began
        elif last:
            self.controller.discard(*last)

    def resume(self, task: Task) -> float:
        """Begin after a change of scheme. Return the duration of the change, s.

        On emulated links, this includes the time of moving the samples.
        """
        known = task.controller
        assert known is not None
        until = time.monotonic() + (known["pause"] if task.emulate == "all" else 0.0)
        self.mailbox.wait(lambda: True if time.monotonic() >= until else None, IDLE_EMULATED)
        gap = 0.0
        if known["left"] is not None:
            gap = max(0.0, time.time() - known["left"])
            self.controller.restart = max(0.0, gap - known["pause"])
        self.controller.begin()
        return gap
