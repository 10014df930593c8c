"""Round times of a run if some workers, links, its port or its decoding were fixed, by the scheme's `round_times`.

A coded scheme does without its slowest workers, so who is slow need not be who costs. The model of a round is therefore
the scheme's: its `round_times` with the computing times that the run had, and with its messages' times on the way. Of
work that was cut off it is only known that it lasted until the round's end; that is taken.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from workbench.analysis.planning.shapley import shapley
from workbench.analysis.recordings.sources.runs import is_real, of_trace, processor_of
from workbench.core.base.settings import SettingError
from workbench.core.base.types import Array
from workbench.core.contract.links import Link
from workbench.core.contract.round_times import SampledTimes
from workbench.core.contract.scheme import Scheme
from workbench.core.trace.trace import Trace

ROUNDING_S = 1e-9  # s on the way that are rounding
MAX_CAUSES = 8  # causes whose interplay is looked at: 2^8 rounds each


class Cause(NamedTuple):
    """Something to mend: what workers (columns) compute, or send; the port, or decoding, which are nobody's."""

    what: str
    workers: tuple[int, ...] = ()
    name: str = ""

    def __str__(self) -> str:
        worker = f"worker {self.workers[0] + 1}" if self.workers else ""
        return self.name or (f"the link of {worker}" if self.what == LINK else worker)


COMPUTE, LINK = "compute", "link"
WAITING, SLOWER = "waiting", "slower core"  # what computing is split in, where the processor's time is known
PORT, DECODING = Cause("port", name="the port"), Cause("decoding", name="decoding")


@dataclass(frozen=True)
class Rounds:
    """Rounds of one run as its scheme has them; all arrays (rounds, workers).

    `seconds`: computing times; `way`: of answers until they came to a port, apart from the link's latency; `late`:
    whose work was cut off. `lasted`: what the rounds really took, (rounds,). `processor`: of `seconds`, those that a
    worker had a processor; None where that is not known.
    """

    trace: Trace
    seconds: Array
    transit: Array
    late: NDArray[np.bool_]
    lasted: Array
    processor: Array | None = None

    @classmethod
    def of(cls, trace: Trace) -> Self:
        """Build it from a run's events; raise `SettingError` without events, or if `round_times` does not fit."""
        e = trace.experiment
        if e.built_scheme.data_dependent or e.built_scheme.self_paced or e.built_scheme.delayed:
            why = "whom it waits for cannot be told from its draws alone"
            raise SettingError(f"scheme = {e.scheme!r}: {why}")
        if e.plan.answers > 1:
            why = "its workers answer several times a round, which is not modelled"
            raise SettingError(f"scheme = {e.scheme!r}: {why}")
        if not len(trace.events):
            raise SettingError(f"run {trace.label!r}: kept no events; run it with events=True")
        lasted = np.diff(trace.columns["time"], prepend=0.0)
        frame, first = of_trace(trace), int(trace.columns["round"][0])
        frame = frame[(frame["worker"] > 0) & (frame["step"] < first + len(lasted))]

        def table(phase: str) -> Array:
            found = np.full((len(lasted), e.workers), np.nan)
            rows = frame[frame["phase"] == phase]
            found[rows["step"] - first, rows["worker"] - 1] = rows["seconds"]
            return found

        seconds, latency = table("compute"), 0.0 if is_real(trace) else e.link.latency
        late = np.isnan(seconds)
        transit = _transits(table("send"), latency)
        spent = None if late.any() else processor_of(trace)  # of work that was cut off, it is a part
        return cls(trace, np.where(late, lasted[:, None], seconds), transit, late, lasted, spent)

    @property
    def computing(self) -> dict[str, Array]:
        """Computing times by what may make them long: see `split`."""
        return split(self.seconds, self.processor)

    @property
    def link(self) -> Link:
        """The link, apart from what is measured of it: a real one's messages were on their way already."""
        return Link() if is_real(self.trace) else self.trace.experiment.line

    @property
    def decode_rate(self) -> float | None:
        """Real decoding is part of no event."""
        return None if is_real(self.trace) else self.trace.experiment.decode_rate

    def lasting(self, causes: Iterable[Cause] = ()) -> Array:
        """Seconds of every round with some causes mended: workers and links like the median, port or decoding free."""
        gone = set(causes)
        seconds = self.seconds
        for what, times in self.computing.items():
            seconds = (
                without_causes(seconds, what, gone)
                if what == COMPUTE
                else seconds * without_causes(times, what, gone) / times
            )
        transit = without_causes(self.transit, LINK, gone)
        e, way_of = self.trace.experiment, (lambda length: transit) if transit.any() else None
        link = self.link.model_copy(update={"bandwidth": None}) if PORT in gone else self.link
        rate = None if DECODING in gone else self.decode_rate
        return played(e.built_scheme, seconds, e.shape()[0], link, e.shape()[1], rate, way_of)

    def dearest(self, causes: list[Cause], most: int) -> list[Cause]:
        """So many causes at most: those that gain most where they are mended first, or last; all in their order."""
        if len(causes) <= most:
            return causes

        def gain(cause: Cause) -> float:
            others = [each for each in causes if each != cause]
            return float((self.lasting(others) - self.lasting([cause])).sum())

        return sorted(sorted(causes, key=gain, reverse=True)[:most], key=causes.index)

    def shapley(self, causes: list[Cause]) -> dict[Cause, Array]:
        """What every round would gain from mending each cause: the mean over all orders of mending them."""
        return shapley(causes, lambda mended: -self.lasting(mended))


def split(seconds: Array, processor: Array | None) -> dict[str, Array]:
    """By what may be long: the wait for a processor, and its work, each as if the other were as usual; and the whole.

    As `seconds`. The product of the two goes with the whole; where the processor's time is not known, that is all.

    >>> split(np.array([[2.0, 6.0]]), np.array([[1.0, 1.5]]))["waiting"].tolist()
    [[2.5, 5.0]]
    """
    if processor is None:
        return {COMPUTE: seconds}
    waiting = seconds / processor
    return {
        WAITING: waiting * np.median(processor),
        SLOWER: processor * np.median(waiting),
        COMPUTE: seconds,
    }


def without_causes(times: Array, what: str, causes: set[Cause]) -> Array:
    """Times of which those of the causes are like the median at most."""
    who = sorted({worker for cause in causes if cause.what == what for worker in cause.workers})
    found = times.copy()
    found[:, who] = np.minimum(times[:, who], np.median(times, axis=1, keepdims=True))
    return found


def _transits(known: Array, latency: float) -> Array:
    """Seconds on the way beyond the latency, (rounds, workers): what was not seen is as long as usual."""
    usual = np.nanmedian(known) if np.isfinite(known).any() else 0.0
    transit = np.where(np.isnan(known), usual, known) - latency
    return np.where(transit < ROUNDING_S, 0.0, transit)


def played(
    scheme: Scheme,
    seconds: Array,
    samples: int,
    link: Link,
    floats: int,
    decode_rate: float | None = None,
    send: Callable[[float], Array] | None = None,
) -> Array:
    """Seconds of a scheme's rounds, from measured times (rounds, workers) of whole loads.

    `send`: floats of an answer -> seconds that it is on its way beyond the latency, (rounds, workers). Within a load
    time goes evenly; of what comes at one moment the lower rank is first, as nothing else is known.
    """
    workers = seconds.shape[1]
    is_ring = 0 not in scheme.plan(workers, samples).committers

    sent: Callable[[float], Array | float] = (lambda length: 0.0) if send is None or is_ring else send
    draws = SampledTimes.measured(seconds, sent, link, floats, samples, decode_rate)
    found = scheme.round_times(draws, workers).seconds
    return found if send is None or not is_ring else found + send(floats).max(axis=1)  # of the slowest link
