"""Sparse weights of parts, at one model or at several: the content of a message or a commit.

Version v is the model after v commits. `Plan.versions` is the number of versions that may be in use at the same time.
With several versions, part p at version v has the number v * parts + p. The random numbers of a problem (dropout)
depend on the commit that a gradient is for. For commit v + lag, lag * `VERSION_STRIDE` is added to the number of the
part.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workbench.core.base.grouping import grouped
from workbench.core.base.types import Array

VERSION_STRIDE = 2**44  # greater than every number v * parts + p


class SparseWeights:
    """Value of a message with few parts, added and scaled like a vector. A part may occur twice.

    >>> import numpy as np
    >>> value = 0.5 * SparseWeights(np.array([7, 2]), np.ones(2)) + SparseWeights(np.array([2]), np.ones(1))
    >>> value.dense(parts=9).tolist()
    [0.0, 0.0, 1.5, 0.0, 0.0, 0.0, 0.0, 0.5, 0.0]
    """

    __slots__ = ("parts", "weights")
    __array_ufunc__ = None  # so that NumPy scalars use the operators of this class

    def __init__(self, parts: NDArray[np.int64], weights: Array) -> None:
        self.parts, self.weights = parts, weights

    @classmethod
    def total(cls, factors: Array, values: Sequence[SparseWeights]) -> SparseWeights:
        """Return the sum of factor * value."""
        many = factors.repeat([len(value.parts) for value in values])
        parts = np.concatenate([value.parts for value in values])
        return cls(parts, many * np.concatenate([value.weights for value in values]))

    def __add__(self, other: SparseWeights | float) -> SparseWeights:
        if not isinstance(other, SparseWeights):
            return self if other == 0 else NotImplemented  # `sum` begins with 0
        parts = np.concatenate([self.parts, other.parts])
        return SparseWeights(parts, np.concatenate([self.weights, other.weights]))

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
        """Return the weight of each part, (parts,)."""
        return np.asarray(np.bincount(self.parts, self.weights, minlength=parts), dtype=float)


@dataclass(frozen=True)
class VersionedWeights:
    """Committed gradient: sum of weight * gradient of a part at a version. All arrays have the same length.

    `lags`: for each gradient, the number of the commit whose random numbers it uses, minus its version; None: all 0.

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
        """Return the nonzero (version, part, weight) triples of a value, sorted."""
        keys, place = np.unique(value.parts, return_inverse=True)
        weights = np.bincount(place, value.weights, minlength=len(keys))
        lags, numbers = np.divmod(keys[weights != 0], VERSION_STRIDE)
        versions, places = np.divmod(numbers, parts)
        return cls(versions, places, weights[weights != 0], lags if lags.any() else None)

    def total(self, parts: int) -> Array:
        """Return the weight of each part, summed over the versions: (parts,)."""
        return np.asarray(np.bincount(self.parts, self.weights, minlength=parts), dtype=float)

    def of_round(self, round: int) -> bool:
        """Return whether all gradients are at the model of a round and use its random numbers."""
        return self.lags is None and bool((self.versions == round).all())

    def tobytes(self) -> bytes:
        """Return the bytes of all arrays, to compare two commits."""
        arrays = [self.versions, self.parts, self.weights, *([] if self.lags is None else [self.lags])]
        return b"".join(array.tobytes() for array in arrays)

    @cached_property
    def sums(self) -> list[tuple[int, int, list[tuple[int, float]]]]:
        """Each version, the commit whose random numbers its gradients use, and their (part, weight) pairs."""
        versions = self.versions.tolist()
        lags = [0] * len(versions) if self.lags is None else self.lags.tolist()
        weighted = zip(self.parts.tolist(), self.weights.tolist(), strict=True)
        pairs = grouped(zip(zip(versions, lags, strict=True), weighted, strict=True))
        return [(version, version + lag, pairs[version, lag]) for version, lag in sorted(pairs)]

    def gradient(self, of: Callable[[Any, int], Array]) -> Any:
        """Return the sum of `of([(part, weight), ...], version)` over the versions, or 0 without any."""
        return sum((of(weighted, version) for version, _, weighted in self.sums), start=0)


# Weights of the parts at the model of the round, weights at several models, or None for all ones.
Decoding = Array | VersionedWeights | None
