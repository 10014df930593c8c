"""Delay models whose workers are slow or fast, for the whole run or for some rounds."""

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import field_validator

from workbench.core.base.settings import SettingError, setting
from workbench.core.base.type_checks import there_are
from workbench.core.base.types import Array
from workbench.core.contract.delays.base import CounterRNG, PerSample


class _Slower(PerSample):
    """Base of delay models whose workers take `factor` times as long while the first row of their draw is 1."""

    if TYPE_CHECKING:  # declared in each subclass, which determines the order of the fields
        shift: float
        factor: float

    @property
    @abstractmethod
    def _share(self) -> float:
        """Share of all (worker, round) pairs that are slower."""

    def compute(self, draw: Array, samples: NDArray[Any]) -> Array:
        return np.asarray(self.work(samples) * self.shift * np.where(draw[0] > 0, self.factor, 1.0))

    def expected(self, samples: int) -> float | None:
        """Return samples * shift * (1 + share of slower rounds * (factor - 1)), s."""
        return (samples + self.fixed) * self.shift * (1 + self._share * (self.factor - 1))

    def quantile(self, q: float, samples: int) -> float | None:
        """Return the time of a fast round up to q = 1 - share of slower rounds, and that of a slower one above it."""
        return (samples + self.fixed) * self.shift * (1.0 if q <= 1 - self._share else self.factor)


class Heterogeneous(_Slower):
    """Slow and active workers: every worker is one of the two for the whole run (paper 4, section II).

    In each round a worker straggles with a probability, which is higher for slow workers.

    >>> model = Heterogeneous()
    >>> model.compute(model.draw(CounterRNG(0), 0, 3, 0, None), np.array([10, 10, 20])).shape
    (3,)
    """

    per_run = True
    kind = "heterogeneous"
    shift: float = setting(5e-5, "time of one sample on a worker that does not straggle", "s/sample", ge=0)
    slow: float = setting(0.3, "probability that a worker is slow for the whole run (phat)", ge=0, le=1)
    slow_workers: tuple[int, ...] | None = setting(
        None, "ranks of the slow workers, from 1, in place of `slow`; empty = drawn once per run"
    )
    slow_straggles: float = setting(
        0.8, "probability that a slow worker straggles in a round (p_ss)", ge=0, le=1
    )
    active_straggles: float = setting(
        0.01, "probability that an active worker straggles in a round (p_as)", ge=0, le=1
    )
    factor: float = setting(10.0, "computing time of a straggling worker over that of others", ge=1)

    @field_validator("slow_workers")
    @classmethod
    def _ranks(cls, who: tuple[int, ...] | None) -> tuple[int, ...] | None:
        if who is not None and (min(who, default=1) < 1 or len(set(who)) < len(who)):
            raise SettingError(f"slow_workers = {list(who)}: take different ranks, from 1")
        return who

    def check(self, workers: int) -> None:
        if max(self.slow_workers or (), default=0) > workers:
            raise SettingError(
                f"slow_workers = {list(self.slow_workers or ())}: {there_are('worker', 1, workers)}"
            )

    def draw(self, keyed: CounterRNG, round: int, workers: int, slot: int, before: Array | None) -> Array:
        """Return two rows per worker: 1 if it straggles, else 0, and 1 if it is slow, else 0."""
        if self.slow_workers is None:
            slow = keyed.rng(-1).random(workers) < self.slow
        else:
            slow = np.isin(np.arange(1, workers + 1), self.slow_workers)
        chance = np.where(slow, self.slow_straggles, self.active_straggles)
        return np.stack([keyed.rng(round, slot).random(workers) < chance, slow]).astype(float)

    def expected(self, samples: int) -> float | None:
        """Return the mean seconds, or None with `slow_workers`: their share depends on the number of workers."""
        return None if self.slow_workers is not None else super().expected(samples)

    def quantile(self, q: float, samples: int) -> float | None:
        """Return the quantile q of the seconds, or None with `slow_workers` (see `expected`)."""
        return None if self.slow_workers is not None else super().quantile(q, samples)

    @property
    def _share(self) -> float:
        return self.slow * self.slow_straggles + (1 - self.slow) * self.active_straggles


class Markov(_Slower):
    """Bursts: a worker that becomes slow stays slow for several rounds.

    Its state is a Markov chain over the rounds, which starts in the stationary distribution.

    >>> model = Markov()
    >>> model.compute(model.draw(CounterRNG(0), 0, 3, 0, None), np.array([10, 10, 20])).shape
    (3,)
    """

    markovian: ClassVar[bool] = True
    kind = "markov"
    shift: float = setting(5e-5, "time of one sample on a worker in its fast state", "s/sample", ge=0)
    p_slow: float = setting(0.02, "probability per round that a fast worker becomes slow", gt=0, le=1)
    p_recover: float = setting(0.1, "probability per round that a slow worker becomes fast", gt=0, le=1)
    factor: float = setting(10.0, "computing time of a slow worker over that of a fast one", ge=1)

    def draw(self, keyed: CounterRNG, round: int, workers: int, slot: int, before: Array | None) -> Array:
        """Return the state of each worker: 1 slow, 0 fast; shape (1, workers)."""
        u = keyed.rng(round, slot).random((1, workers))
        if before is None:
            return (u < self.p_slow / (self.p_slow + self.p_recover)).astype(float)
        return np.where(before > 0, u >= self.p_recover, u < self.p_slow).astype(float)

    @property
    def _share(self) -> float:
        """Stationary probability of the slow state, which holds from the first round."""
        return self.p_slow / (self.p_slow + self.p_recover)
