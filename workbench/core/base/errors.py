"""What can go wrong while a run is under way. Each message is one sentence."""

from collections.abc import Mapping, Sequence


class PrecisionWarning(UserWarning):
    """Decoding may lose more than half of a number's digits; the message names a better code."""


class WorkbenchError(RuntimeError):
    """Base of the errors below."""


class MissingLayer(WorkbenchError, ImportError):
    """A layer of the package is used whose dependencies are not installed; the message has the pip command."""


class RunError(WorkbenchError):
    """A run cannot go on; nothing wrong was committed.

    >>> issubclass(QuorumLost, RunError)
    True
    """


class QuorumLost(RunError):
    """A parent lost more children than its code tolerates. `why`: what is known of them, by rank.

    `parent`: who waited (-1: the ring), `round`: when, `missing`: the ranks that it lost.

    >>> str(QuorumLost(0, 7, [3], {3: "killed"})).split(", ")[0]
    'round 7: the master lost worker 3 (killed)'
    """

    def __init__(
        self, parent: int, round: int, missing: Sequence[int], why: Mapping[int, str] | None = None
    ) -> None:
        who = {-1: "the ring", 0: "the master"}.get(parent, f"worker {parent}")
        known = why or {}
        names = ", ".join(f"{r} ({known[r]})" if r in known else str(r) for r in missing)
        super().__init__(
            f"round {round}: {who} lost worker{'s' * (len(missing) > 1)} {names}, more than the scheme tolerates;"
            " raise stragglers, or drop the dead workers"
        )
        self.parent, self.round, self.missing, self.why = parent, round, tuple(missing), dict(known)


class Stalled(RunError):
    """Nothing can happen any more, yet the run is not over. `waiting`: who waits for what.

    >>> print(Stalled(3, "the master waits for 2 more answers"))
    round 3: nothing is left that could happen, and the master waits for 2 more answers
    """

    def __init__(self, round: int, waiting: str) -> None:
        super().__init__(f"round {round}: nothing is left that could happen, and {waiting}")
        self.round = round


class Diverged(RunError):
    """The model is not finite any more: steps were too large."""

    def __init__(self, round: int) -> None:
        super().__init__(f"round {round}: the model is not finite any more; take a smaller step")
        self.round = round


class ClusterError(RunError):
    """The processes of a run cannot be had, or are gone. The message says which, where, and what would help.

    >>> issubclass(ClusterError, RunError)
    True
    """
