"""The draws of one run, and who of several comes first at one moment."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from workbench.base.types import Array
from workbench.core.delays.base import DelayModel, Keyed
from workbench.core.plan import Plan

TIES = (
    5  # random stream of who comes first at one moment; delays have stream 0, mini-batches 1, permutations 4
)


class DelayStream:
    """The draws of one run: which worker takes how long in which round."""

    def __init__(self, model: DelayModel, seed: int, workers: int, keep: int = 4) -> None:
        self.model, self.workers, self.keep = model, workers, keep
        self.keyed, self._tie_keys = Keyed(seed), Keyed(seed, TIES)
        self.parts_apart = getattr(model, "per", "worker") == "part"
        self._draws: dict[tuple[int, int], Array] = {}
        self._ties: dict[int, Array] = {}

    def ties(self, round: int) -> Array:
        """Who of several comes first at one moment of a round: the lower number, (workers,), uniform in [0, 1).

        >>> from workbench.core.delays import Constant as law
        >>> three, five = (DelayStream(law(), seed=1, workers=n).ties(round=7) for n in (3, 5))
        >>> bool((three == five[:3]).all())  # a worker's number is its own
        True
        """
        if round not in self._ties:
            if len(self._ties) > self.keep:
                self._ties.clear()
            self._ties[round] = self._tie_keys.rng(round).random(self.workers)
        return self._ties[round]

    def draw(self, round: int, slot: int = 0) -> Array:
        """Random numbers of a round, shape (k, workers); remembered for a few rounds."""
        if (round, slot) not in self._draws:
            before = self._before(round)
            self._draws[round, slot] = self.model.draw(self.keyed, round, self.workers, slot, before)
            for key in [k for k in self._draws if k[0] < round - self.keep]:
                del self._draws[key]
        return self._draws[round, slot]

    def _before(self, round: int) -> Array | None:
        if not self.model.memory or round == 0:
            return None
        start = max((r for r, _ in self._draws if r < round), default=-1) + 1
        for r in range(start, round):
            self.draw(r)
        return self._draws[round - 1, 0]

    def whole(self, round: int, loads: NDArray[Any], plan: Plan | None = None) -> Array:
        """Seconds that every worker takes for its whole load of a round; both (workers,).

        The plan is needed where every part has a draw of its own.
        """
        if not self.parts_apart or plan is None:
            return self.model.compute(self.draw(round), loads)
        return self.progress(round, plan.portions)[:, -1]

    def progress(self, round: int, portions: NDArray[Any]) -> Array:
        """Seconds after which every worker has gone through its first, second, ... portion of samples.

        Both (workers, portions). With one draw per worker the time depends on the samples done so far only.
        """
        if not self.parts_apart:
            draw = self.draw(round)
            done = [self.model.compute(draw, samples) for samples in np.cumsum(portions, axis=1).T]
            return np.stack(done, axis=1)
        each = [
            self.model.compute(self.draw(round, slot), samples) for slot, samples in enumerate(portions.T)
        ]
        return np.cumsum(np.stack(each, axis=1), axis=1)

    def piece(self, round: int, worker: int, slot: int, samples: int) -> float:
        """Seconds that a worker (counted from 0) takes for its `slot`-th part."""
        draw = self.draw(round, slot if self.parts_apart else 0)[:, worker : worker + 1]
        return float(self.model.compute(draw, np.array([samples]))[0])

    def sending(self, round: int, share: float) -> Array | None:
        """Seconds that sending `share` of a model takes each worker, or None."""
        return self.model.sending(self.draw(round), share)
