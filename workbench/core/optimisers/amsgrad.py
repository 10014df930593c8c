"""The optimiser that paper 3 learns with."""

from __future__ import annotations

from typing import ClassVar, Self

import numpy as np

from workbench.base.settings import setting
from workbench.base.types import Array
from workbench.core.optimisers.base import Optimiser, State, mean_gradient
from workbench.core.problem import Problem


class AMSGrad(Optimiser):
    """Paper 3, equations (8a) to (8c): h, v, vhat; vhat is the running maximum, coordinate by coordinate."""

    name: ClassVar[str] = "amsgrad"
    rate: float = setting(0.01, "learning rate", gt=0)
    beta1: float = setting(0.9, "memory of the gradient", ge=0, lt=1)
    beta2: float = setting(0.999, "memory of its square", ge=0, lt=1)
    eps: float = setting(1e-8, "added under the root", gt=0)

    def scaled(self, times: float, smoothness: float) -> Self:
        """With so many times the default learning rate, which knows nothing of the problem."""
        return self.replace(rate=times * type(self)().rate)

    @property
    def told(self) -> str:
        """The learning rate."""
        return f"rate {self.rate:.3g}"

    def start(self, problem: Problem) -> State:
        """Zero moments."""
        return {"h": np.zeros(problem.size), "vhat": np.zeros(problem.size)}

    def update(
        self, state: State, model: Array, gradient: Array, problem: Problem, t: int
    ) -> tuple[Array, State]:
        """One AMSGrad step."""
        g = mean_gradient(model, gradient, problem)
        h = self.beta1 * state["h"] + (1 - self.beta1) * g
        v = self.beta2 * state["vhat"] + (1 - self.beta2) * g * g
        vhat = np.maximum(state["vhat"], v)
        return model - self.rate * h / np.sqrt(self.eps + vhat), {"h": h, "vhat": vhat}
