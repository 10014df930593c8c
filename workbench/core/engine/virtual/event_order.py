"""Event order: which of several simultaneous events on the virtual clock comes first.

Events are ordered from the leaves of the tree up. At one node the order is: messages that arrive, its finished work,
arrivals of models that it has sent, its timers. Simultaneous messages are ordered by the drawn tie-breaks of their
senders, so that no rank is favoured.
"""

from collections.abc import Callable
from typing import Any

from workbench.core.contract.delays import DelayStream
from workbench.core.contract.plan import Plan

TRANSFERRED, ARRIVED, COMPUTED, MODEL_ARRIVED, TIMER = range(5)  # stages of simultaneous events at a node
# time, serial number, stage, handler, arguments of the handler (the first one is the rank, or a model's sender)
Queued = tuple[float, int, int, Callable[..., None], tuple[Any, ...]]
SortKey = tuple[int, int, float, int, Queued]  # the four fields of the key, and the event


class EventOrder:
    """Sort keys of simultaneous events. The tie-breaks of a round are drawn when they are first needed."""

    def __init__(self, plan: Plan, delays: DelayStream) -> None:
        self.delays = delays
        self.heights = (-plan.depth).tolist()
        self.ties: dict[int, list[float]] = {}  # round -> tie-break of each worker

    def key(self, event: Queued) -> SortKey:
        """Return the key of an event: height in the tree, stage, tie-break of the sender or time, serial number."""
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
