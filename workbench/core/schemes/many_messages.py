"""Base of schemes with several messages per worker and round: programs, and round times without an event loop.

E. Ozfatura, D. Gunduz, S. Ulukus, "Gradient coding with clustering and multi-message communication", DSW 2019,
section III.
"""

from __future__ import annotations

from collections.abc import Collection, Generator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from workbench.core.base.types import Array
from workbench.core.codes import MultiMessage
from workbench.core.contract.plan import Work
from workbench.core.contract.programs import (
    AnswerProgram,
    LostChildren,
    decoded,
    master_program,
    weighted_sum,
    worker_program,
)
from workbench.core.contract.protocol import (
    CODED,
    MODEL,
    PEER_LOST,
    Close,
    Compute,
    Message,
    Node,
    Program,
    Recv,
    Send,
)
from workbench.core.contract.round_times import (
    MAX_TIMES_PER_BATCH,
    RoundTimes,
    SampledTimes,
    arrival_order,
    places,
    port_departures,
)

Ints = NDArray[np.int64]
SUM_ROW = -1  # row number of the plain sum of the cluster (hybrid rule), which is not a row of the code
# a part to compute, and the messages to send after it: number, parts and coefficients of each
Step = tuple[Work, list[tuple[int, Ints, Array]]]


class Agenda(NamedTuple):
    """Messages of the workers of a cluster. Message j of worker w is row rows[w, j].

    It is ready after `after[j]` parts.
    """

    code: MultiMessage
    after: Ints  # number of parts after which each message is ready, (l,), ascending
    rows: Ints  # row of the code for each message, (workers, l); SUM_ROW for the plain sum

    @classmethod
    def of(cls, code: MultiMessage) -> Agenda:
        """Return the messages of a code, in the order in which they are ready."""
        after = np.array(code.after)
        order = np.argsort(after)
        return cls(code, after[order], code.messages[:, order])

    def hybrid(self, load: int) -> Agenda:
        """Return the agenda in which the message after all parts is the plain sum (section III-D)."""
        keep = self.after < load
        sums = np.full((len(self.rows), 1), SUM_ROW)
        return Agenda(self.code, np.append(self.after[keep], load), np.hstack([self.rows[:, keep], sums]))

    def coefficients(self, place: int, number: int) -> Array:
        """Return the coefficients of a message for the first parts of its worker, in the worker's order."""
        row, count = self.rows[place, number], self.after[number]
        if row == SUM_ROW:
            return np.ones(count)
        return np.asarray(self.code.matrix[row][(place + np.arange(count)) % len(self.rows)])

    def steps(self, place: int, pieces: list[Work]) -> list[Step]:
        """Return the steps of a worker: compute a part, then send the messages that are ready."""
        steps: list[Step] = [(piece, []) for piece in pieces]
        for number, count in enumerate(self.after.tolist()):
            coefficients = self.coefficients(place, number)
            taken = np.flatnonzero(coefficients)
            steps[count - 1][1].append((number, taken, coefficients[taken]))
        return steps

    def enough(self, rows: Collection[int]) -> bool:
        """Return whether these rows decode: any `needed` different rows do, and so does the plain sum."""
        return SUM_ROW in rows or len(rows) >= self.code.needed


class Clusters(NamedTuple):
    """Clusters of consecutive ranks with the same agenda.

    With `stop`, the master stops finished clusters and ignores their messages.
    """

    number: int
    agenda: Agenda
    stop: bool

    @property
    def size(self) -> int:
        """Workers per cluster."""
        return len(self.agenda.rows)

    def place(self, rank: int) -> tuple[int, int]:
        """Return the cluster of a worker, and its place in it."""
        return divmod(rank - 1, self.size)

    def members(self, cluster: int) -> tuple[int, ...]:
        """Return the ranks of a cluster."""
        return tuple(range(1 + cluster * self.size, 1 + (cluster + 1) * self.size))

    def kind(self, cluster: int) -> str:
        """Return the message kind of a cluster.

        With `stop`, each cluster has its own kind, so that the master can refuse the messages of one cluster.
        """
        return f"{CODED} by cluster {cluster + 1}" if self.stop else CODED


class Tally:
    """Messages that the master has received from one cluster in a round."""

    def __init__(self, agenda: Agenda) -> None:
        self.agenda = agenda
        self.values: dict[int, Any] = {}  # value of each received row

    def add(self, place: int, message: Message) -> None:
        """Add a message. If several workers send the same row, the first one is used."""
        self.values.setdefault(int(self.agenda.rows[place, message.number]), message.value)

    @property
    def done(self) -> bool:
        """Whether the cluster's gradient can be decoded."""
        return self.agenda.enough(self.values)

    @property
    def combined(self) -> int:
        """Number of messages that decoding combines."""
        return 1 if SUM_ROW in self.values else len(self.values)

    def decode(self) -> tuple[Any, float]:
        """Return the cluster's gradient and |b - 1|^2. Rows are added in the order of the code, not of arrival."""
        if SUM_ROW in self.values:
            return self.values[SUM_ROW], 0.0
        return decoded(self.agenda.code.decode, self.values)


def clusters_master(node: Node, clusters: Clusters) -> Program:
    """Run the master: gather until every cluster is done, and commit the sum of the clusters' gradients."""

    def answers(r: int, model: Any, lost: LostChildren) -> AnswerProgram:
        tallies = yield from gather_clusters(node, r, clusters, lost)
        sums, residuals = zip(*(tally.decode() for tally in tallies), strict=True)
        return sum(sums), sum(residuals), sum(tally.combined for tally in tallies)

    return master_program(node, answers)


def gather_clusters(
    node: Node, round: int, clusters: Clusters, lost: LostChildren
) -> Generator[Any, Any, list[Tally]]:
    """Receive messages until every cluster is done."""
    tallies = [Tally(clusters.agenda) for _ in range(clusters.number)]
    ask = Recv({PEER_LOST: 0, **{clusters.kind(c): round for c in range(clusters.number)}})
    waiting = clusters.number
    check_hope(node, round, clusters, tallies, lost)
    while waiting:
        message = yield ask
        if message.kind == PEER_LOST:
            lost.add(message)
            check_hope(node, round, clusters, tallies, lost)
            continue
        cluster, place = clusters.place(message.src)
        if tallies[cluster].done:
            continue
        tallies[cluster].add(place, message)
        if tallies[cluster].done:
            waiting -= 1
            yield from _finish(round, clusters, cluster, waiting)
    return tallies


def _finish(round: int, clusters: Clusters, cluster: int, waiting: int) -> Program:
    """Refuse further messages of a finished cluster, and stop its workers.

    The last cluster is stopped by the next model.
    """
    if clusters.stop or not waiting:
        yield Close(clusters.kind(cluster), round + 1)
    if clusters.stop and waiting:
        yield Send(clusters.members(cluster), MODEL, round + 1, None, floats=0)


def check_hope(node: Node, round: int, clusters: Clusters, tallies: list[Tally], lost: LostChildren) -> None:
    """Raise `QuorumLost` as soon as the living members of a cluster can no longer complete it."""
    missing = lost.of(round)
    for cluster, tally in enumerate(tallies if missing else ()):
        ranks = clusters.members(cluster)
        alive = [place for place, rank in enumerate(ranks) if rank not in missing]
        hoped = set(tally.values).union(clusters.agenda.rows[alive].ravel().tolist())
        if not clusters.agenda.enough(hoped):
            raise lost.quorum_lost(node.rank, round, missing.intersection(ranks))


def clusters_worker(node: Node, clusters: Clusters) -> Program:
    """Run a worker: compute the parts one by one, and send each message when its parts are done."""
    cluster, place = clusters.place(node.rank)
    steps = clusters.agenda.steps(place, node.work.split(node.plan.sizes))
    return worker_program(node, lambda node, job: _answer(node, job, steps, clusters.kind(cluster)))


def _answer(node: Node, job: Message, steps: list[Step], kind: str) -> Program:
    """Compute part by part until a newer model comes. A model of None means that the cluster is done."""
    if job.value is None:
        return
    gradients: list[Any] = []
    for piece, sends in steps:
        gradient = yield Compute(piece, job.value, job.round, unless={MODEL: job.round + 1})
        if gradient is None:
            return
        gradients.append(gradient)
        for number, taken, coefficients in sends:
            value = weighted_sum(coefficients, [gradients[k] for k in taken])
            yield Send(node.parent, kind, job.round, value, number=number)


def message_odds(draws: SampledTimes, portions: Ints, clusters: Clusters) -> RoundTimes:
    """Return the seconds, messages and bytes of every round.

    `portions`: samples of each worker's parts in its order, (workers, r).

    A cluster is done with `needed` different rows of its code, or with its plain sum. The port keeps the order of
    arrival, so that its speed does not change which messages are refused.
    """
    at_once = max(1, MAX_TIMES_PER_BATCH // portions.size)
    extra = np.broadcast_to(draws.send(draws.floats), draws.seconds.shape)
    extra = extra + draws.link.latency + draws.downlink_seconds
    transfer = draws.transfer(draws.floats)
    pieces = []
    for start in range(0, len(extra), at_once):
        which = slice(start, start + at_once)
        done = draws.progress(portions, which)[:, :, clusters.agenda.after - 1]
        arrivals = (done + extra[which, :, None]).reshape(len(done), -1)
        order = arrival_order(arrivals, lambda at: draws.tie_order(start + at))  # noqa: B023 - called at once
        place = places(order)
        each = np.repeat(transfer, clusters.agenda.after.size) if np.ndim(transfer) else transfer
        pieces.append(_outcomes(arrivals, place, clusters, each))
    end, count, combined = (np.concatenate(column) for column in zip(*pieces, strict=True))
    size = float(draws.link.width * draws.floats)
    return RoundTimes(end + draws.decode_seconds(combined), count.astype(float), count * size)


def _outcomes(
    arrivals: Array, place: Ints, clusters: Clusters, transfer: Array | float
) -> tuple[Array, Ints, Ints]:
    """Return for each round the time of the last cluster, and the numbers of received and of combined messages.

    All three have the shape (rounds,). Times are in s.
    """
    by_cluster = place.reshape(len(place), clusters.number, -1)
    last, combined = decisive(by_cluster, clusters)
    times = arrivals.reshape(by_cluster.shape)
    if clusters.stop:
        taken = by_cluster <= last[:, :, None]
        count = taken.sum(axis=(1, 2))
        times = np.where(taken, times, np.inf)
    else:
        count = last.max(axis=1) + 1
    flat = times.reshape(len(place), -1)
    # because messages pass the port in the order of arrival
    through = port_departures(flat, transfer, lambda which: place[which].astype(float))
    return np.take_along_axis(through, count[:, None] - 1, axis=1)[:, 0], count, combined.sum(axis=1)


def decisive(place: Ints, clusters: Clusters) -> tuple[Ints, Ints]:
    """Return the position of the message that completes each cluster, and the number of combined messages.

    Both are of shape (rounds, clusters).

    `place`: positions of messages in the order of arrival, (rounds, clusters, messages). Of messages with the same row,
    the first is used.
    """
    rows = clusters.agenda.rows.ravel()
    order = np.argsort(rows, kind="stable")
    different, starts = np.unique(rows[order], return_index=True)
    first = np.minimum.reduceat(place[:, :, order], starts, axis=2)
    alone = int(np.sum(different < 0))
    never = np.full(place.shape[:2], np.iinfo(np.int64).max)
    coded, k = first[:, :, alone:], clusters.agenda.code.needed - 1
    enough = np.partition(coded, k, axis=2)[:, :, k] if coded.shape[2] > k else never
    whole = first[:, :, :alone].min(axis=2) if alone else never
    return np.minimum(enough, whole), np.where(whole < enough, 1, clusters.agenda.code.needed)
