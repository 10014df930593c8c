"""Checks that a value has the type of its field without conversion, and messages with values that would fit.

Pydantic converts values: "2" and 2.0 become 2, "yes" becomes True. This hides mistakes, so here a value must have the
type of the field. NumPy scalars are accepted, because their types are registered as numbers.
"""

import re
from collections.abc import Iterable, Sequence
from math import ceil, floor, isfinite
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import Annotated, Any, NamedTuple, Union, get_args, get_origin

from pydantic.fields import FieldInfo

# numbers such as 1e-3 and 2.0e4, which YAML 1.1 reads as text
_EXPONENT = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+")
MAX_WHOLE_FLOAT = 1e15  # messages show smaller whole floats as whole numbers
NO_LIST = "is not a list; write one, such as [1, 2]"


class TypeMismatch(NamedTuple):
    """Mismatch of a value and a type."""

    where: str  # position of the value in the field: "", or an index such as "[2]"
    value: Any
    text: str  # what is wrong with the value


def find_mismatch(kind: Any, value: Any) -> TypeMismatch | None:
    """Return the mismatch of a value and a type, or None if the value fits, or if only pydantic can decide.

    >>> find_mismatch(int, "2").text, find_mismatch(int, 2), find_mismatch(tuple[int, ...] | None, [1, 2.0]).where
    ('is text; write 2 without quotes', None, '[1]')
    """
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return find_mismatch(inner[0], value)
    if origin in (Union, UnionType):
        slips = [find_mismatch(member, value) for member in inner]
        found = [each for each in slips if each is not None]
        return None if len(found) < len(slips) else max(found, key=lambda each: bool(each.where))
    if origin is tuple and inner[1:] != (...,):
        return _in_places(inner, value)
    if origin in (tuple, Sequence):
        return _in_list(inner[0], value)
    if origin is dict and isinstance(value, dict):
        wrong = ((key, find_mismatch(inner[1], item)) for key, item in value.items())
        return next((w._replace(where=f".{key}{w.where}") for key, w in wrong if w), None)
    text = _mismatch_text(kind, value)
    return TypeMismatch("", value, text) if text else None


def _in_places(kinds: tuple[Any, ...], value: Any) -> TypeMismatch | None:
    """Return the mismatch in a list of a fixed length, one type for each place; pydantic refuses other lengths."""
    if not isinstance(value, list | tuple):
        return _in_list(kinds[0] if kinds else Any, value)
    found = (_in_list(kind, [item]) for kind, item in zip(kinds, value, strict=False))
    for place, inner in enumerate(found):
        if inner:
            return inner._replace(where=f"[{place}]{inner.where.removeprefix('[0]')}")
    return None


def _in_list(kind: Any, value: Any) -> TypeMismatch | None:
    if not isinstance(value, list | tuple):
        odd = isinstance(value, str | bytes | dict | set) or not isinstance(value, Iterable)
        # Text does not fit into lists of numbers; other lists are left to pydantic.
        return TypeMismatch("", value, NO_LIST) if odd and find_mismatch(kind, "") else None
    for place, item in enumerate(value):
        if inner := find_mismatch(kind, item):
            return TypeMismatch(f"[{place}]{inner.where}", inner.value, inner.text)
    return None


def _mismatch_text(kind: Any, value: Any) -> str | None:
    """Return what is wrong with one value, or None."""
    if kind is NoneType:
        return None if value is None else "must be empty"
    if kind is bool:
        truth = type(value).__name__ in ("bool", "bool_")
        return None if truth else "is neither true nor false; write one of the two"
    if hasattr(kind, "model_fields") and isinstance(value, dict):
        odd = [name for name in value if not isinstance(name, str)]
        return f"names of fields are text, and {odd[0]!r} is not" if odd else None
    if kind not in (int, float):
        return None
    if isinstance(value, str | bytes):
        return _text(kind, value)
    if isinstance(value, bool) or not isinstance(value, Real):
        return "is not a number"
    if kind is float:
        try:
            float(value)
        except OverflowError:
            return "is too large for a floating-point number"
        return None
    if isinstance(value, Integral):
        return None
    number = float(value)
    whole = number.is_integer() and abs(number) < MAX_WHOLE_FLOAT
    return f"is not a whole number; write {int(number)}" if whole else "is not a whole number"


def _text(kind: Any, value: str | bytes) -> str | None:
    try:
        number = float(value)
    except ValueError:
        return "is not a number"
    if not isfinite(number):
        return "is not a number"
    if kind is float and isinstance(value, str) and _EXPONENT.fullmatch(value):
        return None
    meant = int(number) if number.is_integer() and abs(number) < MAX_WHOLE_FLOAT else number
    return f"is text; write {meant} without quotes"


def range_of(field: FieldInfo, value: Any) -> str:
    """Return a text for the values that a numeric field accepts, with the accepted value nearest to a wrong one.

    >>> from pydantic import Field
    >>> range_of(Field(default=0.0, ge=0), -0.5)
    'take 0 or more'
    """
    limits = {name: limit_of(field, name) for name in ("ge", "gt", "le", "lt")}
    if int in (field.annotation, *get_args(field.annotation)):
        return _whole_range(limits, value) + _empty(field)
    text = _real_range(limits, value)
    example = isinstance(field.default, float) and ", the nearest" not in text
    # the text already contains the default if it is the lower limit
    example = example and field.default != limits["ge"]
    return text + (f", e.g. {field.default}" if example else "") + _empty(field)


def limit_of(field: FieldInfo, name: str) -> Any:
    """Return a field's limit "ge", "gt", "le" or "lt", or None."""
    return next((getattr(rule, name) for rule in field.metadata if hasattr(rule, name)), None)


def _empty(field: FieldInfo) -> str:
    return ", or leave it empty" if NoneType in get_args(field.annotation) else ""


def _whole_range(limits: dict[str, Any], value: Any) -> str:
    low = limits["ge"] if limits["gt"] is None else limits["gt"] + 1
    high = limits["le"] if limits["lt"] is None else limits["lt"] - 1
    near_by: Any = isinstance(value, Real) and not isinstance(value, bool) and value
    if near_by is False or not -MAX_WHOLE_FLOAT < near_by < MAX_WHOLE_FLOAT:
        return _span(low, high)
    around: Any = (floor(value), ceil(value))
    near = {max(n, low) if low is not None else n for n in around}
    near = {min(n, high) if high is not None else n for n in near}
    # if the nearest value is the only limit, the text already contains it
    if (low == high or None in (low, high)) and near <= {low, high}:
        return _span(low, high)
    listed = " and ".join(map(str, sorted(near)))
    return f"{_span(low, high)}, the nearest {'is' if len(near) == 1 else 'are'} {listed}"


def _span(low: Any, high: Any) -> str:
    if high is None:
        return "take a whole number" if low is None else f"take {low} or more"
    return f"take {high} or less" if low is None else f"take {span(low, high)}"


def span(low: float, high: float) -> str:
    """Return a range of numbers as text.

    >>> span(0, 3), span(0, 0)
    ('0 to 3', '0')
    """
    return f"{low} to {high}" if low < high else f"{low}"


def there_are(what: str, low: int, high: int) -> str:
    """Return a text for the existing workers or rounds, for an error about a number outside this range.

    >>> there_are("worker", 1, 12), there_are("round", 0, 0)
    ('there are workers 1 to 12', 'there is only round 0')
    """
    return f"there are {what}s {span(low, high)}" if low < high else f"there is only {what} {low}"


def _real_range(limits: dict[str, Any], value: Any) -> str:
    low, above, high, below = (limits[name] for name in ("ge", "gt", "le", "lt"))
    start = f"{low:g}" if low is not None else f"above {above:g}" if above is not None else ""
    end = f"{high:g}" if high is not None else f"below {below:g}" if below is not None else ""
    text = f"{start} to {end}" if start and end else f"{start} or more" if low is not None else start or end
    text = f"a number {text}" if text.startswith(("above", "below")) and " to " not in text else text
    nearest = ""
    # with one limit, that limit is the nearest value, and the text already contains it
    if start and end and isinstance(value, Real) and not isinstance(value, bool):
        nearest = f", the nearest is {low:g}" if low is not None and value < low else ""
        nearest = f", the nearest is {high:g}" if high is not None and value > high else nearest
    return f"take {text or 'any finite number'}{nearest}"
