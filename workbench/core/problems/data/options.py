"""Checked options of a data set, and `DataError`."""

from dataclasses import dataclass

import numpy as np

# task -> two sources that need no network, and one that the papers use
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
    """Options that determine a prepared data set, with the defaults filled in."""

    source: str
    task: str
    samples: int | None
    features: int | None
    intercept: bool
    scale: bool
    seed: int
    target: str | None = None
    test: float | str | None = None  # held-out samples: a share, a number, or the path of a file


def check_test(test: object) -> None:
    """Raise `DataError` for an option `test` that no data can satisfy."""
    number = isinstance(test, int | float | np.number) and not isinstance(test, bool)
    if not number or not 0 < test < np.inf or test == 1 or (test > 1 and test != int(test)):  # type: ignore[operator,call-overload]
        why = "take a share between 0 and 1, such as 0.2, a number of samples from 2 on, or a file's path"
        raise DataError(f"test: {test!r} does not fit; {why}")


def held_out_count(test: float, samples: int) -> int:
    """Return how many samples are held out. Raise `DataError` if it would be none or all.

    `test`: a share between 0 and 1, or a whole number from 2 on.

    >>> held_out_count(0.25, 10), held_out_count(4, 10)
    (3, 4)
    """
    check_test(test)
    count = int(test) if test > 1 else int(test * samples + 0.5)
    if not 0 < count < samples:
        least, most = 1 / samples, samples - 1
        why = f"holds out {count} of {samples} samples; take a share from {least:.2g}, or at most {most} samples"
        raise DataError(f"test: {test:g} {why}")
    return count


def known_task(task: str) -> str:
    """Return the task. Raise `DataError` if it is unknown."""
    if task not in EXAMPLES:
        raise DataError(f"task: {task!r} is unknown; use one of {', '.join(EXAMPLES)}")
    return task


def whole(field: str, value: object, least: int) -> int:
    """Return a whole number (also NumPy's) as an int. Raise `DataError` for anything else."""
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
