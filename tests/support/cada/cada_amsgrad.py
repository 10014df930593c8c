"""User file with the optimiser of the programs of CADA's authors. It is passed by its path, and not imported."""

from __future__ import annotations

import numpy as np

from workbench.core.base.types import Array
from workbench.core.contract.optimisers.base import Optimiser, State, Updated, mean_gradient
from workbench.core.contract.problem import Problem


class ProgramAMSGrad(Optimiser):
    """AMSGrad as in the programs: the second moment continues from itself, and `eps` is outside the square root."""

    name = "amsgrad of CADA's programs"
    rate: float = 0.01
    eps: float = 1e-8

    def start(self, problem: Problem) -> State:
        return {name: np.zeros(problem.size) for name in ("q", "v", "v_hat")}

    def update(self, state: State, model: Array, gradient: Array, problem: Problem, t: int) -> Updated:
        g = mean_gradient(model, gradient, problem)
        q, v = 0.9 * state["q"] + (1 - 0.9) * g, 0.999 * state["v"] + (1 - 0.999) * g**2
        v_hat = np.maximum(state["v_hat"], v)
        return model - self.rate * q / (np.sqrt(v_hat) + self.eps), {"q": q, "v": v, "v_hat": v_hat}
