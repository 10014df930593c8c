"""Port of a receiver on the emulated link: it decides when a message that was really received counts as arrived.

The rules are those of the virtual clock. One message at a time passes the port, in order of arrival. A message that is
no longer wanted when its transfer could begin is refused and takes no time. A transfer whose round is over is cut off.
Models from the parent do not use the port. Times are absolute seconds on the run's clock.

If two messages are due at the same time (within `ABS_TOL`) and were received by then, the sender with the lower drawn
tie-break is first. A message that is really received after its due time is processed when it is received.
"""

from bisect import bisect_right, insort
from collections.abc import Callable, Collection, Sequence
from operator import attrgetter
from typing import NamedTuple

from workbench.core.base.types import Array
from workbench.core.contract.links import Link
from workbench.core.contract.protocol import ABS_TOL, MODEL, PEER_LOST, Message
from workbench.mpi.engine.lookahead import ModelArrivals
from workbench.mpi.engine.wire import named


class PendingMessage(NamedTuple):
    """Message at the port, ordered by arrival."""

    at: float  # time at the port, s
    serial: int  # order in which the messages were received
    message: Message
    sent: float
    floats: int


class Delivery(NamedTuple):
    """Message that has passed the port from `begun` to `end`, or was refused (`late`)."""

    pending: PendingMessage
    begun: float
    end: float
    late: bool


class Port:
    """Port, with the messages that were not passed to the program yet.

    `late(message)`: whether a message is no longer wanted. `ties(round)`: tie-breaks of the workers. `model_arrivals`:
    arrivals of this node's models at the children that send ahead.
    """

    def __init__(
        self,
        link: Link,
        late: Callable[[Message], bool],
        ties: Callable[[int], Array],
        model_arrivals: ModelArrivals | None = None,
    ) -> None:
        self.link, self.late, self.ties = link, late, ties
        self.model_arrivals = model_arrivals or ModelArrivals(())
        self.free = 0.0
        self.queue: list[PendingMessage] = []  # messages from the children
        self.downlink: list[PendingMessage] = []  # models, and reports of lost peers
        # Message in transfer: message, begun, end
        self.current: tuple[PendingMessage, float, float] | None = None
        # sender -> newest round, and last number in it, of the messages that were really received
        self.last_received: dict[int, tuple[int, int]] = {}
        self._serial = 0

    def __bool__(self) -> bool:
        return bool(self.queue or self.downlink or self.current)

    def put(self, message: Message, sent: float, at: float, floats: int) -> None:
        """Add a message that is due at the port at time `at`, unless its sender would not have sent it."""
        self._serial += 1
        self.last_received[message.src] = max(
            (message.round, message.number), self.last_received.get(message.src, (-1, 0))
        )
        down = message.kind in (MODEL, PEER_LOST)
        if not down and self._unsent(message, sent):
            return
        pending = named(PendingMessage, (at, self._serial, message, sent, floats))
        if down:
            insort(self.downlink, pending)
        else:
            self.queue.insert(self._place(pending), pending)

    def _place(self, pending: PendingMessage) -> int:
        """Return the index in the queue: after earlier messages, and among simultaneous ones by the tie-breaks."""
        place = bisect_right(self.queue, pending.at + ABS_TOL, key=attrgetter("at"))
        while place and self.queue[place - 1].at >= pending.at - ABS_TOL:
            if self._tie(self.queue[place - 1]) <= self._tie(pending):
                break
            place -= 1
        return place

    def _tie(self, pending: PendingMessage) -> float:
        return float(self.ties(pending.message.round)[pending.message.src - 1])

    def next(self, now: float) -> Delivery | None:
        """Return the first message that has passed by now.

        Only one is returned, because the program may then refuse the next.
        """
        self._begin(now)
        below = self.current[2] if self.current else float("inf")
        above = self.downlink[0].at if self.downlink else float("inf")
        if min(above, below) > now:
            return self._refused(now)
        if above <= below:
            pending = self.downlink.pop(0)
            return Delivery(pending, pending.at, pending.at, self.late(pending.message))
        assert self.current is not None
        pending, begun, end = self.current
        self.current = None
        return Delivery(pending, begun, end, self.late(pending.message))

    def _begin(self, now: float) -> None:
        """Start the transfer of the first message in the queue, if the port is free."""
        if self.current is None and self.queue and not self.late(self.queue[0].message):
            first = self.queue[0]
            begun = max(self.free, first.at)
            if begun <= now:
                self.queue.pop(0)
                end = begun + self.link.transfer(first.floats, first.message.src)
                self.current, self.free = (first, begun, end), end

    def _refused(self, now: float) -> Delivery | None:
        """Return the first message in the queue, if it is no longer wanted and the port is free."""
        if self.current is None and self.queue and self.late(self.queue[0].message):
            pending = self.queue[0]
            turn = max(self.free, pending.at)
            if turn <= now:
                self.queue.pop(0)
                return Delivery(pending, turn, turn, True)
        return None

    def sent_down(self, round: int, arrives: float, to: Sequence[int]) -> None:
        """Add a model that this node sends. Drop the answers that its children no longer send because of it."""
        self.model_arrivals.add(round, arrives, to)
        self.queue = [pending for pending in self.queue if not self._unsent(pending.message, pending.sent)]

    def _unsent(self, message: Message, sent: float) -> bool:
        return self.late(message) and self.model_arrivals.newer(message.src, message.round, sent)

    def cut(self, now: float) -> Delivery | None:
        """End the current transfer if its message is no longer wanted."""
        if self.current is None or not self.late(self.current[0].message):
            return None
        pending, begun, _ = self.current
        self.current, self.free = None, now
        return Delivery(pending, begun, now, True)

    def awaits(self, dead: Collection[int]) -> bool:
        """Return whether a living rank that sends ahead has not yet answered the newest model completely.

        All workers send the same number of answers in a round. So a rank's answers are incomplete if another rank's
        answer with a higher number is here. Before the first answer, one answer per rank is expected.
        """
        round, model = self.model_arrivals.newest()
        last = max(
            [newest for newest in self.last_received.values() if newest[0] == round], default=(round, 0)
        )
        return any(self.last_received.get(child, (-1, 0)) < last for child in model.difference(dead))

    def wake(self) -> float:
        """Return the time at which the next message passes the port, or infinity if none is here."""
        below = self.current[2] if self.current else float("inf")
        if self.current is None and self.queue:
            below = max(self.free, self.queue[0].at)
        return min(below, self.downlink[0].at if self.downlink else float("inf"))
