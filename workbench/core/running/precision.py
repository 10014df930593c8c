"""Check before a run how many digits decoding keeps: an error for too few, a warning if more than half are lost."""

from bisect import bisect_left
from functools import lru_cache

from workbench.core.base.settings import SettingError
from workbench.core.codes.quality import FLOAT64_DIGITS, loses, lost
from workbench.core.contract.scheme import MIN_DIGITS, Scheme

MAX_LOST_DIGITS_SHARE = 0.5  # share of the digits that may be lost without a warning


def lost_digits(scheme: Scheme, workers: int) -> tuple[str, ...]:
    """Return a warning for each code that would lose more than half of the digits, with a better code.

    Raises `SettingError` if a code keeps fewer than the scheme's `least_digits`.
    """
    gone = _lost(scheme, workers)
    if gone and FLOAT64_DIGITS - max(gone) < _least(scheme):
        raise SettingError(_refusal(scheme, workers, FLOAT64_DIGITS - max(gone)))
    pairs = zip(scheme.codes(workers), gone, strict=True)
    return tuple(
        loses(code, digits) for code, digits in pairs if digits > MAX_LOST_DIGITS_SHARE * FLOAT64_DIGITS
    )


def _least(scheme: Scheme) -> int:
    return int(getattr(scheme, "least_digits", MIN_DIGITS))


@lru_cache(maxsize=256)
def _lost(scheme: Scheme, workers: int) -> tuple[float, ...]:
    return tuple(lost(code) for code in scheme.codes(workers))


def _refusal(scheme: Scheme, workers: int, digits: float) -> str:
    worst = max(scheme.codes(workers), key=lost)
    # A text without "=" contains only the direction of a change, for which `_nearest` finds the value.
    remedies = [worst.instead] if "=" in worst.instead else []
    name = scheme.precision_knob[0] if scheme.precision_knob else "least_digits"
    near = _nearest(scheme, workers)
    remedies += [f"{name} = {getattr(near, name)}"] if near else []
    remedies += [f"least_digits = {int(digits)} to decode with so few"]
    return (
        f"scheme_args.{name} = {getattr(scheme, name)}: decoding from {worst.workers - worst.stragglers} of"
        f" {worst.workers} messages keeps {int(digits)} of {FLOAT64_DIGITS:.0f} digits, fewer than least_digits ="
        f" {_least(scheme)}; take {', or '.join(remedies)}"
    )


def _nearest(scheme: Scheme, workers: int) -> Scheme | None:
    """Return the scheme with the nearest value of `precision_knob` whose codes keep enough digits, or None."""
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
            return other if FLOAT64_DIGITS - max(_lost(other, workers)) >= _least(scheme) else None
        return None

    most = now if sign < 0 else workers - now
    distances = range(1, most + 1)
    found = bisect_left(distances, True, key=lambda distance: keeps(distance) is not None)
    return keeps(distances[found]) if found < most else None
