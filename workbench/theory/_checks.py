"""Checks of arguments: one clear sentence that names the argument, its value and what would work."""

from __future__ import annotations

import math
import operator
from typing import Any

from workbench.settings import SettingError


def whole(name: str, value: Any, low: int, high: int | None = None, why: str = "") -> int:
    """Return `value` as an int within low..high, or raise; `why` explains the range."""
    try:
        number = operator.index(value)
    except TypeError:
        raise SettingError(f"{name} = {value!r}: must be a whole number") from None
    if number < low or (high is not None and number > high):
        span = f"at least {low}" if high is None else f"{low} to {high}"
        raise SettingError(f"{name} = {number}: must be {span}{' (' if why else ''}{why}{')' if why else ''}")
    return number


def real(name: str, value: Any, low: float = 0.0, high: float = math.inf, open_low: bool = False) -> float:
    """Return `value` as a finite float within low..high (above low, if `open_low`), or raise."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise SettingError(f"{name} = {value!r}: must be a number") from None
    inside = low < number if open_low else low <= number
    if math.isfinite(number) and inside and number <= high:
        return number
    least = f"above {low:g}" if open_low else f"at least {low:g}"
    raise SettingError(
        f"{name} = {number:g}: must be finite and {least}"
        + (f", at most {high:g}" if high < math.inf else "")
    )


def positive(name: str, value: Any) -> float:
    """Return `value` as a finite float above 0, or raise."""
    return real(name, value, open_low=True)


def probability(name: str, value: Any) -> float:
    """Return `value` as a float from 0 to 1, or raise."""
    return real(name, value, 0.0, 1.0)


def divides(name: str, value: int, total_name: str, total: int) -> None:
    """Raise unless `value` divides `total`; the sentence lists what does."""
    if total % value:
        fitting = ", ".join(str(i) for i in range(1, total + 1) if total % i == 0)
        raise SettingError(f"{name} = {value}: must divide {total_name} = {total}; use one of {fitting}")
