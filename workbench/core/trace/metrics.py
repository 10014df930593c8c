"""Metrics of a run: whether they should rise or fall, and when they reach a target."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from workbench.core.base.types import Array

# metrics whose names end with one of these words should rise; all others should fall
RISING_METRICS = ("accuracy", "auc", "f1", "precision", "recall", "r2")
# number of evaluations whose mean is compared with a target, in runs with mini-batches
SMOOTHED_EVALUATIONS = 5


def rises(metric: str) -> bool:
    """Return whether a metric should rise, such as accuracy and AUC, of training or held-out samples.

    >>> rises("test_auc"), rises("loss")
    (True, False)
    """
    return metric.rpartition("_")[2] in RISING_METRICS


def is_goal(metric: str) -> bool:
    """Return whether training has a metric as its goal: a loss, or a metric that `rises`.

    >>> is_goal("test_loss"), is_goal("test_auc"), is_goal("residual")
    (True, True, False)
    """
    return metric.rpartition("_")[2] == "loss" or rises(metric)


def at_target(values: Any, target: float, metric: str) -> Any:
    """Return which values are at the target: at or above it if the metric `rises`, else at or below it.

    >>> at_target(np.array([0.5, 0.8]), 0.8, "test_accuracy").tolist()
    [False, True]
    """
    return np.greater_equal(values, target) if rises(metric) else np.less_equal(values, target)


def smoothed(values: Any, batch: int | None) -> Array:
    """Return the values to compare with a target after each round, (rounds,), or NaN if not evaluated.

    Without mini-batches (`batch` None) these are the values themselves. With mini-batches, values are noisy. Each
    result is then the mean of the last five evaluated values, or of fewer at the beginning.

    >>> smoothed([4.0, np.nan, 2.0], 16).tolist()
    [4.0, nan, 3.0]
    """
    found = np.asarray(values, dtype=float)
    known = np.flatnonzero(~np.isnan(found))
    if batch is None or not len(known):
        return found
    padded = np.concatenate([np.full(SMOOTHED_EVALUATIONS - 1, np.nan), found[known]])
    means = np.full(len(found), np.nan)
    means[known] = np.nanmean(sliding_window_view(padded, SMOOTHED_EVALUATIONS), axis=1)
    return means


def first_reached(values: Any, target: float, metric: str, batch: int | None = None) -> int | None:
    """Return the first round after which a metric, `smoothed`, is `at_target`, or None for never.

    >>> first_reached([0.5, 0.8, 0.9], 0.8, "test_accuracy"), first_reached([0.5, 0.3], 0.1, "loss")
    (1, None)
    """
    hits = np.flatnonzero(at_target(smoothed(values, batch), target, metric))
    return int(hits[0]) if len(hits) else None


def best_of(values: Any, metric: str, batch: int | None = None) -> float:
    """Return the best value of a metric, as it is compared with a target, or NaN if it was never evaluated.

    >>> best_of([0.5, 0.9, 0.8], "accuracy")
    0.9
    """
    curve = smoothed(values, batch)
    known = curve[~np.isnan(curve)]
    return float((known.max() if rises(metric) else known.min()) if len(known) else np.nan)
