"""One round of a trace as bars per rank: who did what, from when to when."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from workbench.base.settings import SettingError
from workbench.base.types import Array
from workbench.core.plan import Plan
from workbench.trace.trace import Trace

if TYPE_CHECKING:
    import pandas as pd

    Table = pd.DataFrame

Ranks = NDArray[np.int64]


class Bars(NamedTuple):
    """Bars of one kind: rows, and times in s since the round's start; `text` says more on hovering."""

    rank: Ranks
    start: Array
    end: Array
    text: Sequence[str]

    @property
    def lasting(self) -> Bars:
        """The bars without those that take no time."""
        return self.where(self.end > self.start)

    def where(self, keep: NDArray[np.bool_]) -> Bars:
        """Keep some of the bars."""
        text = [word for word, kept in zip(self.text, keep, strict=True) if kept]
        return Bars(self.rank[keep], self.start[keep], self.end[keep], text)


@dataclass(frozen=True)
class Round:
    """A round's events, and when it was; 0 s is the commit that ended the round before."""

    plan: Plan
    table: Table  # the round's events, absolute times
    start: float  # s since the run's start
    duration: float
    dead: frozenset[int]

    @cached_property
    def early(self) -> float:
        """Start of the first event; below 0 where ranks began before the round before had ended everywhere."""
        return min(0.0, float(self.table["start"].min()) - self.start)

    def bars(self, rows: Table, ranks: Ranks, starts: object, ends: object) -> Bars:
        """Bars of some events, cut at the round's end."""
        first, last = (
            np.clip(np.asarray(t, dtype=float) - self.start, self.early, self.duration)
            for t in (starts, ends)
        )
        columns = (
            rows[name].tolist() for name in ("kind", "start", "begun", "end", "to", "bytes", "messages")
        )
        return Bars(ranks, first, last, [_words(self.start, *row) for row in zip(*columns, strict=True)])

    def of(self, kind: str) -> Table:
        """Events of a kind."""
        return self._kinds.get(kind, self.table.iloc[:0])

    @cached_property
    def _kinds(self) -> dict[str, Table]:
        return {str(kind): rows for kind, rows in self.table.groupby("kind", sort=False, observed=True)}

    @cached_property
    def models(self) -> Table:
        """Messages from a parent to its child: models on their way down."""
        return self.of("send")[self.downward]

    @cached_property
    def answers(self) -> Table:
        """Accepted messages that go up or around."""
        return self.of("send")[~self.downward]

    @cached_property
    def downward(self) -> NDArray[np.bool_]:
        """Which of the accepted messages go from a parent to its child."""
        return _downward(self.plan, self.of("send"))


def events_of(trace: Trace, round: int) -> Round:
    """Look up a round; raises `SettingError` when the trace has no such round or kept no events."""
    if not isinstance(trace, Trace):
        raise SettingError(f"trace = {type(trace).__name__}: is no Trace; give what wb.run returns")
    count = len(trace.columns["time"])
    if not isinstance(round, int | np.integer):
        raise SettingError(f"round = {round!r}: take a whole number from 0 to {count - 1}")
    if not 0 <= round < count:
        raise SettingError(f"round = {round}: the run has rounds 0 to {count - 1}; choose one of them")
    events = trace.events
    table = events[events["round"] == round]
    if table.empty:
        raise SettingError(f"round = {round}: the trace kept no events of it; run with events=True")
    plan = trace.experiment.plan
    table = _without_notices(plan, table)
    times = np.asarray(trace.columns["time"], dtype=float)
    start = float(times[round - 1]) if round else 0.0
    dead = frozenset(f.worker for f in trace.experiment.faults if f.round <= round)
    return Round(plan, table, start, float(times[round]) - start, dead)


def _without_notices(plan: Plan, table: Table) -> Table:
    """Leave out empty messages to children, such as "stop": they carry no model and belong to no round."""
    empty = (table["kind"] == "send").to_numpy() & (table["bytes"] == 0).to_numpy()
    return table[~(empty & _downward(plan, table))]


def _downward(plan: Plan, table: Table) -> NDArray[np.bool_]:
    to = table["to"].to_numpy(dtype=np.int64)
    return np.asarray((to >= 0) & (plan.parent[to] == table["rank"].to_numpy()))


def computing(r: Round) -> Bars:
    """Find who computed."""
    rows = r.of("compute")
    return r.bars(rows, _ranks(rows), rows["start"], rows["end"])


def decoding(r: Round) -> Bars:
    """Find who decoded, where the experiment charges it."""
    rows = r.of("decode")
    return r.bars(rows, _ranks(rows), rows["start"], rows["end"])


def waiting(r: Round) -> Bars:
    """Find accepted messages on the wire and in the receiver's queue, on the sender's row."""
    rows = r.answers
    return r.bars(rows, _ranks(rows), rows["start"], rows["begun"]).lasting


def passing(r: Round) -> Bars:
    """Find accepted messages going through the receiver's port, on the sender's row."""
    rows = r.answers
    rows = rows[rows["messages"] == 1]
    return r.bars(rows, _ranks(rows), rows["begun"], rows["end"]).lasting


def exchanging(r: Round) -> Bars:
    """Find series of messages that the trace keeps as one event, such as a ring's steps."""
    rows = r.answers
    rows = rows[rows["messages"] > 1]
    return r.bars(rows, _ranks(rows), rows["begun"], rows["end"]).lasting


def receiving(r: Round) -> Bars:
    """Find when the port of a rank with children was busy, on that rank's row."""
    rows = r.answers
    parents = np.array([bool(kids) for kids in r.plan.children])
    rows = rows[parents[rows["to"].to_numpy()]]
    return r.bars(rows, _ranks(rows, "to"), rows["begun"], rows["end"]).lasting


def downloading(r: Round) -> Bars:
    """Find models on their way down, on the receiver's row."""
    rows = r.models
    return r.bars(rows, _ranks(rows, "to"), rows["start"], rows["end"]).lasting


def dropped(r: Round) -> Bars:
    """Find answers that came too late: from being sent to being refused, or to the round's end."""
    rows = r.of("drop")
    return r.bars(rows, _ranks(rows), rows["start"], rows["end"])


def cut_off(r: Round) -> Bars:
    """Find workers whose computing the end of the round cut off: asked, but no compute event."""
    done, since = _computed(r), _asked(r)
    idle = [rank for rank in since if rank not in done]
    starts = np.array([max(r.early, min(since[rank], r.duration)) for rank in idle], dtype=float)
    return _open(r, idle, starts, "still computing when the round ended: cut off")


def overlapping(r: Round) -> bool:
    """Say whether some rank goes on computing after an answer of its own went out."""
    done = _computed(r)
    sent = [(rows["rank"], rows["start"] - r.start) for rows in (r.answers, r.of("drop"))]
    return any(
        at < done.get(rank, -np.inf) for ranks, starts in sent for rank, at in zip(ranks, starts, strict=True)
    )


def idle(r: Round) -> int:
    """Count live workers whom the scheme let rest in this round."""
    rest = set(np.flatnonzero(r.plan.loads).tolist()) - r.dead - {*_asked(r), *_computed(r)}
    return len(rest)


def silent(r: Round) -> Bars:
    """Find workers that computed, and of which no message was accepted or refused within the round."""
    spoke = {*r.answers["rank"], *r.of("drop")["rank"]}
    done = {rank: end for rank, end in _computed(r).items() if rank not in spoke and end < r.duration}
    starts = np.array(list(done.values()), dtype=float)
    return _open(r, list(done), starts, "computed, but no answer went out or arrived in this round")


def commits(r: Round) -> Bars:
    """Find the instants at which ranks had a gradient estimate."""
    rows = r.of("commit")
    return r.bars(rows, _ranks(rows), rows["start"], rows["end"])


def _asked(r: Round) -> dict[int, float]:
    """Look up since when each live worker had something to compute; a scheme need not ask everybody."""
    models = r.models
    came = dict(zip(models["to"].tolist(), (models["end"] - r.start).tolist(), strict=True))
    alone = {
        rank: 0.0 for rank in range(1, r.plan.ranks) if r.plan.parent[rank] < 0
    }  # nobody sends it models
    return {rank: at for rank, at in {**alone, **came}.items() if r.plan.loads[rank] and rank not in r.dead}


def _computed(r: Round) -> dict[int, float]:
    """Look up when each rank that computed was done, in s since the round's start."""
    rows = r.of("compute")
    return dict(zip(rows["rank"].tolist(), (rows["end"] - r.start).tolist(), strict=True))


def _open(r: Round, ranks: Sequence[int], starts: Array, text: str) -> Bars:
    return Bars(np.array(ranks, dtype=np.int64), starts, np.full(len(ranks), r.duration), [text] * len(ranks))


def _ranks(rows: Table, name: str = "rank") -> Ranks:
    return np.asarray(rows[name], dtype=np.int64)


def _words(
    origin: float, kind: str, start: float, begun: float, end: float, to: int, size: int, count: int
) -> str:
    """Say on hovering what an event was: times in s since the round's start, receiver, bytes."""
    text = f"{kind}: {start - origin:.4g} s to {end - origin:.4g} s"
    if to < 0:
        return text
    many = f"{count} messages, " if count > 1 else ""
    port = f", at the port from {begun - origin:.4g} s" if kind == "send" else ""
    return f"{text}{port}<br>to rank {to}, {many}{size} bytes"
