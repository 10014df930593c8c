"""Times, bytes and counts as text, and the mark of schemes that commit estimates of the gradient."""

from __future__ import annotations

import math

INEXACT_MARK = "≈"  # prefix of the name of a scheme that commits estimates of the gradient
# least time, s, that is written in a unit; length of the unit, s; its name
LONG_UNITS = (
    (1e8, 31_557_600.0, "years"),
    (259_200.0, 86_400.0, "days"),
    (1e4, 3600.0, "h"),
    (1e3, 1.0, "s"),
)


def number_text(value: float, digits: int = 17) -> str:
    """Return a number as fields, tables and axes show it: with a short exponent if it is large and round, or small.

    `digits`: max number of significant digits. 17 keep the number as it is.

    >>> number_text(1e5), number_text(123_456.0, 4), number_text(5e-5), number_text(250.0), number_text(0.3333, 2)
    ('1e5', '123500', '5e-5', '250', '0.33')
    """
    value = float(f"{value:.{digits}g}")
    if not value.is_integer():
        return str(value).replace("e-0", "e-")
    whole = str(int(value))
    bare = whole.rstrip("0")
    power = len(whole) - len(bare)
    return f"{bare}e{power}" if power > 4 else whole


def quantity_of(seconds: float) -> str:
    """Return a time as text in a suitable unit.

    >>> quantity_of(0.0), quantity_of(3e-4), quantity_of(0.1), quantity_of(float("inf"))
    ('0', '300 µs', '100 ms', 'endless')
    >>> quantity_of(2e4), quantity_of(1e6), quantity_of(4e8), quantity_of(1e30)
    ('5.56 h', '11.6 days', '12.7 years', '3e+22 years')
    """
    if seconds == 0.0:
        return "0"
    if not math.isfinite(seconds):
        return "unknown" if math.isnan(seconds) else "endless"
    for least, size, unit in LONG_UNITS:
        if seconds >= least:
            value = seconds / size
            digits = ".3g" if value < 999.5 else ",.0f" if value < 1e6 else ".0e"
            return f"{value:{digits}} {unit}"
    for scale, unit in ((1.0, "s"), (1e3, "ms"), (1e6, "µs")):
        if float(f"{seconds * scale:.3g}") >= 1.0:  # so that 0.9999 ms is written as 1 ms
            return f"{seconds * scale:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


def quantity(value: float, x: str) -> str:
    """Return a value as text with its unit. `x`: what the value is, "time" (s), "bytes", or a count.

    >>> quantity(2_120_000, "bytes"), quantity(12.34, "time")
    ('2.12 MB', '12.3 s')
    """
    if x == "time":
        return f"{value:#.3g}".rstrip(".") + " s"
    power = min(4, max(0, int(math.log10(max(value, 1.0)) // 3)))
    prefix = ["", "k", "M", "G", "T"][power]
    return f"{value / 1000**power:.3g} {prefix}{'B' if x == 'bytes' else ''}".strip()
