"""Gradient coding with clustering and multi-message communication: GC-MMC, and UC-MMC without a code.

E. Ozfatura, D. Gunduz, S. Ulukus, "Gradient coding with clustering and multi-message communication", DSW 2019,
sections III-A (correlated), III-B (uncorrelated), III-C (clusters), III-D (hybrid). There are K workers and K parts
in P clusters of K/P. Within its cluster, worker i computes the parts i, i+1, ..., i+r-1 in this order, cyclically. It
sends a message as soon as the parts that it combines are done. With order = load = K/P, one worker per cluster is
enough, as in the fractional repetition of Tandon et al. 2017.
"""

from abc import abstractmethod
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import model_validator

from workbench.core.base.settings import SettingError, setting
from workbench.core.base.type_checks import span
from workbench.core.codes import GradientCode, correlated, uncorrelated
from workbench.core.codes.checks import between, groups_divide
from workbench.core.contract.plan import MASTER, Plan, even_plan, even_sizes
from workbench.core.contract.protocol import Node, Program
from workbench.core.contract.round_times import RoundTimes, SampledTimes
from workbench.core.contract.scheme import Scheme, divisors, least_digits_field, log_spaced_ints
from workbench.core.schemes.many_messages import (
    Agenda,
    Clusters,
    clusters_master,
    clusters_worker,
    message_odds,
)


class MultiMessageScheme(Scheme):
    """Base of schemes whose workers send messages after certain numbers of computed parts.

    Each cluster is decoded separately.
    """

    load: int = setting(3, "parts that a worker computes (r)", "parts", ge=1)
    clusters: int = setting(1, "clusters of workers, which share no parts (P)", ge=1)
    when_done: Literal["stop", "go on"] = setting(
        "stop",
        "once a cluster's gradient is decoded, stop: its workers are stopped, and messages on their way are refused;"
        " go on: its workers continue to the end of the round, and all messages are received",
    )

    @classmethod
    def candidates(cls, workers: int) -> list[dict[str, Any]]:
        """Return some numbers of clusters and loads."""
        sizes = divisors(workers)[1:]
        picked = {sizes[round(k * (len(sizes) - 1) / 3)] for k in range(4)} if sizes else set()
        return [
            {"clusters": workers // size, "load": r}
            for size in sorted(picked)
            for r in log_spaced_ints(2, size, 4)
        ]

    def check(self, workers: int) -> None:
        """Raise `SettingError` unless clusters divide the workers, and the load is at most the size of a cluster."""
        groups_divide("scheme_args.clusters", self.clusters, workers)
        size = workers // self.clusters
        between("scheme_args.load", self.load, 1, size, f"a cluster of {size} workers has {size} parts")

    @abstractmethod
    def agenda(self, size: int) -> Agenda:
        """Return the messages of a cluster of `size` workers."""

    def build(self, workers: int) -> Clusters:
        """Return the clusters and their messages."""
        return Clusters(self.clusters, self.agenda(workers // self.clusters), self.when_done == "stop")

    def windows(self, workers: int) -> NDArray[np.int64]:
        """Return the parts of each worker in the order in which it computes them, (workers, r)."""
        size = workers // self.clusters
        first, place = np.divmod(np.arange(workers), size)
        return np.asarray(first[:, None] * size + (place[:, None] + np.arange(self.load)) % size)

    def plan(self, workers: int, samples: int) -> Plan:
        """Return a plan with cyclic windows of r parts within each cluster."""
        agenda = self.agenda(workers // self.clusters)
        cluster = np.concatenate([[-1], np.arange(workers) * self.clusters // workers])
        notes = {"cluster": cluster, "message_code": agenda.code.matrix, "messages_after": agenda.after}
        return even_plan(self.windows(workers), samples, answers=len(agenda.after), notes=notes)

    def program(self, node: Node) -> Program:
        clusters = self.build(node.plan.workers)
        return clusters_master(node, clusters) if node.rank == MASTER else clusters_worker(node, clusters)

    def round_times(self, draws: SampledTimes, workers: int) -> RoundTimes:
        """Return the time when the message that completes the last cluster has passed the port."""
        portions = even_sizes(draws.samples, workers)[self.windows(workers)]
        return message_odds(draws, portions, self.build(workers))


class UCMMC(MultiMessageScheme):
    """Uncoded, multi-message: a worker sends each gradient when it is computed. Every part must arrive once."""

    name = "UC-MMC"
    title: ClassVar[str] = "Uncoded, multi-message"
    paper: ClassVar[str] = "Ozfatura et al. 2019, section IV"

    def agenda(self, size: int) -> Agenda:
        """Return the messages of the correlated code of order 1."""
        return Agenda.of(correlated(size, self.load, 1))


class GCMMC(MultiMessageScheme):
    """Gradient coding with clustering and multi-message communication, correlated or uncorrelated.

    >>> GCMMC(load=3, order=2).loads(workers=6, samples=60).tolist()
    [30, 30, 30, 30, 30, 30]
    """

    name = "GC-MMC"
    title: ClassVar[str] = "Gradient coding, multi-message"
    paper: ClassVar[str] = "Ozfatura et al. 2019, section III"
    order: int | tuple[int, ...] = setting(
        2,
        "parts that one message combines: a number m = correlated code, a message after m, m + 1, ..., r parts;"
        " a list = uncorrelated code, a message after each of these numbers of parts",
    )
    hybrid: bool = setting(
        False, "a worker that has computed all parts of its cluster sends their plain sum; needs r = K / P"
    )
    construction: Literal["separate", "joint"] = setting(
        "separate",
        "for an uncorrelated code, separate: one cyclic code for each entry of the list, which keeps more digits;"
        " joint: one code over all messages, as in the paper; both decode from any K l / P - sum(order) + 1 messages"
        " of a cluster",
    )
    code_seed: int = setting(0, "seed of the code's random numbers", ge=0)
    least_digits: int = least_digits_field()

    @classmethod
    def candidates(cls, workers: int) -> list[dict[str, Any]]:
        """Return configurations with one message after all parts, and with a first message after half of them."""
        shapes = super().candidates(workers)
        orders = [(each, m) for each in shapes for m in {each["load"], (each["load"] + 1) // 2}]
        return [{**each, "order": m} for each, m in orders if m > 1]

    @model_validator(mode="after")
    def _orders_fit(self) -> Self:
        orders = self.orders
        shown = self.order if isinstance(self.order, int) else list(self.order)
        if not orders:
            raise SettingError(f"order = []: a worker sends one message at least; take [{self.load}]")
        if len(set(orders)) < len(orders):
            why = f"a worker would send two messages at once; take {sorted(set(orders))}"
            raise SettingError(f"order = {shown}: {why}")
        if min(orders) < 1 or max(orders) > self.load:
            why = f"a message combines some of a worker's {self.load} parts (load); take {span(1, self.load)}"
            raise SettingError(f"order = {shown}: {why}")
        if not isinstance(self.order, int) and max(orders) < self.load and not self.hybrid:
            raise SettingError(
                f"order = {shown}: no message waits for more than {max(orders)} of a worker's {self.load} parts;"
                f" take load = {max(orders)} or [{', '.join(map(str, [*orders, self.load]))}]"
            )
        return self

    @property
    def orders(self) -> tuple[int, ...]:
        """Orders as a tuple, also if the user has given a single number."""
        return (self.order,) if isinstance(self.order, int) else self.order

    def check(self, workers: int) -> None:
        """Raise `SettingError` for a hybrid rule if the load, and so the plain sum, does not cover the cluster."""
        super().check(workers)
        size = workers // self.clusters
        if self.hybrid and self.load != size:
            raise SettingError(
                f"scheme_args.hybrid = True: a plain sum of {self.load} parts is not the gradient of a cluster of"
                f" {size}; take load = {size}, or hybrid = False"
            )

    def codes(self, workers: int) -> list[GradientCode]:
        return [self.agenda(workers // self.clusters).code]

    def agenda(self, size: int) -> Agenda:
        """Return coded messages, in the order in which they are ready."""
        if isinstance(self.order, int):
            code = correlated(size, self.load, self.order, self.code_seed)
        else:
            code = uncorrelated(size, self.order, self.code_seed, self.construction)
        agenda = Agenda.of(code)
        return agenda.hybrid(self.load) if self.hybrid else agenda
