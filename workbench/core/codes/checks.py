"""Parameter checks of several codes. Errors are one sentence: the field, its value, and the nearest possible values."""

import inspect
from collections.abc import Callable, Hashable, Iterable
from functools import wraps
from threading import Lock
from typing import Any, Literal, ParamSpec, TypeVar, get_args, get_origin, get_type_hints

from workbench.core.base.settings import SettingError, unknown_name
from workbench.core.base.type_checks import find_mismatch, span

MAX_CACHED_CODES, MAX_CACHE_BYTES = 32, 2**28  # max number of cached codes, and max bytes of the cache
P = ParamSpec("P")
R = TypeVar("R")


def remembered(make: Callable[P, R]) -> Callable[P, R]:
    """Return `make` with a cache of 32 codes and `MAX_CACHE_BYTES`, and with a check of the types of its arguments.

    >>> remembered(lambda workers: workers)(3)
    3
    """
    cached: dict[Hashable, R] = {}
    lock = Lock()

    @wraps(make)
    def called(*args: P.args, **named: P.kwargs) -> R:
        # the key contains types, because True and 2.0 equal 1 and 2
        key = (args, *map(type, args), *((name, value, type(value)) for name, value in sorted(named.items())))
        try:
            with lock:
                found = cached.pop(key, None)
        except TypeError:  # an unhashable argument, such as a list
            kinds_fit(make, args, named)
            raise
        if found is None:
            kinds_fit(make, args, named)
            found = make(*args, **named)
        with lock:
            cached[key] = found
            while len(cached) > 1 and (
                len(cached) > MAX_CACHED_CODES or sum(map(_bytes, cached.values())) > MAX_CACHE_BYTES
            ):
                del cached[next(iter(cached))]  # least recently used entry
        return found

    return called


def _bytes(code: object) -> int:
    """Return the bytes of the large arrays of a code."""
    arrays = [getattr(code, "matrix", None), *(span.null for span in getattr(code, "spans", ()))]
    return sum(getattr(array, "nbytes", 0) for array in arrays)


def kinds_fit(make: Callable[..., object], args: tuple[Any, ...], named: dict[str, Any]) -> None:
    """Raise `SettingError` for an argument that does not fit its annotation, such as text for a whole number."""
    kinds = get_type_hints(make)
    for name, value in inspect.signature(make).bind(*args, **named).arguments.items():
        if get_origin(kinds.get(name)) is Literal and value not in (known := list(get_args(kinds[name]))):
            raise unknown_name(name, value, known)
        if wrong := find_mismatch(kinds.get(name), value):
            raise SettingError(f"{name}{wrong.where} = {wrong.value!r:.60}: {wrong.text}")


def between(field: str, value: float, low: float, high: float, why: str) -> None:
    """Raise `SettingError` for a value outside low to high.

    >>> between("load", 3, 1, 4, "a worker stores some of the 4 parts")
    """
    if not low <= value <= high:
        near = f", the nearest is {low if value < low else high}" if low < high else ""
        raise SettingError(f"{field} = {value}: {why}; take {span(low, high)}{near}")


def some_are_there(field: str, count: int) -> None:
    """Raise `SettingError` for a code without workers, or without parts."""
    if count < 1:
        raise SettingError(f"{field} = {count}: a code needs at least one; take 1 or more")


def stragglers_fit(workers: int, stragglers: int) -> None:
    """Raise `SettingError` for a cluster without workers, or if stragglers leave no answer."""
    some_are_there("workers", workers)
    between("stragglers", stragglers, 0, workers - 1, f"of {workers} workers one must answer")


def seed_fits(seed: int) -> None:
    """Raise `SettingError` for a seed below 0."""
    if seed < 0:
        raise SettingError(f"seed = {seed}: a seed is not negative; take 0 or more")


def groups_divide(field: str, value: int, workers: int, size: int | None = None, more: str = "") -> None:
    """Raise `SettingError` for groups that do not divide the workers.

    There are either `value` groups, or groups of `size` workers, where `size` grows with the value.

    >>> groups_divide("groups", 4, 12)
    >>> groups_divide("stragglers", 2, 12, size=3)
    """
    if workers % (size or value):
        what = f"groups of {size} do" if size else "does"
        fits = [k + (value - size if size else 0) for k in range(1, workers + 1) if workers % k == 0]
        why = f"{what} not divide {workers} workers; take {nearest(value, fits)}{more}"
        raise SettingError(f"{field} = {value}: {why}")


def nearest(value: int, fits: Iterable[int], count: int = 4) -> str:
    """Return the possible values that are nearest to an impossible one, ascending, as text for an error.

    >>> nearest(4, [0, 1, 2, 5, 11], 3)
    '1, 2, 5'
    """
    return ", ".join(str(fit) for fit in sorted(sorted(fits, key=lambda fit: abs(fit - value))[:count]))
