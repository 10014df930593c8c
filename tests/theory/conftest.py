"""What the tests of the closed forms share."""

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

Agrees = Callable[[NDArray[np.float64], float], None]


@pytest.fixture(scope="session")
def agrees() -> Agrees:
    """Check that the mean of independent samples is the expected one, within 4 standard errors."""

    def check(samples: NDArray[np.float64], expected: float) -> None:
        error = samples.std(ddof=1) / np.sqrt(len(samples))
        assert abs(samples.mean() - expected) <= 4 * error, (samples.mean(), expected, error)

    return check
