"""Optimisers: from a gradient sum to the next model. Schedules: the step size of each round.

To add one, add a file with a subclass of `Optimiser` that has a `name`, or of `Schedule` that has a `kind`.
"""

from workbench.core.contract.optimisers.base import (
    Optimiser,
    Scheduled,
    State,
    optimiser_class,
    smoothness_of,
)
from workbench.core.contract.optimisers.gradient import (
    SGD,
    Adam,
    AdamW,
    AMSGrad,
    GradientDescent,
    InverseTime,
    Nesterov,
    Stepping,
)
from workbench.core.contract.optimisers.schedules import (
    ConstantSchedule,
    CosineSchedule,
    ExponentialSchedule,
    InverseTimeSchedule,
    Schedule,
    StepSchedule,
)

__all__ = [
    "SGD",
    "AMSGrad",
    "Adam",
    "AdamW",
    "ConstantSchedule",
    "CosineSchedule",
    "ExponentialSchedule",
    "GradientDescent",
    "InverseTime",
    "InverseTimeSchedule",
    "Nesterov",
    "Optimiser",
    "Schedule",
    "Scheduled",
    "State",
    "StepSchedule",
    "Stepping",
    "optimiser_class",
    "smoothness_of"
]  # fmt: skip
