"""Computing times of a run, from the drawn delays."""

from typing import Any

import numpy as np

from workbench.core.contract.delays import DelayStream
from workbench.core.contract.plan import Plan, Work
from workbench.core.contract.protocol import Compute
from workbench.core.contract.scheme import Scheme

CACHED_ROUNDS = 64  # rounds whose computing times are cached; self-paced workers are in different rounds


def loaded(effect: Compute) -> int:
    """Return the number of samples of a piece of work, at most `Compute.batch`, if the experiment has no mini-batches.

    >>> from workbench.core.contract.plan import uncoded_plan
    >>> loaded(Compute(uncoded_plan(3, 10).work[1], model=None, round=3, batch=2))
    2
    """
    samples = effect.work.samples
    return min(effect.batch, samples) if effect.batch else samples


class ComputeTimes:
    """Computing times of one run, for whole loads, parts of a load, and mini-batches."""

    def __init__(self, scheme: Scheme, plan: Plan, delays: DelayStream) -> None:
        self.scheme, self.plan, self.delays = scheme, plan, delays
        self.computing: dict[int, tuple[Plan, list[float]]] = {}  # round -> plan, seconds of whole loads
        self.progress: dict[int, list[list[float]]] = {}  # round -> worker -> seconds until each part is done
        # rank -> round, next part, end of its last work, start of its load
        self.stretches: dict[int, tuple[Any, ...]] = {}
        self.places: dict[int, tuple[Work, Work, int, bool]] = {}  # id of a work -> result of `_place`

    def end(self, now: float, r: int, effect: Compute) -> float:
        """Return when a rank will have finished a piece of work that it begins `now`, s."""
        work, model, round, _, batch, draw, _, _ = effect
        draw = round if draw is None else draw
        if draw not in self.computing:
            self.draw(draw)
        plan, seconds = self.computing[draw]
        own = plan.work[r]
        if work is own and batch is plan.batch is None:  # a whole load, the most frequent case
            return now + seconds[r - 1]
        samples = loaded(effect)
        if samples != plan.loads[r] or len(work.parts) != len(own.parts):
            first, stretch = (0, False) if isinstance(model, tuple) else self._place(work, own)
            if stretch and batch is None:
                return self._stretch_end(now, r, effect, draw, first, plan)
            return now + self.delays.piece(draw, r - 1, first, samples)
        return now + seconds[r - 1]

    def _place(self, work: Work, own: Work) -> tuple[int, bool]:
        """Return the position of the work's first part in the rank's load, and whether its parts are consecutive."""
        known = self.places.get(id(work))
        if known is None or known[0] is not work or known[1] is not own:
            slots = np.flatnonzero(own.parts == work.parts[0])
            first = int(slots[0]) if len(slots) else 0
            stretch = bool(np.array_equal(own.parts[first : first + len(work.parts)], work.parts))
            known = self.places[id(work)] = (work, own, first, stretch)
        return known[2:]

    def _stretch_end(self, now: float, r: int, effect: Compute, draw: int, first: int, plan: Plan) -> float:
        """Return the time at which a rank will have finished consecutive parts of its load, from part `first` on, s.

        If the rank has computed without a pause, the time is counted from the start of its load. Workers of the same
        speed then finish the same number of samples at exactly the same time, whatever the sizes of their parts.
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
        """Compute and cache the plan of a round and the seconds of each worker's whole load.

        An engine may call this method for the first round before the run, because reading a table of recorded times
        takes up to a second.
        """
        if len(self.computing) >= CACHED_ROUNDS:
            self.computing.pop(min(self.computing))
        plan = self.scheme.round_plan(self.plan, round)
        apart = plan if plan.batch is None else None  # with mini-batches, all parts of a round have one draw
        self.computing[round] = (plan, self.delays.whole(round, plan.loads[1:], apart).tolist())
