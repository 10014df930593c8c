"""Weights of few parts, of one model or of several: what a message or a commit is made of.

Version v is the model after v commits. A plan says how many of them may be in use at one time (`Plan.versions`). Where
there are several, part p at version v stands as number v * parts + p. What a problem draws (dropout) depends on the
commit that a gradient is for: where that is v + lag, lag * `VERSION_STRIDE` is added to the number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workbench.core.base.types import Array

VERSION_STRIDE = 2**44  # above every number v * parts + p


class SparseWeights:
    """Value of a message that few parts are in, added up and scaled like a vector; a part may stand twice.

    >>> import numpy as np
    >>> value = 0.5 * SparseWeights(np.array([7, 2]), np.ones(2)) + SparseWeights(np.array([2]), np.ones(1))
    >>> value.dense(parts=9).tolist()
    [0.0, 0.0, 1.5, 0.0, 0.0, 0.0, 0.0, 0.5, 0.0]
    """

    __slots__ = ("parts", "weights")
    __array_ufunc__ = None  # NumPy's numbers leave the arithmetic to this class

    def __init__(self, parts: NDArray[np.int64], weights: Array) -> None:
        self.parts, self.weights = parts, weights

    @classmethod
    def total(cls, factors: Array, values: Sequence[SparseWeights]) -> SparseWeights:
        """Sum of factor * value."""
        many = np.repeat(factors, [len(value.parts) for value in values])
        parts = np.concatenate([value.parts for value in values])
        return cls(parts, many * np.concatenate([value.weights for value in values]))

    def __add__(self, other: SparseWeights | float) -> SparseWeights:
        if not isinstance(other, SparseWeights):
            return self if other == 0 else NotImplemented  # a scheme that got nothing has 0
        return SparseWeights.total(np.ones(2), [self, other])

    __radd__ = __add__

    def __mul__(self, factor: float) -> SparseWeights:
        return SparseWeights(self.parts, self.weights * factor)

    __rmul__ = __mul__

    def __truediv__(self, divisor: float) -> SparseWeights:
        return self * (1.0 / divisor)

    def __neg__(self) -> SparseWeights:
        return self * -1.0

    def __sub__(self, other: SparseWeights | float) -> SparseWeights:
        return self + other * -1.0

    def __rsub__(self, other: SparseWeights | float) -> SparseWeights:
        return -self + other

    def dense(self, parts: int) -> Array:
        """Weight of every part, (parts,)."""
        return np.asarray(np.bincount(self.parts, self.weights, minlength=parts), dtype=float)


@dataclass(frozen=True)
class VersionedWeights:
    """What was committed: sum of weight * gradient of a part at a version; arrays of one length.

    `lags`: of each gradient, the commit whose draws it takes, counted from its version; None: 0.

    >>> import numpy as np
    >>> VersionedWeights(np.array([3, 4]), np.array([0, 0]), np.array([0.5, 0.5])).total(parts=2).tolist()
    [1.0, 0.0]
    """

    versions: NDArray[np.int64]
    parts: NDArray[np.int64]
    weights: Array
    lags: NDArray[np.int64] | None = None

    @classmethod
    def of(cls, value: SparseWeights, parts: int) -> VersionedWeights:
        """What a value is made of, without its zeros; in order."""
        keys, place = np.unique(value.parts, return_inverse=True)
        weights = np.bincount(place, value.weights, minlength=len(keys))
        lags, numbers = np.divmod(keys[weights != 0], VERSION_STRIDE)
        versions, places = np.divmod(numbers, parts)
        return cls(versions, places, weights[weights != 0], lags if lags.any() else None)

    def total(self, parts: int) -> Array:
        """Weight of every part, whatever the version: (parts,)."""
        return np.asarray(np.bincount(self.parts, self.weights, minlength=parts), dtype=float)

    def of_round(self, round: int) -> bool:
        """Return whether all gradients are at the model of a round and take its draws."""
        return self.lags is None and bool((self.versions == round).all())

    def tobytes(self) -> bytes:
        """What tells one from another."""
        arrays = [self.versions, self.parts, self.weights, *([] if self.lags is None else [self.lags])]
        return b"".join(array.tobytes() for array in arrays)

    def sums(self) -> Iterator[tuple[int, int, list[tuple[int, float]]]]:
        """Yield a version, the commit whose draws its gradients take, and their (part, weight) pairs; in order."""
        lags = np.zeros_like(self.versions) if self.lags is None else self.lags
        for version, lag in np.unique(np.stack([self.versions, lags], axis=1), axis=0).tolist():
            at = (self.versions == version) & (lags == lag)
            yield version, version + lag, list(zip(self.parts[at], self.weights[at], strict=True))

    def gradient(self, of: Callable[[Any, int], Array]) -> Any:
        """Sum of `of([(part, weight), ...], version)` over the versions; 0 where there is nothing."""
        return sum((of(weighted, version) for version, _, weighted in self.sums()), start=0)


Decoding = (
    Array | VersionedWeights | None
)  # weights over the parts of a round's own model; of several models; all ones
