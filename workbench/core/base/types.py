"""The one type that all numbers travel in."""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
