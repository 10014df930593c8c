"""Checked choices of a user, and the error of this package."""

from dataclasses import dataclass

import numpy as np

# For each task two sources that work without a network, and one that the papers use.
EXAMPLES = {
    "regression": ("'synthetic'", "'diabetes'", "'openml:boston'"),
    "binary": ("'synthetic'", "'breast_cancer'", "'openml:gisette'"),
    "multiclass": ("'synthetic'", "'digits'", "'openml:mnist'"),
}
_PROBLEMS = {
    "regression": "least squares",
    "binary": "the logistic problem",
    "multiclass": "the softmax problem",
}


class DataError(ValueError):
    """Error of data that cannot be used, in one sentence: the value, what is wrong, what would work.

    >>> raise DataError("samples: 0 is too small; take 1 or more")
    Traceback (most recent call last):
    ...
    workbench.core.problems.data.options.DataError: samples: 0 is too small; take 1 or more
    """


@dataclass(frozen=True)
class Options:
    """The choices that determine a prepared data set, defaults filled in."""

    source: str
    task: str
    samples: int | None
    features: int | None
    intercept: bool
    scale: bool
    seed: int
    target: str | None = None


def known_task(task: str) -> str:
    """Return the task; raise `DataError` if it is unknown."""
    if task not in EXAMPLES:
        raise DataError(f"task: {task!r} is unknown; use one of {', '.join(EXAMPLES)}")
    return task


def whole(field: str, value: object, least: int) -> int:
    """Return a whole number (also NumPy's) as an int; raise `DataError` for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise DataError(f"{field}: {value!r} does not fit; use a whole number of {least} or more")
    return int(value)


def unsuited(options: Options, why: str, *fits: str) -> str:
    """Return the error text for a task that does not suit a source's target, with what would work."""
    others = " or ".join(f"{task!r} ({_PROBLEMS[task]})" for task in fits)
    return (
        f"task: {options.task!r} does not suit {options.source!r}, whose target {why}; use {others}, "
        f"or a source for {options.task!r} such as {' or '.join(EXAMPLES[options.task])}"
    )
