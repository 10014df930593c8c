"""The choices of a user, checked, and the one error of this package."""

from dataclasses import dataclass

import numpy as np

# For each task two sources that need no network, and one that the papers use.
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
    """Data that cannot be used, in one sentence: what was given, what is wrong, what would work.

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
    """Refuse a task that there is not."""
    if task not in EXAMPLES:
        raise DataError(f"task: {task!r} is unknown; use one of {', '.join(EXAMPLES)}")
    return task


def whole(field: str, value: object, least: int) -> int:
    """Make a plain int of a whole number (NumPy's as well), and refuse anything else."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise DataError(f"{field}: {value!r} does not fit; use a whole number of {least} or more")
    return int(value)


def unsuited(options: Options, why: str, *fits: str) -> str:
    """Say that a source's target does not suit the task, and what would work."""
    others = " or ".join(f"{task!r} ({_PROBLEMS[task]})" for task in fits)
    return (
        f"task: {options.task!r} does not suit {options.source!r}, whose target {why}; use {others}, "
        f"or a source for {options.task!r} such as {' or '.join(EXAMPLES[options.task])}"
    )
