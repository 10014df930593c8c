"""When a rank is through with its work, from the drawn delays."""

from typing import Any

import numpy as np

from workbench.core.contract.delays import DelayStream
from workbench.core.contract.plan import Plan, Work
from workbench.core.contract.protocol import Compute
from workbench.core.contract.scheme import Scheme

CACHED_ROUNDS = 64  # rounds whose computing times are at hand; workers on their own draws are not all at one


def loaded(effect: Compute) -> int:
    """Return how many samples of the data set some work is for; a round's mini-batch has a share of them.

    >>> from workbench.core.contract.plan import uncoded_plan
    >>> loaded(Compute(uncoded_plan(3, 10).work[1], model=None, round=3, batch=2))
    2
    """
    samples = effect.work.samples
    return min(effect.batch, samples) if effect.batch else samples


class ComputeTimes:
    """Computing times of one run: whole loads, parts of them, mini-batches."""

    def __init__(self, scheme: Scheme, plan: Plan, delays: DelayStream) -> None:
        self.scheme, self.plan, self.delays = scheme, plan, delays
        self.computing: dict[int, tuple[Plan, list[float]]] = {}  # round -> seconds of whole loads, by worker
        self.progress: dict[int, list[list[float]]] = {}  # round -> worker -> seconds until each part
        self.stretches: dict[int, tuple[Any, ...]] = {}  # rank -> round, next part, now, when its load began
        self.places: dict[int, tuple[Work, Work, int, bool]] = {}  # by the id of a work

    def end(self, now: float, r: int, effect: Compute) -> float:
        """When a rank will be through with some work, begun now."""
        samples = loaded(effect)
        draw = effect.round if effect.draw is None else effect.draw
        if draw not in self.computing:
            self.draw(draw)
        plan, seconds = self.computing[draw]
        work = plan.work[r]
        if effect.work is work and effect.batch is plan.batch is None:  # a whole load, as nearly always
            return now + seconds[r - 1]
        if samples != plan.loads[r] or len(effect.work.parts) != len(work.parts):
            several = isinstance(effect.model, tuple)
            first, stretch = (0, False) if several else self._place(effect.work, work)
            if stretch and effect.batch is None:
                return self._stretch_end(now, r, effect, draw, first, plan)
            return now + self.delays.piece(draw, r - 1, first, samples)
        return now + seconds[r - 1]

    def _place(self, work: Work, own: Work) -> tuple[int, bool]:
        """Where some work begins in a rank's whole load, and whether its parts follow one another there."""
        known = self.places.get(id(work))
        if known is None or known[0] is not work or known[1] is not own:
            slots = np.flatnonzero(own.parts == work.parts[0])
            first = int(slots[0]) if len(slots) else 0
            stretch = bool(np.array_equal(own.parts[first : first + len(work.parts)], work.parts))
            known = self.places[id(work)] = (work, own, first, stretch)
        return known[2:]

    def _stretch_end(self, now: float, r: int, effect: Compute, draw: int, first: int, plan: Plan) -> float:
        """When a rank will be through with consecutive parts of its load, the `first` of them and on.

        Counted from where the rank began its load, if it has gone on without a pause: who has the same pace and
        has gone through as many samples is then done at the very same time, however they are cut.
        """
        if draw not in self.progress:
            self.progress = {k: v for k, v in self.progress.items() if k >= draw - 1}
            self.progress[draw] = self.delays.progress(draw, plan.portions).tolist()
        done = self.progress[draw][r - 1]
        *here, begun = self.stretches.get(r, (None,))
        if here != [draw, first, now]:
            begun = now - (done[first - 1] if first else 0.0)
        last = first + len(effect.work.parts)
        end = begun + done[last - 1]
        self.stretches[r] = (draw, last, end, begun)
        return end

    def draw(self, round: int) -> None:
        """Look up who holds what in a round, and how long everybody's whole load takes.

        A first round may be drawn beforehand: the first time can take a second, for a table of recorded times.
        """
        if len(self.computing) >= CACHED_ROUNDS:
            self.computing.pop(min(self.computing))
        plan = self.scheme.round_plan(self.plan, round)
        apart = plan if plan.batch is None else None  # a mini-batch has one draw, whatever the parts
        self.computing[round] = (plan, self.delays.whole(round, plan.loads[1:], apart).tolist())
