"""Mitigations of stragglers, tried on recorded steps: leave out a worker, or use an exact scheme that tolerates it.

The time of every candidate is computed for all recorded steps. A worker with more samples takes proportionally longer.
The best is chosen on every other block of steps and evaluated on the rest, so that the choice does not bias its result.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from workbench.analysis.recordings.run_model import played
from workbench.core import schemes
from workbench.core.base.settings import SettingError
from workbench.core.base.types import Array
from workbench.core.contract.delays import resampled
from workbench.core.contract.links import Link
from workbench.core.contract.scheme import Scheme

SAMPLES_PER_WORKER = 1000  # assumed samples of each worker in the uncoded scheme; only ratios of loads matter
BOOTSTRAP_DRAWS, BAND_QUANTILES = 400, (0.05, 0.95)
MIN_SAVED_SHARE = 0.01  # min saving that is reported, as a share of the time


class Mitigation(NamedTuple):
    """Mitigation, and the share of the steps' time that it would save, with a 90 % band for as many future steps."""

    what: str
    saving: float
    low: float
    high: float
    scheme: str
    scheme_args: dict[str, Any]

    def __str__(self) -> str:
        return f"{self.what} would save {self.saving:.0%} of the time ({self.low:.0%} to {self.high:.0%})"


class Candidate(NamedTuple):
    """Possible mitigation, and seconds of every step with it, (steps,)."""

    what: str
    seconds: Array
    scheme: str
    scheme_args: dict[str, Any]


@dataclass(frozen=True)
class Steps:
    """Times of a job's steps. `times`: (steps, workers), for equal shares of the data. `names`: workers.

    `link`, `floats` (of a message), `decode_rate` and `transit` (time of a message beyond the latency, as `times`): if
    unknown, messages and decoding take no time. `besides` (steps,): additional time of a step that its scheme's rule
    does not explain, and that no mitigation changes. `least` (steps,): min seconds that the processors need for the
    computing of a step.
    """

    times: Array
    names: Sequence[str]
    link: Link = field(default_factory=Link)
    floats: int = 1
    decode_rate: float | None = None
    transit: Array | None = None
    besides: Array | float = 0.0
    least: Array | float = 0.0

    def lasting(self, scheme: Scheme, seconds: Array, who: slice | list[int] = slice(None)) -> Array:
        """Return the seconds of a scheme's steps if its workers `who` take these times for all their samples."""
        known = (seconds, seconds.shape[1] * SAMPLES_PER_WORKER, self.link, self.floats, self.decode_rate)
        if self.transit is None or not self.transit.any():
            return np.maximum(played(scheme, *known) + self.besides, self.least)
        transit = self.transit[:, who]
        return played(scheme, *known, lambda length: transit * (length / self.floats)) + self.besides

    def without(self) -> Iterator[Candidate]:
        """Yield a candidate for each worker that is left out.

        Each other worker then has the share 1 / (n - 1) of the data.
        """
        n = self.times.shape[1]
        uncoded = schemes.get("UMW")()
        for worker in range(n if n > 2 else 0):
            who = [other for other in range(n) if other != worker]
            seconds = self.lasting(uncoded, self.times[:, who] * n / (n - 1), who)
            yield Candidate(f"leaving {self.names[worker]} out", seconds, "UMW", {})

    def coded(self) -> Iterator[Candidate]:
        """Yield the exact schemes whose step times follow from the workers' times, with the planner's parameters."""
        n = self.times.shape[1]
        for name in schemes.names():
            cls = schemes.get(name)
            if not cls.exact or cls.delayed or cls.numeric or cls.data_dependent or cls.self_paced:
                continue
            for args in cls.candidates(n):
                try:
                    scheme = cls(**args)
                    scheme.check(n)
                    scheme.check_problem("logistic")
                    scheme.check_samples(n, n * SAMPLES_PER_WORKER)
                    seconds = self.lasting(
                        scheme, self.times * scheme.loads(n, n * SAMPLES_PER_WORKER) / SAMPLES_PER_WORKER
                    )
                except SettingError:  # impossible for this number of workers
                    continue
                numbers = ", ".join(f"{key} = {value}" for key, value in args.items())
                yield Candidate(f"{name} with {numbers}" if numbers else name, seconds, name, args)


def mitigations(
    steps: Steps, now: Array, rng: np.random.Generator, repaired: Sequence[Candidate] = ()
) -> tuple[Mitigation, ...]:
    """Return the best exact scheme, the best worker to leave out, and `repaired`, if they save time; the best first.

    `now` (steps,): seconds of the steps as recorded. `repaired`: other candidates, which were not chosen by the steps.
    """
    stretch = max(1, round(len(now) ** (1 / 3)))  # steps of a block, so that bursts stay together
    halves = np.arange(len(now)) // stretch % 2 == 0
    found = [_best(list(some), now, halves, rng) for some in (steps.without(), steps.coded())]
    found += [_judged(each, now, rng) for each in repaired]
    worth = [one for one in found if one is not None and one.low > 0 and one.saving >= MIN_SAVED_SHARE]
    return tuple(sorted(worth, key=lambda one: -one.saving))


def _best(
    candidates: list[Candidate], now: Array, halves: NDArray[np.bool_], rng: np.random.Generator
) -> Mitigation | None:
    """Return the candidate that is the fastest on the steps `halves`, evaluated on the other steps."""
    if not candidates or halves.all():
        return None
    best = min(candidates, key=lambda each: float(each.seconds[halves].sum()))
    return _judged(best._replace(seconds=best.seconds[~halves]), now[~halves], rng)


def _judged(one: Candidate, now: Array, rng: np.random.Generator) -> Mitigation:
    """Return the saving of a candidate, and its band."""
    what, seconds, scheme, args = one
    saving = 1 - float(seconds.sum() / now.sum())
    draws = [resampled(len(now), rng) for _ in range(2 * BOOTSTRAP_DRAWS)]
    again = 1 - np.array([seconds[d].sum() / now[d].sum() for d in draws]).reshape(2, -1)
    # The band includes the randomness of the recorded steps and that of the future steps.
    low, high = np.quantile(saving + again[0] - again[1], BAND_QUANTILES).tolist()
    return Mitigation(what, saving, low, high, scheme, args)
