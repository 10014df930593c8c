"""Base of lazy schemes: the rule that decides which gradients are too old, and the programs that use the rule.

Groups of workers store the same shard (in CADA, groups of one). The master keeps the last gradient of every group. In
each round it requests a new gradient only from groups whose gradient may be outdated. For other groups it uses the old
gradient.

F. Zhu, J. Zhang, O. Simeone, X. Wang, "Adaptive worker grouping for communication-efficient and straggler-tolerant
distributed SGD", conditions (7) and (9), Algorithm 1.
"""

import sys
from collections import deque
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from workbench.core.base.types import Array
from workbench.core.contract.plan import Work
from workbench.core.contract.programs import Answers, LostChildren, answer, worker_program
from workbench.core.contract.protocol import (
    CODED,
    MODEL,
    PEER_LOST,
    Close,
    Commit,
    Decode,
    Message,
    Node,
    Program,
    Recv,
    Send,
)
from workbench.core.contract.round_times import (
    RoundTimes,
    SampledTimes,
    arrival_order,
    places,
    port_departures,
)

# function of a group and its answers, which returns the group's gradient
Decoded = Callable[[int, Answers], Any]
# help text of the field c
AGE_HELP = (
    "a gradient is renewed if its squared change may exceed c times the sum of the model's last squared steps; 0 ="
    " after every change of the model"
)


class Laziness:
    """Selection of the groups that compute a new gradient: condition (9), which is (7) for groups of one worker.

    Group g is selected if L_g^2 |th_k - th_(k-tau_g)|^2 > c sum_(d=1..D) |th_(k+1-d) - th_(k-d)|^2 or tau_g >= D. The
    age tau_g of a selected group becomes 1; other ages grow by one. (This is Algorithm 1, line 8. The text omits the
    "+1", and has "larger than D" where line 3 has "at least D".) In the first round all groups are selected.
    """

    def __init__(self, smoothness: Sequence[float], c: float, max_age: int) -> None:
        self.smoothness, self.c, self.max_age = smoothness, c, max_age
        # tau; initially the max age, because no group has answered yet
        self.ages = [max_age] * len(smoothness)
        # th_(k-tau_g), the model of each group's last gradient
        self._seen: list[Any] = [None] * len(smoothness)
        # |th_(k+1-d) - th_(k-d)|^2, d = 1..D
        self._steps: deque[float] = deque(maxlen=min(max_age, sys.maxsize))
        self._before: Any = None

    def select(self, model: Any) -> list[int]:
        """Return the groups that compute at this model. Call it once per round."""
        if self._before is not None:
            self._steps.appendleft(squared(model - self._before))
        self._before = model
        limit = self.c * sum(self._steps)
        chosen = [g for g in range(len(self.ages)) if self._is_old(g, model, limit)]
        for g in range(len(self.ages)):
            self.ages[g] += 1
        for g in chosen:
            self.ages[g], self._seen[g] = 1, model
        return chosen

    def _is_old(self, group: int, model: Any, limit: float) -> bool:
        steep = self.smoothness[group] ** 2
        return self.ages[group] >= self.max_age or steep * squared(model - self._seen[group]) > limit


@dataclass(frozen=True)
class Groups:
    """Consecutive ranks in groups of one size. `needed` answers of a group give its gradient."""

    number: int
    size: int
    needed: int = 1

    def members(self, group: int) -> tuple[int, ...]:
        """Return the ranks of a group."""
        return tuple(range(1 + group * self.size, 1 + (group + 1) * self.size))

    def of(self, rank: int) -> int:
        """Return the group of a rank."""
        return (rank - 1) // self.size

    def work(self, node: Node, group: int) -> Work:
        """Return all parts that a group stores, each once and with weight 1."""
        parts = np.unique(np.concatenate([node.plan.work[rank].parts for rank in self.members(group)]))
        return Work(parts, np.ones(len(parts)), int(node.plan.sizes[parts].sum()))

    def additions(self, chosen: int) -> int:
        """Return how many vectors the master adds up: one for each group, and the answers that it decodes."""
        return self.number + (chosen * self.needed if self.needed > 1 else 0)


def lazy_master(node: Node, groups: Groups, c: float, max_age: int, decoded: Decoded) -> Program:
    """Run the master: select groups, send them the model, and commit with the last gradients of other groups."""
    works = [groups.work(node, g) for g in range(groups.number)]
    rule = Laziness([node.smoothness(w) if w.samples else 0.0 for w in works], c, max_age)
    model, lost, last = node.model, LostChildren(), dict[int, Any]()
    for r in node.span:
        chosen = rule.select(model)
        yield Send([rank for g in chosen for rank in groups.members(g)], MODEL, r, model)
        got = yield from gather_groups(node, r, groups, chosen, lost)
        for g in chosen:
            last[g] = decoded(g, got[g])
        yield Decode(groups.additions(len(chosen)) * node.floats)
        model = yield Commit(sum(last[g] for g in range(groups.number)), r)
    yield Send(node.children, MODEL, node.rounds, None, floats=0)


def gather_groups(
    node: Node, round: int, groups: Groups, chosen: Sequence[int], lost: LostChildren
) -> Generator[Any, Any, dict[int, Answers]]:
    """Take the first answers of each chosen group. Stop a group that has answered, and refuse its further answers.

    Each group has its own kind of message, so that its answers can be refused while others are awaited.
    """
    got: dict[int, Answers] = {g: {} for g in chosen}
    waiting = dict.fromkeys(chosen)  # a dict, to keep the order of ranks
    while waiting:
        _still_possible(node, round, groups, waiting, lost)
        message: Message = yield Recv({PEER_LOST: 0, **{kind_of(g): round for g in waiting}})
        if message.kind == PEER_LOST:
            lost.add(message)
            continue
        g = groups.of(message.src)
        got[g][message.src, message.number] = message
        if len(got[g]) == groups.needed:
            del waiting[g]
            yield Close(kind_of(g), round + 1)
            rest = [rank for rank in groups.members(g) if (rank, 0) not in got[g]]
            yield Send(rest, MODEL, round + 1, None, floats=0)
    return got


def _still_possible(
    node: Node, round: int, groups: Groups, waiting: dict[int, None], lost: LostChildren
) -> None:
    missing = lost.of(round)
    for g in waiting if missing else ():
        dead = missing.intersection(groups.members(g))
        if groups.size - len(dead) < groups.needed:
            raise lost.quorum_lost(node.rank, round, dead)


def lazy_worker(node: Node, groups: Groups, batch: int | None = None) -> Program:
    """Run a worker that answers each model. A model of None means that the group's answer is no longer needed."""
    kind = kind_of(groups.of(node.rank))
    return worker_program(node, lambda node, job: answer(node, job, kind=kind, batch=batch))


def batch_worker(node: Node, batch: int | None) -> Program:
    """Run a worker that answers every model with the gradient of a mini-batch."""
    return worker_program(node, lambda node, job: answer(node, job, batch=batch))


def lazy_odds(draws: SampledTimes, groups: Groups) -> RoundTimes:
    """Return round times if every group is selected: when the first answers of all groups have passed one port."""
    arrivals = draws.arrival_times(draws.floats)
    apart = np.sort(arrivals.reshape(len(arrivals), groups.number, groups.size), axis=2)
    first = apart[:, :, : groups.needed].reshape(len(arrivals), -1)
    transfer = draws.transfer(draws.floats)
    if isinstance(transfer, np.ndarray):
        order = arrival_order(arrivals, draws.tie_order)
        place = places(order).reshape(apart.shape)
        taken = np.sort(place, axis=2)[:, :, : groups.needed].reshape(len(arrivals), -1)
        who = np.take_along_axis(order, np.sort(taken, axis=1), axis=1)
        first, transfer = np.take_along_axis(arrivals, who, axis=1), transfer[who]
    through = port_departures(first, transfer)
    count = np.full(len(arrivals), float(first.shape[1]))
    end = through[:, -1] + draws.decode_seconds(groups.additions(groups.number))
    return RoundTimes(end, count, count * (draws.link.width * draws.floats))


def kind_of(group: int) -> str:
    """Return the message kind of a group's answers.

    >>> kind_of(0)
    'coded by group 1'
    """
    return f"{CODED} by group {group + 1}"


def squared(difference: Array) -> float:
    """Return the squared length of a vector, in its own precision."""
    return float(np.vdot(difference, difference))
