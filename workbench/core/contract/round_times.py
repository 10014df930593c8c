"""Round times without an event loop: order statistics over drawn times, vectorised over rounds and workers.

A scheme's `round_times` computes the end of each round. With the same seed, the result equals that of the event engine:
draws, rules and tie-breaks are the same. This holds if rounds do not overlap. The rounds of the ring overlap, so each
of them needs the state of the round before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from workbench.core.base.errors import RunError
from workbench.core.base.types import Array
from workbench.core.contract.links import Link
from workbench.core.contract.protocol import REL_TOL
from workbench.core.contract.ring import ring_finish

# Function of the order of arrival, (rounds, workers). It returns the number of needed answers, (rounds,).
AnswersNeeded = Callable[[NDArray[np.int64]], NDArray[np.int64]]
# function of indices of rounds; it returns the tie-break of each worker, (rounds, workers)
TieOrder = Callable[[NDArray[np.int64]], Array]
MAX_TIMES_PER_BATCH = 2_000_000  # max number of drawn times in memory


def _not_available(*_: Any) -> Any:
    raise RunError(
        "round_times: a scheme asks for single draws or parts of loads, which these times do not have"
    )


@dataclass(frozen=True)
class SampledTimes:
    """Drawn times of some rounds: the input of a scheme's `round_times`.

    `seconds`, `send`, `links`, `models`, `model_of` and `progress` are drawn. `link`, `floats` (p), `decode_rate`
    (floats/s) and `samples` are those of the experiment. `tie_order`: order of simultaneous arrivals. `state`: state
    after the rounds before.

    Self-paced schemes (see `Compute.draw`) use `first_round`, `load_seconds`, `send_seconds` and `tie_order_of` in
    place of `seconds` and `send`. Schemes with rounds after the last commit's use `total_rounds` and `block`.

    >>> draws = SampledTimes(np.ones((2, 3)), lambda floats: 0.0, Link(), 10, lambda which: np.zeros((2, 3)))
    >>> draws.decode_seconds(answers=3)
    0.0
    """

    seconds: Array  # (rounds, workers): time to compute the whole load
    send: Callable[[float], Array | float]  # floats -> additional seconds of sending, (rounds, workers) or 0
    link: Link
    floats: int  # model size p
    tie_order: TieOrder  # indices of some of these rounds -> tie-break of each worker, (rounds, workers)
    decode_rate: float | None = None  # floats/s
    state: Any = None  # state after the earlier rounds
    samples: int = 0  # size of the data set
    # Function of portions (workers, m) and a slice of rounds. It returns when each portion is done, (rounds, workers,
    # m), s.
    progress: Callable[[NDArray[np.int64], slice], Array] = _not_available
    first_round: int = 0  # number of the first round
    # Index of a draw -> seconds of each worker's whole load, (workers,).
    load_seconds: Callable[[int], Array] = _not_available
    total_rounds: int = 0  # rounds of the whole run
    # Function that returns the draws of any rounds of the run, also of later rounds.
    block: Callable[[range], SampledTimes] = _not_available
    # Indices of draws, share of a model -> additional seconds of sending, (draws, workers) or 0.
    send_seconds: Callable[[Iterable[int], float], Array | float] = _not_available
    tie_order_of: Callable[[int], Array] = _not_available  # any round -> tie-break of each worker, (workers,)
    # Floats -> seconds that links add to the common latency, (rounds, workers) or 0; part of `send`.
    links: Callable[[float], Array | float] = lambda floats: 0.0
    # Returns the drawn seconds of these rounds' models to the workers, (rounds, workers) or 0.
    models: Callable[[], Array | float] = lambda: 0.0
    # Any round -> drawn seconds of its model to each worker, (workers,), or None if nothing is drawn.
    model_of: Callable[[int], Array | None] = lambda round: None

    @classmethod
    def measured(
        cls,
        seconds: Array,
        send: Callable[[float], Array | float],
        link: Link,
        floats: int,
        samples: int,
        decode_rate: float | None = None,
    ) -> SampledTimes:
        """Return measured times in the form of drawn ones.

        All samples of a load take equal times; of equal times, the lower rank comes first.

        >>> draws = SampledTimes.measured(np.array([[1.0, 3.0]]), lambda floats: 0.0, Link(), 10, samples=4)
        >>> star_round_times(draws, needed=2).seconds
        array([3.])
        """

        def progress(portions: NDArray[np.int64], which: slice) -> Array:
            done = np.cumsum(portions, axis=1) / np.maximum(portions.sum(axis=1, keepdims=True), 1)
            return np.asarray(seconds[which][:, :, None] * done)

        def tie_order(which: NDArray[np.int64]) -> Array:
            return np.tile(np.arange(seconds.shape[1], dtype=float), (len(which), 1))

        return cls(seconds, send, link, floats, tie_order, decode_rate, samples=samples, progress=progress)

    def decode_seconds(self, answers: Any) -> Any:
        """Return the seconds that combining `answers` messages takes. `answers` may be an array."""
        return 0.0 if self.decode_rate is None else answers * self.floats / self.decode_rate

    def arrival_times(self, length: float) -> Array:
        """Return the arrival times of the workers' answers of `length` floats, (rounds, workers), s."""
        return self.seconds + self.send(length) + self.link.latency + self.downlink_seconds

    def transfer(self, floats: float) -> Array | float:
        """Return the seconds on the port of each worker's message, (workers,), or one number if all are equal."""
        return self.link.transfers(floats, self.seconds.shape[1])

    @property
    def downlink_seconds(self) -> Array | float:
        """Seconds that a model takes for one hop to each worker, or one number if all are equal.

        The shape is (workers,), or (rounds, workers) if they are drawn.
        """
        return self.link.downlink(self.floats, self.seconds.shape[1]) + self.models()


@dataclass(frozen=True)
class RoundTimes:
    """Result of each round: seconds, gradient messages received, and bytes received; each (rounds,).

    `state`: state that the next rounds need.

    >>> RoundTimes(np.array([0.5]), np.array([3.0]), np.array([240.0])).seconds.shape
    (1,)
    """

    seconds: Array
    messages: Array
    bytes: Array
    state: Any = None


def port_departures(arrivals: Array, transfer: Array | float, ties: TieOrder | None = None) -> Array:
    """Return when each message has passed the port, in order of arrival; shape of `arrivals`, sorted, s.

    The j-th arrival passes at max over i <= j of t_(i) + (j-i+1) transfer (paper 1, section III-C). If the transfers of
    the messages (last axis of `arrivals`) differ, their sum from i to j takes the place of (j-i+1) transfer.
    Simultaneous arrivals are then ordered by `ties` (see `arrival_order`), which needs arrivals of shape (rounds,
    messages). Without `ties`, lower indices come first.
    """
    if isinstance(transfer, np.ndarray):
        first = (
            np.argsort(arrivals, axis=-1, kind="stable") if ties is None else arrival_order(arrivals, ties)
        )
        each = np.take_along_axis(np.broadcast_to(transfer, arrivals.shape), first, axis=-1)
        ordered, until = np.take_along_axis(arrivals, first, axis=-1), np.cumsum(each, axis=-1)
        return np.asarray(np.maximum.accumulate(ordered - (until - each), axis=-1) + until)
    ordered = np.sort(arrivals, axis=-1)
    if transfer in (0.0, np.inf):
        return ordered + transfer
    steps = transfer * np.arange(ordered.shape[-1])
    return np.asarray(np.maximum.accumulate(ordered - steps, axis=-1) + steps + transfer)


def star_round_times(
    draws: SampledTimes, needed: int | AnswersNeeded, floats: int | None = None, share: float | None = None
) -> RoundTimes:
    """Return the rounds of a star: each ends when `needed` answers of `floats` floats have passed the port.

    `draws`: times of some rounds, s. `share`: as in `Send`.

    >>> draws = SampledTimes.measured(np.array([[1.0, 2.0, 4.0]]), lambda floats: 0.0, Link(), 10, samples=6)
    >>> star_round_times(draws, needed=2).seconds.tolist()
    [2.0]
    """
    link, length = draws.link, draws.floats if floats is None else floats
    arrivals = draws.arrival_times(length if share is None else share * draws.floats)
    through = port_departures(arrivals, draws.transfer(length), draws.tie_order)
    count = (
        needed(arrival_order(arrivals, draws.tie_order))
        if callable(needed)
        else np.full(len(arrivals), needed)
    )
    end = np.take_along_axis(through, count[:, None] - 1, axis=1)[:, 0]
    sent = count.astype(np.float64)
    return RoundTimes(end + draws.decode_seconds(count), sent, sent * (link.width * length))


def arrival_order(arrivals: Array, ties: TieOrder) -> NDArray[np.int64]:
    """Return the indices of the messages in order of arrival, (rounds, messages). `ties` orders simultaneous ones.

    `arrivals` (rounds, workers * k): the k messages of a worker are adjacent, in the order in which it sends them.
    """
    found = np.argsort(arrivals, axis=1, kind="stable")
    ordered = np.take_along_axis(arrivals, found, axis=1)
    apart = ordered[:, 1:] > ordered[:, :-1] * REL_TOL
    which = np.flatnonzero(~apart.all(axis=1))
    if len(which):
        first = ties(which)
        moment = np.zeros((len(which), arrivals.shape[1]))
        np.put_along_axis(moment, found[which, 1:], np.cumsum(apart[which], axis=1), axis=1)
        found[which] = np.lexsort([first.repeat(arrivals.shape[1] // first.shape[1], axis=1), moment], axis=1)
    return found


def places(order: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the position of each message in an order of arrival; both (rounds, messages)."""
    place = np.empty_like(order)
    np.put_along_axis(place, order, np.arange(order.shape[1])[None], axis=1)
    return place


def deadline_round_times(draws: SampledTimes, deadline: float) -> RoundTimes:
    """Return the rounds of a master that commits at a deadline, with the answers that have passed the port by then.

    `draws`: times of some rounds, s. `deadline`: s after the start of the round. A round may have no answer.

    >>> draws = SampledTimes.measured(np.array([[1.0, 2.0, 4.0]]), lambda floats: 0.0, Link(), 10, samples=6)
    >>> deadline_round_times(draws, deadline=3.0).messages.tolist()
    [2.0]
    """
    floats = draws.floats
    through = port_departures(draws.arrival_times(floats), draws.transfer(floats), draws.tie_order)
    count = np.count_nonzero(through <= deadline * REL_TOL, axis=1).astype(np.float64)
    end = np.full(len(count), deadline) + draws.decode_seconds(count)
    return RoundTimes(end, count, count * (draws.link.width * floats))


class WaitResult(NamedTuple):
    """Rounds of a master that waits (1 + tolerance) times as long as the fastest worker (see `tolerant_answers`)."""

    late_workers: NDArray[np.bool_]  # (rounds, workers)
    seconds: Array  # (rounds,) until the wait ends, or until all answers have come, if that is earlier
    messages: NDArray[np.int64]  # (rounds,) messages received during the wait
    last_answer: Array  # (rounds,) seconds until all answers have come
    all: int  # messages of all workers in a round

    def round_times(
        self, draws: SampledTimes, drop: NDArray[np.bool_], combined: NDArray[np.int64]
    ) -> RoundTimes:
        """Return the round times.

        Rounds with `drop` end without the late workers; in other rounds the master waits for all.

        `combined`: number of answers that are decoded in each round, (rounds,).
        """
        count = np.where(drop, self.messages, self.all).astype(float)
        seconds = np.where(drop, self.seconds, self.last_answer) + draws.decode_seconds(combined)
        return RoundTimes(seconds, count, count * (draws.link.width * draws.floats))


def wait_for(draws: SampledTimes, tolerance: float, number: int = 1) -> WaitResult:
    """Return the late workers of each round, if each worker sends its `number` messages at the same time.

    A worker is late after (1 + `tolerance`) times the time of the fastest. `draws`: times of some rounds, s.

    >>> draws = SampledTimes.measured(np.array([[1.0, 1.9, 4.0]]), lambda floats: 0.0, Link(), 10, samples=6)
    >>> round = wait_for(draws, tolerance=1.0)
    >>> round.late_workers.tolist(), round.seconds.tolist(), round.last_answer.tolist()
    ([[False, False, True]], [2.0], [4.0])
    """
    arrivals = np.repeat(draws.arrival_times(float(number * draws.floats)), number, axis=1)
    there = arrivals
    transfer = draws.transfer(draws.floats)
    if isinstance(transfer, np.ndarray) or transfer:
        there, each = np.empty_like(arrivals), np.repeat(transfer, number) if np.ndim(transfer) else transfer
        passed = port_departures(arrivals, each, draws.tie_order)
        np.put_along_axis(there, arrival_order(arrivals, draws.tie_order), passed, axis=1)
    done = there.reshape(len(there), -1, number).max(axis=2)
    limit = (1 + tolerance) * done.min(axis=1)
    last = done.max(axis=1)
    late = done > limit[:, None] * REL_TOL
    seconds = np.where(late.any(axis=1), limit, last)
    messages = np.count_nonzero(there <= limit[:, None] * REL_TOL, axis=1)
    return WaitResult(late, seconds, messages, last, there.shape[1])


def earlier(one: RoundTimes, other: RoundTimes) -> RoundTimes:
    """Return the rounds under two stop rules combined by |.

    The rule with fewer messages ends a round. If both have equally many, the round ends at the earlier time.
    """
    as_many = one.messages == other.messages
    first = (one.messages < other.messages) | (as_many & (one.seconds <= other.seconds))
    fields = ("seconds", "messages", "bytes")
    return RoundTimes(*(np.where(first, getattr(one, name), getattr(other, name)) for name in fields))


def tree_round_times(draws: SampledTimes, children: int, layers: int, needed: int) -> RoundTimes:
    """Return the rounds of a regular tree: each parent waits for `needed` of its children's sums.

    Ranks are numbered layer by layer. `draws`: times of all workers, s. `children`: number per parent. `layers`: number
    of layers of workers.

    >>> seconds = np.array([[1.0, 2.0, 4.0, 1.0, 1.0, 1.0]])
    >>> draws = SampledTimes.measured(seconds, lambda floats: 0.0, Link(), 10, samples=6)
    >>> tree_round_times(draws, children=2, layers=2, needed=1).seconds.tolist()
    [1.0]
    """
    link, rounds = draws.link, len(draws.seconds)
    transfer, hop = draws.transfer(draws.floats), link.latency
    send, down, way = draws.send(draws.floats), draws.downlink_seconds, np.zeros(0)
    ties = draws.tie_order(np.arange(rounds)) if isinstance(transfer, np.ndarray) else np.zeros((0, 0))
    # seconds from the master to each worker, summed over the links on the way
    if isinstance(down, np.ndarray):
        way = down.copy()
        for rank in range(children + 1, down.shape[-1] + 1):
            way[..., rank - 1] += way[..., (rank - 1) // children - 1]
    bounds = np.cumsum([0] + [children**layer for layer in range(1, layers + 1)])
    below: Array | None = None  # for each parent: time when the sums of the layer below are decoded
    # For each layer: when messages have passed the port, and how many a parent receives if the round is long enough.
    passed: list[tuple[Array, Array]] = []
    for layer in range(layers, 0, -1):
        here = slice(bounds[layer - 1], bounds[layer])
        seconds = draws.seconds[:, here] + (way[..., here] if way.size else layer * down)
        if below is not None:
            through = passed[-1][0]
            # number of messages that come before the parent has finished its own work
            early = np.count_nonzero(through <= seconds[:, :, None] * REL_TOL, axis=2)
            passed[-1] = (through, np.maximum(early, needed))
            seconds = np.maximum(seconds, below) + draws.decode_seconds(needed)
        port_times = seconds + hop + (send[:, here] if isinstance(send, np.ndarray) else send)
        through = _layer_departures(port_times, children, transfer, here, ties)
        below = through[:, :, needed - 1]
        passed.append((through, np.full(below.shape, needed)))
    assert below is not None
    end = below[:, 0]
    messages = sum(
        np.minimum(np.count_nonzero(through <= end[:, None, None] * REL_TOL, axis=2), taken).sum(axis=1)
        for through, taken in passed
    )
    count = np.asarray(messages, dtype=float)
    return RoundTimes(end + draws.decode_seconds(needed), count, count * link.width * draws.floats)


def _layer_departures(
    port_times: Array, children: int, transfer: Array | float, here: slice, ties: Array
) -> Array:
    """Return when the sums of a layer have passed their parents' ports, (rounds, parents, children), s.

    `port_times`: at the ports, (rounds, workers of the layer). `here`: the layer's workers. `ties`: tie-breaks of all
    workers, (rounds, workers), if transfers differ.
    """
    rounds = len(port_times)
    if not isinstance(transfer, np.ndarray):
        return port_departures(port_times.reshape(rounds, -1, children), transfer)
    each = np.broadcast_to(transfer[here], port_times.shape).reshape(-1, children)
    order = ties[:, here].reshape(-1, children)
    found = port_departures(port_times.reshape(-1, children), each, lambda which: order[which])
    return found.reshape(rounds, -1, children)


def ring_round_times(draws: SampledTimes) -> RoundTimes:
    """Return the rounds of a ring: a worker starts its next round as soon as it has the sum, so rounds may overlap.

    `draws`: times of some rounds, s.

    >>> draws = SampledTimes.measured(np.array([[1.0, 2.0, 4.0]]), lambda floats: 0.0, Link(), 10, samples=6)
    >>> ring_round_times(draws).seconds.tolist()
    [4.0]
    """
    rounds, n = draws.seconds.shape
    free, ports = draws.state or (np.zeros(n), np.zeros(n))
    ends = np.empty(rounds + 1)
    ends[0] = free.max()
    cached: dict[float, Array | float] = {}  # share of a model -> seconds that links add, for all rounds

    def extra(share: float) -> Array:
        if share not in cached:
            cached[share] = draws.links(share * draws.floats)
        return np.broadcast_to(cached[share], draws.seconds.shape)[r]

    for r in range(rounds):
        free, ports = ring_finish(free + draws.seconds[r], ports, draws.floats, draws.link, extra)
        ends[r + 1] = free.max()
    steps = 2 * (n - 1)
    messages = np.full(rounds, float(n * steps))
    size = np.full(rounds, float(steps * draws.floats * draws.link.width))
    return RoundTimes(np.diff(ends), messages, size, (free, ports))
