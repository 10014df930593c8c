"""Delay models whose workers are slow or fast, for the whole run or for some rounds."""

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import SerializationInfo, SerializerFunctionWrapHandler, field_validator, model_serializer

from workbench.core.base.settings import SettingError, setting
from workbench.core.base.type_checks import there_are
from workbench.core.base.types import Array
from workbench.core.contract.delays.base import CounterRNG, PerSample


class _Slower(PerSample):
    """Base of delay models whose workers take `factor` times as long if the first row of their draw is above 0."""

    if TYPE_CHECKING:  # each subclass declares these fields, in its own order
        shift: float
        factor: float

    @property
    @abstractmethod
    def _share(self) -> float | None:
        """Share of all (worker, round) pairs that are slower, or None if it is not known."""

    def compute(self, draw: Array, samples: NDArray[Any]) -> Array:
        return np.asarray(self.work(samples) * self.shift * np.where(draw[0] > 0, self.factor, 1.0))

    def expected(self, samples: int) -> float | None:
        """Return samples * shift * (1 + share of slower rounds * (factor - 1)), s."""
        share, fast = self._share, (samples + self.fixed) * self.shift
        return None if share is None else fast * (1 + share * (self.factor - 1))

    def quantile(self, q: float, samples: int) -> float | None:
        """Return the time of a fast round up to q = 1 - share of slower rounds, and that of a slower one above it."""
        share, fast = self._share, (samples + self.fixed) * self.shift
        return None if share is None else fast * (1.0 if q <= 1 - share else self.factor)


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
    factor: float = setting(
        10.0, "computing time of a straggling worker divided by that of a worker that does not straggle", ge=1
    )
    straggles: tuple[float, ...] | None = setting(
        None,
        "probability that each worker straggles in a round, in place of the four fields above; a shorter list is"
        " repeated",
    )

    @model_serializer(mode="wrap")
    def _written(self, handler: SerializerFunctionWrapHandler, info: SerializationInfo) -> dict[str, Any]:
        """Leave out `straggles` if it is not used, so that the names of runs stay those of version 1.0."""
        fields = self._with_kind(handler, info)
        return {name: value for name, value in fields.items() if name != "straggles" or value is not None}

    @field_validator("straggles")
    @classmethod
    def _probabilities(cls, straggles: tuple[float, ...] | None) -> tuple[float, ...] | None:
        if straggles is not None and not (straggles and 0 <= min(straggles) <= max(straggles) <= 1):
            raise SettingError(f"straggles = {list(straggles)}: take probabilities, each from 0 to 1")
        return straggles

    @field_validator("slow_workers")
    @classmethod
    def _ranks(cls, who: tuple[int, ...] | None) -> tuple[int, ...] | None:
        if who is not None and (min(who, default=1) < 1 or len(set(who)) < len(who)):
            raise SettingError(f"slow_workers = {list(who)}: take different ranks, from 1")
        return who

    def check(self, workers: int) -> None:
        if self.straggles is not None:
            check_cycle("straggles", self.straggles, workers)
        who = self.slow_workers or ()
        if max(who, default=0) > workers:
            raise SettingError(f"slow_workers = {list(who)}: {there_are('worker', 1, workers)}")

    def draw(self, keyed: CounterRNG, round: int, workers: int, slot: int, before: Array | None) -> Array:
        """Return two rows per worker: 1 if it straggles, else 0, and 1 if it is slow, else 0."""
        if self.slow_workers is None:
            slow = keyed.rng(-1).random(workers) < self.slow
        else:
            slow = np.isin(np.arange(1, workers + 1), self.slow_workers)
        chance = np.where(slow, self.slow_straggles, self.active_straggles)
        if self.straggles is not None:
            chance = cycled(self.straggles, workers)
        return np.stack([keyed.rng(round, slot).random(workers) < chance, slow]).astype(float)

    @property
    def _share(self) -> float | None:
        """Share of slower pairs; None if `slow_workers` counts, as it then depends on the number of workers."""
        if self.straggles is not None:
            return float(np.mean(self.straggles))
        chances = self.slow * self.slow_straggles + (1 - self.slow) * self.active_straggles
        return chances if self.slow_workers is None else None


class Markov(_Slower):
    """Bursts: a worker that becomes slow stays slow for several rounds.

    Its state is a Markov chain over the rounds. The chain starts in the stationary distribution.

    >>> model = Markov()
    >>> model.compute(model.draw(CounterRNG(0), 0, 3, 0, None), np.array([10, 10, 20])).shape
    (3,)
    """

    markovian: ClassVar[bool] = True
    kind = "markov"
    shift: float = setting(5e-5, "time of one sample on a worker in its fast state", "s/sample", ge=0)
    p_slow: float = setting(0.02, "probability per round that a fast worker becomes slow", gt=0, le=1)
    p_recover: float = setting(0.1, "probability per round that a slow worker becomes fast", gt=0, le=1)
    factor: float = setting(10.0, "computing time of a slow worker divided by that of a fast one", ge=1)

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


class Fritchman(_Slower):
    """Fritchman's channel: one fast state, and several slow states that a slow worker passes one after another.

    A fast worker becomes slow with probability `p_slow`. In each slow state it goes to the next one with probability
    `p_next`, and from the last one back to the fast state. A slow spell therefore lasts at least `slow_states` rounds,
    and its length varies less than in `markov`, which has one slow state. Source: Krishnan, Hosseini, Khisti, NeurIPS
    2020, where all workers are fast in the first round. Here states start in the stationary distribution.

    >>> model = Fritchman(slow_states=3)
    >>> model.compute(model.draw(CounterRNG(0), 0, 3, 0, None), np.array([10, 10, 20])).shape
    (3,)
    """

    markovian: ClassVar[bool] = True
    kind = "fritchman"
    shift: float = setting(5e-5, "time of one sample on a worker in its fast state", "s/sample", ge=0)
    p_slow: float = setting(0.02, "probability per round that a fast worker becomes slow (alpha)", gt=0, le=1)
    p_next: float = setting(
        0.5, "probability per round that a slow worker goes to the next state (beta)", gt=0, le=1
    )
    slow_states: int = setting(2, "number of slow states (N - 1)", ge=1)
    factor: float = setting(5.0, "computing time of a slow worker divided by that of a fast one", ge=1)

    def draw(self, keyed: CounterRNG, round: int, workers: int, slot: int, before: Array | None) -> Array:
        """Return the state of each worker: 0 fast, 1 to `slow_states` slow; shape (1, workers)."""
        u = keyed.rng(round, slot).random((1, workers))
        if before is None:  # first round: all slow states are equally probable
            return np.where(u < self._share, 1 + np.floor(u / self._share * self.slow_states), 0.0)
        moved = u < np.where(before > 0, self.p_next, self.p_slow)
        return np.where(moved, (before + 1) % (self.slow_states + 1), before)

    @property
    def _share(self) -> float:
        """Stationary probability of all slow states together: the mean length of a spell divided by that of a cycle."""
        spell, fast = self.slow_states / self.p_next, 1 / self.p_slow
        return spell / (spell + fast)


def cycled(values: tuple[float, ...], workers: int) -> Array:
    """Return a value for each worker, (workers,). A shorter list is repeated.

    >>> cycled((1.0, 2.0), 4).tolist()
    [1.0, 2.0, 1.0, 2.0]
    """
    return np.resize(np.array(values, dtype=float), workers)


def check_cycle(name: str, values: tuple[float, ...], workers: int) -> None:
    """Raise `SettingError` unless a list has one value per worker, or a number of values that divides the workers."""
    if not values or workers % len(values):
        n = len(values)
        why = f"{n} values for {workers} workers; give {workers}, or a number that divides {workers}"
        raise SettingError(f"{name} = {list(values)}: {why}")
