"""Hierarchical SGD, H-SGD: groups of workers average their models often, and all workers average theirs rarely.

J. Wang, S. Wang, R.-R. Chen, M. Ji, "Demystifying why local aggregation helps: Convergence analysis of hierarchical
SGD", AAAI 2022, after `HierarchicalModelAverager` of torch.distributed (PyTorch 2.13). After each step at most one
level averages: the highest one whose period divides the number of steps. All levels but the last average among the
workers of groups. The last level averages over all workers, and ends a round.

Workers form a tree, as only parents and children exchange messages. The first worker of a group adds up the models of
its group, and sends the average back. At a higher level, these sums are added up by the first worker of the larger
group. The round's commit is that of local SGD, from sums of the groups.
"""

from collections.abc import Generator, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import pairwise
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import model_validator

from workbench.core.base.settings import SettingError, setting
from workbench.core.base.types import Array
from workbench.core.codes.checks import nearest
from workbench.core.contract.exchanges import ModelAverage
from workbench.core.contract.plan import MASTER, Plan
from workbench.core.contract.programs import LostChildren, from_children, parent_program, plain_sum
from workbench.core.contract.protocol import (
    CODED,
    MODEL,
    PEER_LOST,
    Close,
    Decode,
    Message,
    Node,
    Program,
    Recv,
    Send,
)
from workbench.core.contract.round_times import RoundTimes, SampledTimes, arrival_order, port_departures
from workbench.core.contract.scheme import divisors
from workbench.core.schemes.local_steps import Inner, PlainSteps
from workbench.core.schemes.uncoded import total

AVERAGE = "average"  # kind of the message with the average of a group's models


class HSGD(PlainSteps):
    """Hierarchical SGD: gradient steps on each worker's own part, averages in groups, then an average of all workers.

    Averages weigh a model by its worker's samples, as in `LocalSGD`. A straggler delays its own group only, until the
    next average of a higher level. Without `levels` it is `LocalSGD`.

    >>> HSGD(local_steps=8, levels=((2, 4),)).syncs
    ((2, 0), (4, 0), (6, 0), (8, 1))
    """

    name = "H-SGD"
    title: ClassVar[str] = "Hierarchical SGD"
    paper: ClassVar[str] = "Wang et al. 2022; HierarchicalModelAverager of PyTorch"
    follows: ClassVar[Literal["paper", "abstract", "code"]] = "code"
    levels: tuple[tuple[int, int], ...] = setting(
        ((2, 2),),
        "averages of groups between two averages of all workers: pairs of a period in steps and a number of workers per"
        " group",
    )

    @classmethod
    def candidates(cls, workers: int) -> list[dict[str, Any]]:
        """Return configurations with two levels: groups average every two steps, all workers every 8 or 16."""
        sizes = [size for size in divisors(workers) if 1 < size < workers]
        few = sorted({sizes[0], sizes[len(sizes) // 2], sizes[-1]}) if sizes else []
        return [{"local_steps": steps, "levels": ((2, size),)} for size in few for steps in (8, 16)]

    @model_validator(mode="after")
    def _nested(self) -> Self:
        periods = [*(period for period, _ in self.levels), self.local_steps]
        if any(number < 1 for level in self.levels for number in level):
            raise SettingError(f"levels = {self._written}: periods and sizes are counts; take 1 or more")
        for period, longer in pairwise(periods):
            if longer % period:
                what = f"levels = {self._written}: period {period} does not divide the next one, {longer}"
                raise SettingError(f"{what}; take {', '.join(map(str, divisors(longer)))}")
        return self

    @property
    def _written(self) -> list[list[int]]:
        return [list(level) for level in self.levels]

    def check(self, workers: int) -> None:
        """Raise `SettingError` unless each size divides the next one, and the last divides the workers."""
        for size, larger in pairwise(size for _, size in self.levels):
            if larger % size:
                what = f"groups of {size} do not divide those of {larger}"
                raise SettingError(f"scheme_args.levels = {self._written}: {what}; take a multiple of {size}")
        if self.levels and workers % (size := self.levels[-1][1]):
            what = f"groups of {size} do not divide {workers} workers"
            raise SettingError(
                f"scheme_args.levels = {self._written}: {what}; take {nearest(size, divisors(workers))}"
            )

    @cached_property
    def syncs(self) -> tuple[tuple[int, int], ...]:
        """Averages of a round: for each, the number of steps before it, and its level, from 0."""
        periods = [*(period for period, _ in self.levels), self.local_steps]
        ends = range(periods[0], self.local_steps + 1, periods[0])
        level = {end: max(i for i, period in enumerate(periods) if end % period == 0) for end in ends}
        return tuple(level.items())

    def link(self, rank: int) -> int:
        """Return the level at which a worker sends its sum to its parent."""
        first = (i for i, (_, size) in enumerate(self.levels) if (rank - 1) % size)
        return next(first, len(self.levels))

    def parent(self, rank: int) -> int:
        """Return a worker's parent: the first worker of its smallest group in which it is not the first."""
        level = self.link(rank)
        if level == len(self.levels):
            return MASTER
        size = self.levels[level][1]
        return 1 + (rank - 1) // size * size

    def plan(self, workers: int, samples: int) -> Plan:
        """Return a plan with one part per worker, whose tree follows from the groups."""
        plan = super().plan(workers, samples)
        parents = [-1, *(self.parent(rank) for rank in range(1, workers + 1))]
        return replace(plan, parent=np.array(parents), answers=len(self.syncs))

    def exchange_rule(self, workers: int) -> ModelAverage:
        self.refuse_own_steps()
        sizes = (*(size for _, size in self.levels), workers)
        levels = dict(self.syncs)
        return ModelAverage(matrix=np.eye(workers), period=self.local_steps, levels=levels, sizes=sizes)

    def program(self, node: Node) -> Program:
        if node.rank == MASTER:
            rule = from_children(len(node.children))  # a worker may send several messages
            return parent_program(node, rule, lambda r, got: (total(got), 0.0))
        return self._worker(node, *self.inner(node))

    def _worker(self, node: Node, step: Inner, unit: float) -> Program:
        ask, lost = Recv({MODEL: 0}, latest=True), LostChildren()
        while True:
            job = yield ask
            over = job.round == node.rounds
            if node.children:
                yield Send(node.children, MODEL, job.round, job.value, floats=0 if over else None)
            if over:
                return
            yield from self._round(node, job, step, unit, lost)

    def _round(self, node: Node, job: Message, step: Inner, unit: float, lost: LostChildren) -> Program:
        model, begin, early = job.value, job.round * self.local_steps, dict[tuple[int, int], Any]()
        own, top = self.link(node.rank), len(self.levels)
        for number, (end, level) in enumerate(self.syncs):
            steps = range(begin, job.round * self.local_steps + end)
            model = yield from self._stepped(node, job, model, steps, step)
            if model is None:
                return
            begin, last = steps.stop, steps[-1]
            below = [child for child in node.children if self.link(child) <= level]
            weight, all_weights = self._weights(node, level)
            value = self._moved(node, job.value, model, unit) if level == top else weight * model
            value = yield from _summed(node, (job.round, number), below, value, early, lost)
            if level == top and node.children:
                yield Close(CODED, job.round + 1)
            if level >= own:
                yield Send(node.parent, CODED, job.round, value, number=number, draw=last)
            if level == top:
                return
            model = (yield Recv({AVERAGE: job.round})).value if level >= own else value / all_weights
            if below:
                yield Send(below, AVERAGE, job.round, model, number=number, draw=last)

    def _weights(self, node: Node, level: int) -> tuple[float, float]:
        """Return the weights of a worker and of its group in an average.

        These are their numbers of samples, or of workers if they have no samples.
        """
        size = self.levels[level][1] if level < len(self.levels) else node.plan.workers
        first = 1 + (node.rank - 1) // size * size
        samples = float(node.plan.stored[first : first + size].sum())
        return (float(node.work.samples), samples) if samples else (1.0, float(size))

    def round_times(self, draws: SampledTimes, workers: int) -> RoundTimes:
        """Return the time at which the last group's sum reaches the master.

        Stragglers delay only their groups until then.
        """
        times = _Times(self, draws, workers)
        leads = times.below[MASTER]
        for lead in leads:
            times.advance(lead, 0)
        arrivals = np.stack([times.sent(lead, len(self.syncs) - 1) for lead in leads], axis=1)
        through = times.through(leads, list(arrivals.T))
        links = [self.link(rank) for rank in range(1, workers + 1)]
        inner = sum(2 * sum(link <= level for link in links) for _, level in self.syncs[:-1])
        count = np.full(len(arrivals), float(inner + workers))
        end = through.max(axis=1) + draws.decode_seconds(len(leads))
        return RoundTimes(end, count, count * (draws.link.width * draws.floats))


def _summed(
    node: Node,
    sync: tuple[int, int],
    below: Sequence[int],
    value: Array,
    early: dict[tuple[int, int], Any],
    lost: LostChildren,
) -> Generator[Any, Any, Array]:
    """Add the sums of some children to a value, in the order of ranks.

    `sync`: round, and number of its average. `early`: messages of later averages, by number and sender.
    """
    (round, number), missing = sync, {(sync[1], child) for child in below}
    while not missing <= early.keys():
        if dead := lost.of(round):
            raise lost.quorum_lost(node.rank, round, dead)
        message: Message = yield Recv({CODED: round, PEER_LOST: 0})
        if message.kind == PEER_LOST:
            lost.add(message)
        else:
            early[message.number, message.src] = message.value
    if below:
        yield Decode(len(below) * node.floats)
    return np.asarray(plain_sum([value, *(early.pop((number, child)) for child in below)]))


class _Times:
    """Clocks of all workers, for several rounds. `advance` moves them from one average of models to a later one.

    A message waits at its receiver's port for all messages that arrive earlier, even if they belong to later averages.
    Its latency and its seconds on the port are those of its sender's link.
    """

    def __init__(self, scheme: HSGD, draws: SampledTimes, workers: int) -> None:
        self.scheme, self.link = scheme, draws.link
        self.transfer = np.broadcast_to(draws.transfer(draws.floats), workers)  # s, by sender
        self.ties = draws.tie_order(np.arange(len(draws.seconds)))
        self.decode_seconds = draws.decode_seconds
        first = [(draws.first_round + r) * scheme.local_steps for r in range(len(draws.seconds))]
        bounds = [0, *(end for end, _ in scheme.syncs)]
        # Seconds of the steps before each average, and of sending after them: (rounds, workers)
        self.steps = [
            np.stack([sum(draws.load_seconds(begin + h) for h in range(a, b)) for begin in first])
            for a, b in pairwise(bounds)
        ]
        shape, sizes = (len(first), workers), bounds[1:]
        self.sending = [
            np.broadcast_to(draws.send_seconds((begin + b - 1 for begin in first), 1.0), shape) for b in sizes
        ]
        self.below: list[list[int]] = [[] for _ in range(workers + 1)]
        hop = np.broadcast_to(draws.downlink_seconds, shape)  # s until the model reaches each worker
        self.now = [np.zeros(len(first)) for _ in range(workers + 1)]
        for rank in range(1, workers + 1):
            parent = scheme.parent(rank)
            self.below[parent].append(rank)
            self.now[rank] = self.now[parent] + hop[:, rank - 1]

    def sent(self, rank: int, sync: int) -> Array:
        """Return when a message that a worker sends now, for the average `sync`, arrives at the receiver's port."""
        return np.asarray(self.now[rank] + self.sending[sync][:, rank - 1] + self.link.latency)

    def advance(self, rank: int, sync: int) -> int:
        """Advance a worker and its subtree from the average `sync` until the worker sends a sum to its parent.

        Return the average that the sum belongs to.
        """
        scheme = self.scheme
        at_port = {child: self.sent(child, self.advance(child, sync)) for child in self.below[rank]}
        # senders and arrival times of messages that were received before
        before: list[tuple[int, Array]] = []
        while True:
            level = scheme.syncs[sync][1]
            self.now[rank] = self.now[rank] + self.steps[sync][:, rank - 1]
            taken = [child for child in at_port if scheme.link(child) <= level]
            if taken:
                through = self.through(*zip(*before, *at_port.items(), strict=True))
                here = [len(before) + i for i, child in enumerate(at_port) if child in taken]
                done = through[:, here].max(axis=1)
                self.now[rank] = np.maximum(self.now[rank], done) + self.decode_seconds(len(taken))
            if level >= scheme.link(rank):
                return sync
            before += [(child, at_port[child]) for child in taken]
            self._release(rank, taken, sync)
            sync += 1
            at_port |= {child: self.sent(child, self.advance(child, sync)) for child in taken}

    def _release(self, rank: int, children: Sequence[int], sync: int) -> None:
        """Send an average down from a worker to its subtree."""
        for child in children:
            self.now[child] = self.sent(rank, sync) + self.transfer[rank - 1]
            self._release(child, self.below[child], sync)

    def through(self, senders: Sequence[int], times: Sequence[Array]) -> Array:
        """Return when each message has passed a port, (rounds, messages), from senders and arrival times, s."""
        arrivals, who = np.stack(times, axis=1), np.array(senders) - 1

        def ties(which: NDArray[np.int64]) -> Array:
            return np.asarray(self.ties[np.ix_(which, who)])

        order, passed = arrival_order(arrivals, ties), np.empty_like(arrivals)
        np.put_along_axis(passed, order, port_departures(arrivals, self.transfer[who], ties), axis=1)
        return passed
