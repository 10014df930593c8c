"""Faults that let a worker die. They are the same in the simulator, while real processes end in different ways."""

from typing import ClassVar

from workbench.core.contract.faults.base import Fault
from workbench.core.contract.protocol import Crash, Program


class Kill(Fault):
    """The worker dies instead of computing. A real process is killed by a signal."""

    kind = "kill"
    for_good: ClassVar[bool] = True

    def begin(self, round: int) -> Program:
        """Yield the effect with which the worker dies."""
        yield Crash(self.kind, round)


class Segfault(Kill):
    """The worker dies of a segmentation fault."""

    kind = "segfault"


class Exit(Kill):
    """The worker's process exits without a message."""

    kind = "exit"
