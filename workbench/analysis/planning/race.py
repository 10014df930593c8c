"""Race between step sizes of an optimiser: the simulation of each ends as soon as its result is certain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from workbench.core.base.types import Array
from workbench.core.trace.learning import Learnt, Trajectories
from workbench.core.trace.metrics import at_target, first_reached


def values_of(learnt: Learnt, metric: str) -> list[float]:
    """Return the values of a metric after every round."""
    return learnt.loss if metric == "loss" else learnt.metrics[metric]


@dataclass
class Race:
    """Trajectories of some step sizes under some seeds, until each has reached the target or cannot be the fastest.

    `rounds`: rounds to the target, (steps, seeds). `times`: ends of the rounds under every seed, s; may be empty.
    """

    target: float
    metric: str
    rounds: Array
    times: Sequence[Array] = ()
    # trajectories that share passes over the data, step size and seed of each unfinished one, and size of mini-batches
    lanes: list[tuple[Trajectories, dict[int, tuple[int, int]], int | None]] = field(default_factory=list)

    def step(self, t: int) -> None:
        """Compute round t of all unfinished trajectories, and end those that reached the target before, or diverged."""
        for trajectories, cells, batch in self.lanes:
            for run, learnt in zip(list(cells), trajectories.step() if cells else (), strict=True):
                first = self._first(learnt, batch) if t else None
                if first is not None:
                    self.rounds[cells[run]] = first + 1.0
                if first is not None or not np.isfinite(learnt.model).all():
                    trajectories.drop(run)
                    del cells[run]
        if len(self.times):
            self._give_up(t)

    def _first(self, learnt: Learnt, batch: int | None) -> int | None:
        """Return the round after which a trajectory has reached the target, or None if it has not."""
        values = values_of(learnt, self.metric)
        if np.isnan(values[-1]) or (batch is None and not at_target(values[-1], self.target, self.metric)):
            return None
        return first_reached(values, self.target, self.metric, batch)

    def _give_up(self, t: int) -> None:
        """End the step sizes that are slower, on average, than one that has reached the target under every seed."""
        reached = np.isfinite(self.rounds)
        ends = np.stack(
            [
                own[np.where(done, rounds - 1, min(t, len(own) - 1)).astype(int)]
                for own, rounds, done in zip(self.times, self.rounds.T, reached.T, strict=True)
            ],
            axis=1,
        )
        done, mean = reached.all(axis=1), ends.mean(axis=1)
        if not done.any():
            return
        behind = set(np.flatnonzero(~done & (mean > mean[done].min())).tolist())
        for trajectories, cells, _ in self.lanes:
            for run in [run for run, (step, _) in cells.items() if step in behind]:
                trajectories.drop(run)
                del cells[run]
