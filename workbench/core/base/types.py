"""Type of all numeric arrays of the package, and the removal of their rounding errors."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]
ROUNDING = 1e-12  # a difference of at most this share of its operands is a rounding error


def chop(differences: ArrayLike, operands: ArrayLike) -> Array:
    """Return differences, with 0 in place of rounding errors, so that figures and texts do not show these.

    `operands`: size of the numbers that were subtracted or added, in the unit of the differences. NaN stays.

    >>> chop([0.1 + 0.2 - 0.3, 0.1], 0.6)
    array([0. , 0.1])
    """
    return np.where(np.abs(differences) <= ROUNDING * np.abs(operands), 0.0, differences)
