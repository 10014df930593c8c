"""Event loop of the virtual clock: time moves from event to event.

Times that differ by rounding at most (`simultaneous`) are one moment; `event_order` has the order of its events.
"""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

from workbench.core.base.errors import RunError
from workbench.core.contract.delays import DelayStream
from workbench.core.contract.plan import Plan
from workbench.core.contract.protocol import REL_TOL, Message
from workbench.core.engine.virtual.event_order import COMPUTED, EventOrder, Queued, SortKey


class EventLoop(ABC):
    """A queue of future events, and deliveries of messages that happen now."""

    def __init__(self, plan: Plan, delays: DelayStream, start: float) -> None:
        self.plan, self.now, self.serial = plan, start, 0
        self.heap: list[Queued] = []
        self.event_order = EventOrder(plan, delays).key
        self.due: list[SortKey] | None = None  # what is left of this moment, if there are several events
        self.ready: deque[tuple[int, Message, float, int]] = deque()  # deliveries at this very time
        self.open = len(plan.committers)  # programs that have to end

    def loop(self) -> None:
        """Process events until the programs of all committers have ended."""
        heap, soon = self.heap, self.ready
        # In a ring every message has one possible sender.
        near = REL_TOL if self.plan.parent.max() >= 0 else -1.0
        while self.open:
            if soon:
                self._deliver(*soon.popleft())
            elif heap:
                event = heappop(heap)
                self.now = now = event[0]
                if heap and heap[0][0] <= now * near:
                    self._simultaneous(event)
                else:
                    event[3](*event[4])
            else:
                raise self._stalled()

    def _simultaneous(self, first: Queued) -> None:
        """Go through several events of one moment, and through what they cause at it."""
        heap, limit = self.heap, first[0] * REL_TOL
        due = self.due = []
        heappush(heap, first)
        while heap and heap[0][0] <= limit:
            event = heappop(heap)
            if event[2] == COMPUTED and not self.plan.children[event[4][0]]:
                self._fire(event)  # a leaf has computed: nothing else of this moment comes before that
            else:
                heappush(due, self.event_order(event))
        while due and self.open:
            self._fire(heappop(due)[4])
            while heap and heap[0][0] <= limit:
                heappush(due, self.event_order(heappop(heap)))
        self.due = None

    def _fire(self, event: Queued) -> None:
        time, _, _, what, args = event
        if time > self.now:
            self.now = time
        what(*args)
        while self.ready and self.open:
            self._deliver(*self.ready.popleft())

    def _at(self, time: float, stage: int, what: Callable[..., None], args: tuple[Any, ...]) -> None:
        self.serial += 1
        heappush(self.heap, (time, self.serial, stage, what, args))

    @abstractmethod
    def _deliver(
        self, to: int, message: Message, sent: float, floats: int, begun: float | None = None
    ) -> None:
        """Hand a message to a node."""

    @abstractmethod
    def _stalled(self) -> RunError:
        """Return the error for programs that wait although nothing can happen."""
