"""What a delay model is, random numbers of a round and seconds that follow from them; and the draws of one run."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from typing import Annotated, Any, ClassVar, cast

import numpy as np
from numpy.typing import NDArray
from pydantic import BeforeValidator, SerializeAsAny

from workbench.core.base.plugins import Catalogue, KindFamily
from workbench.core.base.settings import setting
from workbench.core.base.types import Array
from workbench.core.contract.plan import Plan

# random stream of who comes first at one moment; delays have 0, mini-batches 1, permutations 4
TIES_STREAM = 5


class CounterRNG:
    """Counter-based random numbers: a fresh generator for every (round, slot) of a seed."""

    def __init__(self, seed: int, stream: int = 0) -> None:
        self.key = np.random.SeedSequence(seed).generate_state(2, np.uint64)
        self.stream = stream

    def rng(self, round: int, slot: int = 0) -> np.random.Generator:
        """Generator of that round; slot tells parts apart (-1 serves the whole run's draws)."""
        counter = np.array([0, slot + 1, self.stream, round + 1], dtype=np.uint64)
        return np.random.Generator(np.random.Philox(key=self.key, counter=counter))


class DelayModel(KindFamily):
    """Base class: `draw` gives the random numbers of a round, `compute` turns them into seconds.

    >>> sorted(delay_models())[:3]
    ['changing', 'constant', 'exponential']
    """

    catalogue: ClassVar[Catalogue[DelayModel]] = Catalogue(
        "delays.kind", "workbench.core.contract.delays", "workbench.delays"
    )
    markovian: ClassVar[bool] = False  # does a round's draw depend on the round before?
    per_run: ClassVar[bool] = False  # are some workers slower than others for a whole run?

    @abstractmethod
    def draw(self, keyed: CounterRNG, round: int, workers: int, slot: int, before: Array | None) -> Array:
        """Random numbers of a round, shape (k, workers); `before` is the last round's, for models with memory."""

    @abstractmethod
    def compute(self, draw: Array, samples: NDArray[Any]) -> Array:
        """Seconds to go through `samples` samples, per worker."""

    def expected(self, samples: int) -> float | None:
        """Mean seconds for so many samples, over workers and rounds; None: the delay model does not declare it."""
        return None

    def quantile(self, q: float, samples: int) -> float | None:
        """Quantile q of the seconds for so many samples; None if the delay model does not declare it."""
        return None

    def check(self, workers: int) -> None:
        """Refuse, with the field's name, a run that lacks a worker whom the delay model names."""

    def check_loads(self, loads: NDArray[Any]) -> None:
        """Refuse, before anything starts, a run whose workers go through `loads` samples in a round."""

    def sending(self, draw: Array, share: float) -> Array | None:
        """Seconds that sending `share` of a model takes a worker, None for no such delay (see `TwoPart`)."""
        return None


class PerSample(DelayModel):
    """Base of delay models whose times grow with a worker's samples; the cost of starting counts as samples, too.

    >>> from workbench.core.contract.delays import Constant
    >>> Constant(shift=2.0, fixed=3.0).compute(np.zeros((1, 2)), np.array([0, 1])).tolist()
    [0.0, 8.0]
    """

    fixed: float = setting(
        0.0, "what a task costs before its first sample, as so many samples more", "samples", ge=0
    )

    def work(self, samples: NDArray[Any]) -> NDArray[Any]:
        """Samples to take time for; who has none does not begin."""
        return np.where(np.asarray(samples) > 0, samples + self.fixed, 0.0) if self.fixed else samples


def law_of(value: Any) -> DelayModel:
    """Build the delay model of some fields, its kind among them; a delay model is returned as it is."""
    return cast(DelayModel, DelayModel.from_fields(value))


# A field that takes every delay model.
Delays = Annotated[SerializeAsAny[DelayModel], BeforeValidator(law_of)]


def delay_models() -> Catalogue[DelayModel]:
    """All delay models by their kind.

    >>> sorted(delay_models())[:2]
    ['changing', 'constant']
    """
    return DelayModel.catalogue


CACHED_ROUNDS = 4  # rounds whose draws are at hand


class DelayStream:
    """The draws of one run: which worker takes how long in which round.

    `first`: it goes on after so many rounds of others, on the same workers. `share`: of each load, what a mini-batch
    has of it on average; what a task costs before its first sample stays.
    """

    share = 1.0

    def __init__(
        self, model: DelayModel, seed: int, workers: int, keep: int = CACHED_ROUNDS, first: int = 0
    ) -> None:
        self.model, self.workers, self.keep, self.first = model, workers, keep, first
        self.keyed, self._tie_keys = CounterRNG(seed), CounterRNG(seed, TIES_STREAM)
        self.parts_apart = getattr(model, "per", "worker") == "part"
        self._draws: dict[tuple[int, int], Array] = {}
        self._ties: dict[int, Array] = {}

    def ties(self, round: int) -> Array:
        """Who of several comes first at one moment of a round: the lower number, (workers,), uniform in [0, 1).

        >>> from workbench.core.contract.delays import Constant as delay model
        >>> three, five = (DelayStream(law(), seed=1, workers=n).ties(round=7) for n in (3, 5))
        >>> bool((three == five[:3]).all())  # a worker's number is its own
        True
        """
        if round not in self._ties:
            if len(self._ties) > self.keep:
                self._ties.clear()
            self._ties[round] = self._tie_keys.rng(round).random(self.workers)
        return self._ties[round]

    def draw(self, round: int, slot: int = 0) -> Array:
        """Random numbers of a round, shape (k, workers); remembered for a few rounds."""
        return self._drawn(self.first + round, slot)

    def _drawn(self, round: int, slot: int) -> Array:
        """The same, of all rounds, those before the first too."""
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
        """Seconds that every worker takes for its whole load of a round; both (workers,).

        The plan is needed where every part has a draw of its own.
        """
        if not self.parts_apart or plan is None:
            return self._seconds(self.draw(round), loads)
        return self.progress(round, plan.portions)[:, -1]

    def progress(self, round: int, portions: NDArray[Any]) -> Array:
        """Seconds after which every worker has gone through its first, second, ... portion of samples.

        Both (workers, portions). With one draw per worker the time depends on the samples done so far only.
        """
        if getattr(self.model, "as_recorded", False):  # the draw's seconds, shared out
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
        """Seconds that a worker (counted from 0) takes for its `slot`-th part."""
        draw = self.draw(round, slot if self.parts_apart else 0)[:, worker : worker + 1]
        return float(self._seconds(draw, np.array([samples]))[0])

    def _seconds(self, draw: Array, samples: NDArray[Any]) -> Array:
        return self.model.compute(draw, samples if self.share == 1.0 else samples * self.share)

    def sending(self, round: int, share: float) -> Array | None:
        """Seconds that sending `share` of a model takes each worker, or None."""
        return self.model.sending(self.draw(round), share)

    def sent(self, rounds: Iterable[int], share: float) -> Array | float:
        """Likewise of several rounds, (rounds, workers), or 0."""
        rows = [self.sending(r, share) for r in rounds]
        known = [row for row in rows if row is not None]
        return np.stack(known) if known and len(known) == len(rows) else 0.0
