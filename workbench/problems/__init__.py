"""Problems by name: what is minimised, over which data.

To add one: an arguments class here (its fields become the form and the help) and its mathematics in a file.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from functools import lru_cache
from typing import Annotated, Any, ClassVar, Literal

from workbench.base.settings import SettingError, Settings, at_most, setting, unknown_name
from workbench.core.plan import Plan
from workbench.problems.base import Evaluation, Problem, Request
from workbench.problems.cnn import CLASSES, SIZE, Cnn, torch
from workbench.problems.data import DataError, DataSet, catalogue, load
from workbench.problems.linear import LeastSquares, Logistic, Softmax
from workbench.problems.unit import Unit

MOST_SAMPLES, MOST_FEATURES = 10**12, 10**8

__all__ = ["Evaluation", "Problem", "ProblemArgs", "Request", "get", "names", "problem_from"]


class ProblemArgs(Settings):
    """Arguments of a problem; a subclass with a `name` is registered.

    >>> sorted(ProblemArgs.catalogue)
    ['cnn', 'least_squares', 'logistic', 'softmax', 'unit']
    """

    name: ClassVar[str] = ""
    catalogue: ClassVar[dict[str, type[ProblemArgs]]] = {}

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        """Register under the class's own name."""
        super().__pydantic_init_subclass__(**kwargs)
        if cls.name:
            ProblemArgs.catalogue[cls.name] = cls

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


class OnData(ProblemArgs):
    """Shared by all problems on a data set."""

    task: ClassVar[str] = ""
    data: str = setting(
        "synthetic", "'synthetic', a bundled set, 'openml:NAME', or the path of a file of yours"
    )
    target: str | None = setting(
        None, "column to learn, of a .csv or .parquet; empty = the only one called target, label, class or y"
    )
    samples: Annotated[int | None, at_most(MOST_SAMPLES)] = setting(
        None, "samples used (d); empty = all, 1000 of the synthetic", "samples", ge=1
    )
    features: Annotated[int | None, at_most(MOST_FEATURES)] = setting(
        None, "features used; empty = all, 20 of the synthetic", ge=1
    )
    l2: float = setting(0.0, "weight of the regularisation (l2/2)|model|^2", ge=0)
    intercept: bool = setting(False, "add a column of ones")
    scale: bool | None = setting(None, "standardise the columns; empty = yes, except the synthetic")
    data_seed: int = setting(0, "seed of the synthetic data and of the rows' shuffling", ge=0)

    def open(self) -> DataSet:
        """Prepare the data once and map them into memory; raises `DataError`."""
        try:
            return load(
                self.data,
                self.task,
                samples=self.samples,
                features=self.features,
                intercept=self.intercept,
                scale=self.scale,
                seed=self.data_seed,
                target=self.target,
            )
        except DataError as error:
            raise DataError(_in_our_words(str(error), self.task, self.name)) from error

    def known(self) -> tuple[int, int, int] | None:
        """(samples, columns, classes) where the arguments and the catalogue tell, else None."""
        info = catalogue().get(self.data)
        samples = self.samples or (info.samples if info else None)
        features = self.features or (info.features if info else None)
        if samples is None or features is None:
            return None
        if (
            info is not None
            and info.name != "synthetic"
            and (samples > info.samples or features > info.features)
        ):
            return None
        return samples, features + self.intercept, info.classes if info else 0

    def count(self) -> int:
        """Number of samples d."""
        known = self.known()
        return known[0] if known else len(self.open().y)

    def told(self) -> int | None:
        """Number of samples, of data that the arguments and the catalogue tell enough of."""
        return self.count() if self.known() else None

    def size(self, plan: Plan | None) -> int:
        """Number of columns."""
        known = self.known()
        return known[1] if known else self.open().X.shape[1]


class LeastSquaresArgs(OnData):
    """Linear regression: mean of (x.model - y)^2 / 2.

    >>> LeastSquaresArgs(data="diabetes").count()
    442
    """

    name: ClassVar[str] = "least_squares"
    task: ClassVar[str] = "regression"

    def build(self, plan: Plan) -> Problem:
        """Open the data."""
        data = self.open()
        return LeastSquares(data.X, data.y, self.l2, data.truth)


class LogisticArgs(OnData):
    """Logistic regression of two classes.

    >>> LogisticArgs(data="breast_cancer").count()
    569
    """

    name: ClassVar[str] = "logistic"
    task: ClassVar[str] = "binary"

    def build(self, plan: Plan) -> Problem:
        """Open the data. The truth of noisy labels is no minimiser, so no distance from it is reported."""
        data = self.open()
        return Logistic(data.X, data.y, self.l2)


class SoftmaxArgs(OnData):
    """Logistic regression of several classes (cross-entropy).

    >>> SoftmaxArgs(data="digits").count()
    1797
    """

    name: ClassVar[str] = "softmax"
    task: ClassVar[str] = "multiclass"

    def size(self, plan: Plan | None) -> int:
        """Number of columns times number of classes."""
        known = self.known()
        if known and (known[2] or self.data == "synthetic"):
            return known[1] * (known[2] or 10)
        data = self.open()
        return data.X.shape[1] * data.classes

    def build(self, plan: Plan) -> Problem:
        """Open the data."""
        data = self.open()
        return Softmax(data.X, data.y, data.classes, self.l2)


class CnnArgs(OnData):
    """The convolutional network of paper 1, table II, on images of 3 x 32 x 32 (CIFAR-10's shape); needs PyTorch.

    >>> CnnArgs(samples=100).features
    3072
    """

    name: ClassVar[str] = "cnn"
    task: ClassVar[str] = "multiclass"
    features: int | None = setting(
        3072, "pixels of an image; the network takes 3 x 32 x 32", ge=3072, le=3072
    )
    held_out: int = setting(0, "samples kept apart for the metric test_accuracy", "samples", ge=0)
    precision: Literal["float32", "float64"] = setting("float32", "numbers that the network computes with")
    device: Literal["auto", "cpu", "cuda"] = setting("auto", "where; auto = CUDA where there is one")
    init_seed: int = setting(0, "seed of the start model", ge=0)

    def count(self) -> int:
        """Number of samples d, those held out not counted."""
        if self.samples is None:
            return super().count() - self.held_out
        return self.samples

    def size(self, plan: Plan | None) -> int:
        """117706, whatever the data."""
        return SIZE

    def open(self) -> DataSet:
        """The samples and those held out, in one set."""
        info = catalogue().get(self.data)
        if info and info.name != "synthetic" and self.features and info.features < self.features:
            raise DataError(
                f"problem_args.data = {self.data!r}: has {info.features} features, and the network takes pictures of"
                f" {self.features} numbers; use 'synthetic', or 'openml:cifar10'"
            )
        if self.samples is None or not self.held_out:
            return super().open()
        return self.replace(samples=self.samples + self.held_out, held_out=0).open()

    def build(self, plan: Plan) -> Problem:
        """Open the data; raises `SettingError` without PyTorch, or for data of another shape."""
        torch()  # before the data are prepared
        if self.intercept:
            raise SettingError(
                "problem_args.intercept = True: the network has biases of its own; leave it out"
            )
        data = self.open()
        if data.classes > CLASSES:
            raise SettingError(
                f"problem_args.data = {self.data!r}: has {data.classes} classes, the network {CLASSES}; take a set with"
                " at most so many"
            )
        return Cnn(data.X, data.y, self.l2, self.held_out, self.precision, self.device, self.init_seed)


class UnitArgs(ProblemArgs):
    """Part j has the gradient e_j: what a scheme commits is its decoding vector.

    >>> UnitArgs(samples=50).count()
    50
    """

    name: ClassVar[str] = "unit"
    samples: Annotated[int, at_most(MOST_SAMPLES)] = setting(
        1000, "samples that are cut into parts (d)", "samples", ge=1
    )

    def count(self) -> int:
        """Number of samples d."""
        return self.samples

    def size(self, plan: Plan | None) -> int:
        """Number of parts (1 without a plan)."""
        return plan.parts if plan is not None else 1

    def build(self, plan: Plan) -> Problem:
        """One coordinate per part."""
        return Unit(plan.sizes)


def _in_our_words(message: str, task: str, problem: str) -> str:
    """Name the fields of an experiment, and its problems, where the data room names its own arguments and tasks."""
    if message.startswith("task: "):
        message = re.sub(r"('\w+') \([\w ]+ problem\)|('regression') \(least squares\)", r"\1\2", message)
        first = {
            each.task: name
            for name, each in reversed(ProblemArgs.catalogue.items())
            if issubclass(each, OnData)
        }
        for theirs, ours in {**first, task: problem}.items():
            message = message.replace(f"'{theirs}'", f"'{ours}'")
    words = {"source: ": "problem_args.data: ", "task: ": "problem: ", "samples": "problem_args.samples"}
    words |= {"features": "problem_args.features", "target: ": "problem_args.target: "}
    for theirs, ours in words.items():
        if message.startswith(theirs):
            return ours + message.removeprefix(theirs)
    return message


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
    if name not in list(ProblemArgs.catalogue):  # a list has no hash
        raise unknown_name("problem", name, ProblemArgs.catalogue)
    return ProblemArgs.catalogue[name]


def problem_from(args: ProblemArgs, plan: Plan) -> Problem:
    """Build a problem; those on the same data are built once.

    `args`: what `get` gives, filled in. `plan`: only `unit` looks at it.

    >>> from workbench.core.plan import uncoded_plan
    >>> problem_from(LogisticArgs(samples=50), uncoded_plan(4, 50)).samples
    50
    """
    return _shared(args, args.open().digest) if isinstance(args, OnData) else args.build(plan)


@lru_cache(maxsize=4)
def _shared(args: OnData, digest: str) -> Problem:
    """One problem per settings and content: a file that was changed is read again."""
    return args.build(None)  # type: ignore[arg-type]  # problems on data do not look at the plan
