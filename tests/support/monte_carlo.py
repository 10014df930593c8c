"""Comparison of a Monte Carlo sample with an expected value."""

import numpy as np
from numpy.typing import NDArray


def agrees(samples: NDArray[np.float64], expected: float) -> None:
    """Check that the mean of independent samples is the expected one, within 4 standard errors."""
    error = samples.std(ddof=1) / np.sqrt(len(samples))
    assert abs(samples.mean() - expected) <= 4 * error, (samples.mean(), expected, error)
