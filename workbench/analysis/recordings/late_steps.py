"""Steps in which a worker or host is late."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple, Self

import numpy as np

from workbench.analysis.recordings.attribution import spells_of
from workbench.analysis.recordings.card import Change, split
from workbench.core.base.types import Array


class Spells(NamedTuple):
    """Steps in which a worker or host is late: their indices, first and last steps of spells, and the onset."""

    # whether each step is late; None: no spell was found, or all steps are late
    late: Array | None = None
    steps: tuple[tuple[int, int], ...] = ()
    onset: Change | None = None

    @classmethod
    def of(cls, times: Array, who: Sequence[int], steps: Sequence[int]) -> Self:
        """Find the spells in a worker's times, or in the mean of a host, relative to the usual time of the others."""
        series, found = spells_of(times, who)
        late = np.zeros(len(series), dtype=bool)
        for first, end in found:
            late[first:end] = True
        if late.all() or not late.any():
            return cls()
        first, onset = found[0][0], None
        if first:
            factor = math.exp(float(np.median(series[late]) - np.median(series[:first])))
            onset = Change(0, steps[first], factor, split(series[: found[0][1]])[1])
        return cls(late, tuple((steps[a], steps[b - 1]) for a, b in found), onset)
