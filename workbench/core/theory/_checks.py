"""Checks of arguments. An error is one sentence with the argument, its value and values that would work."""

import math
import operator
from numbers import Real
from typing import Any, cast

import numpy as np

from workbench.core.base.settings import SettingError, short
from workbench.core.base.type_checks import span
from workbench.core.base.types import Array

MAX_WHOLE = 10**15  # max value of a count that has no other limit; floats represent it exactly


def whole(name: str, value: Any, low: int, high: int | None = None, why: str = "") -> int:
    """Return `value` as an int within low..high, or raise `SettingError`.

    `why`: reason of the range, for the message.
    """
    try:
        number = None if isinstance(value, bool) else operator.index(value)
    except TypeError:  # arrays have `__index__`, but raise this error unless they have one element
        number = None
    if number is None:
        raise SettingError(f"{name} = {short(value)}: must be a whole number")
    most = MAX_WHOLE if high is None else high
    if low <= number <= most:
        return number
    if high is None:
        allowed, why = f"at least {low}" if number < low else f"at most {most:.0e}", why * (number < low)
    else:
        allowed = span(low, high)
    raise SettingError(f"{name} = {short(number)}: must be {allowed}{f' ({why})' if why else ''}")


def real(name: str, value: Any, low: float = 0.0, high: float = math.inf, open_low: bool = False) -> float:
    """Return `value` as a finite float within low..high (above low, if `open_low`), or raise `SettingError`."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise SettingError(f"{name} = {short(value)}: must be a number")
    try:
        number = float(value)
    except OverflowError:  # a whole number or a fraction that is too large for a float
        number = math.inf if cast(Any, value) > 0 else -math.inf
    inside = low < number if open_low else low <= number
    if math.isfinite(number) and inside and number <= high:
        return number
    least = f"above {low:g}" if open_low else f"at least {low:g}"
    raise SettingError(
        f"{name} = {number:g}: must be finite and {least}"
        + (f", at most {high:g}" if high < math.inf else "")
    )


def positive(name: str, value: Any) -> float:
    """Return `value` as a finite float above 0, or raise `SettingError`."""
    return real(name, value, open_low=True)


def probability(name: str, value: Any) -> float:
    """Return `value` as a float from 0 to 1, or raise `SettingError`."""
    return real(name, value, 0.0, 1.0)


def numbers(name: str, values: Any) -> Array:
    """Return `values` as an array of finite floats.

    Raises `SettingError` for other values, such as text, truth values and ragged lists.
    """
    try:
        array = np.asarray(values)
    except ValueError:  # the rows have different lengths
        array = np.asarray(None)
    if array.size and (array.dtype.kind not in "iuf" or not np.isfinite(array).all()):
        raise SettingError(f"{name} = {short(values)}: must be finite numbers")
    return array.astype(float)


def flag(name: str, value: Any) -> bool:
    """Return `value` if it is True or False, or raise `SettingError`."""
    if not isinstance(value, bool | np.bool_):
        raise SettingError(f"{name} = {short(value)}: must be True or False")
    return bool(value)


def choice(name: str, value: Any, *options: str) -> None:
    """Raise `SettingError` unless `value` is one of the options."""
    if not isinstance(value, str) or value not in options:
        raise SettingError(f"{name} = {short(value)}: choose one of {', '.join(options)}")


def divides(name: str, value: int, total_name: str, total: int) -> None:
    """Raise `SettingError` unless `value` divides `total`. The message lists the divisors."""
    if total % value:
        fitting = ", ".join(str(i) for i in range(1, total + 1) if total % i == 0)
        raise SettingError(f"{name} = {value}: must divide {total_name} = {total}; use one of {fitting}")
