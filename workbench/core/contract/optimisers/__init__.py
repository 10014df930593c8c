"""Optimisers: from a gradient sum to the next model.

To add an optimiser, add a file with a subclass of `Optimiser` that has a `name`.
"""

from workbench.core.contract.optimisers.base import Optimiser, State, optimiser_class, smoothness_of
from workbench.core.contract.optimisers.gradient import AMSGrad, GradientDescent, InverseTime, Nesterov

__all__ = [
    "AMSGrad", "GradientDescent", "InverseTime", "Nesterov", "Optimiser", "State", "optimiser_class", "smoothness_of"
]  # fmt: skip
