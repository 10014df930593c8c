"""Which scheme's rounds are shortest, as straggler fraction and latency vary."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from workbench.core.base.types import Array


@dataclass(frozen=True)
class SchemeGrid:
    """Expected seconds a round of several schemes over a grid; NaN where a scheme has no such setting.

    `names` are as legends show them, each beginning with its scheme's name; `alphas` the straggler fractions (rows),
    `latencies` in s (columns).

    >>> SchemeGrid(("UMW", "CR"), (Fraction(1, 4),), (0.0,), np.array([[[3.0, 1.5]]])).lead.tolist()
    [[2.0]]
    """

    names: tuple[str, ...]
    alphas: tuple[Fraction, ...]
    latencies: tuple[float, ...]
    seconds: Array  # (alphas, latencies, names)

    @property
    def winner(self) -> Array:
        """Place of the fastest scheme in `names`, NaN where there is none: shape (alphas, latencies)."""
        filled = np.where(np.isnan(self.seconds), np.inf, self.seconds)
        return np.where(np.isfinite(filled.min(axis=2)), filled.argmin(axis=2), np.nan)

    @property
    def lead(self) -> Array:
        """How many times longer the second best takes (infinite without one): shape (alphas, latencies)."""
        filled = np.sort(np.where(np.isnan(self.seconds), np.inf, self.seconds), axis=2)
        if filled.shape[2] == 1:
            return np.full(filled.shape[:2], np.inf)
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.asarray(filled[:, :, 1] / filled[:, :, 0])
