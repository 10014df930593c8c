"""The law without randomness."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from workbench.base.settings import setting
from workbench.base.types import Array
from workbench.core.delays.base import DelayModel, Keyed


class Constant(DelayModel):
    """No randomness: samples * shift."""

    kind: Literal["constant"] = "constant"
    shift: float = setting(5e-5, "time for one sample", "s/sample", ge=0)

    def draw(
        self, keyed: Keyed, round: int, workers: int, slot: int = 0, before: Array | None = None
    ) -> Array:
        """Nothing is random."""
        return np.zeros((1, workers))

    def compute(self, draw: Array, samples: NDArray[Any]) -> Array:
        """Seconds: samples * shift."""
        return np.asarray(samples * self.shift + 0.0 * draw[0])
