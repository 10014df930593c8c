"""A receiver's port as it would be on the emulated link: when a message that is here physically has arrived.

The same rules as on the virtual clock: one message at a time, in order of arrival; what is no longer wanted when its
turn comes is refused and costs no time; a transfer whose round is over is cut off. What comes from above (models)
has a way of its own. Times are absolute seconds on the run's clock.

Of messages that are due at one moment (`SAME`) the sender with the lower drawn tie goes first, if they are here by
then; what comes physically later than it is due is taken as it comes.
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
    """A message at the port, ordered by arrival."""

    at: float  # s, when it is at the port
    serial: int  # order in which it was noticed
    message: Message
    sent: float
    floats: int


class Delivery(NamedTuple):
    """A message that is through: taken in from `begun` to `end`; `late`: refused instead."""

    parcel: PendingMessage
    begun: float
    end: float
    late: bool


class Port:
    """What has come in and is not yet with the program.

    `late(message)` tells what is no longer wanted; `ties(round)`, who of the workers comes first at one moment; `told`,
    when models that this node sent reach those who send ahead.
    """

    def __init__(
        self,
        link: Link,
        late: Callable[[Message], bool],
        ties: Callable[[int], Array],
        model_arrivals: ModelArrivals | None = None,
    ) -> None:
        self.link, self.late, self.ties, self.model_arrivals = (
            link,
            late,
            ties,
            model_arrivals or ModelArrivals(()),
        )
        self.free = 0.0
        self.queue: list[PendingMessage] = []  # what comes from below
        self.downlink: list[PendingMessage] = []  # models, and word of the dead
        self.current: tuple[PendingMessage, float, float] | None = None  # in transfer: begun, end
        # Of each sender the newest round, and in it the last number, of what is here physically.
        self.last_received: dict[int, tuple[int, int]] = {}
        self._serial = 0

    def __bool__(self) -> bool:
        return bool(self.queue or self.downlink or self.current)

    def put(self, message: Message, sent: float, at: float, floats: int) -> None:
        """Take in a message that is at the port at `at` or later, unless its sender would not have sent it."""
        self._serial += 1
        self.last_received[message.src] = max(
            (message.round, message.number), self.last_received.get(message.src, (-1, 0))
        )
        down = message.kind in (MODEL, PEER_LOST)
        if not down and self._unsent(message, sent):
            return
        parcel = named(PendingMessage, (at, self._serial, message, sent, floats))
        if down:
            insort(self.downlink, parcel)
        else:
            self.queue.insert(self._place(parcel), parcel)

    def _place(self, parcel: PendingMessage) -> int:
        """Where it stands in the queue: behind what is due before, and among what is due with it by the ties."""
        place = bisect_right(self.queue, parcel.at + ABS_TOL, key=attrgetter("at"))
        while place and self.queue[place - 1].at >= parcel.at - ABS_TOL:
            if self._tie(self.queue[place - 1]) <= self._tie(parcel):
                break
            place -= 1
        return place

    def _tie(self, parcel: PendingMessage) -> float:
        return float(self.ties(parcel.message.round)[parcel.message.src - 1])

    def next(self, now: float) -> Delivery | None:
        """The first message that is through by now; one at a time, as the program may close the door in between."""
        self._begin(now)
        below = self.current[2] if self.current else float("inf")
        above = self.downlink[0].at if self.downlink else float("inf")
        if min(above, below) > now:
            return self._refused(now)
        if above <= below:
            parcel = self.downlink.pop(0)
            return Delivery(parcel, parcel.at, parcel.at, self.late(parcel.message))
        assert self.current is not None
        parcel, begun, end = self.current
        self.current = None
        return Delivery(parcel, begun, end, self.late(parcel.message))

    def _begin(self, now: float) -> None:
        """Start the transfer of the first in the queue, if its turn has come."""
        if self.current is None and self.queue and not self.late(self.queue[0].message):
            first = self.queue[0]
            begun = max(self.free, first.at)
            if begun <= now:
                self.queue.pop(0)
                end = begun + self.link.transfer(first.floats)
                self.current, self.free = (first, begun, end), end

    def _refused(self, now: float) -> Delivery | None:
        """The first in the queue, if nobody wants it any more and its turn has come."""
        if self.current is None and self.queue and self.late(self.queue[0].message):
            parcel = self.queue[0]
            turn = max(self.free, parcel.at)
            if turn <= now:
                self.queue.pop(0)
                return Delivery(parcel, turn, turn, True)
        return None

    def sent_down(self, round: int, arrives: float, to: Sequence[int]) -> None:
        """A model leaves this node: forget what its children will not send any more."""
        self.model_arrivals.add(round, arrives, to)
        self.queue = [parcel for parcel in self.queue if not self._unsent(parcel.message, parcel.sent)]

    def _unsent(self, message: Message, sent: float) -> bool:
        return self.late(message) and self.model_arrivals.newer(message.src, message.round, sent)

    def cut(self, now: float) -> Delivery | None:
        """End the transfer under way if its message is no longer wanted."""
        if self.current is None or not self.late(self.current[0].message):
            return None
        parcel, begun, _ = self.current
        self.current, self.free = None, now
        return Delivery(parcel, begun, now, True)

    def awaits(self, dead: Collection[int]) -> bool:
        """Is an answer to the newest model, of one who sends ahead, not here yet, with all of its messages?

        All who answer in one round send the same numbers, in this order; who is judged first has sent them all.
        """
        round, model = self.model_arrivals.newest()
        last = max([heard for heard in self.last_received.values() if heard[0] == round], default=(round, 0))
        return any(self.last_received.get(child, (-1, 0)) < last for child in model.difference(dead))

    def wake(self) -> float:
        """When the next message will be through, as far as is known (inf: none is here)."""
        below = self.current[2] if self.current else float("inf")
        if self.current is None and self.queue:
            below = max(self.free, self.queue[0].at)
        return min(below, self.downlink[0].at if self.downlink else float("inf"))
