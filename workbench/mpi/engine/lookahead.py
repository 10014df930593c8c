"""Answers ahead of their time: with emulated links, a leaf does not wait until its drawn time is over.

It computes, sends at once, and says in the message when the drawn time will be over; the receiver's port holds the
message until then. So a leaf is woken once a round and not twice, and is not late where many ranks share few cores.

If a newer model reaches the leaf before that time, it would have given its work up. Both sides can tell: the leaf books
the work as abandoned, and its parent, who knows when the model is there, takes the answer for one that was never sent.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence

from workbench.core.contract.plan import Plan
from workbench.core.contract.protocol import ABS_TOL
from workbench.core.contract.scheme import Scheme
from workbench.mpi.engine.ledger import Ledger

CACHED_ROUNDS = 1000  # models


def lookahead_ranks(scheme: Scheme, plan: Plan) -> frozenset[int]:
    """Ranks that send ahead: those that have a parent and no children.

    None where a worker sends several answers: it would compute them all, also those that a drawn time forbids; and
    where older models' gradients count: their work is not given up. Sequential codes' is (`Scheme.delayed`), and all
    answers of a round come out of one computation.
    """
    if (plan.answers > 1 or plan.versions > 1) and not scheme.delayed:
        return frozenset()
    return frozenset(r for r, below in enumerate(plan.children) if plan.parent[r] >= 0 and not below)


class LookaheadWork:
    """A leaf's work whose drawn time may not be over yet; booked once it is known whether it was."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        # round, samples, load, start, end; did it really take longer?
        self.work: list[tuple[int, int, int, float, float, bool]] = []

    def add(
        self, round: int, samples: int, load: int, start: float, end: float, overrun: bool = False
    ) -> None:
        """Some work was done that takes from `start` to `end`; an end at infinity: it was given up halfway."""
        self.work.append((round, samples, load, start, end, overrun))

    def resolve(self, moment: float) -> None:
        """A newer model was there at `moment`, or the run is over: book what was done, or begun, by then."""
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
    """When a parent's models reach those of its children that send ahead."""

    def __init__(self, leaves: Iterable[int]) -> None:
        self.leaves = frozenset(leaves)
        self.rounds: list[int] = []  # ascending
        self.models: list[tuple[float, Sequence[int]]] = []  # when it is there, and whose it is

    def add(self, round: int, arrives: float, to: Sequence[int]) -> None:
        """A model was sent."""
        self.rounds.append(round)
        self.models.append((arrives, to))
        if len(self.rounds) > 2 * CACHED_ROUNDS:  # what is older makes an answer late instead of forgotten
            del self.rounds[:CACHED_ROUNDS], self.models[:CACHED_ROUNDS]

    def newest(self) -> tuple[int, frozenset[int]]:
        """Round of the newest model, and who of those that send ahead has been sent it."""
        round = self.rounds[-1] if self.rounds else -1
        models = self.models[bisect_left(self.rounds, round) :]
        return round, self.leaves & {child for _, to in models for child in to}

    def newer(self, child: int, round: int, moment: float) -> bool:
        """Does a child that sends ahead have a model newer than a round's before some moment?"""
        if child not in self.leaves:
            return False
        newer = self.models[bisect_right(self.rounds, round) :]
        there = next((arrives for arrives, to in newer if child in to), moment)
        return there + ABS_TOL < moment
