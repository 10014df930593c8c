"""Users' data files: each format is read back, and errors name the invalid part."""

import warnings
from collections.abc import Callable
from itertools import count
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from numpy.typing import NDArray

from tests.support.sampled_cases import sampled_cases
from workbench.core.problems.data import DataError, load

Matrix = NDArray[np.float64]
numbers = st.floats(allow_nan=False, allow_infinity=False)
tables = arrays.arrays(np.float64, st.tuples(st.integers(1, 12), st.integers(2, 6)), elements=numbers)
serial = count()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("files")


def frame(table: Matrix) -> pd.DataFrame:
    return pd.DataFrame(table, columns=[*(f"x{j}" for j in range(table.shape[1] - 1)), "y"])


def write_npy(path: Path, table: Matrix) -> None:
    np.save(path, table)


def write_npy_fortran(path: Path, table: Matrix) -> None:
    np.save(path, np.asfortranarray(table))


def write_npz(path: Path, table: Matrix) -> None:
    np.savez(path, X=table[:, :-1], y=table[:, -1])


def write_csv(path: Path, table: Matrix) -> None:
    frame(table).to_csv(path, index=False)


def write_csv_target_first(path: Path, table: Matrix) -> None:
    mixed = frame(table).rename(columns={"y": "Target"})
    mixed[["Target", *mixed.columns[:-1]]].to_csv(path, index=False)


def write_parquet(path: Path, table: Matrix) -> None:
    frame(table).to_parquet(path)


def write_svmlight(path: Path, table: Matrix) -> None:
    # The last column is always written, since the format does not contain the number of columns.
    def entry(j: int, value: float) -> str:
        return f" {j + 1}:{float(value)!r}" if value or j == table.shape[1] - 2 else ""

    rows = (
        f"{float(row[-1])!r}" + "".join(entry(j, value) for j, value in enumerate(row[:-1])) for row in table
    )
    path.write_text("\n".join(rows) + "\n")


WRITERS: list[tuple[str, Callable[[Path, Matrix], None]]] = [
    (".npy", write_npy),
    (".npy", write_npy_fortran),
    (".npz", write_npz),
    (".csv", write_csv),
    (".csv", write_csv_target_first),
    (".parquet", write_parquet),
    (".svmlight", write_svmlight),
    (".LIBSVM", write_svmlight),
]


def sorted_rows(table: Matrix) -> Matrix:
    return table[np.lexsort(table.T)]


@pytest.mark.parametrize(("suffix", "write"), sampled_cases("written", 3, WRITERS))
@given(table=tables)
def test_load_each_file_format(
    folder: Path, suffix: str, write: Callable[[Path, Matrix], None], table: Matrix
) -> None:
    path = folder / f"{next(serial)}{suffix}"
    write(path, table)
    data = load(path, "regression", scale=False)
    assert data.name == str(path)
    assert path.name in data.note
    np.testing.assert_array_equal(sorted_rows(np.column_stack([data.X, data.y])), sorted_rows(table))


@given(table=tables)
def test_load_standardised_values_are_finite(folder: Path, table: Matrix) -> None:
    path = folder / f"{next(serial)}.npy"
    np.save(path, table)
    try:
        data = load(str(path), "regression", intercept=True)
    except DataError as error:
        assert "too large to standardise" in str(error)  # noqa: PT017 - either way is right
        with np.errstate(over="ignore"):
            assert np.ptp(table, axis=0).max() == np.inf
        return
    constant = np.ptp(table[:, :-1], axis=0) == 0
    X = data.X[:, :-1]
    assert (X[:, constant] == 0).all()
    np.testing.assert_allclose(X[:, ~constant].mean(axis=0), 0, atol=1e-9)
    np.testing.assert_allclose(X[:, ~constant].std(axis=0), 1)


@pytest.mark.parametrize(
    ("values", "task", "numbered", "classes"),
    [
        ([-1.0, 1.0, -1.0], "binary", [0, 1, 0], 2),
        ([0.5, 0.5, 7.25], "binary", [0, 0, 1], 2),
        (["yes", "no", "yes"], "binary", [1, 0, 1], 2),
        ([True, False, True], "binary", [1, 0, 1], 2),
        ([30, 10, 20], "multiclass", [2, 0, 1], 3),
        (["2", "10", "1"], "multiclass", [1, 2, 0], 3),
        (["b", "c", "a"], "multiclass", [1, 2, 0], 3),
        (["1.5", "2.5", "3.5"], "regression", [1.5, 2.5, 3.5], 0),
    ],
)
@pytest.mark.parametrize("suffix", [".npz", ".csv", ".parquet"])
def test_load_numbers_targets_in_order(
    tmp_path: Path, suffix: str, values: list[object], task: str, numbered: list[float], classes: int
) -> None:
    path = tmp_path / f"targets{suffix}"
    if suffix == ".npz":
        np.savez(path, X=np.arange(3.0)[:, None], y=np.array(values))
    else:
        table = pd.DataFrame({"x": np.arange(3.0), "label": values})
        table.to_csv(path, index=False) if suffix == ".csv" else table.to_parquet(path)
    data = load(str(path), task, scale=False)
    assert data.classes == classes
    np.testing.assert_array_equal(data.y[np.argsort(data.X[:, 0])], numbered)


def test_load_keeps_y_of_points(tmp_path: Path) -> None:
    (tmp_path / "points.csv").write_text("x,y,label\n1,2,0\n3,4,1\n")
    data = load(str(tmp_path / "points.csv"), "binary", scale=False, target="label")
    assert data.X[np.argsort(data.y)].tolist() == [[1, 2], [3, 4]]


def test_load_takes_counted_columns_for_a_header(tmp_path: Path) -> None:
    pd.DataFrame(np.eye(3)).to_csv(tmp_path / "counted.csv", index=False)
    assert load(str(tmp_path / "counted.csv"), "regression", target="2").X.shape == (3, 2)


def test_load_reads_a_changed_file_again(tmp_path: Path) -> None:
    path, moved = tmp_path / "data.npy", tmp_path / "deeper" / "data.npy"
    np.save(path, np.eye(3))
    first = load(str(path), "regression", scale=False)
    np.save(path, 2 * np.eye(3))
    second = load(str(path), "regression", scale=False)
    assert second.X.max() == 2
    moved.parent.mkdir()
    path.rename(moved)
    assert first.folder != second.folder == load(str(moved), "regression", scale=False).folder


def test_load_expands_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    np.save(tmp_path / "mine.npy", np.eye(3))
    assert load("~/mine.npy", "regression").X.shape == (3, 2)


class Trap:
    """Object that would run code if it were unpickled."""

    def __reduce__(self) -> tuple[object, ...]:
        return (pytest.fail, ("unpickled",))


OBJECTS = np.array([[Trap(), 1], [2, 3]], dtype=object)
HOLE = np.array([[1.0, 2.0, 3.0, 0.0], [4.0, np.nan, np.inf, 1.0]])

BAD_ARRAYS = [
    ("1d.npy", np.arange(3.0), "1-D"),
    ("3d.npy", np.zeros((2, 2, 2)), "3-D"),
    ("empty.npy", np.zeros((0, 3)), r"shape \(0, 3\)"),
    ("thin.npy", np.zeros((3, 1)), "2 columns"),
    ("text.npy", np.array([["a", "b"]]), "real numbers"),
    ("complex.npy", np.ones((2, 2), dtype=complex), "real numbers"),
    ("object.npy", OBJECTS, "cannot be read"),
    ("hole.npy", HOLE, "column 1 "),
    ("hole_y.npy", np.array([[1.0, 2.0], [1.0, np.nan]]), "target .* row 1"),
    ("none.npz", {}, "none"),
    ("names.npz", {"data": np.eye(2)}, "data; it must hold X and y"),
    ("flat.npz", {"X": np.arange(2.0), "y": np.arange(2.0)}, "1-D"),
    ("long.npz", {"X": np.eye(2), "y": np.arange(3.0)}, r"y .* shape \(3,\)"),
    ("column.npz", {"X": np.eye(2), "y": np.eye(2)[:, :1]}, "must be 1-D"),
    ("object.npz", {"X": OBJECTS, "y": np.arange(2.0)}, "cannot be read"),
    ("hole.npz", {"X": HOLE, "y": np.arange(2.0)}, "column 1 "),
    ("hole_y.npz", {"X": np.eye(2), "y": np.array([np.inf, 0])}, "target .* row 0"),
]


@pytest.mark.parametrize(("name", "content", "says"), BAD_ARRAYS)
def test_load_names_a_bad_array(tmp_path: Path, name: str, content: object, says: str) -> None:
    path = tmp_path / name
    # np.save and np.savez pickle objects
    np.savez(path, **content) if isinstance(content, dict) else np.save(path, content)
    fails(path, says)


BAD_TEXT = [
    ("empty.csv", "", "the file is empty; it needs a line of column names"),
    ("rows.csv", "a,b\n", "0 rows"),
    ("narrow.csv", "a\n1\n", "has 1 row and 1 column; it needs"),
    ("semi.csv", "a;b;target\n1;2;3\n", "separates its columns by ';'; write it with commas"),
    ("tabs.csv", "a\ttarget\n1\t2\n", "separates its columns by '.*t'; write it with commas"),
    ("twice.csv", "target,a,target\n1,2,3\n4,5,6\n", "has the columns 'target' and 'target'; name the one"),
    ("quote.csv", 'a,target\n1,2\n3,"4\n', "line 3: a quote .* is opened in this row and not closed"),
    ("header.csv", "1.5,2,3\n4,5,6\n", "header line"),
    ("same.csv", "1,1,0\n2,1,1\n", "header line"),
    ("surplus.csv", "a,y\n1,2,3\n", r"line 2: has more fields than its first line \(3, not 2\)"),
    ("ragged.csv", "a,b,y\n1,2,3\n\n1,2,3,4\n", "line 4: has more fields"),
    ("city.csv", "size,city,target\n1,Paris,0\n2,Rome,1\n", "column 'city' .*'Paris'"),
    ("cell.csv", "size,age,target\n1,20,0\n2,old,1\n", "column 'age' .*'old'"),
    ("hole.csv", "a,b,c,target\n1,2,,0\n1,,5,1\n", "column 'b' of .* has missing .*, first in line 3"),
    ("infinite.csv", "a,y\ninf,2\n", "column 'a' of .* has missing or infinite"),
    ("hole_y.csv", "a,y\n1,2\n3,\n", "target .* in line 3"),
    ("binary.csv", "\x00\x01", "line 1: is not text in UTF-8"),
    ("damaged.parquet", "PAR1 or not", "cannot be read"),
    ("damaged.npy", "x", "cannot be read"),
    ("damaged.npz", "x", "cannot be read"),
    ("damaged.svmlight", "a b c\n", "cannot be read"),
    ("empty.svm", "", "shape|cannot be read"),
    ("unknown.xlsx", "x", r"ending.*\.csv"),
    ("without", "x", r"ending.*\.csv"),
]


@pytest.mark.parametrize(("name", "content", "says"), BAD_TEXT)
def test_load_names_a_bad_text_file(tmp_path: Path, name: str, content: str, says: str) -> None:
    path = tmp_path / name
    path.write_text(content)
    fails(path, says)


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("https://127.0.0.1/x.csv", "is an address; download it and give the file's path"),
        ("~nobody-of-that-name/x.csv", "begins with no user's home folder; give a path"),
        ("x\0.csv", "there is no file"),
        ("", "''"),
    ],
)
def test_load_refuses_what_is_not_a_path(source: str, says: str) -> None:
    with pytest.raises(DataError, match=says):
        load(source, "regression")


def test_load_names_another_encoding(tmp_path: Path) -> None:
    path = tmp_path / "latin.csv"
    path.write_bytes("größe,target\n1,2\n".encode("latin-1"))
    fails(path, "line 1: is not text in UTF-8 .*; save it as UTF-8")
    path.write_text("größe, target \n1,2\n3,4\n", encoding="utf-8-sig")
    assert load(path, "regression").X.shape == (2, 1)


@pytest.mark.parametrize("values", [pd.to_datetime(["2020-01-01"] * 2), [None, None], ["1", "2"]])
def test_load_names_a_bad_column_of_a_parquet_file(tmp_path: Path, values: object) -> None:
    path = tmp_path / "odd.parquet"
    pd.DataFrame({"odd": values, "target": [0.0, 1.0]}).to_parquet(path)
    fails(path, "column 'odd'")


def test_load_names_a_missing_file(tmp_path: Path) -> None:
    fails(tmp_path / "gone.csv", "no file .*gone.csv")
    (tmp_path / "folder.csv").mkdir()
    fails(tmp_path / "folder.csv", "folder .*folder.csv' has neither data_batch")


@pytest.mark.parametrize(
    ("values", "task", "says"),
    [
        ([0.0, 1.0, 2.0], "binary", "has 3 different values; use 'multiclass'"),
        ([0.1, 1.5, 2.5], "binary", "has 3 different values; use 'regression'"),
        ([0.1, 1.5, 2.5], "multiclass", "use 'regression'"),
        ([1.0, 1.0, 1.0], "binary", "only one value"),
        (["a", "b", "c"], "regression", "is text.*use 'multiclass'"),
        (["a", None, "c"], "multiclass", "target .* row 1"),
    ],
)
def test_load_suggests_a_suitable_target(tmp_path: Path, values: list[object], task: str, says: str) -> None:
    path = tmp_path / "table.parquet"
    pd.DataFrame({"x": [1.0, 2.0, 3.0], "target": values}).to_parquet(path)
    fails(path, says, task)


def fails(path: Path, says: str, task: str = "regression") -> None:
    """Check that the error is one sentence with the file and the problem, and that nothing else is printed."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(DataError, match=says) as caught:
            load(str(path), task)
    message = str(caught.value)
    assert "\n" not in message
    assert path.name in message
