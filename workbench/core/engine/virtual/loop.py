"""Event loop of the virtual clock: time advances from event to event.

Events whose times differ only by rounding (`simultaneous`) are ordered by `event_order`.
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
    """Queue of future events, and of messages that are delivered at the current time."""

    # attributes in slots are faster if a class has more than 30; those of subclasses are fewer, and need none
    __slots__ = ("due", "event_order", "heap", "now", "open", "plan", "ready", "serial")

    def __init__(self, plan: Plan, delays: DelayStream, start: float) -> None:
        self.plan, self.now, self.serial = plan, start, 0
        self.heap: list[Queued] = []
        self.event_order = EventOrder(plan, delays).key
        self.due: list[SortKey] | None = None  # remaining simultaneous events, or None if there is only one
        self.ready: deque[tuple[int, Message, float, int]] = deque()  # deliveries at the current time
        self.open = len(plan.committers)  # number of committers whose programs have not ended

    def loop(self) -> None:
        """Process events until the programs of all committers have ended."""
        heap, ready = self.heap, self.ready
        # In a ring, each node receives from one sender, so that the order of simultaneous events does not matter.
        near = REL_TOL if self.plan.parent.max() >= 0 else -1.0
        while self.open:
            if ready:
                to, message, sent, floats = ready.popleft()  # a call with * takes longer
                self._deliver(to, message, sent, floats)
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
        """Process several simultaneous events, and those that they cause at the same time."""
        heap, limit = self.heap, first[0] * REL_TOL
        due = self.due = []
        heappush(heap, first)
        while heap and heap[0][0] <= limit:
            event = heappop(heap)
            if event[2] == COMPUTED and not self.plan.children[event[4][0]]:
                # this is a leaf's finished work, which comes before all other simultaneous events
                self._fire(event)
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
        """Deliver a message that has passed the receiver's port. `begun`: when the port took it, s."""

    @abstractmethod
    def _stalled(self) -> RunError:
        """Return the error for a deadlock: programs wait, and there is no event."""
