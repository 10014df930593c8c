"""Tables in text files: types are not guessed, and each row has the line of the file on which it begins.

Columns are separated by commas, in a .tsv by tabs, or by the separator in a first line such as ``sep=;``. All fields
are text until a caller converts them to numbers. Ambiguous content raises an error with its line.
"""

import csv
import re
from array import array
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from io import BytesIO, TextIOWrapper
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from workbench.core.base.reading import (
    FIELD_BYTES,
    check_size,
    open_parquet,
    open_regular,
    open_table,
    read_gzip,
)

if TYPE_CHECKING:
    import pandas as pd

DELIMITERS = {".csv": ",", ".tsv": "\t"}
TEXT_ENDINGS = tuple(ending + packed for packed in ("", ".gz") for ending in DELIMITERS)
# max number of different field texts that are shared between equal fields, to save memory
MAX_SHARED_TEXTS = 2**16
MAX_WHOLE_DIGITS = 40  # max number of digits of a whole number
PEEKED_ROWS = 20  # number of first rows that are searched for decimal commas
EXACT_FLOAT = 2**53  # from here on, a float may represent several whole numbers
_BOMS = (
    (b"\xff\xfe\x00\x00", "utf-32"),
    (b"\x00\x00\xfe\xff", "utf-32"),
    (b"\xff\xfe", "utf-16"),
    (b"\xfe\xff", "utf-16"),
)
_GZIP = b"\x1f\x8b"
_PACKED = {
    b"PK\x03\x04": "a zip archive or a spreadsheet",
    b"BZh": "packed by bzip2",
    b"\xfd7zXZ": "packed by xz",
    b"\x28\xb5\x2f\xfd": "packed by zstd",
    b"\xd0\xcf\x11\xe0": "a spreadsheet",
}
_SEPARATOR = re.compile(r'"?sep=([^\w\s"]|\t)"?', re.IGNORECASE)
_DECIMAL_COMMA = re.compile(r'(^|[;\t|])"?\s*[-+]?\d+,\d+\s*"?([;\t|]|$)')
_WRITTEN_WITH = {",": "commas", "\t": "tabs"}
_WHOLE = re.compile(r"[-+]?[0-9]+(\.0*)?", re.ASCII)
_PLAIN_WHOLE = re.compile(r"(0|-?[1-9][0-9]*)", re.ASCII)
_UNDECODED = re.compile("[\udc80-\udcff]")


class TableError(ValueError):
    """Error: a table cannot be read. `place`: position in the table, such as "line 3", or "".

    >>> print(TableError("worker is empty", "line 3").of("path = 'a.csv'"))
    path = 'a.csv', line 3: worker is empty
    """

    def __init__(self, why: str, place: str = "") -> None:
        super().__init__(f"{place}: {why}" if place else why)
        self.why, self.place = why, place

    def of(self, file: str) -> str:
        """Return an error whose message begins with the name of the file."""
        return f"{file}, {self}" if self.place else f"{file}: {self}"


@dataclass(frozen=True)
class TextTable:
    """Names of the columns, and an iterator over the rows: the line on which each begins, and its fields."""

    names: tuple[str, ...]
    rows: Iterator[tuple[int, list[str]]]


def ending(path: Path) -> str:
    """Return a file's ending in lower case. If it is .gz, the ending before it is included.

    >>> ending(Path("TIMES.CSV")), ending(Path("my.times.csv.gz"))
    ('.csv', '.csv.gz')
    """
    last = path.suffix.lower()
    return Path(path.stem).suffix.lower() + last if last == ".gz" else last


@contextmanager
def text_table(path: Path) -> Iterator[TextTable]:
    """Open a table in text, as a context manager.

    Raises `TableError` (also while rows are read) and OSError. Raises `SettingError` for a file that is not regular, or
    does not fit into memory.
    """
    with _opened(path) as file:
        start = file.read(4)
        file.seek(0)
        encoding = next((name for mark, name in _BOMS if start.startswith(mark)), "utf-8-sig")
        lines = _Lines(TextIOWrapper(file, encoding=encoding, newline=""), path, encoding)
        delimiter, comments = _before_header(lines, DELIMITERS.get(ending(path).removesuffix(".gz"), ","))
        records = _records(lines, delimiter)
        header, fields = next(records)
        names = tuple(name.strip() for name in fields)
        _check_separator(names, delimiter, lines)
        for line, text in comments:
            if len(next(csv.reader([text], delimiter=delimiter))) == len(names) > 1:
                why = "is this the line of names, or a comment? Remove the '#', or the line"
                raise TableError(f"begins with '#': {why}", f"line {line}")
        if _is_data(names):
            why = "starts with numbers, not with a header line; add a line of column names"
            raise TableError(why, f"line {header}")
        yield TextTable(names, _rows(records, len(names)))


def read_texts(path: Path) -> "pd.DataFrame":
    """Read all fields as text. The index has the line of each row. Raises the errors of `text_table`."""
    import pandas as pd

    shared: dict[str, str] = {}
    with text_table(path) as table:
        lines, columns = array("q"), [[] for _ in table.names]  # type: tuple[array[int], list[list[str]]]
        for line, fields in table.rows:
            lines.append(line)
            for column, field in zip(columns, fields, strict=True):
                column.append(
                    shared.setdefault(field, field)
                    if len(shared) < MAX_SHARED_TEXTS
                    else shared.get(field, field)
                )
    index = pd.Index(lines, name="line", dtype="int64")
    frame = pd.DataFrame(dict(enumerate(columns)), index=index, dtype=object)
    return frame.set_axis(list(table.names), axis=1)


def read_columns(path: Path) -> "pd.DataFrame":
    """Read a Parquet table. Whole numbers stay exact in columns with missing values. The index counts rows from 1.

    Raises the errors of `open_parquet`.
    """
    import pandas as pd

    with open_parquet(path) as file:
        frame: pd.DataFrame = file.read().to_pandas(integer_object_nulls=True, ignore_metadata=True)
    return frame.set_axis(pd.RangeIndex(1, len(frame) + 1, name="row"), axis=0)


def number(text: str) -> float | None:
    """Convert a field to a float, which may be nan or inf, and return None if it is not a number.

    >>> number("1e-3"), number("1,5"), number("1_000")
    (0.001, None, None)
    """
    if "_" in text or not text.isascii():
        return None
    try:
        return float(text)
    except ValueError:
        return None


def whole_number(text: str) -> int | None:
    """Convert a field to an exact whole number, and return None if it is not a whole number.

    >>> whole_number("9007199254740993"), whole_number("1e3"), whole_number("2.0"), whole_number("2.5")
    (9007199254740993, 1000, 2, None)
    """
    text = text.strip()
    if len(text) <= MAX_WHOLE_DIGITS and _WHOLE.fullmatch(text):
        return int(text.partition(".")[0])
    if "_" in text or not text.isascii():
        return None
    try:
        value = Decimal(text)
    except InvalidOperation:
        return None
    fits = value.is_finite() and value.adjusted() < MAX_WHOLE_DIGITS
    return int(value) if fits and value == value.to_integral_value() else None


def natural(name: object) -> tuple[Any, ...]:
    """Return a key for natural sorting: the numbers in names are compared by size.

    >>> sorted(["w10", "w2", "w1"], key=natural)
    ['w1', 'w2', 'w10']
    """
    parts = re.split(r"([0-9]+)", str(name))
    parts[1::2] = [part.lstrip("0") for part in parts[1::2]]
    keys = [(len(part), part) if i % 2 else part for i, part in enumerate(parts)]
    return (*keys, str(name))


def in_order(names: Sequence[Any]) -> list[Any]:
    """Return names sorted: numbers by size, text in natural order (see `natural`).

    >>> in_order(["10", "2"]), in_order([10, -2])
    (['2', '10'], [-2, 10])
    """
    import numbers

    if all(isinstance(name, numbers.Real) for name in names):
        return sorted(names)
    keys = {name: natural(name) for name in names}
    return sorted(names, key=keys.__getitem__)


def texts(column: "pd.Series[Any]") -> "pd.Series[Any]":
    """Convert a column of names to text, with None for missing or blank names.

    Raises `TableError` if floats may have merged whole numbers, or two names differ only in blanks around them.
    """
    import pandas as pd

    numbers, values = pd.factorize(column.astype(object))  # missing values have the code -1
    known = [_text(value) for value in values]
    bare: dict[str, str] = {}
    for name in filter(None, known):
        if (other := bare.setdefault(name.strip(), name)) != name:
            why = "differ in the blanks around them only; write one name in one way"
            raise TableError(f"{column.name} = {other!r} and {name!r} {why}")
    found = [known[i] if i >= 0 else None for i in numbers]
    return pd.Series(found, column.index, dtype=object, name=column.name)


def _text(value: Any) -> str | None:
    """Convert one name to text, or None if it is blank. A whole float is written as a whole number."""
    if isinstance(value, str):
        return value if value.strip() else None
    if isinstance(value, float) and value.is_integer():
        if abs(value) >= EXACT_FLOAT:
            why = "is a float, in which neighbouring whole numbers are one; write names as text"
            raise TableError(f"{value!r} {why}")
        return str(int(value))
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)


def identifiers(column: "pd.Series[Any]") -> "pd.Series[Any]":
    """Convert a column of names to int64 if each is a plain whole number (2, but not 02, 2.0 or 1e5), else to text.

    Raises the errors of `texts`.

    >>> import pandas as pd
    >>> identifiers(pd.Series(["2", "10"])).tolist(), identifiers(pd.Series(["1e5", "100000"])).tolist()
    ([2, 10], ['1e5', '100000'])
    """
    import pandas as pd

    if pd.api.types.is_signed_integer_dtype(column.dtype) and not column.hasnans:
        return column.astype("int64")
    found = texts(column)
    unique = {name: name is not None and _PLAIN_WHOLE.fullmatch(name) for name in found.unique()}
    limit = 2**63
    if unique and all(unique.values()) and all(len(n) < 20 and -limit <= int(n) < limit for n in unique):
        whole = {name: int(name) for name in unique}
        return pd.Series([whole[n] for n in found], column.index, dtype="int64", name=column.name)
    return found


@contextmanager
def _opened(path: Path) -> Iterator[IO[bytes]]:
    with open_regular(path) as file:
        start = file.read(8)
    if kind := next((kind for mark, kind in _PACKED.items() if start.startswith(mark)), None):
        raise TableError(f"is {kind}; unpack it, and give the table in it")
    if not start.startswith(_GZIP) and path.suffix.lower() != ".gz":
        with open_table(path) as plain:
            yield plain
        return
    try:
        content = read_gzip(path)
    except (ValueError, EOFError) as error:
        if not isinstance(error, EOFError) and type(error) is not ValueError:
            raise
        raise TableError(f"cannot be unpacked ({error})") from None
    fields = sum(map(content.count, (b",", b";", b"\t", b"\n")))
    check_size(path, len(content) + FIELD_BYTES * fields, "unpacked")
    yield BytesIO(content)


class _Lines:
    """Iterator over the lines of a text, with line numbers. Raises `TableError` for a line that is not text."""

    def __init__(self, file: TextIOWrapper, path: Path, encoding: str) -> None:
        self.number = 0
        self._file, self._path, self._encoding = file, path, encoding
        self._again: list[str] = []

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        try:
            line = self._again.pop() if self._again else next(self._file)
        except UnicodeError as error:
            reason = getattr(error, "reason", error)
            encoding = self._encoding.upper().removesuffix("-SIG")
            why = f"is not text in {encoding} ({reason}); save it as UTF-8"
            raise TableError(why, self._undecoded()) from None
        self.number += 1
        if "\0" in line:
            why = "is not text in UTF-8 (it holds a NUL character); save it as UTF-8"
            raise TableError(why, f"line {self.number}")
        return line

    def back(self, *lines: str) -> None:
        """Push lines back: they will be read again."""
        self.number -= len(lines)
        self._again += reversed(lines)

    def _undecoded(self) -> str:
        """Return the position of the first line that cannot be decoded, or "" if it is unknown."""
        if self._encoding != "utf-8-sig":
            return ""
        with (
            _opened(self._path) as file,
            TextIOWrapper(file, encoding="utf-8", errors="surrogateescape", newline="") as lines,
        ):
            found = (i for i, line in enumerate(lines, 1) if _UNDECODED.search(line))
            return f"line {next(found)}"


def _before_header(lines: _Lines, delimiter: str) -> tuple[str, list[tuple[int, str]]]:
    """Return the delimiter and the comments above the header line, which is read next."""
    comments: list[tuple[int, str]] = []
    for line in lines:
        text = line.strip("\r\n")
        if found := _SEPARATOR.fullmatch(text.rstrip(",")) or _SEPARATOR.fullmatch(text):
            delimiter = found[1]
        elif text.startswith("#"):
            comments.append((lines.number, text))
        elif text.strip():
            lines.back(line)
            return delimiter, comments
    why = "it needs a line of column names, and a line for each row"
    raise TableError(f"only comments in it; {why}" if comments else f"the file is empty; {why}")


def _check_separator(names: Sequence[str], delimiter: str, lines: _Lines) -> None:
    """Raise `TableError` if the columns have another separator. The next lines are pushed back."""
    others = [mark for mark in ";\t|, " if mark != delimiter and len(names) == 1 and mark in names[0]]
    if not others:
        return
    first = list(islice(lines, PEEKED_ROWS))
    lines.back(*first)
    rows = [line.strip("\r\n") for line in first if line.strip()]
    if others[0] == " " and not (rows and " " in rows[0].strip()):
        return  # one column whose name has two words
    decimals = delimiter == "," and any(_DECIMAL_COMMA.search(row) for row in rows)
    more = "; write its decimals with a point too, not with a comma" * decimals
    wanted = _WRITTEN_WITH.get(delimiter, repr(delimiter))
    raise TableError(f"separates its columns by {others[0]!r}; write it with {wanted} between them{more}")


def _is_data(names: Sequence[str]) -> bool:
    """Return whether a header is a row of numbers, except 0, 1, 2, ..., which are pandas' names of unnamed columns."""
    counted = list(names[:-1]) == [str(i) for i in range(len(names) - 1)]
    return not counted and all(number(name) is not None for name in names)


def _records(lines: _Lines, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the line on which each record begins, and its fields."""
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    while True:
        line = lines.number + 1
        try:
            fields = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise TableError(_plainly(str(error)), f"line {line}") from None
        yield line, fields


def _plainly(reason: str) -> str:
    """Return an error message of Python's csv reader in plain words.

    >>> _plainly("unexpected end of data")
    'a quote (") is opened in this row and not closed'
    """
    if "end of data" in reason:
        return 'a quote (") is opened in this row and not closed'
    if "expected after" in reason:
        return 'a quote (") is followed by more text in its field; write quotes within a field twice'
    if "field limit" in reason:
        return f'a field has more than {csv.field_size_limit()} characters; is a quote (") not closed?'
    return reason


def _rows(records: Iterator[tuple[int, list[str]]], width: int) -> Iterator[tuple[int, list[str]]]:
    """Yield the rows without blank lines. Raises `TableError` if the number of fields is not that of the header."""
    first, commented = 0, False
    for line, fields in records:
        if len(fields) <= 1 and not "".join(fields).strip():
            continue
        if len(fields) != width:
            raise TableError(_misfit(fields, width), f"line {line}")
        if (begins := fields[0].startswith("#")) != commented and first:
            why = "begins with '#', and other rows do not; remove a comment, and write a name without '#'"
            raise TableError(why, f"line {line if begins else first}")
        first, commented = first or line, begins
        yield line, fields


def _misfit(fields: list[str], width: int) -> str:
    if fields[0].startswith("#"):
        return "begins with '#'; remove comments from between the rows"
    if len(fields) < width:
        return f"has fewer fields than its first line ({len(fields)}, not {width}); fill them in"
    why = f"has more fields than its first line ({len(fields)}, not {width}); give each a name"
    surplus = "".join(fields[width:]).strip()
    return why if surplus else f"{why}, or remove the separator at the end of the row"
