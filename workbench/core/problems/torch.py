"""User-defined network in PyTorch, on data of the workbench or of the user."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Literal, Self

import numpy as np
from pydantic import model_validator

from workbench.core.base.settings import SettingError, setting
from workbench.core.base.sources import digest_of
from workbench.core.base.user_code import thing_of
from workbench.core.contract.plan import Plan
from workbench.core.problems.base import Named, Problem
from workbench.core.problems.data import DataError, DataSet, catalogue, held_out, held_out_count
from workbench.core.problems.modules import LOSSES, pytorch, size_of
from workbench.core.problems.network import BatchNormArgs, Network


@lru_cache(maxsize=4)
def samples_of(make: Callable[[], Any], digest: str) -> tuple[Any, Any]:
    """Return the samples of a user-defined data set, as two tensors or arrays."""
    t, found = pytorch(), make()
    found = getattr(found, "tensors", found)
    if not isinstance(found, tuple):
        pairs = [found[i] for i in range(len(found))]
        found = tuple(t.stack([t.as_tensor(part) for part in column]) for column in zip(*pairs, strict=True))
    if len(found) != 2 or len(found[0]) != len(found[1]):
        why = "give as many samples as targets: pairs (x, y), or arrays (X, y)"
        raise DataError(f"problem_args.dataset: {why}")
    return found[0], found[1]


class TorchArgs(BatchNormArgs):
    """User-defined network in PyTorch, on data of the workbench or of the user.

    >>> from workbench.core.problems.torch import TorchArgs
    >>> TorchArgs.model_fields["precision"].default
    'float32'
    """

    name = "torch"
    module: Named = setting(
        ...,
        "class or function that makes the network, called without arguments; or 'FILE.py:NAME'",
    )
    loss: Named = setting(
        "cross_entropy",
        "'cross_entropy', 'mse', or a function of outputs and targets with one loss per sample; or 'FILE.py:NAME'",
    )
    dataset: Named | None = setting(
        None,
        "function that returns samples in place of `data`: a Dataset of pairs, or two arrays; or 'FILE.py:NAME'",
    )
    targets: Literal["classes", "numbers"] | None = setting(
        None,
        "targets; empty = numbers with 'mse' or if the data have no classes, else classes",
    )
    at_once: int = setting(256, "samples in one pass through the network", "samples", ge=1)

    @model_validator(mode="after")
    def _own_data(self) -> Self:
        others = {"data", "target", "features", "intercept", "scale", "targets"}
        # `data_seed` is used only for held-out samples
        others |= {"data_seed"} if self.test is None else set()
        if self.dataset is not None and isinstance(self.test, str):
            why = "dataset brings its own samples; take a share of them, such as 0.2"
            raise SettingError(f"test = {self.test!r}: {why}")
        if self.dataset is not None and (more := sorted(others & self.model_fields_set)):
            why = "dataset brings its own samples; leave one of the two empty"
            raise SettingError(f"{more[0]} = {getattr(self, more[0])!r}: {why}")
        return self

    def model_args(self) -> dict[str, Any]:
        names = {"module": self.module, "loss": self.loss, "dataset": self.dataset}
        given = {field: name for field, name in names.items() if name is not None}
        return {f: LOSSES.get(name) or thing_of(name, f"problem_args.{f}") for f, name in given.items()}

    def suits(self) -> str:
        info = catalogue().get(self.data)
        numbers = self.loss == "mse" or (info is not None and "multiclass" not in info.tasks)
        targets = self.targets or ("numbers" if numbers else "classes")
        return "regression" if targets == "numbers" else "multiclass"

    def prepared(self) -> DataSet | None:
        """Return the data of the workbench, or None if the user gives the samples."""
        return None if self.dataset else self.open()

    def count(self) -> int:
        return len(self._samples()[0]) if self.dataset else super().count()

    def declared_samples(self) -> int | None:
        if not self.dataset:
            return super().declared_samples()
        return None if self.samples is None else self._learnt_from(self.samples)

    def size(self, plan: Plan | None) -> int:
        """Return the number of the network's trained parameters."""
        module = self.model_args()["module"]
        return size_of(module, digest_of(module), bool(self.batch_norm))

    def description(self) -> str:
        """Return a sentence on the data, or empty if the user gives the samples."""
        return "" if self.dataset else super().description()

    def _image(self, X: Any) -> tuple[int, int, int] | None:
        """Return channels, rows and columns of a sample, or None if samples are not images."""
        if self.dataset is None:
            return self.open().image
        shape = tuple(X.shape[1:])
        return (1, *shape)[-3:] if len(shape) in (2, 3) else None

    def _samples(self, held_out_ones: bool = False) -> tuple[Any, Any]:
        """Return the training samples and their targets, or the held-out ones."""
        if self.dataset is None:
            data = self.loaded()
            data = data.held_out if held_out_ones else data
            return data.X, data.y.astype(np.int64) if data.classes else data.y
        dataset = self.model_args()["dataset"]
        X, y = samples_of(dataset, digest_of(dataset))
        if self.samples is not None and self.samples > len(X):
            raise DataError(f"problem_args.samples: {self.samples} is too large; dataset has {len(X)}")
        X, y = X[: self.samples], y[: self.samples]
        if self.test is None:
            return X, y
        assert not isinstance(self.test, str)
        classes = getattr(y, "ndim", 1) == 1 and not np.issubdtype(np.asarray(y).dtype, np.inexact)
        try:
            count = held_out_count(self.test, len(X))
            apart = held_out(y, int(np.max(np.asarray(y))) + 1 if classes else 0, count, self.data_seed)
        except DataError as error:
            raise DataError(f"problem_args.{error}") from None
        wanted = apart if held_out_ones else ~apart
        return X[wanted], y[wanted]

    def build(self, plan: Plan) -> Problem:
        """Build the network and open the data.

        Raise `SettingError` without PyTorch, or if samples affect each other.
        """
        pytorch()  # checked before the data are prepared
        X, y = self._samples(self._held_out)
        args, population = self.model_args(), self._samples()[0] if self._held_out else None
        augmentation = self.augmentation(len(X), self._image(X))
        return Network(args["module"], args["loss"], (X, y), self, augmentation, population)
