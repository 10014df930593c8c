"""Type of all numeric arrays of the package."""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
