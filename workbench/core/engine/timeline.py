"""What an engine hands back: when rounds ended, what they cost, and the events."""

from dataclasses import dataclass, field, replace
from typing import Any, Self

from workbench.core.contract.adaptive import Change

Event = tuple[int, int, str, float, float, float, int, int, int]
EVENT_COLUMNS = ("round", "rank", "kind", "start", "begun", "end", "to", "bytes", "messages")
COUNTS = ("messages", "bytes", "downloads", "samples", "started", "stale")  # per round


class SchemeChanged(Exception):
    """A run goes on with another scheme: raised in what is called after a round, where scheme selection is adaptive."""

    def __init__(self, change: Change) -> None:
        super().__init__(change.reason)
        self.change = change


@dataclass
class Timeline:
    """What happened: commit times of every round, counts per round, and the events."""

    times: list[float] = field(default_factory=list)  # end of each round, s
    residuals: list[float] = field(default_factory=list)
    messages: list[int] = field(default_factory=list)  # gradient messages received, per round
    bytes: list[int] = field(default_factory=list)
    downloads: list[int] = field(default_factory=list)  # models that arrived, per round
    samples: list[int] = field(default_factory=list)  # samples gone through, per round
    started: list[int] = field(default_factory=list)  # samples of work begun, cut off or not, per round
    stale: list[int] = field(default_factory=list)  # answers that came too late, per round
    events: list[Event] = field(default_factory=list)
    handled: int = 0  # computes, sends and receipts that the engine went through
    changes: list[Change] = field(default_factory=list)  # of scheme, where scheme selection is adaptive

    def open(self, rounds: int) -> None:
        """Make room for the counts of so many rounds, and one more for the closing words."""
        for name in COUNTS:
            setattr(self, name, [0] * (rounds + 1))

    def close(self) -> None:
        """Keep the counts of finished rounds only."""
        for name in COUNTS:
            del getattr(self, name)[len(self.times) :]

    def until(self, rounds: int) -> Self:
        """The first so many rounds, in lists of their own."""
        columns: dict[str, Any] = {n: getattr(self, n)[:rounds] for n in ("times", "residuals", *COUNTS)}
        events = self.events if rounds == len(self.times) else [row for row in self.events if row[0] < rounds]
        return replace(self, events=events, **columns)
