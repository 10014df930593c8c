"""Workers that die. The simulator has one death; on real processes they differ in what the system notices."""

from typing import ClassVar

from workbench.core.contract.faults.base import Fault
from workbench.core.contract.protocol import Crash, Program


class Kill(Fault):
    """The worker dies instead of computing: killed by a signal on real processes."""

    kind = "kill"
    for_good: ClassVar[bool] = True

    def begin(self, round: int) -> Program:
        """Die."""
        yield Crash(self.kind, round)


class Segfault(Kill):
    """The worker dies of a memory fault of its own."""

    kind = "segfault"


class Exit(Kill):
    """The worker's process exits without a message."""

    kind = "exit"
