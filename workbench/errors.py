"""What can go wrong while a run is under way. Each message is one sentence."""

from __future__ import annotations

from collections.abc import Sequence


class PrecisionWarning(UserWarning):
    """Decoding may lose more than half of a number's digits; the message names a better code."""


class RunError(RuntimeError):
    """A run cannot go on; nothing wrong was committed."""


class QuorumLost(RunError):
    """A parent lost more children than its code tolerates."""

    def __init__(self, parent: int, round: int, missing: Sequence[int]) -> None:
        who = {-1: "the ring", 0: "the master"}.get(parent, f"worker {parent}")
        names = ", ".join(str(rank) for rank in missing)
        super().__init__(
            f"round {round}: {who} lost worker{'s' * (len(missing) > 1)} {names}, more than the scheme tolerates;"
            " raise stragglers, or drop the dead workers"
        )
        self.parent, self.round, self.missing = parent, round, tuple(missing)


class Stalled(RunError):
    """Nothing can happen any more, yet the run is not over."""

    def __init__(self, round: int, waiting: str) -> None:
        super().__init__(f"round {round}: nothing is left that could happen, and {waiting}")
        self.round = round
