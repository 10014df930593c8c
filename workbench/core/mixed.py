"""Weights over (part, version): what a message or a commit is made of where gradients of several models meet.

Version v is the model after v commits. A plan says how many of them may be in use at one time (`Plan.versions`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workbench.base.types import Array


class Mixed:
    """Value of a message: of each version, the weights of the parts; added up and scaled like a vector.

    `rows`: version -> weights (parts,).

    >>> import numpy as np
    >>> value = 0.5 * Mixed({3: np.array([1.0, 0.0])}) + Mixed({4: np.array([0.0, 2.0])})
    >>> value.stale().versions.tolist(), value.stale().weights.tolist()
    ([3, 4], [0.5, 2.0])
    """

    __slots__ = ("rows",)
    __array_ufunc__ = None  # NumPy's numbers leave the arithmetic to this class

    def __init__(self, rows: Mapping[int, Array]) -> None:
        self.rows = dict(rows)

    def __add__(self, other: Mixed | float) -> Mixed:
        if not isinstance(other, Mixed):
            return self if other == 0 else NotImplemented  # a scheme that got nothing has 0
        rows = dict(self.rows)
        for version, row in other.rows.items():
            rows[version] = rows[version] + row if version in rows else row
        return Mixed(rows)

    __radd__ = __add__

    def __mul__(self, factor: float) -> Mixed:
        return Mixed({version: row * factor for version, row in self.rows.items()})

    __rmul__ = __mul__

    def __truediv__(self, divisor: float) -> Mixed:
        return self * (1.0 / divisor)

    def __neg__(self) -> Mixed:
        return self * -1.0

    def __sub__(self, other: Mixed | float) -> Mixed:
        return self + (-other)

    def __rsub__(self, other: Mixed | float) -> Mixed:
        return -self + other

    def __getitem__(self, place: int) -> Mixed:
        """One of several sums (see `Compute`), without the versions that it has nothing of."""
        rows = {version: row[place] for version, row in self.rows.items()}
        return Mixed({version: row for version, row in rows.items() if row.any()})

    def stale(self) -> Stale:
        """The same, without its zeros."""
        found = [(v, p, row[p]) for v, row in sorted(self.rows.items()) for p in np.flatnonzero(row)]
        versions, parts, weights = zip(*found, strict=True) if found else ((), (), ())
        return Stale(np.array(versions, int), np.array(parts, int), np.array(weights, float))


class Few:
    """Value of a message in a plan of very many parts: the weights of the few that are in it; a part may stand twice.

    >>> import numpy as np
    >>> value = 0.5 * Few(np.array([7, 2]), np.ones(2)) + Few(np.array([2]), np.ones(1))
    >>> value.dense(parts=9).tolist()
    [0.0, 0.0, 1.5, 0.0, 0.0, 0.0, 0.0, 0.5, 0.0]
    """

    __slots__ = ("parts", "weights")
    __array_ufunc__ = None

    def __init__(self, parts: NDArray[np.int64], weights: Array) -> None:
        self.parts, self.weights = parts, weights

    @classmethod
    def total(cls, factors: Array, values: Sequence[Few]) -> Few:
        """Sum of factor * value."""
        many = np.repeat(factors, [len(value.parts) for value in values])
        parts = np.concatenate([value.parts for value in values])
        return cls(parts, many * np.concatenate([value.weights for value in values]))

    def __add__(self, other: Few | float) -> Few:
        if not isinstance(other, Few):
            return self if other == 0 else NotImplemented
        return Few.total(np.ones(2), [self, other])

    __radd__ = __add__

    def __mul__(self, factor: float) -> Few:
        return Few(self.parts, self.weights * factor)

    __rmul__ = __mul__

    def __truediv__(self, divisor: float) -> Few:
        return self * (1.0 / divisor)

    def __sub__(self, other: Few | float) -> Few:
        return self + other * -1.0

    def dense(self, parts: int) -> Array:
        """Weight of every part, (parts,)."""
        return np.asarray(np.bincount(self.parts, self.weights, minlength=parts), dtype=float)


@dataclass(frozen=True)
class Stale:
    """What was committed: sum of weight * gradient of a part at a version; three arrays of one length.

    >>> import numpy as np
    >>> Stale(np.array([3, 4]), np.array([0, 0]), np.array([0.5, 0.5])).total(parts=2).tolist()
    [1.0, 0.0]
    """

    versions: NDArray[np.int64]
    parts: NDArray[np.int64]
    weights: Array

    def total(self, parts: int) -> Array:
        """Weight of every part, whatever the version: (parts,)."""
        return np.asarray(np.bincount(self.parts, self.weights, minlength=parts), dtype=float)

    def tobytes(self) -> bytes:
        """What tells one from another."""
        return b"".join(part.tobytes() for part in (self.versions, self.parts, self.weights))

    def gradient(self, of: Callable[[Any, int], Array]) -> Any:
        """Sum of `of([(part, weight), ...], version)` over the versions; 0 where there is nothing."""
        total: Any = 0
        for version in np.unique(self.versions).tolist():
            at = self.versions == version
            total = total + of(list(zip(self.parts[at], self.weights[at], strict=True)), version)
        return total


Decoding = Array | Stale | None  # weights over the parts of a round's own model; of several models; all ones
