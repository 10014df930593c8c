"""Tables of a source: rows on request, block by block, with a checked target."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workbench.core.base.tables import EXACT_FLOAT, number

from .labels import MISSING_MARKERS, missing, text_labels
from .options import DataError, Options, unsuited

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]

# bytes of a block: it fits in a processor's cache, so that memory stays small and passes are fast
BLOCK_BYTES = 1 << 22
HELD_OUT_STREAM = 7  # random stream of the held-out samples, for a data seed
MAX_CLASSES = 1000  # max number of classes; numbers with more distinct values are a quantity


@dataclass(frozen=True)
class Raw:
    """All rows and columns of a source, before the choices of the user.

    `take(rows, width)` returns these rows of the first `width` columns as a dense array that the caller may change.
    `lines`: line of each row in a text file.
    """

    take: Callable[[Indices, int], NDArray[Any]]
    features: int
    target: NDArray[Any]
    note: str
    names: Sequence[str] | None = None
    lines: NDArray[np.int64] | None = None
    image: tuple[int, int, int] | None = None  # channels, rows and columns, if a sample is an image

    def place(self, row: int) -> str:
        """Return the place of a row in its file, as text."""
        return f"row {row} (counted from 0)" if self.lines is None else f"line {self.lines[row]}"


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
    # whether values are known to be finite, so that missing ones need not be searched for
    trusted: bool = False
    # returns the position of the first of the given rows in the source's file
    place: Callable[[Indices], str] | None = None
    test: "Table | None" = None  # held-out samples, which are not in the training data
    image: tuple[int, int, int] | None = None  # channels, rows and columns, if a sample is an image

    def column(self, index: int) -> str:
        """Return a column as the user names it."""
        return repr(self.names[index]) if self.names else f"{index} (counted from 0)"

    def split(self, held_out: NDArray[np.bool_]) -> "Table":
        """Return the table without the held-out rows, which become its `test`. `held_out`: (samples,)."""

        def part(wanted: NDArray[np.bool_]) -> Table:
            rows = np.flatnonzero(wanted)

            def blocks() -> Iterator[tuple[Floats, Floats]]:
                begin = 0
                for block, y in self.blocks():
                    here = wanted[begin : begin + len(y)]
                    begin += len(y)
                    if here.any():
                        yield block[here], y[here]

            place = self.place
            at = None if place is None else lambda some: place(rows[some])
            return replace(self, samples=len(rows), blocks=blocks, place=at)

        return replace(part(~held_out), test=part(held_out))


def block_slices(samples: int, features: int) -> Iterator[slice]:
    """Cut the rows so that a block of them takes about BLOCK_BYTES."""
    step = max(1, BLOCK_BYTES // (8 * features))
    return (slice(start, min(start + step, samples)) for start in range(0, samples, step))


def select(raw: Raw, options: Options, test: Raw | None = None) -> Table:
    """Shuffle the rows with the seed, and take the requested number of rows and columns.

    `test`: rows of the same columns, all of which are held out.
    """
    samples = _at_most("samples", options.samples, len(raw.target), options.source)
    features = _at_most("features", options.features, raw.features, options.source)
    if test is None:
        target, classes = as_target(raw.target, options, raw.place)
    else:
        check_columns(raw, test, options)
        target, classes = _both_targets(raw, test, options)
    # Without shuffling, parts of a sorted file would contain one class each.
    order = np.random.default_rng(options.seed).permutation(len(raw.target))[:samples]
    table = _table(raw, options, order, features, target[: len(raw.target)], classes)
    if test is None:
        return table
    held = _table(test, options, np.arange(len(test.target)), features, target[len(raw.target) :], classes)
    return replace(table, test=held)


def _table(raw: Raw, options: Options, order: Indices, features: int, target: Floats, classes: int) -> Table:
    """Return some rows of a source, in this order."""
    samples = len(order)

    def blocks() -> Iterator[tuple[Floats, Floats]]:
        for rows in block_slices(samples, features):
            chosen = order[rows]
            yield np.asarray(raw.take(chosen, features), dtype=np.float64), target[chosen]

    def place(rows: Indices) -> str:
        return raw.place(int(order[rows].min()))

    image = raw.image if features == raw.features else None
    return Table(samples, features, classes, raw.note, blocks, names=raw.names, place=place, image=image)


def check_columns(raw: Raw, test: Raw, options: Options) -> None:
    """Raise `DataError` if the columns of held-out samples differ from those of the training samples."""
    file, there = f"test: {options.test!r} has", raw.names or test.names or ()
    if test.features != raw.features:
        why = f"{test.features} columns besides the target and {options.source!r} has {raw.features}"
        raise DataError(f"{file} {why}; give a file of the same columns")
    if test.image != raw.image and test.image and raw.image:
        sizes = [" x ".join(map(str, image)) for image in (test.image, raw.image)]
        why = f"images of {sizes[0]} (channels, rows, columns) and {options.source!r} has {sizes[1]}"
        raise DataError(f"{file} {why}; give images of one size")
    for i, (here, known) in enumerate(zip(test.names or there, there, strict=True)):
        if here != known:
            why = f"{here!r} as column {i + 1} where {options.source!r} has {known!r}"
            raise DataError(f"{file} {why}; give a file of the same columns in the same order")


def _both_targets(raw: Raw, test: Raw, options: Options) -> tuple[Floats, int]:
    """Convert the targets of training and held-out samples together, so that a class has the same number in both."""
    known = len(raw.target)
    both = [np.asarray(part.target) for part in (raw, test)]
    kinds = {part.dtype.kind for part in both}
    if len(kinds) > 1 and kinds & set("OSU"):
        both = [part.astype(object) for part in both]

    def place(row: int) -> str:
        return raw.place(row) if row < known else f"{test.place(row - known)} of {options.test!r}"

    target, classes = as_target(np.concatenate(both), options, place)
    new = np.flatnonzero(~np.isin(target[known:], target[:known])) if classes else np.array([], int)
    if len(new):
        label = str(test.target[new[0]])[:40]
        why = f"has the class {label!r} in {test.place(int(new[0]))}, which {options.source!r} does not have"
        raise DataError(f"test: {options.test!r} {why}; remove those rows")
    return target, classes


def held_out(
    y: Any, classes: int, count: int, seed: int, place: Callable[[Indices], str] | None = None
) -> NDArray[np.bool_]:
    """Draw the held-out samples, (samples,), stratified by class: each share is exact within one sample.

    `y`: (samples,), classes numbered from 0; `classes` 0: regression. Classes that a share would leave empty are drawn
    first. Raises `DataError` if a class has only one sample, or would have none for training. Also raises it if one of
    two classes would have no held-out sample.

    >>> held_out(np.array([0, 1, 1, 0, 1, 1]), 2, 3, seed=0).sum()
    np.int64(3)
    """
    y = np.asarray(y).astype(np.int64) if classes else np.zeros(len(y), dtype=np.int64)
    sizes = np.bincount(y)
    there = np.flatnonzero(sizes)
    if classes and len(lonely := np.flatnonzero(sizes == 1)):
        where = f" in {place(np.flatnonzero(y == lonely[0]))}" if place else ""
        why = f"class {lonely[0]} (counted from 0) has one sample only{where}"
        raise DataError(
            f"test: {why}, which cannot be both learnt from and held out; remove it, or add others"
        )
    each, rest = np.divmod(sizes * count, len(y))
    room = (each < sizes - 1) & (rest > 0)
    order = sorted(np.flatnonzero(room).tolist(), key=lambda c: (each[c] > 0, -rest[c], c))
    each[order[: count - each.sum()]] += 1
    if each.sum() < count or (classes == 2 and not each.all()):
        few = int(there[np.argmin(sizes[there])])
        why = f"class {few} (counted from 0) has {sizes[few]} samples; take a share nearer to a half"
        raise DataError(f"test: {count} of {len(y)} samples would leave a class without any, as {why}")
    random, found = np.random.default_rng([seed, HELD_OUT_STREAM]), np.zeros(len(y), dtype=bool)
    for c in there.tolist():
        found[random.permutation(np.flatnonzero(y == c))[: each[c]]] = True
    return found


def _at_most(field: str, wanted: int | None, there: int, source: str) -> int:
    if there == 0:
        raise DataError(f"source: {source!r} has no {field}; give one with at least one")
    if wanted is not None and wanted > there:
        raise DataError(f"{field}: {wanted} is more than {source!r} has; take at most {there}")
    return there if wanted is None else wanted


def as_target(
    values: NDArray[Any], options: Options, place: Callable[[int], str] = "row {} (counted from 0)".format
) -> tuple[Floats, int]:
    """Convert a target column to numbers that suit the task.

    Returns y as float64 (classes numbered from 0 in sorted order), and the number of classes (0: regression). Text is
    compared as text, and whole numbers exactly, so that two classes never become one. `place` returns the place of a
    row as text. Raises `DataError` if a value is missing, or the values do not suit the task.
    """
    if options.task == "regression":
        return _as_quantity(values, options, place), 0
    if values.dtype.kind == "O" and any(isinstance(v, str) for v in values):
        labels, codes, quantity = text_labels(values, options, place)
    else:
        labels, codes, quantity = _labels(values, options, place)
    _check_classes(len(labels), quantity, options)
    return codes.astype(np.float64), len(labels)


def _as_quantity(values: NDArray[Any], options: Options, place: Callable[[int], str]) -> Floats:
    """Read all values as numbers."""
    if values.dtype.kind == "c":
        raise DataError(unsuited(options, "is complex, not real numbers", "multiclass"))
    _refuse_missing(missing(values), options, place)
    if values.dtype.kind in "biuf":
        numbers = values.astype(np.float64)
    else:
        read = [number(v.strip()) if isinstance(v, str) else _float(v) for v in values]
        wrong = [row for row, v in enumerate(read) if v is None]
        if len(wrong) == len(read):
            raise DataError(unsuited(options, "is text, not numbers", "multiclass"))
        if wrong:
            if str(values[wrong[0]]).strip() in MISSING_MARKERS:
                _refuse_missing(np.isin(np.arange(len(read)), wrong[:1]), options, place)
            why = f"is {str(values[wrong[0]])[:40]!r} in {place(wrong[0])}, which is not a number; write it as one"
            raise DataError(f"source: the target of {options.source!r} {why}")
        numbers = np.array(read, dtype=np.float64)
    _refuse_missing(~np.isfinite(numbers), options, place)
    return numbers


def _float(value: Any) -> float | None:
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return None


def _labels(
    values: NDArray[Any], options: Options, place: Callable[[int], str]
) -> tuple[NDArray[Any], NDArray[Any], bool]:
    """Return sorted labels (numbers or fixed-length text), the label of each row, and if they are a quantity."""
    _refuse_missing(missing(values), options, place)
    if values.dtype.kind == "S":
        values = np.char.decode(values, "utf-8", "backslashreplace")
    if values.dtype.kind == "U":
        return text_labels(values.astype(object), options, place)
    if values.dtype.kind == "O" and all(isinstance(v, float) for v in values):
        values = values.astype(np.float64)
    if values.dtype.kind == "f":
        _refuse_missing(~np.isfinite(values), options, place)
        if (large := np.abs(values) >= EXACT_FLOAT).any():
            why = (
                "is a float, in which neighbouring whole numbers are one; store labels as integers or as text"
            )
            row = int(np.argmax(large))
            raise DataError(f"source: the target of {options.source!r} in {place(row)} {why}")
    try:
        labels, codes = np.unique(values, return_inverse=True)
    except TypeError:  # values of different types have no common order
        labels, codes = np.unique(values.astype(str), return_inverse=True)
    if labels.dtype.kind == "O" and not all(isinstance(v, int | float | Decimal) for v in labels):
        return labels, codes, False
    return labels, codes, any(v != int(v) for v in labels) if labels.dtype.kind in "fO" else False


def _refuse_missing(missing: NDArray[np.bool_], options: Options, place: Callable[[int], str]) -> None:
    if missing.any():
        where = place(int(np.argmax(missing)))
        raise DataError(
            f"source: the target of {options.source!r} is missing or not finite in {where}; "
            "remove that row or fill it in"
        )


def _check_classes(count: int, quantity: bool, options: Options) -> None:
    if count < 2:
        raise DataError(unsuited(options, "has only one value", "regression"))
    if count == 2:
        return
    fits = "regression" if quantity or count > MAX_CLASSES else "multiclass"
    if options.task != fits:
        raise DataError(unsuited(options, f"has {count} different values", fits))
