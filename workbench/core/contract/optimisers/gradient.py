"""Gradient steps: plain, accelerated, with decreasing step sizes, and scaled for each coordinate.

`l2` of a problem is part of the objective: it is in the loss, and once in the gradient (see `mean_gradient`).
`weight_decay` is not in the loss. In `sgd` and `adam` it is coupled: `weight_decay * model` is added to the gradient.
In `adamw` it is decoupled: a step multiplies the model by 1 - rate * weight_decay, outside the moments.
"""

from itertools import product
from typing import Self

import numpy as np
from pydantic import model_validator

from workbench.core.base.settings import SettingError, setting
from workbench.core.base.types import Array
from workbench.core.contract.optimisers.base import Scheduled, State, Updated, mean_gradient, smoothness_of
from workbench.core.contract.optimisers.schedules import stepwise
from workbench.core.contract.problem import Problem

# first step sizes that `tune` tries, in units of 1 / smoothness
FIRST_STEPS = (1.0, 4.0, 8.0, 16.0, 32.0, 64.0)
OFFSET_ROUNDS = (300.0, 3000.0)  # values of c2 that `tune` tries, rounds
TUNED_RATES = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0)  # learning rates that `tune` tries, in units of the default
# further step sizes that `tune` tries, in units of the best one so far
NEARBY_STEPS = tuple(2.0 ** (k * 3 / 8) for k in (-2, -1, 1, 2))
CLIP_EPSILON = 1e-6  # added to the norm, as in `torch.nn.utils.clip_grad_norm_`


class Stepping(Scheduled):
    """Base of optimisers with a step size, which is computed from the problem if it is empty."""

    step: float | None = setting(None, "step size; empty = 1 / smoothness of the objective", gt=0)

    def scaled(self, times: float, smoothness: float) -> Self:
        return self.replace(step=times / smoothness)

    def candidates(self, smoothness: float) -> list[Self]:
        return [self.scaled(k, smoothness) for k in FIRST_STEPS]

    def near(self) -> list[Self]:
        """Return the optimisers with step sizes slightly smaller and larger."""
        return [] if self.step is None else [self.replace(step=self.step * k) for k in NEARBY_STEPS]

    @property
    def step_summary(self) -> str:
        return "step 1/L" if self.step is None else f"step {self.step:.3g}"

    def first_step(self, problem: Problem) -> float:
        """Return the step size of round 0."""
        return 1.0 / smoothness_of(problem, "step") if self.step is None else self.step


class GradientDescent(Stepping):
    """Gradient descent: theta -= step * mean gradient. The step size is multiplied by `decay` at each milestone.

    >>> GradientDescent(step=0.5, decay=0.1, milestones=(50,)).summary
    'step 0.5'
    """

    name = "gd"
    decay: float = setting(1.0, "factor on the step size at each milestone", gt=0, le=1)
    milestones: tuple[int, ...] = setting((), "rounds at which the step size shrinks")

    def start(self, problem: Problem) -> State:
        return {"step": self.first_step(problem)}

    def update(self, state: State, model: Array, gradient: Array, problem: Problem, t: int) -> Updated:
        step = state["step"] * stepwise(self.decay, t, self.milestones) * self.factor_at(t)
        move = mean_gradient(model, gradient, problem)
        move *= step
        return np.subtract(model, move, out=move if move.dtype == model.dtype else None), state


class Nesterov(Stepping):
    """Nesterov's accelerated gradient, with momentum t/(t+3) or a constant.

    >>> Nesterov(momentum=0.9).summary
    'step 1/L'
    """

    name = "nesterov"
    momentum: float | None = setting(None, "constant momentum; empty = t/(t+3)", ge=0, lt=1)

    def start(self, problem: Problem) -> State:
        return {"step": self.first_step(problem), "before": problem.start()}

    def update(self, state: State, model: Array, gradient: Array, problem: Problem, t: int) -> Updated:
        """Take a gradient step, then extrapolate: the model is the point at which the next gradient is computed."""
        momentum = t / (t + 3) if self.momentum is None else self.momentum
        descended = model - state["step"] * self.factor_at(t) * mean_gradient(model, gradient, problem)
        return descended + momentum * (descended - state["before"]), {**state, "before": descended}


class InverseTime(Scheduled):
    """Gradient descent with step size c1/(t + c2), the SGD baseline of paper 1 (section IV-A).

    `gd` with the schedule `inverse_time` has the same step sizes if its step size is c1 / c2 and its offset is c2.

    >>> InverseTime(c1=200.0).summary
    'step 200 / (t + 100)'
    """

    name = "inverse_time"
    c1: float | None = setting(
        None, "numerator; empty = c2 / smoothness, so that the first step size is that of gd", gt=0
    )
    c2: float = setting(100.0, "offset in rounds", gt=0)

    def candidates(self, smoothness: float) -> list[Self]:
        """Return optimisers with first step sizes around 1 / smoothness, each with a slow and a fast decrease."""
        return [self.replace(c2=c2).scaled(k, smoothness) for k, c2 in product(FIRST_STEPS, OFFSET_ROUNDS)]

    def scaled(self, times: float, smoothness: float) -> Self:
        return self.replace(c1=times * self.c2 / smoothness)

    def near(self) -> list[Self]:
        """Return the optimisers with first step sizes slightly smaller and larger."""
        return [] if self.c1 is None else [self.replace(c1=self.c1 * k) for k in NEARBY_STEPS]

    @property
    def step_summary(self) -> str:
        return f"step {'c2/L' if self.c1 is None else f'{self.c1:.3g}'} / (t + {self.c2:g})"

    def start(self, problem: Problem) -> State:
        return {"c1": self.c2 / smoothness_of(problem, "c1") if self.c1 is None else self.c1}

    def update(self, state: State, model: Array, gradient: Array, problem: Problem, t: int) -> Updated:
        step = state["c1"] / (t + self.c2) * self.factor_at(t)
        return model - step * mean_gradient(model, gradient, problem), state


class Penalised(Scheduled):
    """Base of optimisers with PyTorch's weight decay and gradient clipping."""

    weight_decay: float = setting(
        0.0, "multiple of the model that is added to the gradient, and not to the loss", ge=0
    )
    clip: float | None = setting(
        None,
        "max norm of the mean gradient (l2 included); a longer gradient is scaled down; empty = no limit",
        gt=0,
    )

    def clipped(self, model: Array, gradient: Array, problem: Problem) -> Array:
        """Return the mean gradient, scaled down to the norm `clip` if it is longer."""
        mean = mean_gradient(model, gradient, problem)
        if self.clip is not None:
            mean *= min(1.0, self.clip / (float(np.linalg.norm(mean)) + CLIP_EPSILON))
        return mean

    def coupled(self, model: Array, gradient: Array, problem: Problem) -> Array:
        """Return the clipped mean gradient plus `weight_decay * model`."""
        mean = self.clipped(model, gradient, problem)
        return mean + self.weight_decay * model if self.weight_decay else mean


class SGD(Penalised, Stepping):
    """`torch.optim.SGD`: velocity = momentum * velocity + gradient; model -= step * velocity.

    With `nesterov`, the step is along momentum * velocity + gradient. `clip` is `torch.nn.utils.clip_grad_norm_`.

    >>> SGD(step=0.1, momentum=0.9, schedule={"kind": "cosine", "warmup": 5}).summary
    'step 0.1, cosine after 5 rounds of warm-up'
    """

    name = "sgd"
    momentum: float = setting(0.0, "share of the velocity that is kept", ge=0, lt=1)
    nesterov: bool = setting(False, "step along momentum * velocity + gradient (Nesterov)")

    @model_validator(mode="after")
    def _nesterov_has_momentum(self) -> Self:
        if self.nesterov and not self.momentum:
            raise SettingError("nesterov = True: needs a momentum above 0; set momentum, e.g. 0.9")
        return self

    def start(self, problem: Problem) -> State:
        velocity = {"velocity": np.zeros(problem.size)} if self.momentum else {}
        return {"step": self.first_step(problem), **velocity}

    def update(self, state: State, model: Array, gradient: Array, problem: Problem, t: int) -> Updated:
        move = self.coupled(model, gradient, problem)
        if self.momentum:
            velocity = self.momentum * state["velocity"] + move
            state = {**state, "velocity": velocity}
            move = move + self.momentum * velocity if self.nesterov else velocity
        return model - state["step"] * self.factor_at(t) * move, state


class Moments(Scheduled):
    """Base of optimisers with moments of the gradient and a learning rate, which does not depend on the problem."""

    rate: float = setting(0.001, "learning rate", gt=0)
    beta1: float = setting(0.9, "decay rate of the average gradient", ge=0, lt=1)
    beta2: float = setting(0.999, "decay rate of the average squared gradient", ge=0, lt=1)

    def scaled(self, times: float, smoothness: float) -> Self:
        """Return the optimiser with `times` the default learning rate."""
        return self.replace(rate=times * type(self).model_fields["rate"].default)

    def candidates(self, smoothness: float) -> list[Self]:
        return [self.scaled(k, smoothness) for k in TUNED_RATES]

    def near(self) -> list[Self]:
        """Return the optimisers with rates slightly smaller and larger."""
        return [self.replace(rate=self.rate * k) for k in NEARBY_STEPS]

    @property
    def step_summary(self) -> str:
        return f"rate {self.rate:.3g}"


class AMSGrad(Moments):
    """AMSGrad: steps scaled for each coordinate (paper 3, equations (8a) to (8c)).

    The state has h, the average gradient, and vhat, the running maximum of the average squared gradient.
    PyTorch's variant, with bias correction, is `adam` with `max_square`.

    >>> AMSGrad(rate=0.001).summary
    'rate 0.001'
    """

    name = "amsgrad"
    rate: float = setting(0.01, "learning rate", gt=0)
    eps: float = setting(1e-8, "constant added under the square root", gt=0)

    def start(self, problem: Problem) -> State:
        return {"h": np.zeros(problem.size), "vhat": np.zeros(problem.size)}

    def update(self, state: State, model: Array, gradient: Array, problem: Problem, t: int) -> Updated:
        g = mean_gradient(model, gradient, problem)
        h, v = moments(state["h"], state["vhat"], g, self.beta1, self.beta2)
        vhat = np.maximum(state["vhat"], v)
        rate = self.rate * self.factor_at(t)
        return model - rate * h / np.sqrt(self.eps + vhat), {"h": h, "vhat": vhat}


class Adam(Penalised, Moments):
    """`torch.optim.Adam`: moments with bias correction; weight decay is coupled, a part of the gradient.

    `max_square` is PyTorch's `amsgrad=True`. The optimiser `amsgrad` is paper 3's AMSGrad instead. It has no bias
    correction, and its second moment continues from the maximum.

    >>> Adam(rate=0.01).summary
    'rate 0.01'
    """

    name = "adam"
    eps: float = setting(1e-8, "constant added to the square root", gt=0)
    max_square: bool = setting(False, "divide by the largest second moment so far (PyTorch's amsgrad=True)")

    def start(self, problem: Problem) -> State:
        names = ["mean", "square", *(["largest"] if self.max_square else [])]
        return {name: np.zeros(problem.size) for name in names}

    def update(self, state: State, model: Array, gradient: Array, problem: Problem, t: int) -> Updated:
        return self._moved(state, model, self.coupled(model, gradient, problem), t)

    def _moved(self, state: State, model: Array, gradient: Array, t: int) -> Updated:
        mean, square = moments(state["mean"], state["square"], gradient, self.beta1, self.beta2)
        after = {"mean": mean, "square": square}
        if self.max_square:
            square = after["largest"] = np.maximum(state["largest"], square)
        rate = self.rate * self.factor_at(t)
        return model - adam_move(mean, square, t + 1, rate, self.beta1, self.beta2, self.eps), after


class AdamW(Adam):
    """`torch.optim.AdamW`: Adam with decoupled weight decay: each step multiplies the model by 1 - rate * weight_decay.

    >>> AdamW().weight_decay, AdamW().summary
    (0.01, 'rate 0.001')
    """

    name = "adamw"
    weight_decay: float = setting(
        0.01, "a step subtracts this multiple of rate * model from the model; the loss omits it", ge=0
    )

    def update(self, state: State, model: Array, gradient: Array, problem: Problem, t: int) -> Updated:
        mean = self.clipped(model, gradient, problem)
        return self._moved(state, model * (1 - self.rate * self.factor_at(t) * self.weight_decay), mean, t)


def moments(mean: Array, square: Array, gradient: Array, beta1: float, beta2: float) -> tuple[Array, Array]:
    """Return the moving averages of the gradient and of its square, updated with one more gradient."""
    return (
        beta1 * mean + (1 - beta1) * gradient,
        beta2 * square + (1 - beta2) * gradient * gradient,
    )


def adam_move(
    mean: Array, square: Array, steps: int, rate: float, beta1: float, beta2: float, eps: float
) -> Array:
    """Return the array that Adam subtracts from the model (Kingma and Ba 2015, algorithm 1).

    `steps`: step number, from 1.
    """
    root = np.sqrt(square / (1 - beta2**steps))
    moved: Array = rate * (mean / (1 - beta1**steps)) / (root + eps)
    return moved
