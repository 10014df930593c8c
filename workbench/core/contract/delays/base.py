"""Base classes of delay models, and `DelayStream`, the draws of one run.

A delay model draws the random numbers of a round, and computes seconds from them.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable
from copy import copy
from typing import Annotated, Any, ClassVar, cast

import numpy as np
from numpy.typing import NDArray
from pydantic import BeforeValidator, SerializeAsAny

from workbench.core.base.plugins import Catalogue, KindFamily
from workbench.core.base.settings import setting
from workbench.core.base.types import Array
from workbench.core.contract.plan import Plan

# Random stream of the order of simultaneous arrivals. Streams of one seed: 0 delays, 1 mini-batches of one worker,
# 4 permutations, 5 order of arrivals, 6 starts of IS-GC, 7 held-out samples, 8 mini-batches. Others: 9 noise of wrong
# answers, 10 delays of messages, 11 augmentation, 12 synthetic images, 13 delays of models,
# 14 predicted times of workers.
TIES_STREAM = 5


class CounterRNG:
    """Counter-based random numbers: one independent generator for each (round, slot) of a seed."""

    def __init__(self, seed: int, stream: int = 0) -> None:
        self.key = np.random.SeedSequence(seed).generate_state(2, np.uint64)
        self.stream = stream

    def rng(self, round: int, slot: int = 0) -> np.random.Generator:
        """Return the generator of a round. `slot`: index of a part; round -1 is for draws of the whole run."""
        counter = np.array([0, slot + 1, self.stream, round + 1], dtype=np.uint64)
        return np.random.Generator(np.random.Philox(key=self.key, counter=counter))

    def branch(self, k: int) -> CounterRNG:
        """Return random numbers of the same seed in another stream: the k-th branch of this one; `k`: 0 to 63.

        Mixtures and groups draw from branch 0, and their components from this stream.
        """
        found = copy(self)
        found.stream = ((self.stream + 1) * 64 + k) % 2**64
        return found

    def nested(self, k: int) -> CounterRNG:
        """Return random numbers for the k-th component of a delay model, independent of these and their branches."""
        found = copy(self)
        entropy = [*map(int, self.key), self.stream, k]
        found.key = np.random.SeedSequence(entropy).generate_state(2, np.uint64)
        return found


class DelayModel(KindFamily):
    """Base class of delay models: `draw` returns the random numbers of a round, `compute` turns them into seconds.

    >>> sorted(delay_models())[:3]
    ['changing', 'constant', 'distribution']
    """

    catalogue: ClassVar[Catalogue[DelayModel]] = Catalogue(
        "delays.kind", "workbench.core.contract.delays", "workbench.delays"
    )
    markovian: ClassVar[bool] = False  # whether a round's draw depends on that of the round before
    per_run: ClassVar[bool] = False  # whether some workers are slower than others for a whole run

    @abstractmethod
    def draw(self, keyed: CounterRNG, round: int, workers: int, slot: int, before: Array | None) -> Array:
        """Return the random numbers of a round, shape (k, workers).

        `before`: the random numbers of the round before, if the delay model is `markovian`.
        """

    @abstractmethod
    def compute(self, draw: Array, samples: NDArray[Any]) -> Array:
        """Return the seconds that each worker takes for its `samples`; both (workers,)."""

    def expected(self, samples: int) -> float | None:
        """Return the mean seconds for that many samples, over workers and rounds, or None without a formula."""
        return None

    def quantile(self, q: float, samples: int) -> float | None:
        """Return the quantile q of the seconds for that many samples, or None without a formula."""
        return None

    def check(self, workers: int) -> None:
        """Raise `SettingError` if a field does not fit that number of workers."""

    def check_loads(self, loads: NDArray[Any]) -> None:
        """Raise `SettingError` if the delay model has no times for these `loads` (samples of each worker per round)."""

    def sending(self, draw: Array, share: float) -> Array | None:
        """Return the seconds that each worker takes to send `share` of a model, or None if sending takes no time."""
        return None


class Tabulated(DelayModel):
    """Base of delay models whose quantiles are computed from a table of seconds and their probabilities."""

    def times(self, samples: int) -> tuple[Array, Array] | None:
        """Return seconds and their probabilities, which approximate the distribution, or None if it is not declared."""
        return None

    def quantile(self, q: float, samples: int) -> float | None:
        """Return the quantile q of the seconds, to 1/1000 in q, or None if the distribution is not declared."""
        found = self.times(samples)
        return None if found is None else float(weighted_quantile(q, *found))


def weighted_quantile(levels: Array | float, times: Array, weights: Array) -> Array:
    """Return quantiles of times with these probabilities.

    >>> float(weighted_quantile(0.5, np.array([1.0, 2.0, 3.0]), np.array([0.1, 0.1, 0.8])))
    3.0
    """
    return np.asarray(np.quantile(times, levels, weights=weights, method="inverted_cdf"))


class PerSample(DelayModel):
    """Base of delay models whose times are proportional to a worker's samples plus `fixed`.

    >>> from workbench.core.contract.delays import Constant
    >>> Constant(shift=2.0, fixed=3.0).compute(np.zeros((1, 2)), np.array([0, 1])).tolist()
    [0.0, 8.0]
    """

    fixed: float = setting(0.0, "start-up cost of a task, as a number of additional samples", "samples", ge=0)

    def work(self, samples: NDArray[Any]) -> NDArray[Any]:
        """Return the samples plus `fixed`, for workers with at least one sample."""
        return np.where(np.asarray(samples) > 0, samples + self.fixed, 0.0) if self.fixed else samples


def law_of(value: Any) -> DelayModel:
    """Build a delay model from fields, which include its kind. A delay model is returned unchanged."""
    return cast(DelayModel, DelayModel.from_fields(value))


# type of a field that accepts every delay model
Delays = Annotated[SerializeAsAny[DelayModel], BeforeValidator(law_of)]


def delay_models() -> Catalogue[DelayModel]:
    """Return all delay models by their kind.

    >>> sorted(delay_models())[:2]
    ['changing', 'constant']
    """
    return DelayModel.catalogue


CACHED_ROUNDS = 4  # rounds whose draws are cached


class DelayStream:
    """Delays of one run: the time that each worker takes in each round.

    `first`: number of rounds that the same workers ran before this run. `stream`: number of the random stream.
    `share`: ratio of the mean size of a mini-batch to the load, on which the start-up cost of a task does not depend.
    `transit`, `download`: seconds that links add to the common latency of answers and of models, see `Link.attach`.
    """

    share = 1.0
    transit: Callable[[int, float], Array] | None = None
    download: Callable[[int, float], Array] | None = None

    def __init__(
        self,
        model: DelayModel,
        seed: int,
        workers: int,
        keep: int = CACHED_ROUNDS,
        first: int = 0,
        stream: int = 0,
    ) -> None:
        self.model, self.workers, self.keep, self.first = model, workers, keep, first
        self.keyed, self._tie_keys = CounterRNG(seed, stream), CounterRNG(seed, TIES_STREAM)
        self.parts_apart = getattr(model, "per", "worker") == "part"
        self._draws: dict[tuple[int, int], Array] = {}
        self._ties: dict[int, Array] = {}

    def ties(self, round: int) -> Array:
        """Return the tie-break of each worker in a round, (workers,), uniform in [0, 1): the lowest comes first.

        >>> from workbench.core.contract.delays import Constant
        >>> three, five = (DelayStream(Constant(), seed=1, workers=n).ties(round=7) for n in (3, 5))
        >>> bool((three == five[:3]).all())  # a worker's tie-break does not depend on the number of workers
        True
        """
        if round not in self._ties:
            if len(self._ties) > self.keep:
                self._ties.clear()
            self._ties[round] = self._tie_keys.rng(round).random(self.workers)
        return self._ties[round]

    def draw(self, round: int, slot: int = 0) -> Array:
        """Return the random numbers of a round, shape (k, workers). A few rounds are cached."""
        return self._drawn(self.first + round, slot)

    def _drawn(self, round: int, slot: int) -> Array:
        """Return the random numbers of a round. `round` includes the `first` rounds."""
        if (round, slot) not in self._draws:
            before = self._before(round)
            self._draws[round, slot] = self.model.draw(self.keyed, round, self.workers, slot, before)
            for key in [k for k in self._draws if k[0] < round - self.keep]:
                del self._draws[key]
        return self._draws[round, slot]

    def _before(self, round: int) -> Array | None:
        if not self.model.markovian or round == 0:
            return None
        start = max((r for r, _ in self._draws if r < round), default=-1) + 1
        for r in range(start, round):
            self._drawn(r, 0)
        return self._draws[round - 1, 0]

    def whole(self, round: int, loads: NDArray[Any], plan: Plan | None = None) -> Array:
        """Return the seconds that each worker takes for its whole load of a round; both (workers,).

        `plan` is needed if each part has its own draw.
        """
        if not self.parts_apart or plan is None:
            return self._seconds(self.draw(round), loads)
        return self.progress(round, plan.portions)[:, -1]

    def progress(self, round: int, portions: NDArray[Any]) -> Array:
        """Return the seconds after which each worker has processed its first, second, ... portion of samples.

        Samples and seconds have the shape (workers, portions). With one draw per worker, the time depends only on the
        samples done so far.
        """
        # recorded seconds do not depend on the load, so they are divided in proportion to the samples
        if getattr(self.model, "as_recorded", False):
            done = np.cumsum(portions, axis=1) / np.maximum(portions.sum(axis=1), 1)[:, None]
            done[:, -1] = 1.0
            return np.asarray(self._seconds(self.draw(round), portions.sum(axis=1))[:, None] * done)
        if not self.parts_apart:
            draw = self.draw(round)
            done = [self._seconds(draw, samples) for samples in np.cumsum(portions, axis=1).T]
            return np.stack(done, axis=1)
        each = [self._seconds(self.draw(round, slot), samples) for slot, samples in enumerate(portions.T)]
        return np.cumsum(np.stack(each, axis=1), axis=1)

    def piece(self, round: int, worker: int, slot: int, samples: int) -> float:
        """Return the seconds that a worker (counted from 0) takes for its `slot`-th part."""
        draw = self.draw(round, slot if self.parts_apart else 0)[:, worker : worker + 1]
        return float(self._seconds(draw, np.array([samples]))[0])

    def _seconds(self, draw: Array, samples: NDArray[Any]) -> Array:
        return self.model.compute(draw, samples if self.share == 1.0 else samples * self.share)

    def sending(self, round: int, share: float) -> Array | None:
        """Return the seconds that sending `share` of a model adds to the latency, (workers,). None: it adds nothing."""
        instant = type(self.model).sending is DelayModel.sending  # then nothing needs to be drawn
        own = None if instant else self.model.sending(self.draw(round), share)
        if self.transit is None:
            return own
        return self.transit(round, share) if own is None else own + self.transit(round, share)

    def receiving(self, round: int) -> Array | None:
        """Return the seconds that draws delay a model on its way to each worker, (workers,), or None without draws."""
        return None if self.download is None else self.download(round, 1.0)

    def received(self, rounds: Iterable[int]) -> Array | float:
        """Return the seconds that draws delay the models of some rounds, (rounds, workers), or 0."""
        return 0.0 if self.download is None else np.stack([self.download(r, 1.0) for r in rounds])

    def links(self, rounds: Iterable[int], share: float) -> Array | float:
        """Return the seconds that links add to the common latency of `share` of a model, (rounds, workers), or 0."""
        return 0.0 if self.transit is None else np.stack([self.transit(r, share) for r in rounds])

    def sent(self, rounds: Iterable[int], share: float) -> Array | float:
        """Return the seconds that sending `share` of a model adds to the latency, (rounds, workers), or 0."""
        rows = [self.sending(r, share) for r in rounds]
        known = [row for row in rows if row is not None]
        return np.stack(known) if known and len(known) == len(rows) else 0.0
