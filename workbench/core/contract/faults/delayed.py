"""Workers that are late beyond what the delay model draws."""

from workbench.core.base.settings import setting
from workbench.core.contract.faults.base import Fault, Lasting
from workbench.core.contract.protocol import Compute, Effect, Hold, Program


class Pause(Fault):
    """The worker does nothing for some seconds, once, before it computes. Messages to it wait."""

    kind = "pause"

    seconds: float = setting(1.0, "how long it does nothing", "s", gt=0)

    def begin(self, round: int) -> Program:
        """Do nothing for some seconds."""
        yield Hold(self.seconds, round)


class Slow(Lasting):
    """The worker's computing takes `factor` times as long (below 1: it is faster).

    Where no times are drawn (`emulate="nothing"`), it waits after computing, so it cannot become faster.
    """

    kind = "slow"

    factor: float = setting(2.0, "computing time over what it would be", gt=0)

    def change(self, effect: Effect) -> Effect:
        """Stretch a computation."""
        if isinstance(effect, Compute) and self.factor != 1.0:
            return effect._replace(slowdown=effect.slowdown * self.factor)
        return effect
