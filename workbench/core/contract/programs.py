"""Programs of masters and workers that many schemes share, and the stop rules of masters.

A coded star is a coded tree with one layer. UMW, SGD, GC and CR are therefore the same two programs, with different
plans, stop rules and functions that combine the answers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, cast

import numpy as np

from workbench.core.base.blas import one_thread
from workbench.core.base.errors import QuorumLost
from workbench.core.base.types import Array
from workbench.core.codes import Decoding, GradientCode
from workbench.core.contract.plan import MASTER, Work
from workbench.core.contract.protocol import (
    CODED,
    MODEL,
    PEER_LOST,
    Close,
    Commit,
    Compute,
    Decode,
    Message,
    Node,
    Program,
    Recv,
    Send,
    simultaneous,
)
from workbench.core.contract.weights import SparseWeights

Answer = tuple[int, int]  # rank, index of its message in the round
Answers = dict[Answer, Message]
# Function of the round and its answers. It returns the decoded value and the residual |b - 1|^2 (nan if unknown).
Combine = Callable[[int, Answers], tuple[Any, float]]
# generator that returns gradient, residual and number of combined answers
AnswerProgram = Generator[Any, Any, tuple[Any, float, int]]
INFINITY = float("inf")
MAX_BLOCK_BYTES = 2**19  # bytes of the blocks in which values are summed, which fit into the cache
MIN_BLOCK_VALUES = 16  # min number of values of such a block


@dataclass(frozen=True)
class StopRule:
    """Rule that decides when a parent stops waiting for answers. The operators & and | combine rules."""

    # function of the answers, the start of the round and the time now
    ready: Callable[[Collection[Answer], float, float], bool]
    timers: tuple[float, ...] = ()  # times at which to evaluate the rule, s after the start of the round
    least: int = 0  # number of answers below which the rule never holds, so that it need not be evaluated

    def __or__(self, other: StopRule) -> StopRule:
        """Return a rule that stops when either rule holds."""
        least = min(self.least, other.least)
        return StopRule(lambda *at: self.ready(*at) or other.ready(*at), self.timers + other.timers, least)

    def __and__(self, other: StopRule) -> StopRule:
        """Return a rule that stops when both rules hold."""
        least = max(self.least, other.least)
        return StopRule(lambda *at: self.ready(*at) and other.ready(*at), self.timers + other.timers, least)


class LostChildren:
    """Children that will not answer: dead children, and those whose answer of a round was refused."""

    def __init__(self) -> None:
        self.gone: set[int] = set()
        self.refused: dict[int, dict[int, str]] = {}  # round -> rank -> reason

    def add(self, message: Message) -> None:
        """Add the child of a `PEER_LOST` message.

        If the message has a value (the reason), the child is lost only for the round of the message.
        """
        if message.value is None:
            self.gone.add(message.src)
        else:
            self.refused.setdefault(message.round, {})[message.src] = message.value

    def of(self, round: int) -> set[int]:
        """Return the ranks that will not answer in a round."""
        return self.gone.union(self.refused.get(round, ()))

    def quorum_lost(self, parent: int, round: int, missing: Collection[int]) -> QuorumLost:
        """Return the error for a round that cannot be completed without the missing children."""
        return QuorumLost(parent, round, sorted(missing), self.refused.get(round))


def at_least(k: int) -> StopRule:
    """Stop once there are k answers. If a child may send several, `from_children` detects lost children sooner."""
    return StopRule(lambda got, start, now: len(got) >= k, least=k)


def from_children(k: int) -> StopRule:
    """Stop once k children have answered, however many messages each of them sends in a round."""
    return StopRule(lambda got, start, now: len({rank for rank, _ in got}) >= k, least=k)


def one_of_each(group: Callable[[int], int], groups: int) -> StopRule:
    """Stop once every group of children has an answer (fractional repetition)."""
    return StopRule(
        lambda got, start, now: len(got) >= groups and len({group(rank) for rank, _ in got}) == groups
    )


def deadline(seconds: float) -> StopRule:
    """Stop after that many seconds of the round. An answer that arrives exactly then still counts."""
    return StopRule(lambda got, start, now: now >= start + seconds, (seconds,))


def gather(
    node: Node, round: int, rule: StopRule, lost: LostChildren
) -> Generator[Any, Any, tuple[Answers, Message | None]]:
    """Collect the children's answers of a round until `rule` holds.

    Return (answers, None), or (answers, message) if the message of a newer model came first. Raises `QuorumLost` as
    soon as the rule can no longer hold with the children that are alive.
    """
    got: Answers = {}
    match = {CODED: round, PEER_LOST: 0}
    if node.parent >= 0:
        match[MODEL] = round + 1
    start = now = node.clock()
    deadlines = sorted(start + seconds for seconds in rule.timers)
    ask, newer = Recv(match, deadlines[0] if deadlines else None), None
    _still_possible(node, round, rule, got, lost)
    while len(got) < rule.least or not rule.ready(got, start, now):
        message = yield ask
        if message is None or len(got) + 1 >= rule.least:
            now = node.clock()
        if message is None:
            ask = Recv(match, next((timer for timer in deadlines if timer > now), None))
            continue
        src, kind, _, number, _ = message
        if kind == CODED:
            got[src, number] = message
            if deadlines:
                now = _before(ask.until, now)
        elif kind == MODEL:
            newer = message
            break
        else:
            lost.add(message)
            _still_possible(node, round, rule, got, lost)
    yield Close(CODED, round + 1)
    return got, newer


def tolerant_answers(
    node: Node,
    round: int,
    tolerance: float,
    follows: Callable[[frozenset[int]], bool],
    lost: LostChildren,
    number: int = 1,
) -> Generator[Any, Any, tuple[dict[int, list[Any]], frozenset[int]]]:
    """Wait (1 + tolerance) times as long as the fastest child took for its `number` answers.

    If the late children may not be dropped, wait for all. `follows(late)`: returns whether the parent can continue
    without the late children. Return the values of the children that are not late, by rank, and the late ranks. Raises
    `QuorumLost` if no missing child will answer, and the missing ones may not be dropped.
    """
    got: dict[int, dict[int, Any]] = {rank: {} for rank in node.children}
    start, until, late = node.clock(), None, frozenset(node.children)
    while late:
        if late <= (missing := lost.of(round)):
            if follows(late):
                break
            raise lost.quorum_lost(node.rank, round, late & missing)
        message: Message | None = yield Recv({CODED: round, PEER_LOST: 0}, until)
        if message is None:
            if follows(late):
                break
            until = None
        elif message.kind == PEER_LOST:
            lost.add(message)
        else:
            got[message.src][message.number] = message.value
            if len(got[message.src]) == number:
                late -= {message.src}
                if len(late) == len(node.children) - 1:
                    until = start + (1 + tolerance) * (node.clock() - start)
    yield Close(CODED, round + 1)
    values = {rank: [of[k] for k in sorted(of)] for rank, of in got.items() if rank not in late}
    return values, late


def tolerant_program(node: Node, rule: StopRule, tolerance: float, combine: Combine) -> Program:
    """Run a star's master that drops late answers only if the rule holds without them (see `tolerant_answers`)."""
    everybody = frozenset(node.children)

    def follows(late: frozenset[int]) -> bool:
        return rule.ready({(rank, 0) for rank in everybody - late}, 0.0, 0.0)

    def answers(r: int, model: Any, lost: LostChildren) -> AnswerProgram:
        values, _ = yield from tolerant_answers(node, r, tolerance, follows, lost)
        got = {(rank, 0): Message(rank, CODED, r, 0, value) for rank, (value,) in values.items()}
        return *combine(r, got), len(got)

    return master_program(node, answers)


def _before(timer: float | None, now: float) -> float:
    """Return the arrival time of a message. If it is simultaneous with a timer, return a time just before the timer."""
    return math.nextafter(timer, -INFINITY) if timer is not None and simultaneous(now, timer) else now


def _still_possible(node: Node, round: int, rule: StopRule, got: Answers, lost: LostChildren) -> None:
    missing = lost.of(round)
    if not missing:
        return
    numbers = range(node.plan.answers)
    hoped = {(rank, number) for rank in set(node.children) - missing for number in numbers}
    if not rule.ready(hoped | set(got), 0.0, INFINITY):
        raise lost.quorum_lost(node.rank, round, missing)


def weighted_sum(weights: Array, values: Sequence[Array]) -> Array:
    """Return the sum of weight * value, weights (k,), in the given order.

    Short values are copied and added up in blocks that fit into the cache of a core. A few long values are added up
    one by one, without copies.

    >>> weighted_sum(np.array([1.0, 0.5]), [np.array([1.0, 2.0]), np.array([4.0, 6.0])])
    array([3., 5.])
    """
    if isinstance(values[0], SparseWeights):
        return cast(Array, SparseWeights.total(weights, cast(Sequence[SparseWeights], values)))
    long = values[0].nbytes > MAX_BLOCK_BYTES // MIN_BLOCK_VALUES
    if len(values) == 1 or (long and len(values) <= MIN_BLOCK_VALUES):
        return _one_by_one(weights, values)
    few = max(MIN_BLOCK_VALUES, MAX_BLOCK_BYTES // max(values[0].nbytes, 1))
    with one_thread(values[0].size * min(few, len(values))):
        total = weights[:few] @ np.stack(values[:few])
        for i in range(few, len(values), few):
            total += weights[i : i + few] @ np.stack(values[i : i + few])
    return np.asarray(total)


def _one_by_one(weights: Array, values: Sequence[Array]) -> Array:
    """Return the weighted sum without copies of the values. For long values, copies take longer than the products."""
    total = weights[0] * values[0]
    term = np.empty_like(total) if len(values) > 1 else total
    for k in range(1, len(values)):
        total += np.multiply(values[k], weights[k], out=term)
    return np.asarray(total)


def plain_sum(values: Sequence[Any]) -> Any:
    """Return the sum of values in the given order, in one array; without values, 0.

    >>> plain_sum([np.array([1.0, 2.0]), np.array([4.0, 6.0])])
    array([5., 8.])
    """
    if not values:
        return 0
    if isinstance(values[0], SparseWeights):
        return SparseWeights.total(np.ones(len(values)), values)
    total = np.array(values[0])
    for value in values[1:]:
        total += value
    return total


def decoded(decode: Callable[[tuple[int, ...]], Decoding], values: Mapping[int, Any]) -> tuple[Any, float]:
    """Return the sum of some rows' values, weighted as `decode` returns for these rows, and the residual of the sum.

    Values are added in the order of the rows, not of arrival, so that the same rows give the same bits. See
    `GradientCode.decode`.
    """
    rows = sorted(values)
    weights, residual = decode(tuple(rows))
    return weighted_sum(weights, [values[row] for row in rows]), residual


def decoder(make: Callable[[], GradientCode], first: int) -> Combine:
    """Return a function that decodes the answers of ranks first, first + 1, ... with the code.

    The code is made at the first call. Most ranks of a real run are leaves, which never decode.
    """
    code = cache(make)

    def combine(round: int, got: Answers) -> tuple[Any, float]:
        return decoded(code().decode, {rank - first: message.value for (rank, _), message in got.items()})

    return combine


def master_program(node: Node, answers: Callable[[int, Any, LostChildren], AnswerProgram]) -> Program:
    """Run a master: in each round, send the model, receive answers, and commit.

    `answers(round, model, lost)` returns the gradient, its residual, and the number of vectors that were combined.
    """
    model, lost = node.model, LostChildren()
    for r in node.span:
        yield Send(node.children, MODEL, r, model)
        gradient, residual, combined = yield from answers(r, model, lost)
        yield Decode(combined * node.floats)
        model = yield Commit(gradient, r, residual)
    yield Send(node.children, MODEL, node.rounds, None, floats=0)


def parent_program(node: Node, rule: StopRule, combine: Combine, shrinks: bool = False) -> Program:
    """Run a master that gathers by a rule.

    This program is faster than `master_program`, because each effect passes through one generator less.

    `shrinks`: whether commits are plain sums of some parts, or least-squares estimates. The mean weight of all parts in
    a commit is then 1 - residual / parts. For the weights b of a least-squares estimate, this holds because b is the
    projection of the vector of ones.
    """
    model, lost = node.model, LostChildren()
    for r in node.span:
        yield Send(node.children, MODEL, r, model)
        got, _ = yield from gather(node, r, rule, lost)
        gradient, residual = combine(r, got)
        yield Decode(len(got) * node.floats)
        share = 1.0 - residual / node.plan.parts if shrinks else 1.0
        model = yield Commit(gradient, r, residual, share)
    yield Send(node.children, MODEL, node.rounds, None, floats=0)


def child_program(node: Node, rule: StopRule, combine: Combine) -> Program:
    """Run a worker: receive the newest model, pass it on, compute, add the children's sum, and send the total up."""
    lost, newer, ask = LostChildren(), None, Recv({MODEL: 0}, latest=True)
    children, parent, work, rounds = node.children, node.parent, node.work, node.rounds
    while True:
        _, _, r, _, model = newer if newer is not None else (yield ask)
        newer = None
        if children:
            yield Close(CODED, r)
            yield Send(children, MODEL, r, model, floats=0 if r == rounds else None)
        if r == rounds:
            return
        value = yield Compute(work, model, r, {MODEL: r + 1})
        if value is None:
            continue
        if children:
            got, newer = yield from gather(node, r, rule, lost)
            if newer is not None:
                continue
            below, _ = combine(r, got)
            yield Decode(len(got) * node.floats)
            value = below + value
        yield Send(parent, CODED, r, value)


def coded_program(node: Node, rule: StopRule, combine: Combine) -> Program:
    """Run `parent_program` at the master and `child_program` at other nodes, with the same rule and decoding."""
    program = parent_program if node.rank == MASTER else child_program
    return program(node, rule, combine)


def answer(
    node: Node, job: Message, work: Work | None = None, kind: str = CODED, batch: int | None = None
) -> Program:
    """Compute the node's work (or `work`) and send the result, unless a newer model comes first.

    A model of None means that the answer is no longer needed.
    """
    if job.value is None:
        return
    value = yield Compute(work or node.work, job.value, job.round, {MODEL: job.round + 1}, batch)
    if value is not None:
        yield Send(node.parent, kind, job.round, value)


def worker_program(node: Node, answer: Callable[[Node, Message], Program]) -> Program:
    """Run a worker of a star. `answer(node, model message)` computes and sends its answers."""
    ask = Recv({MODEL: 0}, latest=True)
    while True:
        job = yield ask
        if job.round == node.rounds:
            return
        yield from answer(node, job)
