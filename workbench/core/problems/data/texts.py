"""Samples in text tables: features are read as numbers, block by block, the target and categories as text."""

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workbench.core.base.tables import number, text_table, whole_number

from .labels import MISSING_MARKERS
from .options import DataError
from .table import Floats

BLOCK_FIELDS = 1 << 18  # max number of fields converted to numbers at once
_TRUTH = {"True": 1.0, "TRUE": 1.0, "true": 1.0, "False": 0.0, "FALSE": 0.0, "false": 0.0}
INDEX_NAMES = ("index", "level_0", "__index_level_0__", "rownames")  # names of columns with row numbers


@dataclass
class TextColumns:
    """Columns of a table: some as float64, others as text, and the line of each row."""

    names: tuple[str, ...]
    numbers: Floats = field(default_factory=lambda: np.empty((0, 0)))  # (rows, columns that are numbers)
    numeric: list[int] = field(default_factory=list)  # indices of these columns
    texts: dict[int, list[str]] = field(default_factory=dict)  # index of a column -> its texts
    lines: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    # index of a column -> line and text of its first value that is not a number
    odd: dict[int, tuple[int, str]] = field(default_factory=dict)


def read_columns(path: Path, keep: Sequence[int]) -> TextColumns:
    """Read a table once: columns of `keep` as text, and all but the first of `keep`, the target, as numbers.

    Columns with other values than numbers are in `odd`. Raises the errors of `text_table`.
    """
    shared: dict[str, str] = {}
    with text_table(path) as table:
        found = TextColumns(table.names, texts={place: [] for place in keep})
        others = [place for place in range(len(table.names)) if place != keep[0]]
        lines, blocks = array("q"), []
        for block in _blocks(table.rows, max(1, BLOCK_FIELDS // len(table.names))):
            lines.extend(line for line, _ in block)
            columns = list(zip(*(fields for _, fields in block), strict=True))
            for place, texts in found.texts.items():
                texts += [shared.setdefault(text, text) for text in columns[place]]
            numbers = np.empty((len(block), len(others)))
            for at, place in enumerate(others):
                if place not in found.odd:
                    numbers[:, at], wrong = _numbers(columns[place])
                    if wrong is not None:
                        found.odd[place] = (block[wrong][0], columns[place][wrong])
            blocks.append(numbers)
    kept = [at for at, place in enumerate(others) if place not in found.odd]
    whole = np.concatenate(blocks) if blocks else np.empty((0, len(others)))
    found.numbers = whole if len(kept) == len(others) else whole[:, kept]
    found.numeric = [others[at] for at in kept]
    found.lines = np.frombuffer(lines, np.int64) if lines else np.empty(0, np.int64)
    return found


def _blocks(rows: Iterator[tuple[int, list[str]]], size: int) -> Iterator[list[tuple[int, list[str]]]]:
    while block := list(islice(rows, size)):
        yield block


def _numbers(fields: Sequence[str]) -> tuple[Any, int | None]:
    """Convert fields to numbers, missing ones to NaN.

    Return also the index of the first that is not a number, or None.
    """
    joined = "".join(fields)
    if joined.isascii() and "_" not in joined:  # Python would accept 1_000 and digits of all scripts
        try:
            return np.array(fields, dtype=np.float64), None
        except ValueError:
            pass
    found = np.empty(len(fields))
    for i, text in enumerate(fields):
        value = _TRUTH.get(text, number(text))
        if value is None and text.strip() not in MISSING_MARKERS:
            return np.nan, i
        found[i] = np.nan if value is None else value
    return found, None


def check_names(names: Sequence[str], path: Path, target: int, columns: TextColumns) -> list[int]:
    """Return the places of the features, without columns that have neither a name nor a value.

    Raises `DataError` for a feature without a name, for a column of row numbers, and for a first line of values.
    """
    empty = []
    for place, name in enumerate(names):
        if place == target:
            continue
        texts = columns.texts.get(place)
        if name == "" and texts is not None and not "".join(texts).strip():
            empty.append(place)
        elif texts is not None and (why := index_column(name, texts)):
            raise DataError(f"source: {path.name!r}: column {place + 1} {why}")
    labels = columns.texts[target]
    if names[target] in labels and any(number(name) is not None for name in names):
        at = labels.index(names[target])
        why = f"target: {names[target]!r} is in the first line of {path.name!r} and a value in line {columns.lines[at]}"
        raise DataError(f"{why}; if the first line holds values, put a line of column names above it")
    return [place for place in range(len(names)) if place not in (target, *empty)]


def may_be_index(name: str) -> bool:
    """Return whether the name is empty or one that programs give to row numbers."""
    return name == "" or name.startswith("Unnamed: ") or name.lower() in INDEX_NAMES


def index_column(name: str, values: Sequence[Any]) -> str:
    """Return why a column cannot be a feature (no name, or row numbers), or "" if it may be a feature.

    >>> index_column("", ["0", "1", "2"])
    'has no name and numbers the rows; write the table without its index (to_csv(index=False)), or remove the column'
    >>> index_column("index", ["0.5", "0.1"])
    ''
    """
    if not may_be_index(name):
        return ""
    whole = [whole_number(str(value)) for value in values]
    distinct = None not in whole and len(set(whole)) == len(whole)
    called = "has no name" if name == "" else f"is called {name!r}"
    if distinct and (name == "" or name.startswith("Unnamed: ") or _counts(whole)):
        remove = "write the table without its index (to_csv(index=False)), or remove the column"
        return f"{called} and numbers the rows; {remove}"
    return f"{called}; give it a name, or remove it" if name == "" else ""


def _counts(whole: Sequence[int | None]) -> bool:
    return list(whole) in (list(range(len(whole))), list(range(1, len(whole) + 1)))
