"""Result of an engine: ends of the rounds, counts per round, and events."""

from dataclasses import dataclass, field, replace
from typing import Any, Self

from workbench.core.contract.adaptive import Change

Event = tuple[int, int, str, float, float, float, int, int, int]
EVENT_COLUMNS = ("round", "rank", "kind", "start", "begun", "end", "to", "bytes", "messages")
COUNTS = ("messages", "bytes", "downloads", "samples", "started", "stale")  # fields with one count per round


class SchemeChanged(Exception):
    """Signal that an adaptive run continues with another scheme; raised in the callback after a round."""

    def __init__(self, change: Change) -> None:
        super().__init__(change.reason)
        self.change = change


@dataclass
class Timeline:
    """Commit times of the rounds, counts per round, and events."""

    times: list[float] = field(default_factory=list)  # end of each round, s
    residuals: list[float] = field(default_factory=list)
    messages: list[int] = field(default_factory=list)  # gradient messages received, per round
    bytes: list[int] = field(default_factory=list)
    downloads: list[int] = field(default_factory=list)  # models that arrived, per round
    samples: list[int] = field(default_factory=list)  # samples of finished work, per round
    started: list[int] = field(default_factory=list)  # samples of all work that was begun, per round
    stale: list[int] = field(default_factory=list)  # answers that came too late, per round
    events: list[Event] = field(default_factory=list)
    handled: int = 0  # number of computations, sends and receipts that the engine processed
    changes: list[Change] = field(default_factory=list)  # changes of scheme in an adaptive run

    def open(self, rounds: int) -> None:
        """Set the counts of all rounds to 0. One more round counts the final messages."""
        for name in COUNTS:
            setattr(self, name, [0] * (rounds + 1))

    def close(self) -> None:
        """Delete the counts of rounds that were not finished."""
        for name in COUNTS:
            del getattr(self, name)[len(self.times) :]

    def until(self, rounds: int) -> Self:
        """Return a copy with the first `rounds` rounds."""
        columns: dict[str, Any] = {n: getattr(self, n)[:rounds] for n in ("times", "residuals", *COUNTS)}
        events = self.events if rounds == len(self.times) else [row for row in self.events if row[0] < rounds]
        return replace(self, events=events, **columns)
