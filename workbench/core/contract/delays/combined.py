"""Delay models made of others: mixtures, and workers of one host or rack that are delayed together."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import model_validator

from workbench.core.base.settings import SettingError, setting, within
from workbench.core.base.type_checks import there_are
from workbench.core.base.types import Array
from workbench.core.contract.delays.base import (
    CounterRNG,
    DelayModel,
    Delays,
    Tabulated,
    weighted_quantile,
)
from workbench.core.contract.delays.independent import Exponential, ShiftedExponential
from workbench.core.contract.delays.two_state import check_cycle, cycled

# levels of the quantiles from which those of a mixture, or of a sum or product, are computed; denser in the tails
_TAIL = np.geomspace(1e-9, 1 / 512, 64)
_ENDS = np.unique(np.concatenate([np.linspace(0, 1, 513), _TAIL, 1 - _TAIL]))
LEVELS, WEIGHTS = (_ENDS[1:] + _ENDS[:-1]) / 2, np.diff(_ENDS)


class Combined(Tabulated):
    """Base of delay models that are made of others (components). Their draws are stacked below a first row.

    If several components count in one round, as in a sum, the k-th one draws from `keyed.nested(k)`. With the same
    random numbers, their times would not be independent.

    >>> from workbench.core.contract.delays import Constant
    >>> model = Mixture(components=(Constant(shift=1.0), Constant(shift=2.0)), shares=(0.5, 0.5))
    >>> sorted(model.parts)
    ['components.0', 'components.1']
    """

    markovian: ClassVar[bool] = True  # because each component may be markovian
    per_run: ClassVar[bool] = True
    branches: ClassVar[bool] = True  # whether draws are from branches of the random numbers

    @property
    @abstractmethod
    def parts(self) -> Mapping[str, DelayModel]:
        """Delay models by their field."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        for name, part in self.parts.items():
            if getattr(part, "as_recorded", False) or getattr(part, "per", "worker") == "part":
                raise SettingError(
                    f"{name}: times as they were recorded, or a draw for each part, cannot be combined; take another"
                    " delay model"
                )
        return self

    def check(self, workers: int) -> None:
        for name, part in self.parts.items():
            with within(name):
                part.check(workers)

    def check_loads(self, loads: NDArray[Any]) -> None:
        for part in self.parts.values():
            part.check_loads(loads)

    def stacked(self, first: Array, draws: list[Array]) -> Array:
        """Stack `first`, (workers,), the numbers of rows of the draws, and the draws, each (k, workers)."""
        counts = [np.full(len(first), float(len(draw))) for draw in draws]
        return np.vstack([first, *counts, *draws])

    def split(self, draw: Array) -> tuple[Array, list[Array]]:
        """Return the first row, and the draws of each component."""
        n = len(self.parts)
        ends = 1 + n + np.cumsum(draw[1 : 1 + n, 0]).astype(int) if draw.shape[1] else np.full(n, 1 + n)
        return draw[0], np.split(draw[1 + n :], ends[:-1] - 1 - n)

    def before_of(self, before: Array | None) -> list[Array | None]:
        """Return the draws of each component in the round before."""
        return [None] * len(self.parts) if before is None else list(self.split(before)[1])

    def compute(self, draw: Array, samples: NDArray[Any]) -> Array:
        """Return each worker's seconds, by default those of its component, whose index is in the first row."""
        which, draws = self.split(draw)
        each = [part.compute(own, samples) for part, own in zip(self.parts.values(), draws, strict=True)]
        return Combined.sent(self, which, np.stack(each))

    def sending(self, draw: Array, share: float) -> Array | None:
        """Return each worker's sending seconds.

        A worker's time is 0 if its component has no sending times. The result is None if no component has any.
        """
        which, draws = self.split(draw)
        sent = [part.sending(own, share) for part, own in zip(self.parts.values(), draws, strict=True)]
        if all(seconds is None for seconds in sent):
            return None
        none = np.zeros(draw.shape[1])
        each = np.stack([none if seconds is None else seconds for seconds in sent])
        return self.sent(which, each)

    def sent(self, first: Array, each: Array) -> Array:
        """Return each worker's sending seconds, by default those of its component.

        `each`: seconds of every component, (components, workers).
        """
        return np.asarray(each[first.astype(int), np.arange(len(first))])


class Mixture(Combined):
    """Mixture: in each round, each worker has the delay model of one component, drawn with the given shares.

    >>> slow = {"kind": "constant", "shift": 1e-2}
    >>> model = Mixture(components=({"kind": "constant", "shift": 1e-3}, slow), shares=(0.9, 0.1))
    >>> round(model.expected(1), 6)
    0.0019
    """

    kind = "mixture"
    components: tuple[Delays, ...] = setting(
        (ShiftedExponential(), ShiftedExponential(shift=5e-4)), "delay models, each with its kind"
    )
    shares: tuple[float, ...] = setting((0.9, 0.1), "probability of each component; their sum is 1")

    @model_validator(mode="after")
    def _shared(self) -> Self:
        shares, n = list(self.shares), len(self.components)
        if not n:
            raise SettingError("components = []: give at least one delay model")
        if len(shares) != n or min(shares) < 0 or abs(sum(shares) - 1) > 1e-9:
            raise SettingError(f"shares = {shares}: take {n} numbers, each at least 0, whose sum is 1")
        return self

    @property
    def parts(self) -> Mapping[str, DelayModel]:
        """Components by their field."""
        return {f"components.{k}": each for k, each in enumerate(self.components)}

    def draw(self, keyed: CounterRNG, round: int, workers: int, slot: int, before: Array | None) -> Array:
        """Return each worker's component, and below it the draws of all components."""
        u = keyed.branch(0).rng(round, slot).random(workers)
        ends = np.cumsum(self.shares)[:-1]
        each = enumerate(zip(self.components, self.before_of(before), strict=True))
        draws = [p.draw(_own(keyed, p, k), round, workers, slot, own) for k, (p, own) in each]
        return self.stacked(np.searchsorted(ends, u, side="right").astype(float), draws)

    def expected(self, samples: int) -> float | None:
        """Return the mean of the components' means, or None if one is not declared."""
        means = [part.expected(samples) for part in self.components]
        known = [mean for mean in means if mean is not None]
        return float(np.dot(self.shares, known)) if len(known) == len(means) else None

    def times(self, samples: int) -> tuple[Array, Array] | None:
        known = [each for part in self.components if (each := _quantiles(part, samples)) is not None]
        whole = len(known) == len(self.components)
        return (np.concatenate(known), np.outer(self.shares, WEIGHTS).ravel()) if whole else None


class Groups(Combined):
    """Hosts or racks: the workers of a group have a common delay, and each worker has its own speed.

    A worker's own time is that of `base` divided by the worker's speed. Each group and round has one draw of `common`.
    The time of `common` is added to the own times of the group's workers. With effect = 'multiply', their own times are
    multiplied by the time of `common` for one sample, as a number.

    >>> host = {"kind": "constant", "shift": 3.0}
    >>> model = Groups(base={"kind": "constant", "shift": 2.0}, common=host, effect="multiply", speeds=(1.0, 2.0))
    >>> model.compute(model.draw(CounterRNG(0), 0, 4, 0, None), np.array([1, 1, 1, 1])).tolist()
    [6.0, 3.0, 6.0, 3.0]
    """

    kind = "groups"
    base: Delays = setting(ShiftedExponential(), "delay model of each worker")
    common: Delays = setting(Exponential(), "delay model of the delay that all workers of a group share")
    effect: Literal["add", "multiply"] = setting(
        "add",
        "add: the common time is added to the workers' times; multiply: they are multiplied by its time for one"
        " sample, as a number",
    )
    size: int = setting(4, "workers per group, in the order of ranks", ge=1)
    members: tuple[tuple[int, ...], ...] | None = setting(
        None,
        "ranks of the workers of each group, in place of `size`, such as [[1, 2], [3, 4, 5]]; a worker in no list is a"
        " group of its own",
    )
    speeds: tuple[float, ...] | None = setting(
        None,
        "speed of each worker, by which its time is divided; a shorter list is repeated; empty = all 1",
    )

    @model_validator(mode="after")
    def _named(self) -> Self:
        ranks = [rank for group in self.members or () for rank in group]
        if min(ranks, default=1) < 1 or len(set(ranks)) < len(ranks):
            raise SettingError(
                f"members = {list(self.members or ())}: take ranks from 1, each in one group only"
            )
        if self.speeds is not None and not min(self.speeds, default=0.0) > 0:
            raise SettingError(f"speeds = {list(self.speeds)}: take numbers above 0")
        return self

    @property
    def parts(self) -> Mapping[str, DelayModel]:
        """Both delay models by their field."""
        return {"base": self.base, "common": self.common}

    def check(self, workers: int) -> None:
        super().check(workers)
        if (most := max((rank for group in self.members or () for rank in group), default=0)) > workers:
            raise SettingError(f"members: {most} is too large; {there_are('worker', 1, workers)}")
        if self.speeds is not None:
            check_cycle("speeds", self.speeds, workers)

    def group_of(self, workers: int) -> NDArray[np.int64]:
        """Return the index of each worker's group, (workers,)."""
        if self.members is None:
            return np.arange(workers) // self.size
        found = len(self.members) + np.arange(workers)
        for k, group in enumerate(self.members):
            found[[rank - 1 for rank in group if rank <= workers]] = k
        return found

    def draw(self, keyed: CounterRNG, round: int, workers: int, slot: int, before: Array | None) -> Array:
        """Return the workers' speeds, and below them the draws of `base` and of `common`, one for each group."""
        own, shared = self.before_of(before)
        group = self.group_of(workers)
        # from one column per worker to one column per group; a group without workers gets the column of any worker
        if shared is not None:
            first = np.zeros(group.max(initial=-1) + 1, dtype=int)
            first[group[::-1]] = np.arange(workers)[::-1]
            shared = shared[:, first]
        common = self.common.draw(keyed.branch(0), round, int(group.max(initial=-1)) + 1, slot, shared)
        speeds = np.ones(workers) if self.speeds is None else cycled(self.speeds, workers)
        base = self.base.draw(_own(keyed, self.base), round, workers, slot, own)
        return self.stacked(speeds, [base, common[:, group]])

    def compute(self, draw: Array, samples: NDArray[Any]) -> Array:
        speeds, (own, shared) = self.split(draw)
        base = self.base.compute(own, samples) / speeds
        if self.effect == "add":
            return np.asarray(base + self.common.compute(shared, samples))
        return np.asarray(base * self.common.compute(shared, np.ones_like(samples)))

    def sent(self, first: Array, each: Array) -> Array:
        """Return the sum of both delay models' seconds of sending."""
        return np.asarray(each.sum(axis=0))

    @property
    def _dependent(self) -> bool:
        """Whether two lists count by worker, so that averages over all workers cannot be combined."""
        listed = [len(set(self.speeds or ())) > 1, *map(_listed, (self.base, self.common))]
        return sum(listed) > 1 or (listed[2] and self.members is not None)

    def expected(self, samples: int) -> float | None:
        """Return the mean seconds over workers and rounds, or None if it does not follow from the components' means."""
        add = self.effect == "add"
        base, common = self.base.expected(samples), self.common.expected(samples if add else 1)
        if base is None or common is None or self._dependent:
            return None
        own = base * float(np.mean(1 / np.array(self.speeds or (1.0,))))
        return own + common if add else own * common

    def times(self, samples: int) -> tuple[Array, Array] | None:
        add = self.effect == "add"
        base, shared = _quantiles(self.base, samples), _quantiles(self.common, samples if add else 1)
        if base is None or shared is None or self._dependent:
            return None
        own = base[:, None] / np.array(self.speeds or (1.0,))[:, None, None]
        weights = np.tile(np.outer(WEIGHTS, WEIGHTS).ravel(), len(own))
        return np.ravel(own + shared if add else own * shared), weights


def _listed(model: DelayModel) -> bool:
    """Return whether a list in a delay model gives workers different distributions."""
    lists = (getattr(model, name, None) or () for name in ("straggles", "speeds"))
    own = getattr(model, "same_workers", False) or any(len(set(values)) > 1 for values in lists)
    return own or any(map(_listed, getattr(model, "parts", {}).values()))


def _nests(model: DelayModel) -> bool:
    """Return whether a delay model draws from branches of its random numbers."""
    return getattr(model, "branches", False) or any(map(_nests, getattr(model, "parts", {}).values()))


def _own(keyed: CounterRNG, part: DelayModel, k: int = 0) -> CounterRNG:
    """Return the random numbers of the k-th component of a delay model that draws from a branch of `keyed`."""
    return keyed.nested(k) if _nests(part) else keyed


def _quantiles(model: DelayModel, samples: int) -> Array | None:
    """Return the quantiles of a delay model at `LEVELS`, or None if it declares none."""
    if isinstance(model, Tabulated):
        found = model.times(samples)
        return None if found is None else weighted_quantile(LEVELS, *found)
    each = [model.quantile(float(level), samples) for level in LEVELS]
    return None if None in each else np.array(each, dtype=float)
