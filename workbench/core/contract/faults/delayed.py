"""Faults that make a worker late, in addition to the delay model."""

from workbench.core.base.settings import setting
from workbench.core.contract.faults.base import Fault, Lasting
from workbench.core.contract.protocol import Compute, Effect, Hold, Program


class Pause(Fault):
    """The worker does nothing for some seconds, once, before it computes. Messages to it wait."""

    kind = "pause"

    seconds: float = setting(1.0, "duration of the pause", "s", gt=0)

    def begin(self, round: int) -> Program:
        """Yield the effect that pauses the worker."""
        yield Hold(self.seconds, round)


class Slow(Lasting):
    """The worker's computing takes `factor` times as long. With a factor below 1, the worker is faster.

    Without drawn times (`emulate="nothing"`), the worker waits after computing, so it cannot become faster.
    """

    kind = "slow"

    factor: float = setting(2.0, "computing time divided by the computing time without the fault", gt=0)

    def change(self, effect: Effect) -> Effect:
        """Multiply the time of a computation."""
        if isinstance(effect, Compute) and self.factor != 1.0:
            return effect._replace(slowdown=effect.slowdown * self.factor)
        return effect
