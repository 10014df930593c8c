"""Data files of the user: .npy, .npz, .csv, .parquet, svmlight and images."""

import hashlib
from collections.abc import Callable
from io import TextIOWrapper
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workbench.core.base.reading import (
    check_size,
    names_in,
    open_parquet,
    open_regular,
    open_table,
    read_npy,
    read_npz,
)
from workbench.core.base.settings import SettingError
from workbench.core.base.tables import TEXT_ENDINGS, ending, number

from . import images
from .cache import hashed
from .frames import Columns, frame_raw, text_raw
from .options import DataError
from .table import Raw

# larger .npy files are mapped into memory and not read (empty files cannot be mapped)
MAP_FROM_BYTES = 1 << 20


def read_file(path: Path, columns: Columns | None = None) -> Raw:
    """Read a file of samples. Nothing is ever unpickled.

    Formats: .npy (2-D, the last column is the target); .npz (arrays X and y); .svmlight, .libsvm or .svm.
    Tables: .csv or .tsv with a header line (both also as .gz), or .parquet; `columns` determines the target and the
    categories. Images: .bin, archives and folders (see `images`).

    In .svmlight, .libsvm and .svm, columns count from 1, or from 0 if a column 0 occurs. Columns after the last entry
    are not recognised.

    Raises `DataError` if the file is missing, damaged, or contains something else.
    """
    check_file(path)
    try:
        return (
            images.read_images(path) if path.is_dir() else READERS[ending(path)](path, columns or Columns())
        )
    except DataError:
        raise
    except SettingError as error:  # the file is not regular, or larger than memory
        raise DataError(f"source: {error}") from None
    except Exception as error:  # each library raises other exceptions for a damaged file
        reason = " ".join(str(error).split()) or type(error).__name__
        why = f"{path.name!r} cannot be read as {ending(path)} ({reason}); check how it was written"
        raise DataError(f"source: {why}") from error


def check_file(path: Path) -> None:
    """Raise `DataError` for a path that is not a file or folder of images, or a file of an unknown kind."""
    if path.is_dir():
        for file in images.files_of(path):
            check_file(file)
        return
    if ending(path) not in READERS:
        raise DataError(f"source: {path.name!r} has no known ending; use a file in {', '.join(READERS)}")
    if not path.exists():
        raise DataError(f"source: there is no file {str(path)!r}; check the path")
    try:
        open_regular(path).close()
    except SettingError as error:
        raise DataError(f"source: {error}") from None
    except OSError as error:
        raise DataError(f"source: {str(path)!r} cannot be read ({error.strerror})") from None


def content(path: Path, target: str | None) -> str:
    """Return the identity of a file's content, which names its cache: its hash and, with named columns, its target.

    Raises `DataError` if a target is named and the columns have no names.
    """
    named = ending(path) in NAMED_COLUMN_ENDINGS and not path.is_dir()
    if target is not None and not named:
        raise DataError(
            f"target: {target!r} names a column, and {path.name!r} has no names of columns; leave it empty: the "
            "target of a .npy is its last column, of a .npz the array y, of a .svmlight what begins the lines"
        )
    if path.is_dir():
        parts = [f"{file.name}:{hashed(file)}" for file in images.files_of(path)]
        return hashlib.sha256("/".join(parts).encode()).hexdigest()
    return hashed(path) + (f":target={target!r}" if named else "")


def _npy(path: Path, columns: Columns) -> Raw:
    array = read_npy(path, mapped=path.stat().st_size > MAP_FROM_BYTES)
    _check_matrix(array, path.name, "an array", least=2)
    return _array_raw(array[:, :-1], np.array(array[:, -1]), path)


def _npz(path: Path, columns: Columns) -> Raw:
    present = names_in(path)
    if images.IMAGES in present and "X" not in present:
        return images.read_images(path)
    arrays = read_npz(path, ("X", "y"))
    if not {"X", "y"} <= set(arrays):
        names = ", ".join(present) or "none"
        raise DataError(
            f"source: {path.name!r} holds the arrays {names}; it must hold X and y, or images and labels"
        )
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

    labels, lines = _svmlight_labels(path)
    try:
        with open_table(path) as file:
            X, y = load_svmlight_file(file)
    except SettingError:
        raise
    except ValueError as error:
        reason = " ".join(str(error).split())
        raise DataError(f"source: {path.name!r} cannot be read{_bad_line(path)} ({reason})") from None
    check_size(path, 8.0 * X.shape[1], f"for a row of {X.shape[1]} columns")
    _check_matrix(X, path.name, "the table")
    exact = np.array(labels, dtype=object) if len(labels) == len(y) else y
    at = np.array(lines) if len(lines) == len(y) else None
    take = lambda rows, width: X[rows][:, :width].toarray()  # noqa: E731 - of one line, and used once
    return Raw(take, X.shape[1], exact, f"The file {path.name}.", lines=at)


def _svmlight_labels(path: Path) -> tuple[list[str], list[int]]:
    """Return the first field of each line, as text, and the line numbers."""
    with TextIOWrapper(open_regular(path), encoding="utf-8", errors="replace") as file:
        rows = ((i, line.partition("#")[0].split(None, 1)) for i, line in enumerate(file, 1))
        found = [(texts[0], i) for i, texts in rows if texts]
    return [text for text, _ in found], [i for _, i in found]


def _bad_line(path: Path) -> str:
    """Return the first line that is not a label followed by column:number pairs, as text."""
    with TextIOWrapper(open_regular(path), encoding="utf-8", errors="replace") as file:
        for at, line in enumerate(file, 1):
            label, *entries = line.partition("#")[0].split() or ["0"]
            pairs = (entry.partition(":") for entry in entries)
            if number(label) is None or any(
                not (key.isdecimal() or key == "qid") or number(value) is None for key, _, value in pairs
            ):
                return f", line {at}"
    return ""


def _text(path: Path, columns: Columns) -> Raw:
    return text_raw(path, f"The file {path.name}.", columns)


def _frame(path: Path, columns: Columns) -> Raw:
    with open_parquet(path) as file:
        table = file.read()
    frame = table.to_pandas()
    return frame_raw(
        frame,
        path.name,
        f"The file {path.name}.",
        columns,
        exact=lambda place: table.column(str(frame.columns[place])).to_pylist(),
    )


NAMED_COLUMN_ENDINGS = (*TEXT_ENDINGS, ".parquet")  # endings of files whose columns have names
Reader = Callable[[Path, Columns], Raw]
READERS: dict[str, Reader] = {".npy": _npy, ".npz": _npz, **dict.fromkeys(TEXT_ENDINGS, _text)}
SPARSE = (".svmlight", ".libsvm", ".svm")
READERS |= {
    ".parquet": _frame,
    **dict.fromkeys(SPARSE, _svmlight),
    ".bin": lambda path, _: images.read_images(path),
}
