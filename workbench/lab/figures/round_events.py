"""One round of a trace: bars with start and end for each rank, and a list of its events for playback in slow motion."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

from workbench.core.base.arguments import kinds_checked
from workbench.core.base.grouping import grouped
from workbench.core.base.settings import SettingError, short
from workbench.core.base.types import Array
from workbench.core.contract.plan import MASTER, Plan
from workbench.core.trace.stream import last_ends, unfinished
from workbench.core.trace.trace import Trace

Ranks = NDArray[np.int64]


class Rows:
    """Table as columns. A round filters it dozens of times, and a data frame would be slower.

    >>> rows = Rows({"kind": np.array(["send", "drop"]), "end": np.array([1.0, 2.0])})
    >>> rows[rows["kind"] == "drop"]["end"].tolist()
    [2.0]
    """

    def __init__(self, columns: Mapping[str, NDArray[Any]]) -> None:
        self.columns = columns

    @overload
    def __getitem__(self, key: str) -> NDArray[Any]: ...
    @overload
    def __getitem__(self, key: NDArray[np.bool_]) -> Rows: ...
    def __getitem__(self, key: str | NDArray[np.bool_]) -> NDArray[Any] | Rows:
        if isinstance(key, str):
            return self.columns[key]
        return Rows({name: column[key] for name, column in self.columns.items()})

    def __len__(self) -> int:
        return len(self.columns["kind"])


class Bars(NamedTuple):
    """Bars of one kind: rows, and times in s since the start of the round. `text`: the hover text."""

    rank: Ranks
    start: Array
    end: Array
    text: Sequence[str]

    @property
    def lasting(self) -> Bars:
        """Bars of positive duration."""
        return self.where(self.end > self.start)

    def where(self, keep: NDArray[np.bool_]) -> Bars:
        """Return the bars that are selected by a mask."""
        text = [word for word, shown in zip(self.text, keep, strict=True) if shown]
        return Bars(self.rank[keep], self.start[keep], self.end[keep], text)


@dataclass(frozen=True)
class Round:
    """Events of a round. 0 s is the commit that ended the previous round."""

    plan: Plan
    rows: Rows  # events of the round, with times since the start of the run
    work: Rows  # computations in the time of the round, also those for other rounds
    start: float  # s since the start of the run
    duration: float
    dead: frozenset[int]
    faults: Mapping[int, str]  # worker -> kinds of its other faults in this round
    endless: bool = False  # whether work continues in the next round, as in asynchronous schemes

    @cached_property
    def early(self) -> float:
        """Start of the first event, s.

        It is negative if ranks began before the previous round had ended on all ranks.
        """
        return 0.0 if self.endless else min(0.0, float(self.rows["start"].min(initial=np.inf)) - self.start)

    def bars(self, rows: Rows, column: str = "rank", since: str = "start", until: str = "end") -> Bars:
        """Return events as bars, each on the row of the rank in `column`, cut at the end of the round."""
        first, last = (
            np.clip(rows[moment].astype(float) - self.start, self.early, self.duration)
            for moment in (since, until)
        )
        names = ("kind", "start", "begun", "end", "to", "bytes", "messages")
        events = zip(*(rows[name].tolist() for name in names), strict=True)
        return Bars(rows[column].astype(np.int64), first, last, [_words(self.start, *e) for e in events])

    def of(self, kind: str) -> Rows:
        """Return the events of a kind."""
        return self.rows[self.rows["kind"] == kind]

    @cached_property
    def models(self) -> Rows:
        """Messages from a parent to a child: models."""
        return self.of("send")[_downward(self.plan, self.of("send"))]

    @cached_property
    def answers(self) -> Rows:
        """Accepted messages to a parent, or around a ring."""
        return self.of("send")[~_downward(self.plan, self.of("send"))]

    # ------------------------------------------------------------ events that take time

    def did(self, kind: str) -> Bars:
        """Return the events of a kind as bars.

        "drop" is an answer that came too late, from its sending to its refusal or to the end of the round. "commit" is
        the time at which a rank had a gradient estimate. "decode" exists if the experiment has a time for decoding.
        """
        return self.bars(self.of(kind))

    @property
    def waiting(self) -> Bars:
        """Accepted messages on the wire and in the receiver's queue, on the sender's row."""
        return self.bars(self.answers, until="begun").lasting

    @property
    def passing(self) -> Bars:
        """Accepted messages that pass the receiver's port, on the sender's row."""
        return self.bars(self.answers[self.answers["messages"] == 1], since="begun").lasting

    @property
    def exchanging(self) -> Bars:
        """Exchanges of several messages that the trace stores as one event, such as the steps of a ring."""
        return self.bars(self.answers[self.answers["messages"] > 1], since="begun").lasting

    @property
    def receiving(self) -> Bars:
        """Times at which the port of a rank with children was busy, on that rank's row."""
        parents = np.array([bool(kids) for kids in self.plan.children])
        return self.bars(self.answers[parents[self.answers["to"]]], "to", "begun").lasting

    @property
    def downloading(self) -> Bars:
        """Models on their way down, on the receiver's row."""
        return self.bars(self.models, "to").lasting

    @cached_property
    def cut_off(self) -> Bars:
        """Workers that were still computing at the end of the round, and so have no compute event."""
        since = {rank: at for rank, at in self._asked.items() if rank not in self._computed}
        starts = {rank: max(self.early, min(at, self.duration)) for rank, at in since.items()}
        return self._open({} if self.endless else starts, "still computing when the round ended: cut off")

    @property
    def silent(self) -> Bars:
        """Workers that computed, and whose message was neither accepted nor refused within the round."""
        if self.endless:
            return self._open({}, "")
        answered = {*self.answers["rank"], *self.of("drop")["rank"]}
        done = {
            rank: at for rank, at in self._computed.items() if rank not in answered and at < self.duration
        }
        return self._open(done, "computed, but no answer went out or arrived in this round")

    @cached_property
    def overlapping(self) -> bool:
        """Whether some rank continues computing after its own answer was sent."""
        return any(
            at - self.start < self._computed.get(rank, -np.inf)
            for rows in (self.answers, self.of("drop"))
            for rank, at in zip(rows["rank"].tolist(), rows["start"].tolist(), strict=True)
        )

    @property
    def idle(self) -> int:
        """Number of live workers without a computation in the time of this round."""
        busy = {*self._asked, *self.work["rank"], *(self.answers["rank"] if self.endless else ())}
        return len(set(np.flatnonzero(self.plan.loads).tolist()) - self.dead - busy)

    @cached_property
    def _asked(self) -> dict[int, float]:
        """Times, s since the start of the round, from which live workers had a task.

        A scheme need not use every worker.
        """
        # no model is sent to ranks without a parent, so they have a task from the start
        since = {rank: 0.0 for rank in range(1, self.plan.ranks) if self.plan.parent[rank] < 0}
        since |= self._moments(self.models, "to")
        return {rank: at for rank, at in since.items() if self.plan.loads[rank] and rank not in self.dead}

    @cached_property
    def _computed(self) -> dict[int, float]:
        """Times at which ranks finished computing, s since the start of the round."""
        return self._moments(self.of("compute"), "rank")

    def _moments(self, rows: Rows, column: str) -> dict[int, float]:
        return dict(zip(rows[column].tolist(), (rows["end"] - self.start).tolist(), strict=True))

    def _open(self, since: Mapping[int, float], text: str) -> Bars:
        """Return bars that last until the end of the round."""
        ranks, starts = np.array(list(since), dtype=np.int64), np.array(list(since.values()), dtype=float)
        return Bars(ranks, starts, np.full(len(ranks), self.duration), [text] * len(ranks))


def events_of(trace: Trace, round: int) -> Round:
    """Return the events of a round.

    Raises `SettingError` if the trace has no such round, or its events were not kept.
    """
    if not isinstance(trace, Trace):
        raise SettingError(f"trace = {type(trace).__name__}: is not a Trace; give what wb.run returns")
    count = len(trace.columns["time"])
    if not count:
        raise SettingError(f"round = {short(round)}: the run of {trace.label} finished no round")
    if isinstance(round, bool) or not isinstance(round, int | np.integer):
        raise SettingError(f"round = {short(round)}: take a whole number from 0 to {count - 1}")
    if not 0 <= round < count:
        raise SettingError(f"round = {short(round)}: the run has rounds 0 to {count - 1}; choose one of them")
    times, plan = np.asarray(trace.columns["time"], dtype=float), trace.experiment.plan
    events = Rows({str(name): column.to_numpy() for name, column in trace.events.items()})
    scheme = trace.experiment.built_scheme
    begin = times[round - 1] if round else -np.inf
    mine = events["round"] == round
    during = (events["end"] > begin) & (events["start"] < times[round])
    rows = events[mine | during if scheme.self_paced else mine]
    if not len(rows):
        raise SettingError(f"round = {round}: the trace kept no events of it; run with events=True")
    # empty messages to children, such as "stop", contain no model and are left out
    rows = rows[~((rows["kind"] == "send") & (rows["bytes"] == 0) & _downward(plan, rows))]
    if not (scheme.self_paced or scheme.delayed):
        during &= events["round"] < round  # other ranks may begin the next round before this one ends
    work = events[(events["kind"] == "compute") & (mine | during)]
    if scheme.self_paced:
        work = _with_unfinished(work, events, trace, float(times[round]))
    start = float(times[round - 1]) if round else 0.0
    dead = frozenset(f.worker for f in trace.experiment.faults if f.for_good and f.round <= round)
    active = (f for f in trace.experiment.faults if not f.for_good and f.active(round))
    faults = {who: ", ".join(kinds) for who, kinds in grouped((f.worker, f.kind) for f in active).items()}
    return Round(plan, rows, work, start, float(times[round]) - start, dead, faults, scheme.self_paced)


def _with_unfinished(work: Rows, events: Rows, trace: Trace, before: float) -> Rows:
    """Add computations that begin `before` a time (s), and that the end of the run interrupts.

    The engine writes no events of them.
    """
    plan, end = trace.experiment.plan, float(trace.columns["time"][-1])
    models = events[(events["kind"] == "send") & (events["bytes"] > 0) & _downward(plan, events)]
    asked = last_ends(models, "to", plan.ranks)
    done = last_ends(events[events["kind"] == "compute"], "rank", plan.ranks)
    dead = [f.worker for f in trace.experiment.faults if f.for_good] + list(trace.info.get("dead", ()))
    asked[dead] = np.inf
    ranks = unfinished(plan.loads, asked, done, before)
    row: dict[str, Any] = {"kind": "compute", "rank": ranks, "end": end, "to": -1}
    row |= dict.fromkeys(("start", "begun"), asked[ranks])
    added = {name: np.broadcast_to(row.get(name, 0), len(ranks)) for name in work.columns}
    return Rows({name: np.concatenate([column, added[name]]) for name, column in work.columns.items()})


def _downward(plan: Plan, rows: Rows) -> NDArray[np.bool_]:
    to = rows["to"].astype(np.int64)
    return np.asarray((to >= 0) & (plan.parent[to] == rows["rank"]))


def _words(
    origin: float, kind: str, start: float, begun: float, end: float, to: int, size: int, count: int
) -> str:
    """Return the hover text of an event: times in s since the round's start, receiver, bytes."""
    text = f"{kind}: {start - origin:.4g} s to {end - origin:.4g} s"
    if to < 0:
        return text
    many = f"{count} messages, " if count > 1 else ""
    port = f", at the port from {begun - origin:.4g} s" if kind == "send" else ""
    return f"{text}{port}<br>to rank {to}, {many}{size} bytes"


class Moment(NamedTuple):
    """Event of a rank, with its time since the round's start.

    `time`: s; `text`: what happened.

    >>> Moment(time=0.25, rank=3, text="has computed").rank
    3
    """

    time: float
    rank: int
    text: str


@kinds_checked
def moments(trace: Trace, round: int) -> list[Moment]:
    """Return the events of a round in order of time, as sentences.

    Raises `SettingError` if the trace has no such round, or its events were not kept.

    >>> import workbench as wb
    >>> trace = wb.run(wb.Experiment(scheme="UMW", workers=2, rounds=1))
    >>> [moment.text for moment in moments(trace, 0)][-1]
    'the master has the gradient'
    """
    r = events_of(trace, round)
    answers = r.answers
    ends = answers["end"] - r.start
    found = [
        *_each(r.downloading, "the model has come down to {}"),
        *_each(r.did("compute"), "{} has computed its share"),
        *_each(r.did("decode"), "{} has decoded"),
        *_each(r.did("fault").lasting, "the pause of {} is over"),
        *_each(r.did("drop"), "the answer of {} is too late: dropped"),
        *_each(r.cut_off, "{} is still computing: cut off"),
        *_each(r.did("commit"), "{} has the gradient"),
    ]
    pairs = zip(answers["rank"].tolist(), answers["to"].tolist(), ends.tolist(), strict=True)
    found += [Moment(at, rank, f"{name(to)} has the message of {name(rank)}") for rank, to, at in pairs]
    order = {moment: place for place, moment in enumerate(found)}
    return sorted(found, key=lambda moment: (moment.time, "gradient" in moment.text, order[moment]))


def _each(bars: Bars, text: str) -> list[Moment]:
    pairs = zip(bars.rank.tolist(), bars.end.tolist(), strict=True)
    return [Moment(float(end), int(rank), text.format(name(rank))) for rank, end in pairs]


def name(rank: int) -> str:
    """Return the name of a node in a sentence."""
    return "the master" if rank == MASTER else f"worker {rank}"
