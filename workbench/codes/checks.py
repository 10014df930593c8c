"""Parameter checks that several codes share: one sentence with the field, its value and the nearest that work."""

from __future__ import annotations

from collections.abc import Iterable

from workbench.settings import SettingError


def between(field: str, value: float, low: float, high: float, why: str) -> None:
    """Refuse a value outside low to high.

    >>> between("load", 3, 1, 4, "a worker holds some of the 4 parts")
    """
    if not low <= value <= high:
        near = low if value < low else high
        raise SettingError(f"{field} = {value}: {why}; take {low} to {high}, the nearest is {near}")


def stragglers_fit(workers: int, stragglers: int) -> None:
    """Refuse a cluster without workers, and more stragglers than leave one answer."""
    if workers < 1:
        raise SettingError(f"workers = {workers}: a code needs at least one; take 1 or more")
    between("stragglers", stragglers, 0, workers - 1, f"of {workers} workers one must answer")


def nearest(value: int, fits: Iterable[int], count: int = 4) -> str:
    """List the values nearest to one that does not fit, in order, for an error.

    >>> nearest(4, [0, 1, 2, 5, 11], 3)
    '1, 2, 5'
    """
    return ", ".join(str(fit) for fit in sorted(sorted(fits, key=lambda fit: abs(fit - value))[:count]))
