"""How many digits decoding costs: measured, the same for every code."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
from numpy.random import Generator
from numpy.typing import DTypeLike

from workbench.codes.base import GradientCode

SETS = 500  # survivor sets that a warning looks at: sizes of weights may have a heavy tail, see `codes.dual`
COORDINATES = 16  # of the random gradients that are coded and decoded
Sets = int | Iterable[tuple[int, ...]]


def amplification(code: GradientCode, sets: Sets = 200, rng: Generator | None = None) -> float:
    """Largest |a|_1 max|B| over survivor sets: so many units of rounding may a decoded gradient be off.

    `sets` are tuples of the rows that answered, or how many to draw with `stragglers` rows missing.

    >>> from workbench.codes import fractional
    >>> round(amplification(fractional(4, 1)), 9)
    2.0
    """
    largest = float(np.abs(code.matrix).max())
    weights = (code.decode(answered).weights for answered in survivors(code, sets, rng))
    return max(float(np.abs(a).sum(axis=-1).max()) * largest for a in weights)


def measured_error(
    code: GradientCode, dtype: DTypeLike = np.float64, sets: Sets = 200, rng: Generator | None = None
) -> float:
    """Largest relative error of a decoded sum of random gradients, everything sent and combined in `dtype`.

    >>> from workbench.codes import cyclic
    >>> measured_error(cyclic(12, 4)) < 1e-12
    True
    """
    rng = np.random.default_rng(0) if rng is None else rng
    gradients = rng.standard_normal((code.matrix.shape[1], COORDINATES)).astype(dtype)
    messages = code.matrix.astype(dtype) @ gradients
    true = code.goal @ gradients.astype(np.longdouble)
    worst = 0.0
    for answered in survivors(code, sets, rng):
        weights = np.atleast_2d(code.decode(answered).weights).astype(dtype)
        off = np.linalg.norm((weights @ messages[list(answered)] - true).astype(np.float64))
        worst = max(worst, float(off / np.linalg.norm(true.astype(np.float64))))
    return worst


def report(code: GradientCode, sets: Sets = 200) -> dict[str, float]:
    """Decode amplification and measured relative gradient errors, over the same survivor sets.

    >>> from workbench.codes import cyclic
    >>> sorted(report(cyclic(12, 3)))
    ['amplification', 'error_float32', 'error_float64']
    """
    drawn = list(survivors(code, sets))
    return {
        "amplification": amplification(code, drawn),
        "error_float64": measured_error(code, np.float64, drawn),
        "error_float32": measured_error(code, np.float32, drawn),
    }


def warning(
    code: GradientCode,
    share: float = 0.5,
    sets: Sets = SETS,
    rng: Generator | None = None,
    dtype: DTypeLike = np.float64,
) -> str | None:
    """One sentence if decoding may lose more than that share of a number's digits, naming a better code.

    Runs of neighbouring stragglers are looked at as well as the sets drawn.

    >>> from workbench.codes import mds
    >>> warning(mds(15, 4)) is None
    True
    """
    drawn = [*survivors(code, sets, rng), *runs(code)]
    lost = np.log10(amplification(code, drawn))
    digits = -np.log10(np.finfo(np.dtype(dtype).type).eps)
    if lost <= share * digits:
        return None
    return (
        f"decoding from {code.workers - code.stragglers} of {code.workers} messages may"
        f" lose {min(lost, digits):.0f} of {digits:.0f} digits; take {code.instead}"
    )


def survivors(code: GradientCode, sets: Sets, rng: Generator | None = None) -> Iterator[tuple[int, ...]]:
    """Survivor sets as given, or so many random ones without `stragglers` rows each (seed 0 unless told)."""
    if not isinstance(sets, int):
        yield from sets
        return
    rng = np.random.default_rng(0) if rng is None else rng
    for _ in range(sets):
        yield tuple(np.sort(rng.permutation(code.workers)[code.stragglers :]).tolist())


def runs(code: GradientCode) -> Iterator[tuple[int, ...]]:
    """Survivor sets whose missing rows are neighbours, cyclically: one rack, one switch, one lost region."""
    n = code.workers
    for first in range(n if code.stragglers else 1):
        yield tuple(sorted((first + row) % n for row in range(code.stragglers, n)))
