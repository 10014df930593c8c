"""Lookahead: with emulated links, a leaf sends its answer before its drawn time is over.

The leaf computes, sends at once, and writes the end of the drawn time into the message. The receiver's port holds the
message until then. The leaf is thus woken once a round instead of twice, and is in time even if many ranks share few
cores.

If a newer model reaches the leaf before that time, the leaf would have abandoned its work. Both sides can decide this:
the leaf records the work as abandoned. Its parent, which has the arrival time of the model, drops the answer.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence

from workbench.core.contract.plan import Plan
from workbench.core.contract.protocol import ABS_TOL
from workbench.core.contract.scheme import Scheme
from workbench.mpi.engine.ledger import Ledger

CACHED_ROUNDS = 1000  # min number of models that are kept; as many old ones are removed at once


def lookahead_ranks(scheme: Scheme, plan: Plan) -> frozenset[int]:
    """Return the ranks that send ahead: those with a parent and without children.

    The result is empty if a worker sends several answers, because it would also compute answers that its drawn time
    does not allow. It is also empty if commits use gradients at older models, because work on these is not abandoned.
    Sequential codes are an exception (`Scheme.delayed`): all answers of a round come from one computation, which can be
    abandoned.
    """
    if (plan.answers > 1 or plan.versions > 1) and not scheme.delayed:
        return frozenset()
    return frozenset(r for r, below in enumerate(plan.children) if plan.parent[r] >= 0 and not below)


class LookaheadWork:
    """Work of a leaf that is not recorded yet, because a newer model may still interrupt it."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        # round, samples, load, start, end, and whether it took longer than drawn
        self.work: list[tuple[int, int, int, float, float, bool]] = []

    def add(
        self, round: int, samples: int, load: int, start: float, end: float, overrun: bool = False
    ) -> None:
        """Add work from `start` to `end`. An infinite end means that it was abandoned."""
        self.work.append((round, samples, load, start, end, overrun))

    def resolve(self, moment: float) -> None:
        """Record the work that was done or begun by `moment`, when a newer model arrived or the run ended."""
        for round, samples, load, start, end, overrun in self.work:
            if start <= moment + ABS_TOL:
                self.ledger.add("started", min(round, self.ledger.rounds - 1), samples)
                if end <= moment + ABS_TOL:
                    self.ledger.computed(round, samples, load, start, end)
                    self.ledger.add("overrun", round, overrun)
                else:
                    self.ledger.add("abandoned", round)
        self.work.clear()


class ModelArrivals:
    """Arrival times of a parent's models at its children that send ahead."""

    def __init__(self, ranks: Iterable[int]) -> None:
        self.ranks = frozenset(ranks)
        self.rounds: list[int] = []  # round of each model, ascending
        self.models: list[tuple[float, Sequence[int]]] = []  # arrival time and receivers of each model

    def add(self, round: int, arrives: float, to: Sequence[int]) -> None:
        """Add a model that was sent."""
        self.rounds.append(round)
        self.models.append((arrives, to))
        # old models are forgotten; an answer to one of them then counts as late instead of dropped
        if len(self.rounds) > 2 * CACHED_ROUNDS:
            del self.rounds[:CACHED_ROUNDS], self.models[:CACHED_ROUNDS]

    def newest(self) -> tuple[int, frozenset[int]]:
        """Return the round of the newest model, and the children that send ahead and to which it was sent."""
        round = self.rounds[-1] if self.rounds else -1
        models = self.models[bisect_left(self.rounds, round) :]
        return round, self.ranks & {child for _, to in models for child in to}

    def newer(self, child: int, round: int, moment: float) -> bool:
        """Return whether a child that sends ahead has a newer model than that of `round` before `moment`."""
        if child not in self.ranks:
            return False
        newer = self.models[bisect_right(self.rounds, round) :]
        there = min((arrives for arrives, to in newer if child in to), default=moment)
        return there + ABS_TOL < moment
