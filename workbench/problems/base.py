"""What a problem is told: arguments, which know its size and how to make it."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

from workbench.base.plugins import Catalogue, Family
from workbench.core.plan import Plan
from workbench.core.problem import Evaluation, Problem, Quadratic, Request, Slice

__all__ = ["Evaluation", "Problem", "ProblemArgs", "Quadratic", "Request", "Slice"]


class ProblemArgs(Family):
    """Arguments of a problem; a subclass with a `name` is registered.

    >>> sorted(ProblemArgs.catalogue)
    ['cnn', 'least_squares', 'logistic', 'softmax', 'unit']
    """

    name: ClassVar[str] = ""
    catalogue: ClassVar[Catalogue[ProblemArgs]] = Catalogue(
        "problem", "workbench.problems", "workbench.problems"
    )

    @abstractmethod
    def count(self) -> int:
        """Number of samples d."""

    def told(self) -> int | None:
        """Number of samples if it can be told without opening data, else None."""
        return self.count()

    @abstractmethod
    def size(self, plan: Plan | None) -> int:
        """Number of parameters p."""

    @abstractmethod
    def build(self, plan: Plan) -> Problem:
        """Open the data and make the problem."""
