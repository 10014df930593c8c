"""The user's own files: .npy, .npz, .csv, .parquet and svmlight."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workbench.core.base.reading import (
    check_size,
    names_in,
    open_regular,
    open_table,
    read_npy,
    read_npz,
    read_parquet,
)
from workbench.core.base.settings import SettingError

from .cache import hashed
from .frames import Columns, frame_raw, read_csv
from .options import DataError
from .table import Raw

MAP_FROM_BYTES = 1 << 20  # a larger .npy is mapped into memory, not read (an empty one cannot be mapped)


def read_file(path: Path, columns: Columns | None = None) -> Raw:
    """Read a file of samples; nothing is ever unpickled.

    A .npy (2-D, last column the target), .npz (arrays X and y), .csv with a header line or .parquet, whose `columns`
    say how to understand them, .svmlight, .libsvm or .svm (columns count from 1, or from 0 where a column 0 occurs;
    columns after the last entry are unknown).

    Raises `DataError` where the file is missing, damaged, or holds something else.
    """
    check_file(path)
    try:
        return READERS[path.suffix.lower()](path, columns or Columns())
    except DataError:
        raise
    except SettingError as error:  # no regular file, or larger than memory
        raise DataError(f"source: {error}") from None
    except UnicodeDecodeError as error:
        why = f"{path.name!r} is no text in UTF-8 ({error.reason}); save it as such"
        raise DataError(f"source: {why}") from error
    except Exception as error:  # each library raises its own kinds on a damaged file
        reason = " ".join(str(error).split()) or type(error).__name__
        why = f"{path.name!r} cannot be read as {path.suffix} ({reason}); check how it was written"
        raise DataError(f"source: {why}") from error


def check_file(path: Path) -> None:
    """Refuse a path that is no file, or a file of no known kind."""
    if path.suffix.lower() not in READERS:
        raise DataError(f"source: {path.name!r} has no known ending; use a file in {', '.join(READERS)}")
    if path.is_dir() or not path.exists():
        raise DataError(f"source: there is no file {str(path)!r}; check the path")
    try:
        open_regular(path).close()
    except SettingError as error:
        raise DataError(f"source: {error}") from None
    except OSError as error:
        raise DataError(f"source: {str(path)!r} cannot be read ({error.strerror})") from None


def content(path: Path, target: str | None) -> str:
    """Say what a file holds, for the name of its cache: its hash and, of named columns, which is the target.

    Raises `DataError` where a target is named where columns have no names.
    """
    named = path.suffix.lower() in NAMED
    if target is not None and not named:
        raise DataError(
            f"target: {target!r} names a column, and {path.name!r} has no names of columns; leave it empty: the "
            "target of a .npy is its last column, of a .npz the array y, of a .svmlight what begins the lines"
        )
    return hashed(path) + (f":target={target!r}" if named else "")


def _npy(path: Path, columns: Columns) -> Raw:
    array = read_npy(path, mapped=path.stat().st_size > MAP_FROM_BYTES)
    _check_matrix(array, path.name, "an array", least=2)
    return _array_raw(array[:, :-1], np.array(array[:, -1]), path)


def _npz(path: Path, columns: Columns) -> Raw:
    arrays = read_npz(path, ("X", "y"))
    if not {"X", "y"} <= set(arrays):
        names = ", ".join(names_in(path)) or "none"
        raise DataError(f"source: {path.name!r} holds the arrays {names}; it must hold X and y")
    X, y = arrays["X"], arrays["y"]
    _check_matrix(X, path.name, "X")
    if y.shape != X.shape[:1]:
        why = "y must be 1-D with one value per row of X"
        raise DataError(f"source: y of {path.name!r} has shape {y.shape} and X {X.shape}; {why}")
    return _array_raw(X, y, path)


def _check_matrix(array: NDArray[Any], name: str, what: str, least: int = 1) -> None:
    if array.dtype.kind not in "biuf":
        raise DataError(f"source: {what} of {name!r} has type {array.dtype}; it must hold real numbers")
    if array.ndim != 2:
        raise DataError(f"source: {what} of {name!r} is {array.ndim}-D; it must be 2-D, one row per sample")
    if array.shape[0] < 1 or array.shape[1] < least:
        why = f"{what} of {name!r} has shape {array.shape}; it needs 1 row and {least} columns at least"
        raise DataError(f"source: {why}")


def _array_raw(X: NDArray[Any], y: NDArray[Any], path: Path) -> Raw:
    return Raw(lambda rows, width: X[:, :width][rows], X.shape[1], y, f"The file {path.name}.")


def _svmlight(path: Path, columns: Columns) -> Raw:
    from sklearn.datasets import load_svmlight_file

    with open_table(path) as file:
        X, y = load_svmlight_file(file)
    check_size(path, 8.0 * X.shape[1], f"for a row of {X.shape[1]} columns")
    _check_matrix(X, path.name, "the table")
    return Raw(lambda rows, width: X[rows][:, :width].toarray(), X.shape[1], y, f"The file {path.name}.")


def _frame(path: Path, columns: Columns) -> Raw:
    frame = read_csv(path) if path.suffix.lower() == ".csv" else read_parquet(path)
    return frame_raw(frame, path.name, f"The file {path.name}.", columns)


NAMED = (".csv", ".parquet")  # their columns have names
Reader = Callable[[Path, Columns], Raw]
READERS: dict[str, Reader] = {".npy": _npy, ".npz": _npz, **dict.fromkeys(NAMED, _frame)}
READERS |= dict.fromkeys((".svmlight", ".libsvm", ".svm"), _svmlight)
