"""Tables in text files: read like Python's csv module, with the line of each row."""

from __future__ import annotations

import csv
import gzip
import io
import re
from itertools import count
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.core.base.tables import (
    TableError,
    ending,
    identifiers,
    in_order,
    number,
    read_texts,
    texts,
    whole_number,
)

NASTY = [
    "NA", "None", "null", "nan", "NaN", "", "True", "1e5", "100000", "1E5", "007", "7", "9007199254740993",
    "9007199254740992", " a", "a ", "a,b", "a;b", 'say "hi"', "two\nlines", "two\r\nlines", "#1", "ä", "-", "1_000",
    "sep=;", "\t", "0x10", "1,5", "Infinity",
]  # fmt: skip
NAMES = ["worker", "two words", "x;y", "Größe", "NA", "a,b", "line\nbreak", "1st", 'in "quotes"']
BREAK = re.compile(r"\r\n|\r|\n")
serial = count()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tables")


def written(rows: list[list[str]], ends: str, **dialect: str | int) -> list[str]:
    """Return the text of each row, by Python's own writer."""
    found = []
    for row in rows:
        out = io.StringIO(newline="")
        csv.writer(out, lineterminator=ends, **dialect).writerow(row)  # type: ignore[arg-type]
        found.append(out.getvalue())
    return found


@given(data=st.data())
def test_read_texts_returns_rows_with_line_numbers(folder: Path, data: st.DataObject) -> None:
    names = data.draw(st.lists(st.sampled_from(NAMES), min_size=2, max_size=4, unique=True))
    field = st.sampled_from(NASTY) | st.text("ab,;\t\"\n#'é ", max_size=4)
    rows = data.draw(st.lists(st.lists(field, min_size=len(names), max_size=len(names)), max_size=6))
    ends = data.draw(st.sampled_from(["\n", "\r\n", "\r"]))
    last, delimiter, found_text = data.draw(
        st.sampled_from(
            [(".csv", ",", False), (".tsv", "\t", False), (".csv", ";", True), (".CSV.GZ", ",", True)]
        )
    )
    quoting = data.draw(st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]))
    quoting = csv.QUOTE_ALL if ends == "\r" else quoting  # otherwise Python's writer does not quote newlines
    before = (f"sep={delimiter}{ends}" if found_text else "") + data.draw(
        st.sampled_from(["", ends, f"# by hand{ends}"])
    )
    header, *lines = written([names, *rows], ends, delimiter=delimiter, quoting=quoting)
    blank = data.draw(st.lists(st.booleans(), min_size=len(lines), max_size=len(lines)))
    text, truth = before + header, []
    for line, empty in zip(lines, blank, strict=True):
        text += ends * empty
        truth.append(len(BREAK.findall(text)) + 1)
        text += line
    encoding = data.draw(st.sampled_from(["utf-8", "utf-8-sig", "utf-16"]))
    path = folder / f"{next(serial)}{last}"
    content = text.encode(encoding)
    path.write_bytes(gzip.compress(content) if path.suffix == ".GZ" else content)
    hashed = [row[0].startswith("#") for row in rows]
    if any(hashed) and not all(hashed):
        with pytest.raises(TableError, match="begins with '#'"):
            read_texts(path)
        return
    found = read_texts(path)
    assert found.columns.tolist() == names
    assert found.to_numpy().tolist() == rows
    assert found.index.tolist() == truth


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("a,b\n1,2\n\n3,4,5\n", "line 4: has more fields than its first line (3, not 2); give each a name"),
        ("a,b\n1,2,\n", "line 2: .*or remove the separator at the end of the row"),
        ('a,b\n"x\ny",2\n3\n', "line 4: has fewer fields than its first line (1, not 2); fill them in"),
        ("a;b\n1;2\n", "separates its columns by ';'; write it with commas between them"),
        ("a;b\n0,5;2\n", "separates its columns by ';'; .*; write its decimals with a point too"),
        ("a\tb\n1\t2\n", "separates its columns by '\\t'; write it with commas between them"),
        ("a b\n1 2\n", "separates its columns by ' '; write it with commas"),
        ("# a,b\n1,2\n", "line 1: begins with '#': is this the line of names, or a comment?"),
        ("a,b\n1,2\n# half of it\n3,4\n", "line 3: begins with '#'; remove comments from between the rows"),
        ("a,b\n1,2\n#3,4\n", "line 3: begins with '#', and other rows do not"),
        ('a,b\n1,2\n3,"4\n5,6\n', 'line 3: a quote (") is opened in this row and not closed'),
        ('a,b\n1,"2"3\n', 'line 2: a quote (") is followed by more text in its field'),
        ("1.5,2\n3,4\n", "line 1: starts with numbers, not with a header line"),
        ("", "the file is empty; it needs a line of column names"),
        ("# nothing\n", "only comments in it"),
        ("a,b\n1,\0\n", "line 2: is not text in UTF-8 (it holds a NUL character)"),
    ],
)
def test_read_texts_refuses_ambiguous_rows(tmp_path: Path, content: str, says: str) -> None:
    path = tmp_path / "a.csv"
    path.write_text(content, newline="")
    with pytest.raises(TableError) as raised:
        read_texts(path)
    pattern = re.escape(says).replace(re.escape(".*"), ".*").replace(r"'\\t'", r"'\\t'")
    assert re.match(pattern, str(raised.value)), raised.value
    assert "\n" not in str(raised.value)


def test_read_texts_names_other_encodings_and_damaged_archives(tmp_path: Path) -> None:
    (tmp_path / "latin.csv").write_bytes("a,b\n1,2\n1,ü\n".encode("latin-1"))
    with pytest.raises(TableError, match=r"^line 3: is not text in UTF-8"):
        read_texts(tmp_path / "latin.csv")
    (tmp_path / "cut.csv.gz").write_bytes(gzip.compress(b"a,b\n1,2\n" * 50)[:-9])
    with pytest.raises(TableError, match="cannot be unpacked"):
        read_texts(tmp_path / "cut.csv.gz")
    assert ending(Path("my.times.CSV.gz")) == ".csv.gz"
    (tmp_path / "zip.csv").write_bytes(b"PK\x03\x04 and more")
    with pytest.raises(TableError, match="is a zip archive or a spreadsheet; unpack it"):
        read_texts(tmp_path / "zip.csv")
    (tmp_path / "times").write_bytes(gzip.compress(b"a,b\n1,2\n"))  # no suffix shows that it is compressed
    assert read_texts(tmp_path / "times").to_numpy().tolist() == [["1", "2"]]


@given(st.lists(st.sampled_from([each for each in NASTY if each.strip() == each != ""]), min_size=1))
def test_identifiers_keep_the_spelling(names: list[str]) -> None:
    """Different texts are different names, even if they are equal as numbers."""
    found = identifiers(pd.Series(names, dtype=object))
    assert found.astype(str).tolist() == names
    assert (found.dtype == "int64") == all(re.fullmatch("0|-?[1-9][0-9]*", name) for name in names)


def test_identifiers_of_other_types() -> None:
    large = [2**53, 2**53 + 1]
    assert identifiers(pd.Series(large)).tolist() == large
    assert identifiers(pd.Series([2**64 - 1, 2**64 - 2], dtype="uint64")).tolist() == [
        str(2**64 - 1),
        str(2**64 - 2),
    ]
    assert identifiers(pd.Series([2**53 + 1, None], dtype=object)).tolist() == [str(2**53 + 1), None]
    assert identifiers(pd.Series([1.0, 2.0])).tolist() == [1, 2]
    assert texts(pd.Series(["NA", None, " ", float("nan")], dtype=object)).tolist() == [
        "NA",
        None,
        None,
        None,
    ]
    with pytest.raises(TableError, match="is a float, in which neighbouring whole numbers are one"):
        identifiers(pd.Series([float(2**53), 1.0]))
    with pytest.raises(TableError, match="'a' and 'a ' differ in the blanks around them only"):
        texts(pd.Series(["a", "a "], name="host"))


@given(st.integers(-(10**30), 10**30))
def test_whole_numbers_are_exact(value: int) -> None:
    assert whole_number(f" {value}") == value
    assert whole_number(f"{value}.00") == value
    assert whole_number(f"{value}.5") is None


@pytest.mark.parametrize("text", ["1_000", "1,5", "0x10", "", "١", "1 000", "one", "1e9999999999"])
def test_what_is_not_a_number(text: str) -> None:
    assert number(text) in (None, float("inf"))
    assert whole_number(text) is None


def test_in_order_sorts_numbers_naturally() -> None:
    assert in_order(["w10", "w2", "w1", "w02"]) == ["w1", "w02", "w2", "w10"]
    assert in_order([10, 2]) == [2, 10]
    assert in_order(["9" * 5000 + "1", "9" * 5000]) == ["9" * 5000, "9" * 5000 + "1"]
