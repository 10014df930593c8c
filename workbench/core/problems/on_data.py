"""Base of problems on a data set: its name, its size and its preparation."""

import re
from typing import Annotated, Any, ClassVar

from workbench.core.base.settings import at_most, setting
from workbench.core.contract.plan import Plan
from workbench.core.problems.base import ProblemArgs
from workbench.core.problems.data import DataError, DataSet, catalogue, load

MAX_SAMPLES, MAX_FEATURES = 10**12, 10**8
# Usual problem of each task.
PROBLEM_OF_TASK = {"regression": "least_squares", "binary": "logistic", "multiclass": "softmax"}


class OnData(ProblemArgs):
    """Base of all problems on a data set.

    >>> from workbench import problems
    >>> issubclass(problems.get("logistic"), OnData)
    True
    """

    task: ClassVar[str] = ""
    data: str = setting("synthetic", "'synthetic', a bundled set, 'openml:NAME', or the path of a file")
    target: str | None = setting(
        None, "column to learn, of a .csv or .parquet; empty = the only one called target, label, class or y"
    )
    samples: Annotated[int | None, at_most(MAX_SAMPLES)] = setting(
        None, "samples used (d); empty = all, 1000 of the synthetic", "samples", ge=1
    )
    features: Annotated[int | None, at_most(MAX_FEATURES)] = setting(
        None, "features used; empty = all, 20 of the synthetic", ge=1
    )
    l2: float = setting(0.0, "weight of the regularisation (l2/2)|model|^2", ge=0)
    intercept: bool = setting(False, "add a column of ones")
    scale: bool | None = setting(None, "standardise the columns; empty = yes, except the synthetic")
    data_seed: int = setting(0, "seed of the synthetic data and of the rows' shuffling", ge=0)

    def suits(self) -> str:
        """Return the task that the data are prepared for."""
        return self.task

    def prepared(self) -> DataSet | None:
        """Return the data, prepared once and mapped into memory."""
        return self.open()

    def identity(self) -> tuple[Any, ...]:
        """Return the hash of the prepared data, and the user-defined functions and classes."""
        prepared = self.prepared()
        return (prepared.digest if prepared else "", *self.model_args().values())

    def open(self) -> DataSet:
        """Prepare the data once and map them into memory. Raise `DataError`."""
        same = ("samples", "features", "intercept", "scale", "target")
        choices: dict[str, Any] = {name: getattr(self, name) for name in same}
        try:
            return load(self.data, self.suits(), seed=self.data_seed, **choices)
        except DataError as error:
            raise DataError(_named_as_fields(str(error), self.suits(), self.name)) from error

    def known(self) -> tuple[int, int, int] | None:
        """Return (samples, columns, classes) if they follow from the arguments and the catalogue, else None."""
        info = catalogue().get(self.data)
        samples = self.samples or (info.samples if info else None)
        features = self.features or (info.features if info else None)
        if samples is None or features is None:
            return None
        bounded = info is not None and info.name != "synthetic"
        if info and bounded and (samples > info.samples or features > info.features):
            return None
        return samples, features + self.intercept, info.classes if info else 0

    def count(self) -> int:
        """Return the number of samples d."""
        known = self.known()
        return known[0] if known else len(self.open().y)

    def declared_samples(self) -> int | None:
        """Return the number of samples if it follows from the arguments and the catalogue, else None."""
        return self.count() if self.known() else None

    def size(self, plan: Plan | None) -> int:
        """Return the number of columns."""
        known = self.known()
        return known[1] if known else self.open().X.shape[1]


def _named_as_fields(message: str, task: str, problem: str) -> str:
    """Replace names of data arguments and tasks in a message by those of an experiment's fields and problems."""
    if message.startswith("task: "):
        message = re.sub(r"('\w+') \([\w ]+ problem\)|('regression') \(least squares\)", r"\1\2", message)
        for theirs, ours in {**PROBLEM_OF_TASK, task: problem}.items():
            message = message.replace(f"'{theirs}'", f"'{ours}'")
    names = {"source: ": "problem_args.data: ", "task: ": "problem: ", "samples": "problem_args.samples"}
    names |= {"features": "problem_args.features", "target: ": "problem_args.target: "}
    for theirs, ours in names.items():
        if message.startswith(theirs):
            return ours + message.removeprefix(theirs)
    return message
