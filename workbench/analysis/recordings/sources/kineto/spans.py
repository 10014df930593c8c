"""Compute with sets of time spans."""

from collections.abc import Iterable

import numpy as np


class Cover:
    """Union of time spans, each given as (start, end).

    >>> cover = Cover([(0.0, 2.0), (1.0, 3.0), (5.0, 6.0)])
    >>> cover.within(2.0, 5.5)
    1.5
    """

    def __init__(self, spans: Iterable[tuple[float, float]]) -> None:
        joined: list[list[float]] = []
        for start, end in sorted(spans):
            if joined and start <= joined[-1][1]:
                joined[-1][1] = max(joined[-1][1], end)
            else:
                joined.append([start, end])
        self._starts, self._ends = np.array(joined, dtype=float).reshape(-1, 2).T
        self._before = np.concatenate([[0.0], np.cumsum(self._ends - self._starts)])

    def within(self, start: float, end: float) -> float:
        """Return how much of the time between two moments is covered."""
        return self._until(end) - self._until(start)

    def _until(self, moment: float) -> float:
        begun = int(np.searchsorted(self._starts, moment))
        over = max(float(self._ends[begun - 1]) - moment, 0.0) if begun else 0.0
        return float(self._before[begun]) - over
