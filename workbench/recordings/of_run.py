"""What a run's rounds would take if some of its workers, its port or its decoding were mended: by the scheme's `odds`.

A coded scheme does without its slowest workers, so who is slow need not be who costs. The model of a round is therefore
the scheme's: its `odds` with the computing times that the run had. Of work that was cut off it is only known that it
lasted until the round's end; that is taken.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from workbench.base.settings import SettingError
from workbench.base.types import Array
from workbench.core.links import Link
from workbench.core.odds import Draws
from workbench.trace.trace import Trace

PORT, DECODING = "the port", "decoding"
MOST = 8  # causes whose interplay is looked at: 2^8 rounds each
Cause = str | int  # the port or decoding, or a worker, by its column


@dataclass(frozen=True)
class Rounds:
    """Rounds of one run as its scheme has them. `seconds`: computing times (rounds, workers); `late`: likewise."""

    trace: Trace
    seconds: Array
    late: NDArray[np.bool_]  # whose work was cut off

    @classmethod
    def of(cls, trace: Trace) -> Rounds:
        """From a run's events; raises `SettingError` for one without events, or whose rounds are no scheme's `odds`."""
        e = trace.experiment
        if e.built_scheme.selects or e.built_scheme.own_pace or e.built_scheme.delayed:
            raise SettingError(
                f"scheme = {e.scheme!r}: whom it waits for cannot be told from its draws alone"
            )
        if e.plan.answers > 1:
            raise SettingError(
                f"scheme = {e.scheme!r}: its workers answer several times a round, which is not modelled"
            )
        if not len(trace.events):
            raise SettingError(f"run {trace.label!r}: kept no events; run it with events=True")
        ends = trace.columns["time"]
        computing = trace.events[trace.events["kind"] == "compute"]
        lasted = np.diff(ends, prepend=0.0)
        seconds = np.full((len(ends), e.workers), np.nan)
        own = (computing["end"] - computing["begun"]).groupby([computing["round"], computing["rank"]]).sum()
        rounds, ranks = (own.index.get_level_values(level).to_numpy() for level in (0, 1))
        seconds[rounds, ranks - 1] = own.to_numpy()
        late = np.isnan(seconds)
        return cls(trace, np.where(late, lasted[:, None], seconds), late)

    def lasting(self, mended: Iterable[Cause] = ()) -> Array:
        """Seconds of every round with some causes mended: workers (columns) like the median, port or decoding free."""
        e, causes = self.trace.experiment, set(mended)
        workers = [cause for cause in causes if isinstance(cause, int)]
        seconds = self.seconds.copy()
        seconds[:, workers] = np.minimum(seconds[:, workers], np.median(self.seconds, axis=1, keepdims=True))
        samples, floats = e.shape()
        link = e.line.model_copy(update={"bandwidth": None}) if PORT in causes else e.line
        rate = None if DECODING in causes else e.decode_rate
        draws = measured(seconds, samples, link, floats, rate)
        return e.built_scheme.odds(draws, e.workers).seconds

    def shapley(self, causes: list[Cause]) -> dict[Cause, Array]:
        """What every round would gain from mending each cause: the mean over all orders of mending them."""
        now = self.lasting()
        gains = {frozenset(some): now - self.lasting(some) for some in subsets(causes)}
        return {cause: shapley_of(cause, causes, gains) for cause in causes}


def measured(
    seconds: Array, samples: int, link: Link, floats: int, decode_rate: float | None = None
) -> Draws:
    """Measured times (rounds, workers) of whole loads as a scheme's `odds` takes drawn ones.

    Within a load time goes evenly; of what comes at one moment the lower rank is first, as nothing else is known.
    """
    workers = seconds.shape[1]

    def progress(portions: NDArray[np.int64], which: slice) -> Array:
        done = np.cumsum(portions, axis=1) / np.maximum(portions.sum(axis=1, keepdims=True), 1)
        return np.asarray(seconds[which][:, :, None] * done)

    def ties(which: NDArray[np.int64]) -> Array:
        return np.tile(np.arange(workers, dtype=float), (len(which), 1))

    return Draws(seconds, lambda length: 0.0, link, floats, ties, decode_rate, None, samples, progress)


def subsets(causes: list[Cause]) -> list[tuple[Cause, ...]]:
    """All of them, the empty one first."""
    return [some for k in range(len(causes) + 1) for some in combinations(causes, k)]


def shapley_of(cause: Cause, causes: list[Cause], gains: Mapping[frozenset[Cause], Array]) -> Array:
    """Shapley value from the gains of all subsets."""
    others = [other for other in causes if other != cause]
    n, total = len(causes), np.zeros_like(next(iter(gains.values())))
    for some in subsets(others):
        weight = math.factorial(len(some)) * math.factorial(n - len(some) - 1) / math.factorial(n)
        total += weight * (gains[frozenset((*some, cause))] - gains[frozenset(some)])
    return total
