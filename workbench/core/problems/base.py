"""What a problem is told: arguments, which know its size and how to make it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Annotated, Any, ClassVar, Self

import numpy as np
from pydantic import BeforeValidator, ValidationInfo

from workbench.core.base.plugins import Catalogue, Family
from workbench.core.base.types import Array
from workbench.core.base.user_code import name_of
from workbench.core.contract.links import BYTES_PER_FLOAT
from workbench.core.contract.plan import Plan
from workbench.core.contract.problem import Evaluation, Problem, Quadratic, Request, Slice
from workbench.core.problems.data import DataSet

__all__ = ["Evaluation", "Named", "Problem", "ProblemArgs", "Quadratic", "Request", "Slice", "curvature"]
POWER_STEPS = 12  # that a curvature is estimated with


def _named(value: Any, info: ValidationInfo) -> Any:
    return value if value is None else name_of(value, str(info.field_name))


Named = Annotated[str, BeforeValidator(_named)]  # a function or class, by its name: see `name_of`


def curvature(gradient: Callable[[Array], Array], first: Array, step: float, seed: int = 0) -> float:
    """Largest curvature at a model: some power steps on differences of gradients, so it is an estimate.

    `gradient`: of the mean loss at a model, (p,).
    """
    v, top = np.random.default_rng(seed).standard_normal(len(first)), 0.0
    for _ in range(POWER_STEPS):
        v = v / (np.linalg.norm(v) or 1.0)
        v = (gradient(first + step * v) - gradient(first - step * v)) / (2 * step)
        top = float(np.linalg.norm(v))
    return top


class ProblemArgs(Family):
    """Arguments of a problem; a subclass with a `name` is registered.

    >>> {"cnn", "least_squares", "logistic", "numpy", "softmax", "torch", "unit"} <= set(ProblemArgs.catalogue)
    True
    """

    name: ClassVar[str] = ""
    catalogue: ClassVar[Catalogue[ProblemArgs]] = Catalogue(
        "problem", "workbench.core.problems", "workbench.problems"
    )

    @abstractmethod
    def count(self) -> int:
        """Number of samples d."""

    def declared_samples(self) -> int | None:
        """Number of samples if it can be told without opening data, else None."""
        return self.count()

    def fewer(self, samples: int) -> Self:
        """Return arguments with so many training samples, about."""
        return self.replace(samples=samples)

    @abstractmethod
    def size(self, plan: Plan | None) -> int:
        """Number of parameters p."""

    @property
    def width(self) -> int:
        """Bytes of a number in a message."""
        return BYTES_PER_FLOAT

    def model_args(self) -> dict[str, Any]:
        """Functions and classes that fields name, by the fields."""
        return {}

    def identity(self) -> tuple[Any, ...]:
        """What makes a problem besides its fields: those that agree in both are built once; empty: every time."""
        return ()

    def prepared(self) -> DataSet | None:
        """The data, prepared once and mapped into memory; None: it needs none."""
        return None

    @abstractmethod
    def build(self, plan: Plan) -> Problem:
        """Open the data and make the problem."""

    def tested(self, problem: Problem) -> Problem:
        """Return what was built with the metrics of held-out samples, if there are any."""
        return problem
