"""Ledger of one rank of a real run (counts per round, and events), and the merged ledgers of all ranks.

Ledgers are sent as arrays, never pickled. Counts mean the same as on the virtual clock (see `timeline`).
"""

from array import array
from collections.abc import Callable, Collection, Iterable
from typing import Any

import numpy as np

from workbench.core.base.arrays import from_bytes, joined
from workbench.core.contract.links import BYTES_PER_FLOAT
from workbench.core.contract.protocol import MODEL, PEER_LOST, Message
from workbench.core.engine.timeline import COUNTS, EVENT_COLUMNS, Event, Timeline

# kind of the message with the gradient from a committer to the master, which does not belong to the scheme
COMMITTED = "committed"
# names of counts; the last two are processor times in us, in total and in computing
COUNTERS = (*COUNTS, "computed", "overrun", "rejected", "abandoned", "busy", "worked")


class Ledger:
    """Counts and events of one rank. `record`: keep the events. `width`: bytes of a value in a message."""

    def __init__(self, rank: int, rounds: int, record: bool = True, width: int = BYTES_PER_FLOAT) -> None:
        self.rank, self.rounds, self.record, self.width = rank, rounds, record, width
        self.counts = {name: array("q", bytes(8 * (rounds + 1))) for name in COUNTERS}
        self.commits = np.full((rounds + 1, 2), np.nan)  # time, s; residual
        self.end = 0  # number of rounds that have entries
        self.events: list[Event] = []
        self.handled = 0
        self.used = 0.0  # processor time at the last `spent`, s
        # rejected messages: round (-1: unknown), sender, reason
        self.refusals: list[tuple[int, int, str]] = []
        # Callbacks. `done`: round, seconds, samples of work. `came`: sender and floats of an answer, and the times at
        # which it was sent, began to arrive, and ended.
        self.done: Callable[[int, float, int], None] | None = None
        self.came: Callable[[int, int, float, float, float], None] | None = None

    def add(self, name: str, round: int, amount: int = 1) -> None:
        """Increase a count of a round."""
        self.counts[name][self._place(round, self.rounds)] += amount

    def spent(self, round: int, used: float, worked: float = 0.0) -> None:
        """Add processor time to a round's counts. `used`: s up to now. `worked`: s of it that this round computed."""
        self.add("busy", round, int(1e6 * (used - self.used)))
        self.add("worked", round, int(1e6 * worked))
        self.used = used

    def _place(self, round: int, last: int) -> int:
        """Return the index of a round in the counts.

        Rounds below 0 count as round 0, and those above `last` as `last`.
        """
        place = round if 0 <= round <= last else max(0, min(round, last))
        if place >= self.end:
            self.end = place + 1
        return place

    def computed(self, round: int, samples: int, load: int, start: float, end: float) -> None:
        """Record a computation of `samples` samples: all `load` samples of a share of the data, or a mini-batch."""
        counts, place = self.counts, self._place(round, self.rounds - 1)
        self.handled += 1
        counts["computed"][place] += 1
        counts["samples"][place] += samples
        if self.done is not None:
            self.done(round, end - start, load)
        if self.record:
            self.events.append((place, self.rank, "compute", start, start, end, -1, 0, 0))

    def log(self, *event: Any) -> None:
        """Record an event with the columns `EVENT_COLUMNS`."""
        if self.record:
            self.events.append(event)

    def commit(self, round: int, when: float, residual: float) -> None:
        """Record that this node committed a round."""
        place = self._place(round, self.rounds)
        self.commits[place, 0], self.commits[place, 1] = when, residual

    def received(
        self, message: Message, floats: int, sent: float, begun: float, end: float, late: bool = False
    ) -> None:
        """Record a message that was received, or dropped as too late."""
        src, kind, round, _, _ = message
        if kind in (PEER_LOST, COMMITTED) or (kind == MODEL and round >= self.rounds):
            return
        if late and kind == MODEL:
            return
        place, counts = self._place(round, self.rounds - 1), self.counts
        if late:
            self.handled += 1
            counts["stale"][place] += 1
            begun = end
        elif kind == MODEL:
            self.handled += 2
            counts["downloads"][place] += floats > 0
        else:
            self.handled += 2
            counts["messages"][place] += 1
            counts["bytes"][place] += self.width * floats
            if self.came is not None:
                self.came(src, floats, sent, begun, end)
        if self.record:
            what, bytes_ = "drop" if late else "send", self.width * floats
            self.events.append((place, src, what, sent, begun, end, self.rank, bytes_, 1))

    def refused(self, sender: int, round: int, reason: str) -> None:
        """Record a message that was rejected."""
        self.refusals.append((round, sender, reason))
        self.add("rejected", round)

    def pack(self) -> bytes:
        """Return the ledger as one archive, without rounds that were not reached."""
        columns = list(zip(*self.events, strict=True)) or [()] * len(EVENT_COLUMNS)
        events = {f"event_{name}": np.array(c) for name, c in zip(EVENT_COLUMNS, columns, strict=True)}
        counts = {f"count_{name}": row[: self.end] for name, row in self.counts.items()}
        kinds = {"round": np.int64, "sender": np.int64, "reason": str}
        rows: Any = list(zip(*self.refusals, strict=True)) or [()] * len(kinds)
        arrays: Any = map(np.array, rows, kinds.values())
        refusals = dict(zip((f"refusal_{name}" for name in kinds), arrays, strict=True))
        fields = {"rank": self.rank, "handled": self.handled, "commits": self.commits[: self.end]}
        return joined({**fields, **counts, **events, **refusals})


class MergedLedgers:
    """Ledgers of all ranks of a run."""

    def __init__(self, packed: Iterable[bytes]) -> None:
        self.ledgers = [from_bytes(text) for text in packed]

    @property
    def ranks(self) -> list[int]:
        """Ranks whose ledgers were received."""
        return [int(ledger["rank"]) for ledger in self.ledgers]

    def count(self, name: str, rounds: int) -> list[int]:
        """Return the sums of a count over all ranks, for the first `rounds` rounds."""
        total = np.zeros(rounds, dtype=np.int64)
        for ledger in self.ledgers:
            # Counts that earlier versions did not have are 0
            mine = ledger.get(f"count_{name}", total[:0])[:rounds]
            total[: len(mine)] += mine
        return [int(n) for n in total]

    def events(self, zero: float) -> dict[str, Any]:
        """Return the columns of all events, ordered by their end. Times count from `zero`."""
        joined = {
            name: np.concatenate([b[f"event_{name}"] for b in self.ledgers if len(b["event_round"])] or [[]])
            for name in EVENT_COLUMNS
        }
        order = np.lexsort((joined["rank"], joined["end"]))
        columns = {name: column[order] for name, column in joined.items()}
        for name in ("start", "begun", "end"):
            columns[name] = columns[name].astype(float) - zero
        for name in ("round", "rank", "to", "bytes", "messages"):
            columns[name] = columns[name].astype(np.int64)
        return columns

    def refusals(self) -> list[dict[str, Any]]:
        """Return the rejected messages: rank, sender, round and reason."""
        return [
            {"by": int(b["rank"]), "sender": int(s), "round": int(r), "reason": str(why)}
            for b in self.ledgers
            for r, s, why in zip(b["refusal_round"], b["refusal_sender"], b["refusal_reason"], strict=True)
        ]

    def timeline(self, zero: float, committers: Collection[int]) -> Timeline:
        """Return the `Timeline` of the rounds that every committer finished, without events."""
        tables = [ledger["commits"] for ledger in self.ledgers if int(ledger["rank"]) in committers]
        commits = np.full((len(tables), max(map(len, tables)), 2), np.nan)
        for mine, rounds in zip(commits, tables, strict=True):
            mine[: len(rounds)] = rounds
        when = commits[:, :, 0].max(axis=0)  # NaN if a committer is missing
        done = np.flatnonzero(~np.isnan(when))
        timeline = Timeline(times=(when[done] - zero).tolist(), residuals=commits[0, done, 1].tolist())
        for name in COUNTS:
            counts = self.count(name, len(when))
            setattr(timeline, name, [counts[r] for r in done])
        timeline.handled = sum(int(ledger["handled"]) for ledger in self.ledgers)
        return timeline
