"""Loss of digits in decoding, measured in the same way for every code."""

from collections.abc import Iterable, Iterator, Sequence
from math import gcd

import numpy as np
from numpy.random import Generator
from numpy.typing import DTypeLike, NDArray

from workbench.core.codes.base import GradientCode

# max number of random survivor sets that are evaluated; sizes of weights may have a heavy tail, see `codes.dual`
MAX_SURVIVOR_SETS = 500
# max number of multiplications; for larger codes, fewer sets of each kind are evaluated
MAX_MULTIPLICATIONS = 5e8
FLOAT64_DIGITS = -float(np.log10(np.finfo(np.float64).eps))  # decimal digits of a float64
MIN_SURVIVOR_SETS = 4  # min number of sets of each kind, even for large codes
GRADIENT_COORDINATES = 16  # coordinates of the random gradients that are coded and decoded
FLOAT64_BYTES = 8  # bytes of a float64 in a message
Sets = int | Iterable[tuple[int, ...]]


def dtype_of(width: int) -> DTypeLike:
    """Return the type of numbers of this many bytes in a message."""
    return np.float64 if width >= FLOAT64_BYTES else np.float32


def digits_of(width: int) -> float:
    """Return the decimal digits of a number of this many bytes.

    >>> round(digits_of(8)), round(digits_of(4))
    (16, 7)
    """
    return -float(np.log10(np.finfo(np.dtype(dtype_of(width)).type).eps))


def least_digits(least: int, width: int) -> int:
    """Return the min digits to keep in a message of this width: the share `least` / 16 of its digits, rounded down.

    >>> least_digits(4, 8), least_digits(4, 4)
    (4, 1)
    """
    return least if width >= FLOAT64_BYTES else int(least * digits_of(width) / FLOAT64_DIGITS)


def amplification(code: GradientCode, sets: Sets = 200, rng: Generator | None = None) -> float:
    """Return the largest |a|_1 max|B| over survivor sets: the error of a decoded gradient in units of rounding.

    `sets` are tuples of the rows that answered, or the number of sets to draw with `stragglers` rows missing.

    >>> from workbench.core.codes import fractional
    >>> round(amplification(fractional(4, 1)), 9)
    2.0
    """
    largest = float(np.abs(code.matrix).max())
    weights = (code.decode(answered).weights for answered in survivors(code, sets, rng))
    return max(float(np.abs(a).sum(axis=-1).max()) * largest for a in weights)


def measured_error(
    code: GradientCode, dtype: DTypeLike = np.float64, sets: Sets = 200, rng: Generator | None = None
) -> float:
    """Return the largest relative error of a decoded sum of random gradients, sent and combined in `dtype`.

    >>> from workbench.core.codes import cyclic
    >>> measured_error(cyclic(12, 4)) < 1e-12
    True
    """
    rng = np.random.default_rng(0) if rng is None else rng
    gradients = rng.standard_normal((code.matrix.shape[1], GRADIENT_COORDINATES)).astype(dtype)
    messages = code.matrix.astype(dtype) @ gradients
    true = code.goal @ gradients.astype(np.longdouble)
    worst = 0.0
    for answered in survivors(code, sets, rng):
        weights = np.atleast_2d(code.decode(answered).weights).astype(dtype)
        off = np.linalg.norm((weights @ messages[list(answered)] - true).astype(np.float64))
        worst = max(worst, float(off / np.linalg.norm(true.astype(np.float64))))
    return worst


def report(code: GradientCode, sets: Sets = 200) -> dict[str, float]:
    """Return decode amplification and measured relative gradient errors, over the same survivor sets.

    >>> from workbench.core.codes import cyclic
    >>> sorted(report(cyclic(12, 3)))
    ['amplification', 'error_float32', 'error_float64']
    """
    drawn = list(survivors(code, sets))
    return {
        "amplification": amplification(code, drawn),
        "error_float64": measured_error(code, np.float64, drawn),
        "error_float32": measured_error(code, np.float32, drawn),
    }


def lost(
    code: GradientCode,
    sets: Sets = MAX_SURVIVOR_SETS,
    rng: Generator | None = None,
    dtype: DTypeLike = np.float64,
) -> float:
    """Return how many decimal digits decoding may lose, by the larger of two errors.

    One error comes from the size of the weights, the other from the residual. Three kinds of survivor sets are
    evaluated: random ones, runs of neighbouring missing rows, and every k-th row missing. Of a large code, only a few
    sets of each kind are evaluated. For random sets P(size > x) ~ C/x (see `codes.dual`), so the largest size among
    `sets` random sets is extrapolated from fewer sets.

    >>> from workbench.core.codes import cyclic, mds
    >>> round(lost(mds(58, 27))), round(lost(cyclic(58, 27)))
    (16, 3)
    """
    limit = max(MIN_SURVIVOR_SETS, int(MAX_MULTIPLICATIONS / cost(code)))
    wanted = sets if isinstance(sets, int) else len(sets := list(sets))
    drawn = list(survivors(code, min(sets, limit) if isinstance(sets, int) else sets, rng))
    scale = wanted / len(drawn)
    ordered = [*runs(code, limit), *strides(code, limit)]
    # small codes have few different sets
    size = max(scale * amplification(code, set(drawn)), amplification(code, ordered))
    gone = max(missed(code, set_) for set_ in {*drawn, *ordered})
    eps = np.finfo(np.dtype(dtype).type).eps
    return float(np.clip(np.log10(max(size, gone / eps, 1.0)), 0, -np.log10(eps)))


def cost(code: GradientCode) -> float:
    """Estimate the multiplications of a decoding: the system of the missing rows, and the test of its solution."""
    return float(code.matrix.size + 2 * code.stragglers**3)


def missed(code: GradientCode, answered: tuple[int, ...]) -> float:
    """Return the distance between the decoded weights of the parts and those that all answers give."""
    everybody = code.decode(tuple(range(code.workers))).residual
    return float(np.sqrt(max(code.decode(answered).residual - everybody, 0.0)))


def warning(
    code: GradientCode, share: float = 0.5, sets: Sets = MAX_SURVIVOR_SETS, dtype: DTypeLike = np.float64
) -> str | None:
    """Return one sentence if decoding may lose more than `share` of a number's digits, naming a better code.

    See `lost`.

    >>> from workbench.core.codes import mds
    >>> warning(mds(15, 4)) is None
    True
    """
    gone = lost(code, sets, dtype=dtype)
    digits = -np.log10(np.finfo(np.dtype(dtype).type).eps)
    return loses(code, gone, digits, code.instead) if gone > share * digits else None


def loses(code: GradientCode, gone: float, digits: float, better: str) -> str:
    """Return a sentence about the digits that decoding may lose, and about a better code if there is one."""
    return (
        f"decoding from {code.workers - code.stragglers} of {code.workers} messages may"
        f" lose {gone:.0f} of {digits:.0f} digits" + (f"; take {better}" if better else "")
    )


def survivors(code: GradientCode, sets: Sets, rng: Generator | None = None) -> Iterator[tuple[int, ...]]:
    """Yield the given survivor sets, or `sets` random ones without `stragglers` rows each (by default seed 0)."""
    if not isinstance(sets, int):
        yield from sets
        return
    rng = np.random.default_rng(0) if rng is None else rng
    for _ in range(sets):
        yield tuple(np.sort(rng.permutation(code.workers)[code.stragglers :]).tolist())


def runs(code: GradientCode, count: int | None = None) -> Iterator[tuple[int, ...]]:
    """Yield survivor sets whose missing rows are cyclic neighbours, as after the loss of a rack or a switch.

    With `count`, at most that many sets, evenly spaced.
    """
    for first in spread(range(code.workers if code.stragglers else 1), count):
        yield without(code, (first + np.arange(code.stragglers)) % code.workers)


def strides(code: GradientCode, count: int | None = None) -> Iterator[tuple[int, ...]]:
    """Yield survivor sets in which every k-th row is missing, cyclically, such as one host of every rack.

    See `runs`.
    """
    n, s = code.workers, code.stragglers
    steps = [step for step in range(2, n // 2 + 1) if s and n // gcd(n, step) >= s]
    for step in spread(steps, count):
        yield without(code, np.arange(s) * step % n)


def spread(numbers: Sequence[int], count: int | None) -> Sequence[int]:
    """Return at most `count` of the given numbers, evenly spaced.

    >>> spread(range(10), 3)
    range(0, 10, 4)
    """
    return numbers[:: max(1, -(-len(numbers) // (count or len(numbers) or 1)))]


def without(code: GradientCode, missing: NDArray[np.int64]) -> tuple[int, ...]:
    """Return the set of all rows except the missing ones."""
    return tuple(np.delete(np.arange(code.workers), missing).tolist())
