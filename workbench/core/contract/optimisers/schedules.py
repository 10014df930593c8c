"""Schedules: the share of the optimiser's full step size that is used in each round.

A round is a commit, also with mini-batches.
"""

from __future__ import annotations

from abc import abstractmethod
from math import cos, pi
from typing import Annotated, Any, ClassVar, Self

from pydantic import BeforeValidator, SerializeAsAny, model_validator

from workbench.core.base.plugins import Catalogue, KindFamily
from workbench.core.base.settings import SettingError, at_most, setting

MAX_WARMUP_ROUNDS = 10**9


class Schedule(KindFamily):
    """Base class of schedules: `share_at` returns the ratio of a round's step size to the full one.

    Every schedule has a warm-up. To add one, add a file with a subclass that has a `kind` and a `share_at`.

    >>> list(Schedule.catalogue)
    ['constant', 'cosine', 'exponential', 'inverse_time', 'steps']
    """

    catalogue: ClassVar[Catalogue[Schedule]] = Catalogue(
        "schedule.kind", "workbench.core.contract.optimisers", "workbench.schedules"
    )

    warmup: Annotated[int, at_most(MAX_WARMUP_ROUNDS)] = setting(
        0, "rounds of linear warm-up; the schedule begins after them, at its round 0", "rounds", ge=0
    )
    warmup_start: float | None = setting(
        None, "share of the full step size in round 0 of the warm-up; empty = 1 / (warmup + 1)", gt=0, le=1
    )

    @abstractmethod
    def share_at(self, t: int) -> float:
        """Return the ratio of a round's step size to the full one. `t` counts rounds from 0 after the warm-up."""

    def factor_at(self, t: int) -> float:
        """Return the ratio of the step size in round `t` of the run to the full one.

        >>> [round(ConstantSchedule(warmup=3).factor_at(t), 2) for t in range(5)]
        [0.25, 0.5, 0.75, 1.0, 1.0]
        """
        if t >= self.warmup:
            return self.share_at(t - self.warmup)
        start = 1 / (self.warmup + 1) if self.warmup_start is None else self.warmup_start
        return start + (1 - start) * t / self.warmup

    def for_rounds(self, rounds: int) -> Self:
        """Return the schedule for a run of that many rounds, for schedules that depend on the number."""
        return self

    @property
    def summary(self) -> str:
        """The schedule as text."""
        return self.written_kind + (f" after {self.warmup} rounds of warm-up" if self.warmup else "")


class ConstantSchedule(Schedule):
    """Constant step size: the full one in every round after the warm-up."""

    kind = "constant"

    def share_at(self, t: int) -> float:
        return 1.0


class InverseTimeSchedule(Schedule):
    """Inverse time: offset / (t + offset), the step size of the optimiser `inverse_time` divided by its first one.

    >>> InverseTimeSchedule(offset=10).share_at(10)
    0.5
    """

    kind = "inverse_time"
    offset: float = setting(100.0, "rounds after which the step size is halved", "rounds", gt=0)

    def share_at(self, t: int) -> float:
        return self.offset / (t + self.offset)


class StepSchedule(Schedule):
    """Steps: the step size is multiplied by `decay` at milestones (paper 1, figure 13), or after each `every` rounds.

    >>> [StepSchedule(decay=0.5, milestones=(2, 3)).share_at(t) for t in range(5)]
    [1.0, 1.0, 0.5, 0.25, 0.25]
    """

    kind = "steps"
    decay: float = setting(0.1, "factor on the step size at each decrease", gt=0, le=1)
    milestones: tuple[int, ...] = setting((), "rounds at which the step size shrinks")
    every: int | None = setting(
        None, "rounds from one decrease to the next, in place of milestones", "rounds", ge=1
    )

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if self.milestones and self.every is not None:
            raise SettingError(
                f"every = {self.every}: milestones are given as well; leave one of the two empty"
            )
        if not self.milestones and self.every is None:
            raise SettingError("milestones: are empty, and so is every; give one of the two, e.g. every = 30")
        return self

    def share_at(self, t: int) -> float:
        return (
            stepwise(self.decay, t, self.milestones)
            if self.every is None
            else self.decay ** (t // self.every)
        )


def stepwise(decay: float, t: int, milestones: tuple[int, ...]) -> float:
    """Return the factor on the step size after the milestones up to round `t`."""
    return decay ** sum(t >= m for m in milestones) if milestones else 1.0


class ExponentialSchedule(Schedule):
    """Exponential decay: the step size is multiplied by `decay` in every round.

    >>> ExponentialSchedule(decay=0.5).share_at(3)
    0.125
    """

    kind = "exponential"
    decay: float = setting(0.99, "factor on the step size per round", gt=0, le=1)

    def share_at(self, t: int) -> float:
        return self.decay**t


class CosineSchedule(Schedule):
    """Cosine: half a wave from the full step size to the share `end`, then constant (Loshchilov and Hutter 2017).

    >>> CosineSchedule(length=100).share_at(50)
    0.5
    """

    kind = "cosine"
    length: int | None = setting(
        None,
        "rounds from the full step size to the final one; empty = all rounds after the warm-up",
        "rounds",
        ge=1,
    )
    end: float = setting(0.0, "final step size, as a share of the full one", ge=0, le=1)

    def for_rounds(self, rounds: int) -> Self:
        """Fill in an empty `length`."""
        if self.length is not None:
            return self
        return self.model_copy(update={"length": max(rounds - self.warmup, 1)})

    def share_at(self, t: int) -> float:
        if self.length is None:
            raise SettingError(
                "schedule.length: is empty, and the number of rounds is not known here; give it"
            )
        return self.end + (1 - self.end) * (1 + cos(pi * min(t / self.length, 1.0))) / 2


def schedule_from(value: Any) -> Schedule:
    """Build a schedule from fields, which include its kind (default: constant). A schedule is returned unchanged."""
    found: Schedule = Schedule.from_fields(value, "constant")
    return found


# type of a field that accepts every schedule
Schedules = Annotated[SerializeAsAny[Schedule], BeforeValidator(schedule_from)]
