"""What a source delivers: rows on demand, block by block, with a checked target."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .options import DataError, Options, unsuited

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]

BLOCK_BYTES = 1 << 22  # fits in a processor's cache, so that memory stays small and the passes are quick
MOST_CLASSES = 1000  # more distinct values than this are a quantity, not names


@dataclass(frozen=True)
class Raw:
    """All rows and columns of a source, before the user's choices.

    `take(rows, width)` returns these rows of the first `width` columns, dense and free to change.
    """

    take: Callable[[Indices, int], NDArray[Any]]
    features: int
    target: NDArray[Any]
    note: str
    names: Sequence[str] | None = None


@dataclass(frozen=True)
class Table:
    """The chosen rows in their final order. `blocks()` starts a new pass over (X, y) blocks of rows."""

    samples: int
    features: int
    classes: int
    note: str
    blocks: Callable[[], Iterator[tuple[Floats, Floats]]]
    truth: Floats | None = None
    names: Sequence[str] | None = None
    trusted: bool = False  # known to be finite: nothing to look for

    def column(self, index: int) -> str:
        """Name a column the way its owner would."""
        return repr(self.names[index]) if self.names else f"{index} (counted from 0)"


def block_slices(samples: int, features: int) -> Iterator[slice]:
    """Cut the rows so that a block of them takes about BLOCK_BYTES."""
    step = max(1, BLOCK_BYTES // (8 * features))
    return (slice(start, min(start + step, samples)) for start in range(0, samples, step))


def select(raw: Raw, options: Options) -> Table:
    """Shuffle the rows with the seed and keep as many rows and columns as were asked for."""
    samples = _at_most("samples", options.samples, len(raw.target), options.source)
    features = _at_most("features", options.features, raw.features, options.source)
    target, classes = as_target(raw.target, options)
    # Sorted files would otherwise give parts that hold one class each.
    order = np.random.default_rng(options.seed).permutation(len(target))[:samples]

    def blocks() -> Iterator[tuple[Floats, Floats]]:
        for rows in block_slices(samples, features):
            chosen = order[rows]
            yield np.asarray(raw.take(chosen, features), dtype=np.float64), target[chosen]

    return Table(samples, features, classes, raw.note, blocks, names=raw.names)


def _at_most(field: str, wanted: int | None, there: int, source: str) -> int:
    if there == 0:
        raise DataError(f"source: {source!r} has no {field}; give one with at least one")
    if wanted is not None and wanted > there:
        raise DataError(f"{field}: {wanted} is more than {source!r} has; take at most {there}")
    return there if wanted is None else wanted


def as_target(values: NDArray[Any], options: Options) -> tuple[Floats, int]:
    """Turn a target column into numbers that suit the task.

    Gives y as float64 (classes numbered from 0 in sorted order), and the number of classes (0: regression).
    Raises `DataError` where a value is missing, or the values do not suit the task.
    """
    numbers = _as_numbers(values)
    if numbers is not None:
        _refuse_missing(~np.isfinite(numbers), options)
    elif values.dtype == object:
        _refuse_missing(np.array([v is None or v != v for v in values], dtype=bool), options)
    if options.task == "regression":
        if numbers is None:
            raise DataError(unsuited(options, "is text, not numbers", "multiclass"))
        return numbers, 0
    labels, codes = np.unique(values.astype(str) if numbers is None else numbers, return_inverse=True)
    _check_classes(labels, numbers, options)
    return codes.astype(np.float64), len(labels)


def _as_numbers(values: NDArray[Any]) -> Floats | None:
    """Read the values as numbers if all are: the class names '0' to '9' of images are digits too."""
    if values.dtype.kind == "c":
        return None
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        return None


def _refuse_missing(missing: NDArray[np.bool_], options: Options) -> None:
    if missing.any():
        row = int(np.argmax(missing))
        raise DataError(
            f"source: the target of {options.source!r} is missing or not finite in row {row} "
            "(counted from 0); remove that row or fill it in"
        )


def _check_classes(labels: NDArray[Any], numbers: Floats | None, options: Options) -> None:
    count = len(labels)
    if count < 2:
        raise DataError(unsuited(options, "has only one value", "regression"))
    if count == 2:
        return
    quantity = numbers is not None and not np.array_equal(labels, np.round(labels))
    fits = "regression" if quantity or count > MOST_CLASSES else "multiclass"
    if options.task != fits:
        raise DataError(unsuited(options, f"has {count} different values", fits))
