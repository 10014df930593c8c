"""Means over repetitions, with confidence intervals."""

from numbers import Real
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from workbench.core.base.settings import SettingError, short
from workbench.core.base.types import Array, chop


class Band(NamedTuple):
    """Mean and ends of its confidence interval, in the shape of one repetition.

    The ends of a single repetition are NaN.
    """

    mean: Array
    low: Array
    high: Array


def band(values: ArrayLike, level: float = 0.95) -> Band:
    """Return the mean over the first axis and its Student t interval: mean -+ t(n - 1) s / sqrt(n).

    `values`: (n, ...), independent repetitions. The interval is exact if they are normally distributed.
    Raises `SettingError` if there are no repetitions, or the level is outside (0, 1).

    >>> band([[1.0], [2.0], [3.0]]).mean, band([[1.0], [2.0], [3.0]]).high.round(2)
    (array([2.]), array([4.48]))
    """
    from scipy.stats import t

    if not isinstance(level, Real) or not 0 < level < 1:
        raise SettingError(f"level = {short(level)}: must lie between 0 and 1, such as 0.95")
    rows = np.asarray(values, dtype=float)
    if not len(rows):
        raise SettingError("values = []: there is nothing to take a mean of")
    mean = np.asarray(rows.mean(axis=0))
    if len(rows) == 1:
        return Band(mean, *np.full((2, *mean.shape), np.nan))
    error = rows.std(axis=0, ddof=1) / np.sqrt(len(rows))
    half = chop(t.ppf(0.5 + level / 2, len(rows) - 1) * error, mean)
    return Band(mean, np.asarray(mean - half), np.asarray(mean + half))
