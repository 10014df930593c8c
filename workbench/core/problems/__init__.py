"""Problems by name: what is minimised, over which data.

To add one, add a file with its mathematics and a subclass of `ProblemArgs`, or of `OnData`, that has a `name`: its
fields become the form and the help. Nothing else needs an edit.
"""

from functools import lru_cache
from typing import Any

from workbench.core.base.arguments import kinds_checked
from workbench.core.base.sources import digest_of
from workbench.core.contract.plan import Plan
from workbench.core.problems.base import Evaluation, Problem, ProblemArgs, Request
from workbench.core.problems.data import DataError
from workbench.core.problems.on_data import OnData

__all__ = [
    "DataError", "Evaluation", "OnData", "Problem", "ProblemArgs", "Request", "get", "names", "problem_from"
]  # fmt: skip


def names() -> list[str]:
    """Names of all problems.

    >>> "logistic" in names()
    True
    """
    return list(ProblemArgs.catalogue)


def get(name: str) -> type[ProblemArgs]:
    """Arguments class of a problem; raises `SettingError` with the nearest name.

    >>> get("softmax").__name__
    'SoftmaxArgs'
    """
    return ProblemArgs.catalogue.get_class(name)


@kinds_checked
def problem_from(args: ProblemArgs, plan: Plan) -> Problem:
    """Build a problem; those on the same data are built once.

    `args`: what `get` gives, filled in. `plan`: only `unit` looks at it.

    >>> from workbench.core.contract.plan import uncoded_plan
    >>> problem_from(get("logistic")(samples=50), uncoded_plan(4, 50)).samples
    50
    """
    identity = args.identity()
    if not identity:
        return args.tested(args.build(plan))
    return _shared(args, (*identity, *map(digest_of, args.model_args().values())))


@lru_cache(maxsize=4)
def _shared(args: ProblemArgs, identity: tuple[Any, ...]) -> Problem:
    """One problem per settings and content: a changed file is read again, a cell's new definition used."""
    problem = args.build(None)  # type: ignore[arg-type]  # problems on data do not look at the plan
    return args.tested(problem)


def __dir__() -> list[str]:
    return sorted(__all__)
