"""Optimisers: from a gradient sum to the next model. `update` is pure; state is passed around."""

from __future__ import annotations

from abc import abstractmethod
from math import isfinite
from typing import Any, ClassVar, Self

from workbench.core.base.plugins import Catalogue, Family
from workbench.core.base.settings import SettingError
from workbench.core.base.types import Array
from workbench.core.contract.problem import Problem

State = dict[str, Any]
Updated = tuple[Array, State]  # the next model, and what to remember


class Optimiser(Family):
    """theta(t+1) = h_R(theta(t), g), paper 1 equation (2): regularisation is applied here, at the master.

    >>> list(Optimiser.catalogue)
    ['amsgrad', 'gd', 'inverse_time', 'nesterov']
    """

    name: ClassVar[str] = ""
    catalogue: ClassVar[Catalogue[Optimiser]] = Catalogue(
        "optimiser", "workbench.core.contract.optimisers", "workbench.optimisers"
    )

    def start(self, problem: Problem) -> State:
        """State of round 0; an automatic step is 1 / (the problem's smoothness)."""
        return {}

    @abstractmethod
    def update(self, state: State, model: Array, gradient: Array, problem: Problem, t: int) -> Updated:
        """Next model and state; `gradient` is the sum over samples, `t` the round from 0."""

    def candidates(self, smoothness: float) -> list[Self]:
        """Grid that `wb.tune` chooses from, around 1 / smoothness; this one alone where nothing is tuned."""
        return [self]

    def scaled(self, times: float, smoothness: float) -> Self:
        """The same with so many times its automatic step, which is 1 / smoothness where not said otherwise."""
        return self

    def near(self) -> list[Self]:
        """What lies between this one and its neighbours on that grid, or beyond its ends."""
        return []

    @property
    def summary(self) -> str:
        """Its step in words, empty where it has none."""
        return ""


def mean_gradient(model: Array, gradient: Array, problem: Problem) -> Array:
    """Of the objective, from the sum over the samples' losses."""
    mean = gradient / problem.samples
    return mean + problem.l2 * model if problem.l2 else mean  # long models take a while to go through


def smoothness_of(problem: Problem, field: str) -> float:
    """The problem's smoothness, from which an empty field follows; raises `SettingError` where nothing can."""
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
    """Class of an optimiser; raises `SettingError` with the nearest name.

    >>> optimiser_class("gd").__name__
    'GradientDescent'
    """
    return Optimiser.catalogue.get_class(name)
