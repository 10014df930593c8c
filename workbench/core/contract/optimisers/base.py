"""Optimisers: from a gradient sum to the next model.

`update` changes nothing: it takes a state and returns the next.
"""

from __future__ import annotations

from abc import abstractmethod
from math import isfinite
from typing import Any, ClassVar, Self

from workbench.core.base.plugins import Catalogue, Family
from workbench.core.base.settings import SettingError, setting
from workbench.core.base.types import Array
from workbench.core.contract.optimisers.schedules import ConstantSchedule, Schedules
from workbench.core.contract.problem import Problem

State = dict[str, Any]
Updated = tuple[Array, State]  # next model and next state


class Optimiser(Family):
    """theta(t+1) = h_R(theta(t), g), paper 1 equation (2): regularisation is applied here, at the master.

    >>> list(Optimiser.catalogue)
    ['adam', 'adamw', 'amsgrad', 'gd', 'inverse_time', 'nesterov', 'sgd']
    """

    name: ClassVar[str] = ""
    catalogue: ClassVar[Catalogue[Optimiser]] = Catalogue(
        "optimiser", "workbench.core.contract.optimisers", "workbench.optimisers"
    )

    def start(self, problem: Problem) -> State:
        """Return the state of round 0. An automatic step size is 1 / (the problem's smoothness)."""
        return {}

    @abstractmethod
    def update(self, state: State, model: Array, gradient: Array, problem: Problem, t: int) -> Updated:
        """Return the next model and state. `gradient`: sum over samples. `t`: round, from 0."""

    def candidates(self, smoothness: float) -> list[Self]:
        """Return the optimisers that `wb.tune` tries, with step sizes around 1 / smoothness.

        By default, only this one.
        """
        return [self]

    def scaled(self, times: float, smoothness: float) -> Self:
        """Return a copy with `times` times the automatic step size, which is 1 / smoothness by default."""
        return self

    def near(self) -> list[Self]:
        """Return optimisers with slightly smaller and larger step sizes, for a finer search than `candidates`."""
        return []

    def for_rounds(self, rounds: int) -> Self:
        """Return the optimiser for a run of that many rounds, for schedules that depend on the number."""
        return self

    @property
    def summary(self) -> str:
        """Step size of the optimiser as text, such as "step 0.5"; empty if it has none."""
        return ""


class Scheduled(Optimiser):
    """Base of optimisers whose step size follows a schedule: `update` multiplies it by `factor_at(t)`.

    A round is a commit. With mini-batches, a schedule therefore counts batches, not epochs.
    """

    schedule: Schedules = setting(ConstantSchedule(), "how the step size changes over the rounds")

    def factor_at(self, t: int) -> float:
        """Return the ratio of round `t`'s step size to the full one, or 1 without a schedule."""
        return self.schedule.factor_at(t)

    def for_rounds(self, rounds: int) -> Self:
        """Return a copy whose schedule is that of a run of `rounds` rounds."""
        schedule = self.schedule.for_rounds(rounds)
        return self if schedule is self.schedule else self.model_copy(update={"schedule": schedule})

    @property
    def summary(self) -> str:
        plain = self.schedule == ConstantSchedule()
        return ", ".join([self.step_summary, *([] if plain else [self.schedule.summary])])

    @property
    @abstractmethod
    def step_summary(self) -> str:
        """Step size without the schedule, as text."""


def mean_gradient(model: Array, gradient: Array, problem: Problem) -> Array:
    """Return the gradient of the objective, `l2` included, given the sum of the samples' gradients."""
    mean = gradient / problem.samples
    # without `l2`, this saves a pass over the model
    return mean + problem.l2 * model if problem.l2 else mean


def smoothness_of(problem: Problem, field: str) -> float:
    """Return the problem's smoothness, to compute an empty field. Raises `SettingError` if the problem has none."""
    found = problem.smoothness()
    if found > 0 and isfinite(1 / found) and isfinite(found):
        return found
    why = (
        "every column is 0 (constant ones are, once standardised)"
        if found == 0
        else "their size is out of range"
    )
    raise SettingError(
        f"optimiser_args.{field}: is empty, and from the data no step follows, as {why}; write a number, or take"
        " other data, or another scale or intercept"
    )


def optimiser_class(name: str) -> type[Optimiser]:
    """Return the class of an optimiser. Raises `SettingError` with the most similar name.

    >>> optimiser_class("gd").__name__
    'GradientDescent'
    """
    return Optimiser.catalogue.get_class(name)
