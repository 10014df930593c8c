"""Problems by name: an objective and its data.

To add one, add a file with its mathematics and a subclass of `ProblemArgs`, or of `OnData`, that has a `name`. Form and
help are made from its fields. Nothing else needs an edit.
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
    """Return the names of all problems.

    >>> "logistic" in names()
    True
    """
    return list(ProblemArgs.catalogue)


def get(name: str) -> type[ProblemArgs]:
    """Return the arguments class of a problem. Raise `SettingError` with the nearest name if there is none.

    >>> get("softmax").__name__
    'SoftmaxArgs'
    """
    return ProblemArgs.catalogue.get_class(name)


@kinds_checked
def problem_from(args: ProblemArgs, plan: Plan) -> Problem:
    """Build a problem. Problems with the same arguments and data are built once.

    `args`: an instance of the class that `get` returns. `plan`: used only by `unit`.

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
    """Build one problem for each set of fields and content, so that changed files and definitions give a new one."""
    problem = args.build(None)  # type: ignore[arg-type]  # problems on data ignore the plan
    return args.tested(problem)


def __dir__() -> list[str]:
    return sorted(__all__)
