"""Gradient coding with clustering and multi-message communication: GC-MMC, and UC-MMC without a code.

E. Ozfatura, D. Gunduz, S. Ulukus, "Gradient coding with clustering and multi-message communication", DSW 2019,
sections III-A (correlated), III-B (uncorrelated), III-C (clusters), III-D (hybrid). K workers and K parts in P clusters
of K/P; within its cluster worker i goes through the parts i, i+1, ..., i+r-1 in this order, cyclically, and sends a
message as soon as the parts that it combines are done. One worker per cluster that finishes all (order = load = K/P) is
the fractional repetition of Tandon et al. 2017.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Generator
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import model_validator

from workbench.codes import MultiMessage, correlated, uncorrelated
from workbench.errors import QuorumLost
from workbench.protocol import (
    CODED,
    LOST,
    MASTER,
    MODEL,
    Array,
    Close,
    Commit,
    Compute,
    Decode,
    Message,
    Node,
    Plan,
    Program,
    Recv,
    Scheme,
    Send,
    Work,
    even_sizes,
)
from workbench.settings import SettingError, setting
from workbench.subprograms import worker_program

if TYPE_CHECKING:
    from workbench.forecasting import Odds, Setting

SUM = -1  # stands where a row of the code stands: the plain sum of the cluster (hybrid rule)


class Agenda(NamedTuple):
    """What the workers of a cluster send: worker w's j-th message is row rows[w, j], ready after after[j] parts."""

    code: MultiMessage
    after: NDArray[np.int64]  # (l,), ascending
    rows: NDArray[np.int64]  # (workers, l), SUM for the plain sum

    def hybrid(self, load: int) -> Agenda:
        """Instead of the message after all parts, or as well where there is none, the plain sum (section III-D)."""
        keep = self.after < load
        sums = np.full((len(self.rows), 1), SUM)
        return Agenda(
            self.code, np.append(self.after[keep], load), np.hstack([self.rows[:, keep], sums])
        )

    def coefficients(self, place: int, number: int) -> Array:
        """Coefficients of a message over its worker's first parts, in the worker's order."""
        row, count = self.rows[place, number], self.after[number]
        if row == SUM:
            return np.ones(count)
        return np.asarray(self.code.matrix[row][(place + np.arange(count)) % len(self.rows)])


class Tally:
    """What the master has of one cluster in a round."""

    def __init__(self, agenda: Agenda) -> None:
        self.agenda = agenda
        self.values: dict[int, Any] = {}  # by row: of messages sent by several workers the first counts

    @property
    def done(self) -> bool:
        """Can the cluster's gradient be decoded?"""
        return enough(self.agenda, self.values.keys())

    def decode(self) -> tuple[Any, float]:
        """The cluster's gradient and |b - 1|^2; added up by row, never by arrival."""
        if SUM in self.values:
            return self.values[SUM], 0.0
        rows = tuple(sorted(self.values))
        weights, residual = self.agenda.code.decode(rows)
        return weights @ np.stack([self.values[row] for row in rows]), residual

    @property
    def combined(self) -> int:
        """How many messages decoding combines."""
        return 1 if SUM in self.values else len(self.values)


def enough(agenda: Agenda, rows: Any) -> bool:
    """Do these rows decode? Any `needed` different ones do, and a cluster's plain sum."""
    return SUM in rows or len(rows) >= agenda.code.needed


class MultiMessageScheme(Scheme):
    """Workers send a message whenever enough of their parts are done; clusters decode apart from one another."""

    load: int = setting(2, "parts that a worker goes through (r)", "parts", ge=1)
    clusters: int = setting(1, "clusters of workers with parts of their own (P)", ge=1)
    when_done: Literal["stop", "go on"] = setting(
        "stop",
        "what a cluster does once its gradient is known: its workers are told to stop and what is still on its way"
        " is refused, or they go on to the end of the round and every message is taken in",
    )

    def check(self, workers: int) -> None:
        """Clusters divide the workers; a worker has no more parts than its cluster."""
        if workers % self.clusters:
            fits = [p for p in range(1, workers + 1) if workers % p == 0]
            near = sorted(sorted(fits, key=lambda p: abs(p - self.clusters))[:4])
            raise SettingError(
                f"scheme_args.clusters = {self.clusters}: does not divide {workers} workers;"
                f" take {', '.join(map(str, near))}"
            )
        size = workers // self.clusters
        if self.load > size:
            raise SettingError(
                f"scheme_args.load = {self.load}: a cluster of {size} workers has {size} parts; take 1 to {size}"
            )

    @abstractmethod
    def agenda(self, size: int) -> Agenda:
        """Messages of a cluster of that many workers."""

    def kind(self, cluster: int) -> str:
        """Kind of a cluster's messages: one of its own where they are refused apart from the others."""
        return CODED if self.when_done == "go on" else f"{CODED} by cluster {cluster + 1}"

    def windows(self, workers: int) -> NDArray[np.int64]:
        """Parts of each worker in the order in which it goes through them, (workers, r)."""
        size = workers // self.clusters
        first, place = np.divmod(np.arange(workers), size)
        return np.asarray(first[:, None] * size + (place[:, None] + np.arange(self.load)) % size)

    def plan(self, workers: int, samples: int) -> Plan:
        """Cyclic windows of r parts within each cluster."""
        agenda = self.agenda(workers // self.clusters)
        return Plan(
            sizes=even_sizes(samples, workers),
            indptr=np.concatenate([[0], np.arange(workers + 1) * self.load]),
            indices=self.windows(workers).ravel(),
            coefficients=np.ones(workers * self.load),
            parent=np.array([-1] + [MASTER] * workers),
            answers=len(agenda.after),
            notes={
                "cluster": np.concatenate([[-1], np.arange(workers) * self.clusters // workers]),
                "message_code": agenda.code.matrix,
                "messages_after": agenda.after,
            },
        )

    def program(self, node: Node) -> Program:
        """Master or worker."""
        agenda = self.agenda(node.plan.workers // self.clusters)
        if node.rank == MASTER:
            return self._master(node, agenda)
        cluster, place = divmod(node.rank - 1, len(agenda.rows))
        steps = steps_of(agenda, place, node.work.split(node.plan.sizes))
        return worker_program(node, lambda node, job: _answer(node, job, steps, self.kind(cluster)))

    def _master(self, node: Node, agenda: Agenda) -> Program:
        model, lost = node.model, set[int]()
        for r in range(node.rounds):
            yield Send(node.children, MODEL, r, model)
            tallies = yield from self._gather(node, r, agenda, lost)
            sums, residuals = zip(*(tally.decode() for tally in tallies), strict=True)
            yield Decode(sum(tally.combined for tally in tallies) * node.floats)
            model = yield Commit(sum(sums), r, sum(residuals))
        yield Send(node.children, MODEL, node.rounds, None, floats=0)

    def _gather(
        self, node: Node, round: int, agenda: Agenda, lost: set[int]
    ) -> Generator[Any, Any, list[Tally]]:
        """Take messages until every cluster has enough; one that has is told to stop, or merely not listened to."""
        tallies = [Tally(agenda) for _ in range(self.clusters)]
        ask = Recv({LOST: 0, **{self.kind(c): round for c in range(self.clusters)}})
        waiting = self.clusters
        check_hope(node, round, tallies, lost)
        while waiting:
            message = yield ask
            if message.kind == LOST:
                lost.add(message.src)
                check_hope(node, round, tallies, lost)
                continue
            cluster, place = divmod(message.src - 1, len(agenda.rows))
            if tallies[cluster].done:
                continue
            tallies[cluster].values.setdefault(int(agenda.rows[place, message.number]), message.value)
            if tallies[cluster].done:
                waiting -= 1
                if self.when_done == "stop" or not waiting:
                    yield Close(self.kind(cluster), round + 1)
                if self.when_done == "stop" and waiting:  # with nobody to wait for the next model is a stop
                    yield Send(members(cluster, len(agenda.rows)), MODEL, round + 1, None, floats=0)
        return tallies

    def odds(self, setting: Setting, workers: int) -> Odds:
        """When the last cluster's decisive message is through the port."""
        from workbench.forecasting import messages_odds

        agenda = self.agenda(workers // self.clusters)
        portions = even_sizes(setting.samples, workers)[self.windows(workers)]
        rows = np.tile(agenda.rows, (self.clusters, 1))
        return messages_odds(
            setting, portions, agenda.after, rows, self.clusters, agenda.code.needed, self.when_done == "stop"
        )
