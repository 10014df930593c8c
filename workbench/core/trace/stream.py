"""Stream of rounds: states of every worker in a few time slices of each round, updated with each event."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from workbench.core.base.types import Array
from workbench.core.contract.plan import Plan
from workbench.core.engine.timeline import EVENT_COLUMNS
from workbench.core.experiment import Experiment
from workbench.core.trace.trace import Trace, events_as_columns

STATES = ("waits", "computes", "queues", "sends", "late", "dropped", "dead")
COMPUTES, QUEUES, SENDS, LATE, DROPPED, DEAD = range(1, len(STATES))
UNFINISHED = 255  # state of an unfinished slice of the current round
SLICES_PER_ROUND = 8  # number of equal slices of a round; fewer if there are many rounds
MAX_SLICES = 160_000  # max number of slices of one worker, unless rounds would have fewer than two
REDRAWN_ROUNDS = 64  # number of newest rounds that are drawn again if late events change them
# for self-paced schemes, at least this number times the workers
REDRAWN_ANSWERS = 4
SAME_MOMENT = 1e-6  # events this close to the end of a round, as a share of the round, count as at its end
Events = Mapping[str, NDArray[Any]]
_INTEGER_COLUMNS = ("round", "rank", "to", "bytes", "messages")


class Kinds(NamedTuple):
    """Which events are models on their way down, accepted answers, refused answers, and computations."""

    down: NDArray[np.bool_]
    up: NDArray[np.bool_]
    dropped: NDArray[np.bool_]
    computed: NDArray[np.bool_]


class Painter:
    """Draws events into tables of states and of seconds of computing; see `Stream`."""

    plan: Plan
    workers: int
    slices: int  # number of slices of a round
    endless: bool
    dead: dict[int, int]  # worker -> first round without it
    grid: NDArray[np.uint8]  # (rounds, workers, slices)
    busy: NDArray[np.float32]  # (rounds, workers), s
    late: NDArray[np.bool_]
    asked: NDArray[np.bool_]
    starts: Array  # (rounds,), s
    ends: Array
    _rows: dict[str, NDArray[Any]]
    _base: int

    def __len__(self) -> int:
        """Return the number of complete rounds, counted from the first one with events."""
        return len(self.grid)

    def _paint(self, first: int, over: bool = True) -> None:
        """Draw the rounds from index `first` on. `over`: whether all of them are complete."""
        for table in (self.grid, self.busy, self.late, self.asked):
            table[first:] = 0
        place = self._rows["round"].astype(int) - self._base
        every = {name: column[(place >= 0) & (place < len(self))] for name, column in self._rows.items()}
        here = place[(place >= 0) & (place < len(self))] >= first
        kinds = self._kinds(every)
        rows = {name: column[here] for name, column in every.items()}
        mine = Kinds(*(kind[here] for kind in kinds))
        self._asked(first, rows, mine.down)
        self._bars(first, every, kinds.computed, "start", "end", COMPUTES)
        if self.endless:
            self._mark(first, rows, mine)
            self._open_work(first, every, kinds)
        else:
            self._cut_off(first, rows, mine, (LATE, LATE) if over else (COMPUTES, QUEUES))
        self._bars(first, every, kinds.up, "start", "begun", QUEUES)
        self._bars(first, every, kinds.up, "begun", "end", SENDS)
        self._bars(first, every, kinds.dropped, "start", "", DROPPED)
        for worker, round in self.dead.items():
            since = max(round - self._base, first)
            if 1 <= worker <= self.workers and since < len(self):
                self.grid[since:, worker - 1] = DEAD
                self.late[since:, worker - 1] = self.asked[since:, worker - 1] = False
                self.busy[since:, worker - 1] = 0

    def _kinds(self, rows: Events) -> Kinds:
        """Return the kind of each row."""
        kind, to, rank = rows["kind"], rows["to"].astype(int), rows["rank"].astype(int)
        sent = kind == "send"
        down = sent & (to >= 0) & (self.plan.parent[np.maximum(to, 0)] == rank)
        down &= rows["bytes"].astype(float) > 0
        return Kinds(down, sent & ~down & (rank > 0), (kind == "drop") & (rank > 0), kind == "compute")

    def _asked(self, first: int, rows: Events, down: NDArray[np.bool_]) -> None:
        """Mark workers that have a task, because a model was sent to them or they need none."""
        loads, to = np.asarray(self.plan.loads)[1:] > 0, rows["to"].astype(int)
        alone = np.asarray(self.plan.parent)[1:] < 0
        self.asked[first:] = loads & alone
        receiver = down & (to > 0)
        place = rows["round"][receiver].astype(int) - self._base
        self.asked[place, to[receiver] - 1] = loads[to[receiver] - 1]
        self._since = np.broadcast_to(self.starts[first:, None], self.asked[first:].shape).copy()
        self._since[place - first, to[receiver] - 1] = rows["end"][receiver].astype(float)

    def _mark(self, first: int, rows: Events, kinds: Kinds) -> tuple[NDArray[np.bool_], ...]:
        """Mark late workers.

        Return which workers did not answer, which of these computed, and whose answers were refused.
        """
        answered, done, refused = (np.zeros_like(self.asked[first:]) for _ in range(3))
        for table, mask in ((answered, kinds.up), (done, kinds.computed), (refused, kinds.dropped)):
            _, r, w = self._places(rows, mask)
            table[r - first, w] = True
        self.asked[first:] |= done
        silent = self.asked[first:] & ~answered
        self.late[first:] = refused & ~answered if self.endless else silent
        return silent, done, refused

    def _cut_off(self, first: int, rows: Events, kinds: Kinds, states: tuple[int, int]) -> None:
        """Mark workers that have not answered by the end of a round, from the start of their computing on.

        `states`: the states of such a worker, before it has computed and after.
        """
        silent, done, refused = self._mark(first, rows, kinds)
        r, w = np.nonzero(silent & ~done)
        # time of the next model, if any
        after = np.concatenate([self._since[1:], np.full((1, self.workers), np.inf)])
        ends = np.minimum(self.ends[first:][r], after[r, w])
        since = np.minimum(self._since[r, w], ends)
        self._compute(first, w, since, ends)
        keep = ~refused[r, w]
        self._fill(first, w[keep], since[keep], ends[keep], states[0])
        # workers that computed, but whose answer did not arrive in time
        r, w = np.nonzero(silent & done & ~refused)
        last = np.zeros(silent.shape)
        mine, *at = self._places(rows, kinds.computed)
        np.maximum.at(last, (at[0] - first, at[1]), rows["end"][mine].astype(float))
        self._fill(first, w, last[r, w], self.ends[first:][r], states[1])

    def _open_work(self, first: int, rows: Events, kinds: Kinds) -> None:
        """Draw work that continues beyond a round's end: computing since the last model, and answers in transit."""
        down, up, dropped, computed = kinds
        masks = ((down, "to"), (computed, "rank"), (up | dropped, "rank"))
        asked, done, answered = (
            last_ends({n: column[mask] for n, column in rows.items()}, whose, self.plan.ranks)[1:]
            for mask, whose in masks
        )
        end = self.ends[-1] if len(self) else 0.0
        computes = unfinished(self.plan.loads[1:], asked, done, end)
        ends = np.full(self.workers, end)
        self._fill(first, computes, asked[computes], ends[computes], COMPUTES)
        self._compute(first, computes, asked[computes], ends[computes])
        sends = np.flatnonzero((done > asked) & (done > answered) & (done < end))
        self._fill(first, sends, done[sends], ends[sends], QUEUES)

    def _places(self, rows: Events, mask: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        """Return which rows belong to workers, and the index of the round and of the worker of each of these rows."""
        mine = mask & (rows["rank"].astype(int) > 0)
        return mine, rows["round"][mine].astype(int) - self._base, rows["rank"][mine].astype(int) - 1

    def _bars(
        self, first: int, rows: Events, mask: NDArray[np.bool_], since: str, until: str, state: int
    ) -> None:
        mine, r, w = self._places(rows, mask)
        start = rows[since][mine].astype(float)
        end = rows[until][mine].astype(float) if until else self.ends[r]
        self._fill(first, w, start, end, state)
        if state == COMPUTES:
            self._compute(first, w, start, end)

    def _compute(self, first: int, w: NDArray[Any], start: Array, end: Array) -> None:
        """Add the seconds of computing to every round that they are in."""
        bar, r = self._rounds_of(first, start, end)
        length = np.minimum(end[bar], self.ends[r]) - np.maximum(start[bar], self.starts[r])
        np.add.at(self.busy, (r, w[bar]), np.maximum(length, 0.0))

    def _rounds_of(self, first: int, start: Array, end: Array) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return all pairs of a bar and a round in which it lies, from round `first` on."""
        if not len(self) or not len(start):
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        low = np.searchsorted(self.ends, start, "right").clip(first, len(self))
        high = np.searchsorted(self.ends, end, "left").clip(-1, len(self) - 1)
        count = np.maximum(high - low + 1, 0)
        bar = np.repeat(np.arange(len(start)), count)
        return bar, np.arange(len(bar)) - np.repeat(np.cumsum(count) - count - low, count)

    def _fill(self, first: int, w: NDArray[Any], start: Array, end: Array, state: int) -> None:
        """Fill bars of one state, in every round that they are in. Each has at least one slice there."""
        bar, r = self._rounds_of(first, start, end)
        length = np.maximum(self.ends[r] - self.starts[r], 1e-12)
        a, b = ((moment[bar] - self.starts[r]) / length for moment in (start, end))
        inside = (b > SAME_MOMENT) & (a < 1 - SAME_MOMENT) & (end > start)[bar]
        low = np.floor(a * self.slices).clip(0, self.slices - 1)
        high = np.ceil(b * self.slices).clip(1, self.slices)
        for s in range(self.slices):
            here = inside & (low <= s) & (s < np.maximum(high, low + 1))
            self.grid[r[here], w[bar][here], s] = state


def last_ends(rows: Mapping[str, Any] | Any, column: str, ranks: int) -> Array:
    """Return the end of the last event of each rank in `column`, shape (ranks,), s; -inf without one."""
    found = np.full(ranks, -np.inf)
    np.maximum.at(found, rows[column].astype(int), rows["end"].astype(float))
    return found


def unfinished(loads: NDArray[np.int64], asked: Array, done: Array, before: float) -> NDArray[np.int64]:
    """Return the indices of ranks that got a model `before` a time (s), and have not computed since.

    `asked`, `done`: `last_ends` of their models and of their computations. A model that takes no time arrives when the
    computation before it ends.
    """
    return np.flatnonzero((loads > 0) & (asked < before) & (asked >= np.maximum(done, 0.0)))


class Stream(Painter):
    """States of workers 1 to n, round by round. `add` takes events in any order; `grid` has the states.

    A slice has the last state in this list that applies: waits, computes, queues, sends, late, dropped, dead. A worker
    waits for a model, for the end of the round, or without work. Its message queues on the link or at the receiver's
    port, and sends while it passes the port. It is late if its answer had not arrived when the round ended, and dropped
    if its answer was refused. A round is complete when all committers have committed it. States are drawn at the time
    at which they were, so work that lasts several rounds, as in asynchronous schemes, is in each of them.

    >>> import workbench as wb
    >>> trace = wb.run(wb.Experiment(scheme="GC", scheme_args={"stragglers": 1}, workers=3, rounds=4))
    >>> stream = Stream.of(trace)
    >>> stream.grid.shape, int((stream.late.sum(axis=1) == 1).sum())
    ((4, 3, 8), 4)
    """

    def __init__(self, experiment: Experiment) -> None:
        self.plan, self.rounds = experiment.plan, experiment.rounds
        self.endless = experiment.built_scheme.self_paced  # whether work continues beyond the end of a round
        self.workers, self.slices = (
            self.plan.ranks - 1,
            max(2, min(SLICES_PER_ROUND, MAX_SLICES // experiment.rounds)),
        )
        self.redrawn = max(REDRAWN_ROUNDS, REDRAWN_ANSWERS * self.workers * self.endless)
        # first round without each dead worker
        self.dead = {f.worker: f.round for f in experiment.faults if f.for_good}
        self.grid = np.zeros((0, self.workers, self.slices), np.uint8)
        # seconds of computing, interrupted computing included
        self.busy = np.zeros((0, self.workers), np.float32)
        self.late = np.zeros((0, self.workers), bool)
        self.asked = np.zeros((0, self.workers), bool)
        # arrays with capacity for more rows, and sums over the first `rounds` rows
        self._room = {name: getattr(self, name) for name in ("grid", "busy", "late", "asked")}
        self._sums = {name: (0, np.zeros(self.workers)) for name in ("busy", "late", "asked")}
        self.starts, self.ends = np.zeros(0), np.zeros(0)  # times, s
        # Rows of the newest rounds.
        self._rows = {name: np.zeros(0, object if name == "kind" else float) for name in EVENT_COLUMNS}
        self._undrawn = np.inf  # time of the first event that is not drawn yet, s
        self._base = -1  # number of the first round; a resumed run has no events of earlier rounds

    @classmethod
    def of(cls, trace: Trace) -> Stream:
        """Return the stream of a finished run.

        A worker that died unexpectedly counts as dead from the round after its last event on.
        """
        stream, events = cls(trace.experiment), events_as_columns(trace.event_rows)
        for rank in map(int, trace.info.get("dead", ())):
            mine = (events["rank"] == rank) | (events["to"] == rank)
            stream.dead.setdefault(rank, int(np.max(events["round"][mine], initial=-1)) + 1)
        stream.add(events)
        return stream

    @property
    def first(self) -> int:
        """Number of the first round."""
        return max(self._base, 0)

    def add(self, events: Events) -> int | None:
        """Add events. Return the place of the first new or changed round, or None if nothing changed."""
        if not len(events["round"]):
            return None
        for rank, at in _deaths(events):
            self.dead[rank] = min(at, self.dead.get(rank, at))
        self._rows = {name: np.concatenate([self._rows[name], events[name]]) for name in EVENT_COLUMNS}
        before = len(self)
        oldest = int(events["round"].min())
        if self._base < 0:
            self._base = oldest
        closed = self._closed()
        self._undrawn = min(self._undrawn, float(events["start"].min()))
        if closed <= before and oldest - self._base >= before:
            return None
        begun = int(np.searchsorted(self.ends, self._undrawn, "right"))
        # a rank may begin a round before the last one ends
        ahead = self._rows["round"] >= self._base + closed
        self._undrawn = float(self._rows["start"][ahead].min(initial=np.inf))
        first = max(0, min(before, oldest - self._base, begun), before - self.redrawn)
        self._grow(closed)
        self._paint(first)
        settled = max(len(self) - self.redrawn, 0)
        keep = self._rows["round"] >= self._base + settled
        if settled:
            keep |= self._rows["end"].astype(float) > self.ends[settled - 1]
        self._rows = {name: column[keep] for name, column in self._rows.items()}
        return first

    def under_way(self, now: float) -> NDArray[np.uint8] | None:
        """Return the states in the current round at `now` (s since the start), shape (workers, slices).

        The round is drawn as long as the median of recent rounds, or as its time so far if that is longer. Future
        slices are `UNFINISHED`. No worker is late yet: a worker that was asked and has not answered computes or
        sends. Returns None if no round has begun.
        """
        at, ends = len(self), self.ends
        if self._base < 0 or self._base + at >= self.rounds:
            return None
        starts = self._rows["start"][self._rows["round"] == self._base].astype(float)
        start = float(ends[-1] if at else starts.min(initial=now))
        length = max(float(np.median(np.diff(ends[-REDRAWN_ROUNDS:]))) if at > 1 else 0.0, now - start, 1e-12)
        try:
            self.ends = np.append(ends, start + length)
            self._grow(at + 1)
            self._paint(at, over=False)
            column = self.grid[at].copy()
        finally:
            self.ends = ends
            self._grow(at)
        column[:, max(1, math.ceil(self.slices * (now - start) / length)) :] = UNFINISHED
        return column

    def recent(self) -> tuple[Events, int]:
        """Return events of the newest rounds, for a chart of one round, and the number of the first of these rounds."""
        whole = {name: self._rows[name].astype(np.int64) for name in _INTEGER_COLUMNS}
        return {**self._rows, **whole}, max(self.first, self.first + len(self) - self.redrawn)

    def _closed(self) -> int:
        """Store the times of the rounds that all committers have committed, and return the number of these rounds."""
        commits = self._rows["kind"] == "commit"
        rounds = self._rows["round"][commits].astype(int) - self._base
        last = int(rounds.max(initial=-1)) + 1
        counts = np.bincount(rounds[rounds >= 0], minlength=last)
        when = np.full(max(last, len(self)), -np.inf)
        when[: len(self)] = self.ends
        np.maximum.at(when, rounds, self._rows["end"][commits].astype(float))
        alive = sum(1 for rank in self.plan.committers if rank not in self.dead)
        whole = counts >= max(alive, 1)
        whole[: len(self)] = True
        closed = int(np.argmin(whole)) if not whole.all() else last
        self.ends = when[: max(closed, len(self))]
        return max(closed, len(self))

    def _grow(self, closed: int) -> None:
        for name, table in self._room.items():
            # the capacity is doubled, so that the tables of long runs are seldom copied
            if closed > len(table):
                spare = max(closed - len(table), len(table))
                self._room[name] = np.concatenate([table, np.zeros((spare, *table.shape[1:]), table.dtype)])
            setattr(self, name, self._room[name][:closed])
        starts = np.concatenate([[np.nan], self.ends[:-1]]) if closed else np.zeros(0)
        if closed:
            mine = self._rows["round"] == self._base
            first = self._rows["start"][mine].astype(float)
            starts[0] = first.min() if len(first) else (self.starts[0] if len(self.starts) else 0.0)
        self.starts = starts

    # ------------------------------------------------------------------ sums over rounds

    def utilisation(self) -> Array:
        """Return the share of the time so far in which each worker computed, used or not."""
        total = float(self.ends[-1] - self.starts[0]) if len(self) else 0.0
        return self._sum("busy") / total if total > 0 else np.zeros(self.workers)

    def lateness(self) -> Array:
        """Return the share of rounds that ended without the answer of a worker that was asked, (workers,)."""
        return self._sum("late") / np.maximum(self._sum("asked"), 1)

    def _sum(self, name: str) -> Array:
        """Return sums over the rounds for each worker. Rounds that can no longer change are added up once."""
        table, (first, sums) = getattr(self, name), self._sums[name]
        settled = max(len(self) - self.redrawn, first)
        sums = sums + table[first:settled].sum(axis=0, dtype=float)
        self._sums[name] = settled, sums
        return np.asarray(sums + table[settled:].sum(axis=0, dtype=float))


def _deaths(events: Events) -> list[tuple[int, int]]:
    dead = events["kind"] == "dead"
    return [(int(r), int(at)) for r, at in zip(events["rank"][dead], events["round"][dead], strict=True)]
