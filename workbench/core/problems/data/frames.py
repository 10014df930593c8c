"""Tables with named columns: which one is the target, and how categories become numbers."""

import csv
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from workbench.core.base.reading import open_regular, read_table

from .options import DataError
from .table import Floats, Indices, Raw

if TYPE_CHECKING:
    import pandas as pd


TARGETS = ("target", "label", "class", "y")  # names that say themselves what is to be learnt
LISTED = 24  # columns that a sentence names


@dataclass(frozen=True)
class Columns:
    """How to understand the columns of a table.

    A table with none of the names in `targets`, or with several (points: x, y, label), does not say what is to be
    learnt: its owner has to.
    """

    target: str | None = None  # name of the target column; None: the one with a name in `targets`
    targets: tuple[str, ...] = TARGETS  # names, in small letters, that a target goes by
    encode: bool = False  # text and categories become a column of 0 and 1 per value; else they are an error
    categorical: bool = False  # take every feature for a category, numbers (of departments, say) as well


def read_csv(path: Path) -> "pd.DataFrame":
    """Read a .csv with a header line; floats come back to the last bit.

    Raises `DataError` where there is no header line.
    """
    import pandas as pd

    with warnings.catch_warnings():
        # Without index_col=False a surplus value per row would silently become an index; with it pandas
        # only warns that values are lost.
        warnings.simplefilter("error", pd.errors.ParserWarning)
        # Deprecated from pandas 3.1, whose default is as exact; earlier ones round without it.
        warnings.filterwarnings("ignore", message="The 'float_precision' argument")
        frame = read_table(path, float_precision="round_trip", index_col=False, low_memory=False)
    _own_names(frame, path)
    names = [str(name) for name in frame.columns]
    counted = names[:-1] == [str(number) for number in range(len(names) - 1)]
    if not counted and all(_is_number(name) for name in names):
        why = f"{path.name!r} starts with numbers, not with a header line; add a line of column names"
        raise DataError(f"source: {why}")
    return frame


def _own_names(frame: "pd.DataFrame", path: Path) -> None:
    """Give the columns the names that stand in the file: pandas makes a.1 of a second a, which hides it."""
    with TextIOWrapper(open_regular(path), encoding="utf-8-sig", newline="") as lines:
        names = next((row for row in csv.reader(lines) if row), [])
    if len(names) == frame.shape[1] and "" not in names:
        frame.columns = [name.strip() for name in names]
    if len(names) == 1 and (found := [mark for mark in ";\t|" if mark in names[0]]):
        why = f"{path.name!r} separates its columns by {found[0]!r}; write it with commas between them"
        raise DataError(f"source: {why}")


def frame_raw(frame: "pd.DataFrame", name: str, note: str, columns: Columns) -> Raw:
    """Separate the target column from the features.

    Raises `DataError` where there are too few rows or columns, no column or several may be the target, or a
    feature is text.
    """
    if frame.shape[0] < 1 or frame.shape[1] < 2:
        rows, wide = (
            f"{n} {what}{'s' * (n != 1)}" for n, what in zip(frame.shape, ("row", "column"), strict=True)
        )
        why = "it needs 1 row and 2 columns (a feature and the target) at least"
        raise DataError(f"source: {name!r} has {rows} and {wide}; {why}")
    place = target_place([str(column) for column in frame.columns], name, columns)
    features = frame.iloc[:, [i for i in range(frame.shape[1]) if i != place]]
    return features_raw(features, frame.iloc[:, place], name, note, columns)


def target_place(names: Sequence[str], table: str, columns: Columns) -> int:
    """Which column is the target: the one asked for, else the only one whose name says so, in whatever case.

    Raises `DataError` where there is none, or more than one.

    >>> target_place(["Label", "x0", "x1"], "mine.csv", Columns())
    0
    >>> target_place(["churned", "x0"], "mine.csv", Columns())
    Traceback (most recent call last):
    ...
    workbench.core.problems.data.options.DataError: target: 'mine.csv' has no column called target, label, class or y; \
name the one to learn: churned, x0
    """
    wanted = columns.targets if columns.target is None else (columns.target.lower(),)
    fitting = [i for i, name in enumerate(names) if name.lower() in wanted]
    exact = [i for i in fitting if names[i] == columns.target]
    if len(exact or fitting) == 1:
        return (exact or fitting)[0]
    there = ", ".join(names[:LISTED]) + (f" and {len(names) - LISTED} more" if len(names) > LISTED else "")
    if fitting:
        several = " and ".join(repr(names[i]) for i in exact or fitting)
        raise DataError(f"target: {table!r} has the columns {several}; name the one to learn: {there}")
    if columns.target is not None:
        raise DataError(f"target: {columns.target!r} is no column of {table!r}; its columns are {there}")
    usual = f"{', '.join(wanted[:-1])} or {wanted[-1]}"
    raise DataError(f"target: {table!r} has no column called {usual}; name the one to learn: {there}")


def features_raw(
    features: "pd.DataFrame", target: "pd.Series[Any]", name: str, note: str, columns: Columns
) -> Raw:
    """Make features and target numeric: numbers first, in their order, then the one-hot columns.

    One-hot columns stand most frequent value first, over all features, so that `features=1000` keeps
    what says most even where a column has thousands of values. A missing category is 0 everywhere.

    Raises `DataError` where a feature is text and `columns.encode` is off.
    """
    numeric = [not columns.categorical and _is_numeric(features.iloc[:, i]) for i in range(features.shape[1])]
    if not (columns.encode or all(numeric)):
        raise DataError(_text_column(features.iloc[:, numeric.index(False)], name))
    numbers = features.loc[:, numeric]
    matrix = numbers.to_numpy(dtype=np.float64, na_value=np.nan)
    values = target.astype(object).where(target.notna(), None).to_numpy(dtype=object)
    names = [str(column) for column in numbers.columns]
    if all(numeric):
        return Raw(lambda rows, width: matrix[:, :width][rows], len(names), values, note, names)
    hot, more = one_hot(features.loc[:, [not number for number in numeric]])

    def take(rows: Indices, width: int) -> Floats:
        """Dense for the rows that are asked for only."""
        dense = hot[rows][:, : max(0, width - len(names))].toarray()
        return np.hstack([matrix[:, :width][rows], dense]) if names else dense

    return Raw(take, len(names) + len(more), values, note, [*names, *more])


def one_hot(features: "pd.DataFrame") -> tuple[Any, list[str]]:
    """A sparse column of 0 and 1 for every value of every feature, the most frequent first, and their names."""
    from scipy.sparse import csc_array, hstack

    columns, names = [], []
    for j in range(features.shape[1]):
        codes, values = _numbered(features.iloc[:, j])
        rows = np.flatnonzero(codes >= 0)
        there = np.ones(len(rows)), (rows, codes[rows])
        columns.append(csc_array(there, shape=(len(codes), len(values))))
        names += [f"{features.columns[j]}={value}" for value in values]
    table = hstack(columns, format="csc")
    # A stable sort: equally frequent values stay in the order of the features and of the alphabet.
    order = np.argsort(-np.diff(table.indptr), kind="stable")
    return table[:, order].tocsr(), [names[i] for i in order]


def _numbered(column: "pd.Series[Any]") -> tuple[Indices, Sequence[str]]:
    """Replace the values of a column by their rank as text, a missing one by -1; list the texts."""
    import pandas as pd

    text = column.astype(object).where(column.isna(), column.astype(str))
    codes, values = pd.factorize(text, sort=True)
    return np.asarray(codes, dtype=np.intp), [str(value) for value in values]


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _is_numeric(column: "pd.Series[Any]") -> bool:
    from pandas.api import types

    return types.is_numeric_dtype(column.dtype) and not types.is_complex_dtype(column.dtype)


def _text_column(column: "pd.Series[Any]", name: str) -> str:
    import pandas as pd

    text = column[pd.to_numeric(column, errors="coerce").isna() & column.notna()]
    example = f" ({str(text.iloc[0])[:40]!r})" if len(text) else ""
    return (
        f"source: column {str(column.name)!r} of {name!r} holds {column.dtype}, not numbers{example}; "
        "remove it or replace its values by numbers"
    )
