"""Names of classes are compared as text, in every kind of file."""

from __future__ import annotations

import csv
import gzip
from decimal import Decimal
from itertools import count
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from workbench.core.problems.data import DataError, load

LABELS = [
    "None", "NA", "null", "nan", "NaN", "n/a", "Apnoea", "True", "False", "1e5", "100000", "1E5", "007", "7", "0",
    "9007199254740992", "9007199254740993", "1050118621198921700", "1050118621198921701", "a,b", 'a "b"', "two\nlines",
    "2020-01-01", "inf", "-1", "1.5", "ä",
]  # fmt: skip
MISSING = {"None", "NA", "null", "nan", "NaN", "n/a", "inf"}
LARGE = [2**53, 2**53 + 1, 2**53 + 2, 1050118621198921700, 1050118621198921701]
serial = count()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("labels")


def write(path: Path, labels: list[str]) -> Path:
    """Write rows whose first feature is their number, with these labels as text."""
    if path.suffix == ".parquet":
        pd.DataFrame({"x": np.arange(len(labels)) + 0.5, "class": labels}).to_parquet(path)
        return path
    with gzip.open(path, "wt", newline="") if path.suffix == ".gz" else path.open("w", newline="") as file:
        writer = csv.writer(file, delimiter="\t" if path.suffix == ".tsv" else ",")
        writer.writerow(["class", "x"])
        writer.writerows([label, i + 0.5] for i, label in enumerate(labels))
    return path


def codes(path: Path, task: str = "multiclass") -> np.ndarray:
    """Return the class number of each row."""
    data = load(path, task, scale=False)
    return data.y[np.argsort(data.X[:, 0])]


def is_number(text: str) -> bool:
    try:
        return np.isfinite(float(text))
    except ValueError:
        return False


@given(data=st.data())
def test_labels_have_one_class_for_each_text(folder: Path, data: st.DataObject) -> None:
    """If some labels are numbers, labels that may mean a missing value, such as NA, are refused."""
    names = data.draw(st.lists(st.sampled_from(LABELS), min_size=3, max_size=6, unique=True))
    labels = data.draw(st.permutations([*names, *data.draw(st.lists(st.sampled_from(names), max_size=6))]))
    suffix = data.draw(st.sampled_from([".csv", ".CSV", ".tsv", ".csv.gz", ".parquet"]))
    path = write(folder / f"{next(serial)}{suffix}", labels)
    numeric = [name for name in names if is_number(name)]
    if numeric and MISSING & set(names):
        with pytest.raises(DataError, match=r"missing or not finite in (line|row) \d+ .*among numbers"):
            load(path, "multiclass")
        return
    assume(len(numeric) < len(names) or "1.5" not in names)  # 1.5 would be a quantity
    found = codes(path)
    order = sorted(names, key=lambda name: (Decimal(name) if len(numeric) == len(names) else 0, name))
    assert [order[int(code)] for code in found] == labels


@pytest.mark.parametrize(
    "kind", ["csv", "npz int64", "npz uint64", "npz text", "npy", "parquet", "parquet null", "svm"]
)
def test_labels_of_large_whole_numbers_stay_different(tmp_path: Path, kind: str) -> None:
    labels = np.array([*LARGE, *reversed(LARGE)])
    x = np.arange(len(labels))
    path = tmp_path / f"large.{kind.split()[0]}"
    if kind == "csv":
        pd.DataFrame({"x": x, "class": labels}).to_csv(path, index=False)
    elif kind.startswith("npz"):
        np.savez(path, X=x[:, None], y=labels.astype({"text": "U20"}.get(kind[4:], kind[4:])))
    elif kind == "npy":
        np.save(path, np.column_stack([x, labels]))
    elif kind == "svm":
        path.write_text("".join(f"{label} 1:{i}\n\n" for i, label in zip(x, labels, strict=True)))
    else:
        column = pd.array([*labels.tolist()], dtype="Int64")
        pd.DataFrame({"x": x, "class": column}).to_parquet(path)
    assert codes(path).tolist() == [0, 1, 2, 3, 4, 4, 3, 2, 1, 0]
    if kind == "parquet null":
        pd.DataFrame({"x": x, "class": column[:-1].insert(3, pd.NA)}).to_parquet(path)
        with pytest.raises(DataError, match=r"missing or not finite in row 3"):
            load(path, "multiclass")


def test_labels_may_be_numbers_of_any_size(tmp_path: Path) -> None:
    names = ["1" * 40, "1" * 39 + "2", "1e300", "-1e300"]
    assert codes(write(tmp_path / "a.csv", names)).tolist() == [1, 2, 3, 0]


@pytest.mark.parametrize(
    ("labels", "says"),
    [
        (["1", "1.0", "2"], "is '1.0' in line 3 and '1' in line 2; write each class in one way"),
        (["yes", "yes ", "no"], "is 'yes ' in line 3 and 'yes' in line 2; write each class in one way"),
        (["0", "1", "NA"], r"missing or not finite in line 4 \('NA' among numbers\)"),
        (["0", "inf", "1"], r"missing or not finite in line 3 \('inf' among numbers\)"),
        (["a", "", "b"], "missing or not finite in line 3; remove that row or fill it in"),
    ],
)
def test_labels_that_may_be_one_class_are_refused(tmp_path: Path, labels: list[str], says: str) -> None:
    with pytest.raises(DataError, match=says):
        load(write(tmp_path / "a.csv", labels), "multiclass")


@pytest.mark.parametrize(
    ("values", "says"),
    [
        (["1.5", "1,234", "2"], "is '1,234' in line 3, which is not a number"),
        (["1.5", "1_000", "2"], "is '1_000' in line 3, which is not a number"),
        (["1.5", "NA", "2"], "missing or not finite in line 3"),
    ],
)
def test_labels_must_not_be_a_quantity(tmp_path: Path, values: list[str], says: str) -> None:
    with pytest.raises(DataError, match=says):
        load(write(tmp_path / "a.csv", values), "regression")


def test_labels_refuse_floats_that_merge_whole_numbers(tmp_path: Path) -> None:
    path = tmp_path / "large.npz"
    np.savez(path, X=np.arange(3.0)[:, None], y=np.array([2.0**53, 2.0**53 + 2, 0]))
    with pytest.raises(
        DataError, match=r"in row 0 .* is a float, in which neighbouring whole numbers are one"
    ):
        load(path, "multiclass")
    assert load(path, "regression").y.max() == 2.0**53 + 2


def test_labels_may_be_decimals_and_booleans_of_parquet(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    for labels in ([Decimal(2**60), Decimal(2**60 + 1), Decimal(7)], [True, False, True], [b"b", b"a", b"c"]):
        pd.DataFrame({"x": np.arange(3) + 0.5, "class": labels}).to_parquet(path)
        ordered = sorted(set(labels))
        found = codes(path, "multiclass" if len(ordered) > 2 else "binary")
        assert [ordered[int(code)] for code in found] == labels


def test_labels_name_a_damaged_line_of_svmlight(tmp_path: Path) -> None:
    path = tmp_path / "a.svm"
    path.write_text("1 1:0.5\n# a comment\n\n2 1:x\n")
    with pytest.raises(DataError, match=r"'a\.svm' cannot be read, line 4"):
        load(path, "binary")
    path.write_text("# a comment\n1 1:0.5\n\nnan 1:2\n")
    with pytest.raises(DataError, match="missing or not finite in line 4"):
        load(path, "binary")
