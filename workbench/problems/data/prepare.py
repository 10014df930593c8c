"""From a table to prepared arrays on disk: checked, standardised, with an intercept."""

import hashlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy

from workbench.files import sha256

from .options import DataError, Options
from .table import Floats, Table

FORMAT = 1  # raise it when the same options give other arrays: older caches are then left alone


def prepare(table: Table, options: Options, folder: Path) -> None:
    """Write X.npy, y.npy, truth.npy (where there is a true model) and meta.json to an empty folder.

    Raises
    ------
    DataError
        A column has missing or infinite values, or the disk is too small.
    """
    width = table.features + options.intercept
    _check_space(8 * table.samples * width, folder)
    mean, deviation = _moments(table, options)
    y = _write_rows(table, mean, deviation, options, folder / "X.npy")
    np.save(folder / "y.npy", y)
    if table.truth is not None:
        np.save(folder / "truth.npy", _moved_truth(table.truth, mean, deviation, options))
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


def _moments(table: Table, options: Options) -> tuple[Floats, Floats]:
    """Column means and standard deviations to standardise with; 0 and 1 when that is off."""
    mean, deviation = np.zeros(table.features), np.ones(table.features)
    if table.trusted and not options.scale:
        return mean, deviation
    low, high, total = _survey(table, options.source)
    if not options.scale:
        return mean, deviation
    with np.errstate(over="ignore"):
        mean = total / table.samples
        span = high - low
    if not (np.isfinite(mean).all() and np.isfinite(span).all()):
        column = table.column(int(np.argmin(np.isfinite(mean) & np.isfinite(span))))
        raise DataError(
            f"scale: column {column} of {options.source!r} is too large to standardise; "
            "divide it, or use scale=False"
        )
    # A constant column is left at exactly zero: its rounded mean would leave noise, blown up by 1/0.
    mean = np.where(span == 0, low, mean)
    return mean, _deviation(table, mean, span)


def _survey(table: Table, source: str) -> tuple[Floats, Floats, Floats]:
    """Least, greatest and sum of every column; complains about the first column with a gap."""
    low, high = np.full(table.features, np.inf), np.full(table.features, -np.inf)
    total, gaps = np.zeros(table.features), np.zeros(table.features, dtype=bool)
    with np.errstate(invalid="ignore", over="ignore"):
        for block, _ in table.blocks():
            np.minimum(low, block.min(axis=0), out=low)
            np.maximum(high, block.max(axis=0), out=high)
            total += block.sum(axis=0)
            gaps |= ~np.isfinite(block).all(axis=0)
    if gaps.any():
        column = table.column(int(np.argmax(gaps)))
        raise DataError(
            f"source: column {column} of {source!r} has missing or infinite values (NaN, inf); "
            "fill them in, or remove those rows or the column"
        )
    return low, high, total


def _deviation(table: Table, mean: Floats, span: Floats) -> Floats:
    """Compute standard deviations, 1 for constant columns, in units of the span: squares stay in range."""
    unit = np.where(span == 0, 1.0, span)
    squares = np.zeros(table.features)
    for block, _ in table.blocks():
        squares += np.square((block - mean) / unit).sum(axis=0)
    return np.where(span == 0, 1.0, unit * np.sqrt(squares / table.samples))


def _write_rows(table: Table, mean: Floats, deviation: Floats, options: Options, path: Path) -> Floats:
    """Write X block by block and return y.

    The blocks are appended to the file rather than stored in a memory map, whose written pages would
    count as this process's memory until the system takes them back.
    """
    targets = []
    with path.open("wb") as file:
        shape = (table.samples, table.features + options.intercept)
        header = {"descr": npy.dtype_to_descr(np.dtype(np.float64)), "fortran_order": False, "shape": shape}
        npy.write_array_header_1_0(file, header)
        for block, y in _finished(table, mean, deviation, options):
            file.write(np.ascontiguousarray(block).data)
            targets.append(y)
    return np.concatenate(targets)


def _finished(
    table: Table, mean: Floats, deviation: Floats, options: Options
) -> Iterator[tuple[Floats, Floats]]:
    for block, y in table.blocks():
        if options.scale:
            block = (block - mean) / deviation
        if options.intercept:
            block = np.hstack([block, np.ones((len(block), 1))])
        yield block, y


def _moved_truth(truth: Floats, mean: Floats, deviation: Floats, options: Options) -> Floats:
    """Express the true model in the prepared columns: x . truth = x' . (truth * deviation) + mean . truth."""
    moved = truth * deviation
    return np.append(moved, mean @ truth) if options.intercept else moved


def _write_meta(table: Table, options: Options, folder: Path) -> None:
    arrays = {
        path.stem: {"sha256": sha256(path), "shape": list(np.load(path, mmap_mode="r").shape)}
        for path in sorted(folder.glob("*.npy"))
    }
    meta = {
        "format": FORMAT,
        "digest": digest(table.classes, arrays),
        "classes": table.classes,
        "note": table.note,
        "options": vars(options),
        "arrays": arrays,
    }
    (folder / "meta.json").write_text(json.dumps(meta, indent=2) + "\n", encoding="utf-8")
