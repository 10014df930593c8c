"""From a table to prepared arrays on disk: checked, standardised, with an intercept."""

import hashlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy

from workbench.base.files import sha256

from .options import DataError, Options
from .standardise import Standard, ranges, standard
from .table import Floats, Table

FORMAT = 1  # raise it when the same options give other arrays: older caches are then left alone


def prepare(table: Table, options: Options, folder: Path) -> None:
    """Write X.npy, y.npy, truth.npy (where there is a true model) and meta.json to an empty folder.

    Raises `DataError` where a column has missing or infinite values, or the disk is too small.
    """
    width = table.features + options.intercept
    _check_space(8 * table.samples * width, folder)
    scaling = _standard(table, options)
    y = _write_rows(table, scaling, options.intercept, folder / "X.npy")
    np.save(folder / "y.npy", y)
    if table.truth is not None:
        np.save(folder / "truth.npy", _moved_truth(table.truth, scaling, options.intercept))
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


def _standard(table: Table, options: Options) -> Standard | None:
    """Look for gaps where there may be some, and measure the columns where they are to be standardised."""
    if table.trusted and not options.scale:
        return None
    low, high = ranges(table, options.source)
    return standard(table, low, high, options.source) if options.scale else None


def _write_rows(table: Table, scaling: Standard | None, intercept: bool, path: Path) -> Floats:
    """Write X block by block and return y.

    The blocks are appended to the file rather than stored in a memory map, whose written pages would
    count as this process's memory until the system takes them back.
    """
    targets = []
    with path.open("wb") as file:
        shape = (table.samples, table.features + intercept)
        header = {"descr": npy.dtype_to_descr(np.dtype(np.float64)), "fortran_order": False, "shape": shape}
        npy.write_array_header_1_0(file, header)
        for block, y in _finished(table, scaling, intercept):
            file.write(np.ascontiguousarray(block).data)
            targets.append(y)
    return np.concatenate(targets)


def _finished(table: Table, scaling: Standard | None, intercept: bool) -> Iterator[tuple[Floats, Floats]]:
    for block, y in table.blocks():
        columns = scaling(block) if scaling else block
        yield np.hstack([columns, np.ones((len(block), 1))]) if intercept else columns, y


def _moved_truth(truth: Floats, scaling: Standard | None, intercept: bool) -> Floats:
    """Express the true model in the prepared columns."""
    coefficients, constant = scaling.moved(truth) if scaling else (truth, 0.0)
    return np.append(coefficients, constant) if intercept else coefficients


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
