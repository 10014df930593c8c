"""Tables with named columns: choice of the target, and conversion of categories to numbers."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from workbench.core.base.tables import TableError, text_table

from .options import DataError
from .table import Floats, Indices, Raw
from .texts import check_names, index_column, may_be_index, read_columns

if TYPE_CHECKING:
    import pandas as pd


TARGET_NAMES = ("target", "label", "class", "y")  # column names that identify the target
MAX_LISTED_COLUMNS = 24  # max number of columns that an error lists


@dataclass(frozen=True)
class Columns:
    """Rules for the columns of a table.

    If a table has none of the names in `targets`, or several (points: x, y, label), the user has to name the target.
    """

    target: str | None = None  # name of the target column; None = the one with a name in `targets`
    targets: tuple[str, ...] = TARGET_NAMES  # possible names of a target, in small letters
    encode: bool = False  # text and categories become a column of 0 and 1 per value; else they are an error
    # treat every feature as a category, even numbers (such as numbers of departments)
    categorical: bool = False


def text_raw(path: Path, note: str, columns: Columns) -> Raw:
    """Read a text table with a header line. Numbers are exact to the last bit, and the target is text.

    Raises `DataError` if the file is not such a table, and as `frame_raw` does.
    """
    try:
        with text_table(path) as table:
            names = list(table.names)
            if next(table.rows, None) is None:
                _check_shape(0, len(names), path.name)
        place = target_place(names, path.name, columns) if len(names) > 1 else 0
        others = [i for i in range(len(names)) if i != place]
        retained = [i for i in others if columns.categorical or may_be_index(names[i])]
        found = read_columns(path, [place, *retained])
        if columns.encode and (odd := [i for i in found.odd if i not in retained]):
            found = read_columns(path, [place, *retained, *odd])
    except TableError as error:
        raise DataError(error.of(f"source: {path.name!r}")) from None
    _check_shape(len(found.lines), len(names), path.name)
    features = check_names(names, path, place, found)
    text = [i for i in features if columns.categorical or i in found.odd]
    if text and not columns.encode:
        line, example = found.odd[text[0]]
        raise DataError(_not_numbers(names[text[0]], path.name, f" in line {line}", example))
    numeric = [at for at, i in enumerate(found.numeric) if i in features and i not in text]
    matrix = found.numbers if len(numeric) == found.numbers.shape[1] else found.numbers[:, numeric]
    numbers = [names[found.numeric[at]] for at in numeric]
    target = np.array(found.texts[place], dtype=object)
    categories = None
    if text:
        import pandas as pd

        texts = [np.array([t if t.strip() else None for t in found.texts[i]], dtype=object) for i in text]
        categories = pd.DataFrame(dict(enumerate(texts)), dtype=object)
        categories = categories.set_axis([names[i] for i in text], axis=1)
    return _raw(matrix, numbers, categories, Raw(_nothing, 0, target, note, lines=found.lines))


def _nothing(rows: Indices, width: int) -> Floats:
    return np.empty((len(rows), 0))


def _check_shape(rows: int, columns: int, name: str) -> None:
    if rows < 1 or columns < 2:
        high, wide = (f"{n} {what}{'s' * (n != 1)}" for n, what in ((rows, "row"), (columns, "column")))
        why = "it needs 1 row and 2 columns (a feature and the target) at least"
        raise DataError(f"source: {name!r} has {high} and {wide}; {why}")


def frame_raw(
    frame: "pd.DataFrame",
    name: str,
    note: str,
    columns: Columns,
    exact: Callable[[int], list[Any]] | None = None,
) -> Raw:
    """Separate the target column from the features.

    `exact`: function of a column's index that returns its values as they are in the file.

    Raises `DataError` for too few rows or columns, for none or several possible targets, and for a feature that is
    text or numbers the rows.
    """
    import pandas as pd

    _check_shape(*frame.shape, name)
    names = [str(column) for column in frame.columns]
    place = target_place(names, name, columns)
    others = [i for i in range(frame.shape[1]) if i != place]
    for i in filter(lambda i: may_be_index(names[i]), others):
        if why := index_column(names[i], frame.iloc[:, i].tolist()):
            raise DataError(f"source: {name!r}: column {i + 1} {why}")
    target = frame.iloc[:, place]
    # whole numbers may have become floats, because values are missing
    if exact is not None and target.dtype.kind == "f":
        target = pd.Series(exact(place), target.index, dtype=object, name=target.name)
    return features_raw(frame.iloc[:, others], target, name, note, columns)


def target_place(names: Sequence[str], table: str, columns: Columns) -> int:
    """Return the index of the target column: the given one, else the only one with a usual name (in any case).

    Raises `DataError` if there is none, or more than one.

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
    there = ", ".join(names[:MAX_LISTED_COLUMNS]) + (
        f" and {len(names) - MAX_LISTED_COLUMNS} more" if len(names) > MAX_LISTED_COLUMNS else ""
    )
    if fitting:
        several = " and ".join(repr(names[i]) for i in exact or fitting)
        raise DataError(f"target: {table!r} has the columns {several}; name the one to learn: {there}")
    if columns.target is not None:
        raise DataError(f"target: {columns.target!r} is not a column of {table!r}; its columns are {there}")
    usual = f"{', '.join(wanted[:-1])} or {wanted[-1]}"
    raise DataError(f"target: {table!r} has no column called {usual}; name the one to learn: {there}")


def features_raw(
    features: "pd.DataFrame", target: "pd.Series[Any]", name: str, note: str, columns: Columns
) -> Raw:
    """Make features and target numeric: numbers first, in their order, then the one-hot columns.

    One-hot columns are ordered by frequency of their values, over all features. So `features=1000` keeps the most
    informative ones even if a column has thousands of values. A missing category is 0 everywhere.

    Raises `DataError` if a feature is text and `columns.encode` is off.
    """
    numeric = [not columns.categorical and _is_numeric(features.iloc[:, i]) for i in range(features.shape[1])]
    if not (columns.encode or all(numeric)):
        raise DataError(_text_column(features.iloc[:, numeric.index(False)], name))
    numbers = features.loc[:, numeric]
    matrix = numbers.to_numpy(dtype=np.float64, na_value=np.nan)
    values = target.astype(object).where(target.notna(), None).to_numpy(dtype=object)
    names = [str(column) for column in numbers.columns]
    text = None if all(numeric) else features.loc[:, [not number for number in numeric]]
    return _raw(matrix, names, text, Raw(_nothing, 0, values, note))


def _raw(matrix: Floats, names: list[str], text: "pd.DataFrame | None", raw: Raw) -> Raw:
    """Put features into a table: numbers, then a column of 0 and 1 for each value of the text."""
    if text is None:
        return replace(
            raw, take=lambda rows, width: matrix[:, :width][rows], features=len(names), names=names
        )
    hot, more = one_hot(text)

    def take(rows: Indices, width: int) -> Floats:
        """Return a dense array of only the given rows."""
        dense = hot[rows][:, : max(0, width - len(names))].toarray()
        return np.hstack([matrix[:, :width][rows], dense]) if names else dense

    return replace(raw, take=take, features=len(names) + len(more), names=[*names, *more])


def one_hot(features: "pd.DataFrame") -> tuple[Any, list[str]]:
    """Return a sparse 0/1 column for each value of each feature, most frequent values first, and their names."""
    from scipy.sparse import csc_array, hstack

    columns, names = [], []
    for j in range(features.shape[1]):
        codes, values = _numbered(features.iloc[:, j])
        rows = np.flatnonzero(codes >= 0)
        there = np.ones(len(rows)), (rows, codes[rows])
        columns.append(csc_array(there, shape=(len(codes), len(values))))
        names += [f"{features.columns[j]}={value}" for value in values]
    table = hstack(columns, format="csc")
    # the sort is stable, so that equally frequent values stay in the order of features and of the alphabet
    order = np.argsort(-np.diff(table.indptr), kind="stable")
    return table[:, order].tocsr(), [names[i] for i in order]


def _numbered(column: "pd.Series[Any]") -> tuple[Indices, Sequence[str]]:
    """Return the values of a column as indices into its sorted texts, missing ones as -1, and these texts."""
    import pandas as pd

    text = column.astype(object).where(column.isna(), column.astype(str))
    codes, values = pd.factorize(text, sort=True)
    return np.asarray(codes, dtype=np.intp), [str(value) for value in values]


def _is_numeric(column: "pd.Series[Any]") -> bool:
    from pandas.api import types

    return types.is_numeric_dtype(column.dtype) and not types.is_complex_dtype(column.dtype)


def _text_column(column: "pd.Series[Any]", name: str) -> str:
    import pandas as pd

    text = column[pd.to_numeric(column, errors="coerce").isna() & column.notna()]
    return _not_numbers(str(column.name), name, "", str(text.iloc[0]) if len(text) else str(column.dtype))


def _not_numbers(column: str, name: str, place: str, example: str) -> str:
    return (
        f"source: column {column!r} of {name!r} holds {example[:40]!r}{place}, which is not a number; "
        "remove the column or replace its values by numbers"
    )
