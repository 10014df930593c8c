"""Decode weights of one round: the parent's program is executed again on the recorded arrivals.

The value of each message is replaced by a unit vector. The program's result then consists of the decode weights. This
works for every scheme whose parents combine messages linearly, simulated or real. No data set is read.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from workbench.core.base.settings import SettingError, short
from workbench.core.base.types import Array
from workbench.core.contract.plan import MASTER, Plan
from workbench.core.contract.protocol import (
    MODEL,
    PEER_LOST,
    Commit,
    Compute,
    Match,
    Message,
    Node,
    Recv,
    Send,
    simultaneous,
)
from workbench.core.contract.scheme import Scheme
from workbench.core.engine.virtual.arithmetic import Coefficients
from workbench.core.trace.trace import Trace
from workbench.lab.figures.round_events import events_of


class Weights(NamedTuple):
    """Decode weights of the messages of a round, in order of arrival."""

    rank: NDArray[np.int64]  # (k,) senders
    number: NDArray[np.int64]  # (k,) index of the message among those of its sender, from 0
    time: Array  # (k,) departure times from the port, s since the run's start
    weight: Array  # (m, k): one row, or one for each remainder of the coordinate modulo m (see `Plan.coordinates`)
    late: NDArray[np.int64]  # senders whose messages were dropped


def decode_weights(trace: Trace, round: int, parent: int = MASTER) -> Weights:
    """Return the weights with which a parent combined the messages that it used in a round.

    `trace`: a run with events. `round`: from 0. `parent`: the master, or a relay of a tree.

    Raises `SettingError` if the round or its events are missing, if no rank sends to the parent, or if the parent did
    not finish the round. It is also raised if the scheme has no fixed weights, because it is data dependent, reads the
    clock, or uses answers of other rounds.

    >>> import workbench as wb
    >>> trace = wb.run(wb.Experiment(scheme="UMW", workers=3, rounds=2))
    >>> decode_weights(trace, 1).weight.tolist()
    [[1.0, 1.0, 1.0]]
    """
    if (changes := trace.changes) and round >= changes[0].round:
        why = f"the scheme changed in round {changes[0].round}, and weights are known of rounds before that"
        raise SettingError(f"round = {short(round)}: {why}")
    scheme, plan = trace.experiment.built_scheme, trace.experiment.plan
    if why := _no_weights(scheme, plan):
        raise SettingError(f"scheme = {scheme.name!r}: {why}; there are no fixed decode weights")
    if not 0 <= parent < plan.ranks or not plan.children[parent] or plan.committers != (MASTER,):
        raise SettingError(f"parent = {short(parent)}: nobody sends it anything to decode")
    import pandas as pd

    table = pd.DataFrame(events_of(trace, round).rows.columns)
    arrived = _arrived(trace, round, table[(table["to"] == parent) & (table["rank"] != plan.parent[parent])])
    taken = _Parent(trace, round, parent, [a for a in arrived if not a.late])
    combined = np.asarray(taken.combined())
    values = np.atleast_2d(np.broadcast_to(combined, (*combined.shape[:-1], len(taken.given))))
    rows = [(a.message.src, a.message.number, a.time) for a in taken.given]
    ranks, numbers, times = (
        (np.array(column) for column in zip(*rows, strict=True)) if rows else (np.zeros(0, int),) * 3
    )
    late = np.unique([a.message.src for a in arrived if a.late]).astype(int)
    return Weights(ranks, numbers, times, values, late)


def _no_weights(scheme: Scheme, plan: Plan) -> str:
    """Return why one round alone does not determine the decode weights, or ""."""
    if scheme.numeric:
        return "decides by the numbers in its messages"
    if scheme.clock_driven:
        return "decides by the clock"
    return "keeps what came in other rounds" if plan.versions > 1 else ""


class _Arrival(NamedTuple):
    time: float
    message: Message
    late: bool


def _arrived(trace: Trace, round: int, table: Any) -> list[_Arrival]:
    """Return the messages to the parent in order of arrival, with kind, index and shape of the value."""
    found: list[_Arrival] = []
    for rank, rows in table[table["kind"].isin(["send", "drop"])].groupby("rank"):
        ordered = rows.sort_values(["start", "end"], kind="stable")
        # messages that passed the port and were discarded at the end of the round have two rows, of which one is kept
        single = ordered[~((ordered["kind"] == "drop") & (ordered["bytes"] == 0))]
        sends = _sent_by(trace, round, int(rank))
        pairs = zip(single["end"], single["kind"], sends, strict=False)
        found += [_Arrival(float(end), message, kind == "drop") for end, kind, message in pairs]
    # simultaneous messages stay in the order in which the engine wrote them
    order = {rank: place for place, rank in enumerate(table["rank"])}
    return sorted(found, key=lambda a: (a.time, order[a.message.src]))


def _node(trace: Trace, round: int, rank: int, clock: Callable[[], float] = lambda: 0.0) -> Node:
    e = trace.experiment
    return Node(rank, e.plan, round + 1, e.shape()[1], 0, clock, first=round)


def _sent_by(trace: Trace, round: int, rank: int) -> list[Message]:
    """Execute the program of a node. Return the messages that it sends to its parent in a round.

    A relay receives messages of all its children.
    """
    node, arithmetic = _node(trace, round, rank), Coefficients(trace.experiment.plan)
    program = trace.experiment.built_scheme.program(node)
    children, asked = iter(node.children), False
    sent: list[Message] = []
    answer: Any = None
    with suppress(StopIteration):
        while True:
            effect = program.send(answer)
            answer = None
            if isinstance(effect, Compute):
                answer = arithmetic.compute(rank, effect)
            elif isinstance(effect, Send) and effect.to == node.parent:
                sent.append(Message(rank, effect.kind, effect.round, effect.number, effect.value))
            elif isinstance(effect, Recv) and (kinds := _answers(effect.match)):
                value = np.zeros(trace.experiment.plan.parts)
                answer = Message(next(children), kinds[0], round, 0, value)
            elif isinstance(effect, Recv) and asked:
                return sent
            elif isinstance(effect, Recv):
                answer, asked = Message(node.parent, MODEL, round, 0, 0), True
    return sent


def _answers(match: Match) -> list[str]:
    """Return the message kinds of a match that are answers of children."""
    return [kind for kind in match if kind not in (MODEL, PEER_LOST)]


class _Parent:
    """Program of the parent, executed on the recorded arrivals with unit vectors as values."""

    def __init__(self, trace: Trace, round: int, rank: int, arrivals: Sequence[_Arrival]) -> None:
        times = trace.columns["time"]
        self.now = float(times[round - 1]) if round else 0.0
        self.round, self.arrivals = round, list(arrivals)
        self.given: list[_Arrival] = []
        self.node = _node(trace, round, rank, lambda: self.now)
        self.program = trace.experiment.built_scheme.program(self.node)

    def combined(self) -> Any:
        """Return the value that the parent commits, or sends to its own parent."""
        answer: Any = None
        with suppress(StopIteration):
            while answer is not self:
                effect = self.program.send(answer)
                if isinstance(effect, Commit):
                    return self._truncated(effect.gradient)
                if isinstance(effect, Send) and effect.to == self.node.parent:
                    return self._truncated(effect.value)
                answer = self._answer(effect)
        raise SettingError(f"round = {self.round}: rank {self.node.rank} did not finish it; choose another")

    def _truncated(self, value: Any) -> Any:
        """Truncate unit vectors to the number of messages that the program has received."""
        value = np.asarray(value, dtype=float)
        return value[..., : len(self.given)] if value.ndim else np.full(len(self.given), float(value))

    def _answer(self, effect: Any) -> Any:
        if isinstance(effect, Compute):
            return 0.0  # the relay's own gradient is not a message, so it counts as 0
        if not isinstance(effect, Recv):
            return None
        kinds, until = _answers(effect.match), effect.until
        if not kinds:
            return Message(self.node.parent, MODEL, self.round, 0, 0)
        arrival = next((a for a in self.arrivals if a.message.kind in kinds), None)
        end = np.inf if arrival is None else arrival.time
        if until is not None and end > until and not simultaneous(end, until):
            self.now = max(self.now, until)
            return None
        if arrival is None:
            return self  # there are no further messages
        self.arrivals.remove(arrival)
        self.now = max(self.now, arrival.time)
        unit = np.zeros((*np.shape(arrival.message.value)[:-1], len(self.given) + len(self.arrivals) + 1))
        unit[..., len(self.given)] = 1.0
        self.given.append(arrival)
        return arrival.message._replace(value=unit)
