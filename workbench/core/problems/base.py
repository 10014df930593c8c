"""Arguments of a problem, with its size and the function that builds it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Annotated, Any, ClassVar, Self

import numpy as np
from pydantic import BeforeValidator, ValidationInfo

from workbench.core.base.plugins import Catalogue, Family
from workbench.core.base.settings import SettingError
from workbench.core.base.types import Array
from workbench.core.base.user_code import name_of
from workbench.core.contract.links import BYTES_PER_FLOAT
from workbench.core.contract.plan import Plan
from workbench.core.contract.problem import Evaluation, Problem, Quadratic, Request, Slice
from workbench.core.problems.data import DataSet

__all__ = ["Evaluation", "Named", "Problem", "ProblemArgs", "Quadratic", "Request", "Slice", "curvature"]
POWER_STEPS = 12  # number of power steps of a curvature estimate


def _named(value: Any, info: ValidationInfo) -> Any:
    return value if value is None else name_of(value, str(info.field_name))


# field for a function or class, of which the name is stored (see `name_of`)
Named = Annotated[str, BeforeValidator(_named)]


def curvature(gradient: Callable[[Array], Array], first: Array, step: float, seed: int = 0) -> float:
    """Estimate the largest curvature at a model, by power steps on differences of gradients.

    `gradient`: function that returns the gradient of the mean loss at a model, (p,).
    """
    v, top = np.random.default_rng(seed).standard_normal(len(first)), 0.0
    for _ in range(POWER_STEPS):
        v = v / (np.linalg.norm(v) or 1.0)
        v = (gradient(first + step * v) - gradient(first - step * v)) / (2 * step)
        top = float(np.linalg.norm(v))
    return top


class ProblemArgs(Family):
    """Arguments of a problem. A subclass with a `name` is registered.

    >>> {"cnn", "least_squares", "logistic", "numpy", "softmax", "torch", "unit"} <= set(ProblemArgs.catalogue)
    True
    """

    name: ClassVar[str] = ""
    catalogue: ClassVar[Catalogue[ProblemArgs]] = Catalogue(
        "problem", "workbench.core.problems", "workbench.problems"
    )

    @abstractmethod
    def count(self) -> int:
        """Return the number of samples d."""

    def declared_samples(self) -> int | None:
        """Return the number of samples if it is known without opening data, else None."""
        return self.count()

    def fewer(self, samples: int) -> Self:
        """Return arguments with about this number of training samples."""
        return self.replace(samples=samples)

    @abstractmethod
    def size(self, plan: Plan | None) -> int:
        """Return the number of parameters p."""

    @property
    def width(self) -> int:
        """Bytes of a value in a message."""
        return BYTES_PER_FLOAT

    @property
    def inexact(self) -> str:
        """Reason why no scheme commits the full gradient of this problem; empty if exact schemes do."""
        return ""

    def check_exact(self, call: str) -> None:
        """Raise `SettingError` if no scheme is exact with the problem.

        `call`: name of the call that needs exact schemes.
        """
        if self.inexact:
            why = f"and {call} compares exact ones; take GroupNorm, with which round times are the same"
            raise SettingError(f"{self.inexact}, {why}")

    def description(self) -> str:
        """Return a sentence on the data for the trace, or an empty one."""
        return ""

    def model_args(self) -> dict[str, Any]:
        """Return the functions and classes that fields name, by field."""
        return {}

    def identity(self) -> tuple[Any, ...]:
        """Return data that identifies a problem in addition to its fields.

        Problems with equal fields and identity are built once. If the identity is empty, the problem is built every
        time.
        """
        return ()

    def prepared(self) -> DataSet | None:
        """Return the data, prepared once and mapped into memory, or None if the problem needs no data."""
        return None

    @abstractmethod
    def build(self, plan: Plan) -> Problem:
        """Open the data and build the problem."""

    def tested(self, problem: Problem) -> Problem:
        """Return the problem with the metrics of held-out samples, if there are any."""
        return problem
