"""Check before a run how many digits decoding keeps: an error for too few, a warning if more than half are lost."""

import ast
from bisect import bisect_left

import numpy as np

from workbench.core.base.settings import SettingError
from workbench.core.codes.base import GradientCode
from workbench.core.codes.quality import FLOAT64_BYTES, digits_of, least_digits, loses
from workbench.core.contract.configurations import digits_lost, digits_needed
from workbench.core.contract.scheme import MIN_DIGITS, Scheme

MAX_LOST_DIGITS_SHARE = 0.5  # share of the digits that may be lost without a warning


def lost_digits(scheme: Scheme, workers: int, width: int = FLOAT64_BYTES) -> tuple[str, ...]:
    """Return a warning for each code that would lose more than half of the digits, with a better code.

    `width`: bytes of a number in a message, from which the number of digits follows: 16 for 8 bytes, 7 for 4 bytes.
    Raises `SettingError` if a code keeps too few digits. The scheme's `least_digits` is the limit for 16 digits. For 7
    digits, the limit is the same share of them, rounded down.
    """
    gone, digits = digits_lost(scheme, workers, width), digits_of(width)
    if gone and digits - max(gone) < digits_needed(scheme, width):
        raise SettingError(_refusal(scheme, workers, width))
    pairs = [pair for pair in zip(scheme.codes(workers), gone, strict=True) if pair[1] > _few(digits)]
    return tuple(loses(code, n, digits, _better(scheme, workers, width, code)) for code, n in pairs)


def _few(digits: float) -> float:
    return MAX_LOST_DIGITS_SHARE * digits


def _refusal(scheme: Scheme, workers: int, width: int) -> str:
    gone, digits = digits_lost(scheme, workers, width), digits_of(width)
    worst, kept = scheme.codes(workers)[int(np.argmax(gone))], int(digits - max(gone))
    better = _instead(scheme, workers, width, worst)
    fixes = [worst.instead] if better and max(better) <= digits - digits_needed(scheme, width) else []
    name = scheme.precision_knob[0] if scheme.precision_knob else "least_digits"
    near = _nearest(scheme, workers, width, digits - digits_needed(scheme, width))
    fixes += [f"{name} = {getattr(near, name)}"] if near else []
    enough = max(n for n in range(16) if least_digits(n, width) <= kept)
    fixes += [f"least_digits = {enough} to decode with so few"]
    return (
        f"scheme_args.{name} = {getattr(scheme, name)}: decoding from {worst.workers - worst.stragglers} of"
        f" {worst.workers} messages keeps {kept} of {digits:.0f} digits, fewer than"
        f" {_limit(scheme, width)}; take {', or '.join(fixes)}"
    )


def _limit(scheme: Scheme, width: int) -> str:
    least = f"least_digits = {getattr(scheme, 'least_digits', MIN_DIGITS)}"
    return (
        least
        if width >= FLOAT64_BYTES
        else f"the {digits_needed(scheme, width)} that {least} of 16 are in messages of {width} bytes"
    )


def _better(scheme: Scheme, workers: int, width: int, code: GradientCode) -> str:
    """Return settings that lose fewer digits than a code, as text: its alternative, the nearest parameter, or ""."""
    better = _instead(scheme, workers, width, code)
    if better and max(better) < max(digits_lost(scheme, workers, width)):
        return code.instead
    near = _nearest(scheme, workers, width, _few(digits_of(width)))
    if near is None or scheme.precision_knob is None:
        return ""
    return f"{scheme.precision_knob[0]} = {getattr(near, scheme.precision_knob[0])}"


def _instead(scheme: Scheme, workers: int, width: int, code: GradientCode) -> tuple[float, ...]:
    """Return the digits that a code's alternative (such as "code = 'cyclic'") loses; none if it is not a setting."""
    name, equals, value = code.instead.partition(" = ")
    if not equals:  # the text names only a direction ("fewer stragglers"); `_nearest` finds the value
        return ()
    try:
        other = scheme.replace(**{name: ast.literal_eval(value)})
        other.check(workers)
    except SettingError:
        return ()
    return digits_lost(other, workers, width)


def _nearest(scheme: Scheme, workers: int, width: int, most_lost: float) -> Scheme | None:
    """Return the scheme with the nearest `precision_knob` whose codes lose at most `most_lost` digits, or None."""
    if scheme.precision_knob is None:
        return None
    name, sign = scheme.precision_knob
    now = getattr(scheme, name)

    def keeps(distance: int) -> Scheme | None:
        for further in (distance, distance + 1):  # some codes exist only for every second number
            try:
                other = scheme.replace(**{name: now + sign * further})
                other.check(workers)
            except SettingError:
                continue
            return other if max(digits_lost(other, workers, width), default=0.0) <= most_lost else None
        return None

    most = now if sign < 0 else workers - now
    distances = range(1, most + 1)
    found = bisect_left(distances, True, key=lambda distance: keeps(distance) is not None)
    return keeps(distances[found]) if found < most else None
