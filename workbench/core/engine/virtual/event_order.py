"""Which of several events of one moment comes first on the virtual clock.

From the leaves of the tree up; at one node: what arrives, what it has computed, a model from above, its bells. Messages
that arrive together are taken in the order of their senders' drawn ties, so that no rank is favoured.
"""

from collections.abc import Callable
from typing import Any

from workbench.core.contract.delays import DelayStream
from workbench.core.contract.plan import Plan

TRANSFERRED, ARRIVED, COMPUTED, MODEL_ARRIVED, TIMER = range(5)  # what happens to a node, in this order
# Time, serial, what, to which rank, ...
Queued = tuple[float, int, int, Callable[..., None], tuple[Any, ...]]
SortKey = tuple[int, int, float, int, Queued]  # a key, and the event


class EventOrder:
    """Keys of the events of one moment; the ties of a round are drawn when they are first needed."""

    def __init__(self, plan: Plan, delays: DelayStream) -> None:
        self.delays = delays
        self.heights = (-plan.depth).tolist()
        self.ties: dict[int, list[float]] = {}  # by round

    def key(self, event: Queued) -> SortKey:
        """Leaves first, then what it is, then who sent it or when it was due, then what was caused first."""
        due, serial, what, _, args = event
        if what == ARRIVED:
            message = args[1]
            ties = self.ties.get(message.round) or self._draw(message.round)
            due = ties[message.src - 1]
        return self.heights[args[0]], what, due, serial, event

    def _draw(self, round: int) -> list[float]:
        if len(self.ties) > 16:
            self.ties.clear()
        self.ties[round] = ties = self.delays.ties(round).tolist()
        return ties
