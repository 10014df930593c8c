"""Convert a table to prepared arrays on disk: checked, standardised, with an intercept."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy

from workbench.core.base.files import sha256

from .options import DataError, Options, held_out_count
from .table import Floats, Table, held_out

# version of the prepared arrays; increased if the same options give other arrays, so that older caches are ignored
FORMAT = 2


def prepare(table: Table, options: Options, folder: Path) -> None:
    """Write X.npy, y.npy, truth.npy (if there is a true model) and meta.json to an empty folder.

    Held-out samples are written to X_test.npy and y_test.npy. The standardisation is measured without these samples.
    Raises `DataError` if a column has missing or infinite values, or the disk is too small.
    """
    if options.test is not None and table.test is None:
        count = held_out_count(options.test, table.samples)  # type: ignore[arg-type]  # a file is read already
        y = np.concatenate([y for _, y in table.blocks()])
        table = table.split(held_out(y, table.classes, count, options.seed, table.place))
    width = table.features + options.intercept
    test = table.test
    _check_space(8 * (table.samples + (test.samples if test else 0)) * width, folder)
    scaling = None
    if options.scale or not table.trusted:  # the table may have missing values
        low, high = ranges(table, options.source)
        scaling = standard(table, low, high, options.source) if options.scale else None
        if test is not None:
            ranges(test, options.test if isinstance(options.test, str) else options.source)
    if test is not None:
        np.save(folder / "y_test.npy", _write_rows(test, scaling, options.intercept, folder / "X_test.npy"))
    y = _write_rows(table, scaling, options.intercept, folder / "X.npy")
    np.save(folder / "y.npy", y)
    if table.truth is not None:
        coefficients, constant = scaling.moved(table.truth) if scaling else (table.truth, 0.0)
        truth = np.append(coefficients, constant) if options.intercept else coefficients
        np.save(folder / "truth.npy", truth)  # the true model in the prepared columns
    _write_meta(table, options, folder)


def digest(classes: int, arrays: dict[str, Any]) -> str:
    """Hash the prepared content: the hashes and shapes of the arrays, and the number of classes."""
    content = json.dumps({"classes": classes, "arrays": arrays}, sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()


def _check_space(needed: int, folder: Path) -> None:
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise DataError(
            f"samples and features: the prepared data take {needed / 1e9:.1f} GB and the cache folder has "
            f"{free / 1e9:.1f} GB left; take fewer, or set WORKBENCH_CACHE to a folder on a larger disk"
        )


def _write_rows(table: Table, scaling: Standard | None, intercept: bool, path: Path) -> Floats:
    """Write X block by block and return y.

    The blocks are appended to the file, not stored in a memory map. The written pages of a map would count as memory
    of this process until the system reclaims them.
    """
    targets = []
    with path.open("wb") as file:
        shape = (table.samples, table.features + intercept)
        header = {"descr": npy.dtype_to_descr(np.dtype(np.float64)), "fortran_order": False, "shape": shape}
        npy.write_array_header_1_0(file, header)
        for block, y in table.blocks():
            columns = scaling(block) if scaling else block
            whole = np.hstack([columns, np.ones((len(block), 1))]) if intercept else columns
            file.write(np.ascontiguousarray(whole).data)
            targets.append(y)
    return np.concatenate(targets)


def _write_meta(table: Table, options: Options, folder: Path) -> None:
    arrays = {
        path.stem: {"sha256": sha256(path), "shape": list(np.load(path, mmap_mode="r").shape)}
        for path in sorted(folder.glob("*.npy"))
    }
    meta: dict[str, Any] = {
        "format": FORMAT,
        "digest": digest(table.classes, arrays),
        "classes": table.classes,
    }
    meta |= {"note": table.note, "options": vars(options), "arrays": arrays}
    meta |= {"image": table.image} if table.image else {}
    (folder / "meta.json").write_text(json.dumps(meta, indent=2) + "\n", encoding="utf-8")


@dataclass(frozen=True)
class Standard:
    """x' = ((x - low) / span - middle) / spread, column by column.

    First the range is scaled to 0 ... 1, so that nothing over- or underflows, and a large offset loses no digits. In
    constant columns x - low is exactly 0, and remains 0.
    """

    low: Floats
    span: Floats
    middle: Floats
    spread: Floats

    def __call__(self, block: Floats) -> Floats:
        """Standardise a block of rows."""
        return ((block - self.low) / self.span - self.middle) / self.spread

    def moved(self, truth: Floats) -> tuple[Floats, float]:
        """Convert a linear model of x to one of the standardised x'. Return its coefficients and its constant."""
        return truth * self.span * self.spread, float((self.low + self.span * self.middle) @ truth)


def ranges(table: Table, source: str) -> tuple[Floats, Floats]:
    """Find the least and the greatest value of every column.

    Raises `DataError` if a column has missing or infinite values, naming the first such column.
    """
    low, high = np.full(table.features, np.inf), np.full(table.features, -np.inf)
    gaps = np.zeros(table.features, dtype=bool)
    with np.errstate(invalid="ignore"):
        for block, _ in table.blocks():
            np.minimum(low, block.min(axis=0), out=low)
            np.maximum(high, block.max(axis=0), out=high)
            gaps |= ~np.isfinite(block).all(axis=0)
    if gaps.any():
        gap = int(np.argmax(gaps))
        where = _where(table, gap)
        raise DataError(
            f"source: column {table.column(gap)} of {source!r} has missing or infinite values (NaN, inf){where}; "
            "fill them in, or remove those rows or the column"
        )
    return low, high


def _where(table: Table, column: int) -> str:
    """Return the first row with a missing value in a column, as text, or "" if the positions of rows are unknown."""
    if table.place is None:
        return ""
    gaps = [~np.isfinite(block[:, column]) for block, _ in table.blocks()]
    return f", first in {table.place(np.flatnonzero(np.concatenate(gaps)))}"


def standard(table: Table, low: Floats, high: Floats, source: str) -> Standard:
    """Measure mean and deviation of every column, or of every channel if the samples are images, in one pass.

    Raises `DataError` if the range of a column exceeds the largest float.
    """
    low, high = _over_channel(table, np.min, low), _over_channel(table, np.max, high)
    with np.errstate(over="ignore"):
        span = high - low
    if not np.isfinite(span).all():
        column = table.column(int(np.argmax(~np.isfinite(span))))
        why = f"column {column} of {source!r} is too large to standardise; divide it, or use scale=False"
        raise DataError(f"scale: {why}")
    constant = span == 0
    span[constant] = 1
    total, squares = np.zeros(table.features), np.zeros(table.features)
    for block, _ in table.blocks():
        unit = (block - low) / span
        total += unit.sum(axis=0)
        squares += np.square(unit).sum(axis=0)
    total, squares = _over_channel(table, np.mean, total), _over_channel(table, np.mean, squares)
    middle = total / table.samples
    # Scaled columns contain both 0 and 1, so their variance is at least 1/(2 samples). The difference is then precise.
    spread = np.sqrt(squares / table.samples - np.square(middle))
    return Standard(low, span, middle, np.where(constant, 1.0, spread))


def _over_channel(table: Table, pooled: Callable[..., Floats], columns: Floats) -> Floats:
    """Return values of columns, pooled over the pixels of each channel if the samples are images."""
    if table.image is None:
        return columns
    channels = columns.reshape(table.image[0], -1)
    return np.repeat(pooled(channels, axis=1), channels.shape[1])
