"""What the events of a star's run say: when every model left, came, was worked on and was answered.

A worker's time counts from the end of the round before to its answer, less what the fitted link charges for the
model's way down: whatever else a round costs (waking up, waiting for a core, the master's own work) is in it and not
lost between two measurements.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workbench.base.settings import SettingError
from workbench.base.types import Array
from workbench.core.links import BYTES_PER_FLOAT
from workbench.experiment import Experiment
from workbench.planning.laws import resampled
from workbench.planning.linkfit import Messages, PortFit

WARM = 4  # first rounds, which are not counted


@dataclass(frozen=True)
class Observed:
    """Moments of a calibration's rounds, s: (rounds, workers), and (rounds,) for the master's."""

    samples: float
    floats: int
    start: Array  # (rounds,) the round before was over
    left: Array  # the model left the master
    came: Array  # the worker had it
    begun: Array
    done: Array  # computed
    sent: Array
    end: Array  # the answer was through the master's port
    commit: Array  # (rounds,)
    apart: bool = False  # clocks differ
    width: int = BYTES_PER_FLOAT  # of a number in a message

    def drawn_again(self, rng: np.random.Generator) -> Observed:
        """Rounds drawn with replacement, neighbours together."""
        return self.at(resampled(len(self.commit), rng))

    def at(self, rounds: NDArray[np.int64]) -> Observed:
        """Some rounds."""
        moments = ("start", "left", "came", "begun", "done", "sent", "end", "commit")
        return replace(self, **{name: getattr(self, name)[rounds] for name in moments})

    @property
    def answers(self) -> Messages:
        """The way up."""
        return Messages(float(self.width * self.floats), self.sent, self.end)

    @property
    def after(self) -> Array:
        """From the last answer to the end of the round, (rounds,): the master decodes and updates the model."""
        return np.asarray(np.maximum(self.commit - self.end.max(axis=1), 0.0))

    def ways_up(self, port: PortFit) -> Array:
        """Time of every answer on its way, (rounds, workers), without its wait while the port took in another."""
        order = np.argsort(self.end, axis=1, kind="stable")
        sent, end = (np.take_along_axis(moment, order, axis=1) for moment in (self.sent, self.end))
        before = np.concatenate([np.full((len(end), 1), -np.inf), end[:, :-1]], axis=1)
        way = end - sent - np.maximum(before - sent - port.latency, 0.0)
        found = np.empty_like(way)
        np.put_along_axis(found, order, way, axis=1)
        return np.asarray(np.maximum(found, 0.0))

    def seconds(self, port: PortFit, master: float) -> Array:
        """Times of the workers' tasks, (rounds, workers): see the module's text. `master`: its own part of a round."""
        charged = port.latency + port.transfer(self.width * self.floats) if port.downloads else 0.0
        whole = self.done - self.start[:, None] - charged + master
        return np.asarray(np.maximum(whole, np.maximum(self.done - self.begun, 1e-9)))


def observe(e: Experiment, ends: Array, events: Any, elsewhere: Sequence[bool] = ()) -> Observed:
    """Read a star's events (a table as `Trace.events`); `ends`: when its rounds were over.

    `elsewhere`: which workers have another clock than the master. Raises `SettingError` where no round is complete.
    """
    shape = (len(ends), e.workers)
    kept = events[events["round"] < shape[0]]
    sends = kept[(kept["kind"] == "send") & (kept["bytes"] > 0)]
    down, up, work = sends[sends["rank"] == 0], sends[sends["to"] == 0], kept[kept["kind"] == "compute"]

    def table(part: Any, rank: str, moment: str) -> Array:
        found = np.full(shape, np.nan)
        found[part["round"].to_numpy(int), part[rank].to_numpy(int) - 1] = part[moment].to_numpy(float)
        return found

    samples, floats = e.shape()
    seen = Observed(
        samples=float(e.built_scheme.loads(e.workers, samples).mean()),
        floats=floats,
        width=e.problem_spec.width,
        start=np.concatenate([[0.0], ends[:-1]]),
        left=table(down, "to", "start"),
        came=table(down, "to", "end"),
        begun=table(work, "rank", "start"),
        done=table(work, "rank", "end"),
        sent=table(up, "rank", "start"),
        end=table(up, "rank", "end"),
        commit=ends,
        apart=any(elsewhere),
    )
    moments = seen.left + seen.came + seen.begun + seen.done + seen.end
    whole = np.flatnonzero(np.isfinite(moments).all(axis=1))
    whole = whole[whole >= min(WARM, shape[0] - 1)]
    if not len(whole):
        raise SettingError("rounds: none was complete, workers were lost; look at the cluster first")
    return on_one_clock(seen.at(whole), np.array(elsewhere, dtype=bool))


def on_one_clock(seen: Observed, elsewhere: NDArray[np.bool_]) -> Observed:
    """Set other hosts' moments right: where the fastest ways up and down take equally long."""
    if not elsewhere.any():
        return seen
    ahead = (np.min(seen.came - seen.left, axis=0) - np.min(seen.end - seen.sent, axis=0)) / 2
    ahead = np.where(elsewhere, ahead, 0.0)
    theirs = ("came", "begun", "done", "sent")
    return replace(seen, **{name: getattr(seen, name) - ahead for name in theirs})
