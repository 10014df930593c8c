"""Coarse to fine: parameters between the best of those that were tried and its neighbours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Args = Mapping[str, Any]


def finer(grid: Sequence[Args], tried: Sequence[Args], best: Args) -> list[dict[str, Any]]:
    """Return the next parameters to try near the best ones: its neighbours on the grid, then those in between.

    A neighbour differs in one whole number only. If it was already tried, the number halfway to it is next.

    >>> finer([{"stragglers": s} for s in (1, 4, 9)], [{"stragglers": 4}, {"stragglers": 9}], {"stragglers": 4})
    [{'stragglers': 1}, {'stragglers': 6}]
    """
    found = list[dict[str, Any]]()
    for name, value in best.items():
        if type(value) is not int:
            continue
        rest = {**best, name: None}
        line = {a[name] for a in [*grid, *tried] if name in a and {**a, name: None} == rest}
        whole = [x for x in line if type(x) is int]
        nearest = (
            max((x for x in whole if x < value), default=value),
            min((x for x in whole if x > value), default=value),
        )
        for near in nearest:
            for x in (near, (near + value) // 2):
                args = {**best, name: x}
                if args not in tried and args not in found:
                    found.append(args)
                    break
    return found
