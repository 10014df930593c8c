"""Model of a run's round times: how long rounds would take if slow workers, links, the port or decoding were fixed.

A coded scheme tolerates its slowest workers, so slow workers need not be the ones that cost time. The model of a
round is therefore that of the scheme: its `round_times` with the measured computing times and transit times of
messages. Interrupted work is assumed to end with its round, because its full duration is unknown.
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

ROUNDING_S = 1e-9  # min transit time, s: smaller ones are rounding errors
MAX_CAUSES = 8  # max number of causes whose interaction is computed: 2^8 rounds each


class Cause(NamedTuple):
    """Possible cause of lateness: computing or sending of some workers (columns), the port, or decoding."""

    what: str
    workers: tuple[int, ...] = ()
    name: str = ""

    def __str__(self) -> str:
        worker = f"worker {self.workers[0] + 1}" if self.workers else ""
        return self.name or (f"the link of {worker}" if self.what == LINK else worker)


COMPUTE, LINK = "compute", "link"
# causes of computing time that are distinguished if processor times are known
WAITING, SLOWER = "waiting", "slower core"
PORT, DECODING = Cause("port", name="the port"), Cause("decoding", name="decoding")


@dataclass(frozen=True)
class Rounds:
    """Rounds of one run, and the rule of its scheme. Arrays are (rounds, workers) unless stated otherwise.

    `seconds`: computing times. `transit`: time of answers on their way to a port, without the link's latency. `late`:
    whether work was interrupted. `lasted`: real duration of the rounds, (rounds,), s. `processor`: processor seconds
    of the computing; None if unknown.
    """

    trace: Trace
    seconds: Array
    transit: Array
    late: NDArray[np.bool_]
    lasted: Array
    processor: Array | None = None

    @classmethod
    def of(cls, trace: Trace) -> Self:
        """Build it from a run's events. Raise `SettingError` without events, or for a scheme without such a model."""
        e = trace.experiment
        if e.built_scheme.data_dependent or e.built_scheme.self_paced or e.built_scheme.delayed:
            why = "its draws alone do not determine which workers it waits for"
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

        seconds = table("compute")
        late = np.isnan(seconds)
        link = Link() if is_real(trace) else e.link
        transit = _transits(table("send"), link.latency, link.least_extra)
        # processor times of interrupted work are incomplete
        spent = None if late.any() else processor_of(trace)
        return cls(trace, np.where(late, lasted[:, None], seconds), transit, late, lasted, spent)

    @property
    def computing(self) -> dict[str, Array]:
        """Computing times by possible cause: see `split`."""
        return split(self.seconds, self.processor)

    @property
    def link(self) -> Link:
        """Link of the model. In real runs its latency is 0, because transit times of messages were measured."""
        return Link() if is_real(self.trace) else self.trace.experiment.line

    @property
    def decode_rate(self) -> float | None:
        """Decoding rate, None for a real run, whose events do not contain decoding."""
        return None if is_real(self.trace) else self.trace.experiment.decode_rate

    def lasting(self, causes: Iterable[Cause] = ()) -> Array:
        """Return the seconds of rounds without these causes.

        Their workers and links are then like the median; port and decoding take no time.
        """
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
        link = self.link.without(transfers=True) if PORT in gone else self.link
        rate = None if DECODING in gone else self.decode_rate
        return played(e.built_scheme, seconds, e.shape()[0], link, e.shape()[1], rate, way_of)

    def dearest(self, causes: list[Cause], most: int) -> list[Cause]:
        """Return at most `most` causes, in the given order: those that save most if fixed first or last."""
        if len(causes) <= most:
            return causes

        def gain(cause: Cause) -> float:
            others = [each for each in causes if each != cause]
            return float((self.lasting(others) - self.lasting([cause])).sum())

        return sorted(sorted(causes, key=gain, reverse=True)[:most], key=causes.index)

    def shapley(self, causes: list[Cause]) -> dict[Cause, Array]:
        """Return the seconds that each round saves by fixing each cause: the mean over all orders of fixing them."""
        return shapley(causes, lambda repaired: -self.lasting(repaired))


def split(seconds: Array, processor: Array | None) -> dict[str, Array]:
    """Return computing seconds by possible cause: waiting for a processor, work of the processor, and both together.

    "waiting" is the time if the processor's work had its usual value, and "slower core" the time with the usual wait.
    All have the shape of `seconds`. If the processor's time is unknown, only `seconds` is returned.

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
    """Return the times, with the times of the causes limited to the median."""
    who = sorted({worker for cause in causes if cause.what == what for worker in cause.workers})
    found = times.copy()
    found[:, who] = np.minimum(times[:, who], np.median(times, axis=1, keepdims=True))
    return found


def _transits(known: Array, latency: float, least: float = 0.0) -> Array:
    """Return transit times beyond the latency, (rounds, workers), at least `least` s. Unknown ones get the usual value.

    `latency`: the common one, s.
    """
    usual = np.nanmedian(known) if np.isfinite(known).any() else 0.0
    transit = np.where(np.isnan(known), usual, known) - latency
    return np.where(transit < least + ROUNDING_S, least, np.where(np.abs(transit) < ROUNDING_S, 0.0, transit))


def played(
    scheme: Scheme,
    seconds: Array,
    samples: int,
    link: Link,
    floats: int,
    decode_rate: float | None = None,
    send: Callable[[float], Array] | None = None,
) -> Array:
    """Return seconds of a scheme's rounds, from measured times (rounds, workers) of whole loads.

    `send`: function of an answer's floats that returns its transit time beyond the latency, (rounds, workers), s.
    Within a load, time is proportional to samples. Simultaneous events are in the order of ranks.
    """
    workers = seconds.shape[1]
    is_ring = 0 not in scheme.plan(workers, samples).committers

    sent: Callable[[float], Array | float] = (lambda length: 0.0) if send is None or is_ring else send
    draws = SampledTimes.measured(seconds, sent, link, floats, samples, decode_rate)
    found = scheme.round_times(draws, workers).seconds
    # in a ring, the slowest link determines the time
    return found if send is None or not is_ring else found + send(floats).max(axis=1)
