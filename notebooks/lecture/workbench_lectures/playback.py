"""Animated run on the virtual clock: rounds appear when the clock reaches them, for all schemes at once.

A simulation is faster than the time that it simulates, so its curves would appear at once. The animation shows them
at a visible pace. The animation depends only on the experiments, their seed and its own start time. Another process can
therefore repeat the same runs (bit by bit) and continue the animation.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from itertools import zip_longest

import numpy as np
from typing_extensions import override

from workbench.analysis.planning.quantities import quantity_of
from workbench.core.base.types import Array
from workbench.core.experiment import Experiment
from workbench.core.forecasting import forecast
from workbench.core.running.run import Rows, Run, State
from workbench.core.running.start import start_all
from workbench.core.trace.trace import Trace

Clock = Callable[[], float]
FORECAST_ROUNDS = 40  # rounds of a forecast of the animation's length


class Playback:
    """Start of the animation (s on the clock), its pace in virtual seconds per second, and the time of its stop."""

    def __init__(
        self, pace: float, began: float, stopped: float | None = None, clock: Clock = time.time
    ) -> None:
        self.pace, self.began, self.stopped, self.clock = pace, began, stopped, clock

    @property
    def now(self) -> float:
        """Virtual seconds since the start of the runs."""
        if self.stopped is not None:
            return self.stopped
        return self.pace * max(0.0, self.clock() - self.began)

    def stop(self) -> None:
        """Stop at the current time."""
        self.stopped = self.now


class PlaybackRun(Run):
    """Run of which only the rounds up to the animation's time are shown."""

    def __init__(self, run: Run, playback: Playback, limit: int | None = None) -> None:
        super().__init__(run.experiment, run.engine)
        self.run, self.playback = run, playback
        self.limit = limit  # number of rounds that were shown at the stop
        self._known: Array = np.zeros(0)  # end times of the known rounds

    @property
    def state(self) -> State:
        """State of the animation: running until the last round is shown, or the one at which it was stopped."""
        inner, shown = self.run.state, self._shown()
        if self.limit is not None and inner != "failed":
            return "stopped" if shown == self.limit or inner in ("finished", "stopped") else inner
        if inner != "finished":
            return inner
        return "running" if shown < len(self._known) else inner

    @property
    def note(self) -> str:
        """Text of the table under the curves."""
        shown = self._shown()
        if not shown:
            return self.run.note if self.run.state in ("waiting", "failed") else "in its first round"
        last = f"{quantity_of(self._known[shown - 1])} on the virtual clock"
        return f"round {shown} of {self.experiment.rounds}, {last}"

    @note.setter
    def note(self, text: str) -> None:
        """Ignore a new text, since the text is made from the shown rounds."""

    @override
    def rows(self, first: int = 0) -> Rows:
        rows = self.run.rows(first)
        count = self._count(rows["time"], first)
        return {name: column[:count] for name, column in rows.items()}

    def _count(self, times: Array, first: int) -> int:
        """Count the shown rounds from `first` on."""
        count = int(np.searchsorted(times, self.playback.now, side="right"))
        return count if self.limit is None else min(count, max(0, self.limit - first))

    def _times(self) -> Array:
        known = self._known
        self._known = np.concatenate([known, self.run.rows(len(known))["time"]])
        return self._known

    def _shown(self) -> int:
        return self._count(self._times(), 0)

    def stop(self) -> None:
        """Stop the animation, also of all other runs. Shown rounds stay."""
        if self.playback.stopped is None:
            self.playback.stop()
        if self.limit is None:
            self.limit = self._shown()
        self.run.stop()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the underlying run is over."""
        return self.run.wait(timeout)

    def result(self) -> Trace:
        """Return the trace of all rounds, including those not shown yet."""
        return self.run.result()


def length(experiments: Sequence[Experiment]) -> float:
    """Return the expected virtual seconds of the slowest of these experiments."""
    # forecasts refuse faults that change times
    living = [e.replace(faults=()) if e.faults else e for e in experiments]
    return max(forecast(e, rounds=min(e.rounds, FORECAST_ROUNDS)).mean * e.rounds for e in living)


def play(
    experiments: Sequence[Experiment], playback: Playback, limits: Sequence[int | None] = ()
) -> list[PlaybackRun]:
    """Start runs on the virtual clock and show them by the animation. `limits`: shown rounds of stopped runs."""
    runs = start_all(experiments)
    return [PlaybackRun(run, playback, limit) for run, limit in zip_longest(runs, limits[: len(runs)])]
