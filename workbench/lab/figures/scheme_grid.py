"""Grid of expected times of a pass over the data: which scheme is fastest, by straggler fraction and latency."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from workbench.core.base.types import Array

MAX_EQUAL_RATIO = 1.01  # ratio of times up to which schemes tie


@dataclass(frozen=True)
class SchemeGrid:
    """Expected seconds per pass over the data of several schemes on a grid; NaN where a scheme is not valid.

    `names` are legend entries, each beginning with its scheme's name. `alphas` are straggler fractions (rows), and
    `latencies` are in s (columns).

    >>> SchemeGrid(("UMW", "CR"), (Fraction(1, 4),), (0.0,), np.array([[[3.0, 1.5]]])).lead.tolist()
    [[2.0]]
    """

    names: tuple[str, ...]
    alphas: tuple[Fraction, ...]
    latencies: tuple[float, ...]
    seconds: Array  # (alphas, latencies, names), s per pass over the data

    @property
    def fastest(self) -> Array:
        """Index in `names` of the fastest scheme, (alphas, latencies). NaN if there is none."""
        filled = np.where(np.isnan(self.seconds), np.inf, self.seconds)
        return np.where(np.isfinite(filled.min(axis=2)), filled.argmin(axis=2), np.nan)

    @property
    def equal(self) -> NDArray[np.bool_]:
        """Which schemes are as fast as the fastest, within `MAX_EQUAL_RATIO`; shape (alphas, latencies, names)."""
        filled = np.where(np.isnan(self.seconds), np.inf, self.seconds)
        best = filled.min(axis=2, keepdims=True)
        return np.asarray(np.isfinite(filled) & (filled <= MAX_EQUAL_RATIO * best))

    @property
    def lead(self) -> Array:
        """Ratio of the second shortest time to the shortest, (alphas, latencies).

        It is infinite with a single scheme.
        """
        filled = np.sort(np.where(np.isnan(self.seconds), np.inf, self.seconds), axis=2)
        if filled.shape[2] == 1:
            return np.full(filled.shape[:2], np.inf)
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.asarray(filled[:, :, 1] / filled[:, :, 0])
