"""Base of problems on a data set: its name, its size and its preparation."""

import re
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

from pydantic import PrivateAttr, field_validator

from workbench.core.base.settings import SettingError, at_most, setting, short
from workbench.core.contract.plan import Plan
from workbench.core.problems.base import Problem, ProblemArgs
from workbench.core.problems.data import DataError, DataSet, catalogue, check_test, held_out_count, load
from workbench.core.problems.held_out import Tested

MAX_SAMPLES, MAX_FEATURES = 10**12, 10**8
# task -> its usual problem
PROBLEM_OF_TASK = {"regression": "least_squares", "binary": "logistic", "multiclass": "softmax"}


class OnData(ProblemArgs):
    """Base of all problems on a data set.

    >>> from workbench import problems
    >>> issubclass(problems.get("logistic"), OnData)
    True
    """

    task: ClassVar[str] = ""
    data: str = setting(
        "synthetic",
        "'synthetic', a bundled set, 'openml:NAME', or the path of a file or of a folder of images",
    )
    target: str | None = setting(
        None, "column to learn, of a .csv or .parquet; empty = the only one called target, label, class or y"
    )
    samples: Annotated[int | None, at_most(MAX_SAMPLES)] = setting(
        None,
        "samples used, including those held out by number or share; empty = all, or 1000 if the data are synthetic",
        "samples",
        ge=1,
    )
    features: Annotated[int | None, at_most(MAX_FEATURES)] = setting(
        None, "features used; empty = all, or 20 if the data are synthetic", ge=1
    )
    l2: float = setting(0.0, "weight of the regularisation (l2/2)|model|^2", ge=0)
    intercept: bool = setting(False, "add a column of ones")
    scale: bool | None = setting(
        None, "standardise the columns, or the channels of images; empty = yes, but no for 'synthetic'"
    )
    data_seed: int = setting(
        0, "seed of the synthetic data, of the rows' shuffling and of the held-out samples", ge=0
    )
    test: float | str | None = setting(
        None,
        "samples held out for test_loss, test_accuracy and (for two classes) test_auc: a share such as 0.2, or a number"
        " of samples, which are drawn by class, or the path of a file with the same columns; empty = none",
    )
    _held_out: bool = PrivateAttr(False)

    @field_validator("test", mode="before")
    @classmethod
    def _fits(cls, test: Any) -> Any:
        if test is not None and not isinstance(test, str):
            try:
                check_test(test)
            except DataError as error:
                raise SettingError(f"test = {short(test)}: {str(error).partition('; ')[2]}") from None
        return test

    def tested(self, problem: Problem) -> Problem:
        """Return the problem of these arguments with the metrics of held-out samples, if there are any."""
        if self.test is None:
            return problem
        same = self.replace(l2=0.0)
        same._held_out = True
        return Tested(problem, lambda: same.build(None))  # type: ignore[arg-type]  # the plan is not used

    def fewer(self, samples: int) -> Self:
        """Return arguments with about this number of training samples, and held-out samples in the same proportion."""
        if self.test is None or isinstance(self.test, str):
            return self.replace(samples=samples)
        whole = self.count() if self.test >= 1 else 1.0
        share = self.test / (whole + self.test) if self.test >= 1 else self.test
        return self.replace(samples=round(samples / (1 - share)), test=share)

    def suits(self) -> str:
        """Return the task for which the data are prepared, such as "binary"."""
        return self.task

    def prepared(self) -> DataSet | None:
        """Return the data, prepared once and mapped into memory."""
        return self.open()

    def identity(self) -> tuple[Any, ...]:
        """Return the hash of the prepared data, and the user-defined functions and classes."""
        prepared = self.prepared()
        return (prepared.digest if prepared else "", *self.model_args().values())

    def open(self) -> DataSet:
        """Prepare the data once and map them into memory. Inside `tested`, these are the held-out samples."""
        data = self.loaded()
        return data.held_out if self._held_out else data

    def description(self) -> str:
        """Return a sentence on the data, which mentions a stand-in."""
        info = catalogue().get(self.data)
        return info.note if info else f"The data {Path(self.data).name}."

    def loaded(self) -> DataSet:
        """Prepare the data once and map them into memory. Raise `DataError`."""
        same = ("samples", "features", "intercept", "scale", "target", "test")
        choices: dict[str, Any] = {name: getattr(self, name) for name in same}
        try:
            return load(self.data, self.suits(), seed=self.data_seed, **choices)
        except DataError as error:
            raise DataError(_named_as_fields(str(error), self.suits(), self.name)) from error

    def known(self) -> tuple[int, int, int] | None:
        """Return (training samples, columns, classes) if they follow from arguments and catalogue, else None."""
        info = catalogue().get(self.data)
        samples = self.samples or (info.samples if info else None)
        features = self.features or (info.features if info else None)
        if samples is None or features is None or (info and not info.fits(samples, features)):
            return None
        return self._learnt_from(samples), features + self.intercept, info.classes if info else 0

    def _learnt_from(self, samples: int) -> int:
        """Return the number of samples that are not held out."""
        if self.test is None or isinstance(self.test, str):
            return samples
        try:
            return samples - held_out_count(self.test, samples)
        except DataError as error:
            raise DataError(f"problem_args.{error}") from None

    def count(self) -> int:
        """Return the number of training samples d."""
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
    names |= {name: f"problem_args.{name}" for name in ("features", "target: ", "test: ")}
    for theirs, ours in names.items():
        if message.startswith(theirs):
            return ours + message.removeprefix(theirs)
    return message
