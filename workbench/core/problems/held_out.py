"""Held-out samples, on which a model is tested and never trained."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from workbench.core.base.types import Array
from workbench.core.contract.problem import Around, Evaluation, Problem, Request


class Tested(Around):
    """Problem with held-out samples, whose metrics are added to those of training if a request asks for them.

    `test_loss`: mean loss without regularisation. `test_accuracy`: share of right answers, if there are classes.
    `test_auc`: for two classes, see `auc`. `make`: returns the same problem on the held-out samples, without
    regularisation. A problem of two classes may have `scores(model)`, (samples,): the score of the second class minus
    that of the first.
    """

    def __init__(self, problem: Problem, make: Callable[[], Problem]) -> None:
        super().__init__(problem)
        self._make = make

    @cached_property
    def held_out(self) -> Problem:
        """Problem on the held-out samples. Ranks of a run never use it."""
        return self._make()

    def evaluate(self, requests: Sequence[Request]) -> list[Evaluation]:
        """Return losses and gradients over the training samples, and requested metrics of the held-out ones."""
        found = self.whole.evaluate(requests)
        asked = [i for i, request in enumerate(requests) if request.test]
        if not asked:
            return found
        tested = self.held_out.evaluate([Request(requests[i].model, gradient=False) for i in asked])
        for i, test in zip(asked, tested, strict=True):
            more = {"loss": test.loss, **test.metrics, **self._auc(requests[i].model)}
            metrics = {f"test_{name}": value for name, value in more.items()}
            found[i] = replace(found[i], metrics={**found[i].metrics, **metrics})
        return found

    def _auc(self, model: Array) -> dict[str, float]:
        of: Any = getattr(self.held_out, "scores", None)
        scores = None if of is None else of(model)
        return {} if scores is None else {"auc": auc(scores, np.asarray(self.held_out.y))}  # type: ignore[attr-defined]


def auc(scores: Array, y: Array) -> float:
    """Return the area under the ROC curve: the probability that class 1 has a higher score than class 0.

    Equal scores count half. `scores`, `y`: (samples,). NaN if a class is missing or a score is not a number.

    >>> auc(np.array([0.1, 0.4, 0.35, 0.8]), np.array([0, 0, 1, 1]))
    0.75
    """
    low, high = np.sort(scores[y < 0.5]), scores[y > 0.5]
    if not len(low) or not len(high) or np.isnan(scores).any():
        return float("nan")
    twice = np.searchsorted(low, high, "left").sum() + np.searchsorted(low, high, "right").sum()
    return float(twice) / (2 * len(low) * len(high))
