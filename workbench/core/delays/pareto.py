"""The law with a heavy tail."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from workbench.base.settings import setting
from workbench.base.types import Array
from workbench.core.delays.base import DelayModel, Keyed


class Pareto(DelayModel):
    """Heavy tail: samples * shift * U^(-1/shape); infinite variance for shape <= 2."""

    kind: Literal["pareto"] = "pareto"
    shift: float = setting(5e-5, "least time for one sample", "s/sample", ge=0)
    shape: float = setting(2.5, "tail exponent; the smaller the heavier, the mean is finite above 1", gt=1)

    def draw(
        self, keyed: Keyed, round: int, workers: int, slot: int = 0, before: Array | None = None
    ) -> Array:
        """One Pareto variate >= 1 per worker (through an exponential, so that no U is 0)."""
        return np.exp(keyed.rng(round, slot).standard_exponential((1, workers)) / self.shape)

    def compute(self, draw: Array, samples: NDArray[Any]) -> Array:
        """Seconds: samples * shift * draw."""
        return np.asarray(samples * self.shift * draw[0])
