"""Gradient steps: plain, accelerated, shorter and shorter, and scaled coordinate by coordinate."""

from itertools import product
from typing import ClassVar, Self

import numpy as np

from workbench.core.base.settings import setting
from workbench.core.base.types import Array
from workbench.core.contract.optimisers.base import Optimiser, State, Updated, mean_gradient, smoothness_of
from workbench.core.contract.problem import Problem

FIRST_STEPS = (1.0, 4.0, 8.0, 16.0, 32.0, 64.0)  # tuned first steps, in units of 1 / smoothness
OFFSET_ROUNDS = (300.0, 3000.0)  # tuned c2, rounds
# steps around the best of these, in units of it
NEARBY_STEPS = tuple(2.0 ** (k * 3 / 8) for k in (-2, -1, 1, 2))


class Stepping(Optimiser):
    """Base of those with a step, which follows from the problem where none is given."""

    step: float | None = setting(None, "step; empty = 1 / smoothness of the objective", gt=0)

    def scaled(self, times: float, smoothness: float) -> Self:
        return self.replace(step=times / smoothness)

    @property
    def summary(self) -> str:
        return "step 1/L" if self.step is None else f"step {self.step:.3g}"

    def first_step(self, problem: Problem) -> float:
        """The step of round 0."""
        return 1.0 / smoothness_of(problem, "step") if self.step is None else self.step


class GradientDescent(Stepping):
    """theta -= step * mean gradient; `step` shrinks by `decay` at each milestone.

    >>> GradientDescent(step=0.5, decay=0.1, milestones=(50,)).summary
    'step 0.5'
    """

    name: ClassVar[str] = "gd"
    decay: float = setting(1.0, "factor on the step at each milestone", gt=0, le=1)
    milestones: tuple[int, ...] = setting((), "rounds at which the step shrinks")

    def candidates(self, smoothness: float) -> list[Self]:
        return [self.scaled(k, smoothness) for k in FIRST_STEPS]

    def near(self) -> list[Self]:
        """Steps a little smaller and larger."""
        return [] if self.step is None else [self.replace(step=self.step * k) for k in NEARBY_STEPS]

    def start(self, problem: Problem) -> State:
        return {"step": self.first_step(problem)}

    def update(self, state: State, model: Array, gradient: Array, problem: Problem, t: int) -> Updated:
        step = state["step"] * self.decay ** sum(t >= m for m in self.milestones)
        move = mean_gradient(model, gradient, problem)
        move *= step
        return model - move, state  # in the model's numbers, whatever the gradient's


class Nesterov(Stepping):
    """Nesterov's accelerated gradient, momentum t/(t+3) or a constant.

    >>> Nesterov(momentum=0.9).summary
    'step 1/L'
    """

    name: ClassVar[str] = "nesterov"
    momentum: float | None = setting(None, "constant momentum; empty = t/(t+3)", ge=0, lt=1)

    def start(self, problem: Problem) -> State:
        return {"step": self.first_step(problem), "before": problem.start()}

    def update(self, state: State, model: Array, gradient: Array, problem: Problem, t: int) -> Updated:
        """Gradient step, then extrapolate: the model is the point at which the next gradient is taken."""
        momentum = t / (t + 3) if self.momentum is None else self.momentum
        descended = model - state["step"] * mean_gradient(model, gradient, problem)
        return descended + momentum * (descended - state["before"]), {**state, "before": descended}


class InverseTime(Optimiser):
    """Step c1/(t + c2), as paper 1 gives its SGD baseline (section IV-A).

    >>> InverseTime(c1=200.0).summary
    'step 200 / (t + 100)'
    """

    name: ClassVar[str] = "inverse_time"
    c1: float | None = setting(
        None, "numerator; empty = c2 / smoothness, so that the first step is GD's", gt=0
    )
    c2: float = setting(100.0, "offset in rounds", gt=0)

    def candidates(self, smoothness: float) -> list[Self]:
        """First steps around 1 / smoothness, each with a slow and a fast decline."""
        return [self.replace(c2=c2).scaled(k, smoothness) for k, c2 in product(FIRST_STEPS, OFFSET_ROUNDS)]

    def scaled(self, times: float, smoothness: float) -> Self:
        return self.replace(c1=times * self.c2 / smoothness)

    def near(self) -> list[Self]:
        """First steps a little smaller and larger."""
        return [] if self.c1 is None else [self.replace(c1=self.c1 * k) for k in NEARBY_STEPS]

    @property
    def summary(self) -> str:
        return f"step {'c2/L' if self.c1 is None else f'{self.c1:.3g}'} / (t + {self.c2:g})"

    def start(self, problem: Problem) -> State:
        return {"c1": self.c2 / smoothness_of(problem, "c1") if self.c1 is None else self.c1}

    def update(self, state: State, model: Array, gradient: Array, problem: Problem, t: int) -> Updated:
        return model - state["c1"] / (t + self.c2) * mean_gradient(model, gradient, problem), state


class AMSGrad(Optimiser):
    """Paper 3, equations (8a) to (8c): h, v, vhat; vhat is the running maximum, coordinate by coordinate.

    >>> AMSGrad(rate=0.001).summary
    'rate 0.001'
    """

    name: ClassVar[str] = "amsgrad"
    rate: float = setting(0.01, "learning rate", gt=0)
    beta1: float = setting(0.9, "memory of the gradient", ge=0, lt=1)
    beta2: float = setting(0.999, "memory of its square", ge=0, lt=1)
    eps: float = setting(1e-8, "added under the root", gt=0)

    def scaled(self, times: float, smoothness: float) -> Self:
        """With so many times the default learning rate, which knows nothing of the problem."""
        return self.replace(rate=times * type(self)().rate)

    @property
    def summary(self) -> str:
        return f"rate {self.rate:.3g}"

    def start(self, problem: Problem) -> State:
        return {"h": np.zeros(problem.size), "vhat": np.zeros(problem.size)}

    def update(self, state: State, model: Array, gradient: Array, problem: Problem, t: int) -> Updated:
        g = mean_gradient(model, gradient, problem)
        h = self.beta1 * state["h"] + (1 - self.beta1) * g
        v = self.beta2 * state["vhat"] + (1 - self.beta2) * g * g
        vhat = np.maximum(state["vhat"], v)
        return model - self.rate * h / np.sqrt(self.eps + vhat), {"h": h, "vhat": vhat}
