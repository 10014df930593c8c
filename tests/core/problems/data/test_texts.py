"""Tables of samples in text: features, index columns, and the place of an error in the file."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import workbench as wb
from workbench.core.problems.data import DataError, load

NOISE = np.random.default_rng(5).standard_normal((12, 2)).round(3)
INDEX = "numbers the rows; write the table without its index"


def noise(index: list[int] | None = None, name: str | None = None) -> pd.DataFrame:
    frame = pd.DataFrame({"a": NOISE[:, 0], "b": NOISE[:, 1], "label": [0] * 6 + [1] * 6}, index=index)
    return frame.rename_axis(name)


@pytest.mark.parametrize("start", ["0", "1", "shuffled"])
@pytest.mark.parametrize("name", [None, "index", "Unnamed: 0", "level_0"])
@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_load_text_excludes_the_index_of_to_csv(
    tmp_path: Path, start: str, name: str | None, suffix: str
) -> None:
    """In sorted rows, the index would reveal the label.

    Different whole numbers are an index if their column has no name, or is called `Unnamed: 0`. In a column with
    another name of an index, they must also be consecutive.
    """
    rows = {"0": range(12), "1": range(1, 13), "shuffled": np.random.default_rng(0).permutation(12) + 5}[
        start
    ]
    frame = noise(list(map(int, rows)), name)
    path = tmp_path / f"noise{suffix}"
    if suffix == ".csv":
        frame.to_csv(path)
    else:
        frame.reset_index().rename(columns={"index": name or ""}).to_parquet(path)
    if start == "shuffled" and name in ("index", "level_0"):
        assert load(path, "binary").X.shape == (12, 3)
        return
    with pytest.raises(
        DataError, match=rf"^source: 'noise{suffix}': column 1 (has no name|is called .*) and {INDEX}"
    ):
        load(path, "binary")
    e = wb.Experiment(scheme="UMW", workers=2, rounds=1, problem="logistic", problem_args={"data": str(path)})
    with pytest.raises(DataError, match=INDEX):
        wb.run(e)


def test_load_excludes_the_index_of_parquet(tmp_path: Path) -> None:
    noise(list(range(5, 17)), "when").to_parquet(tmp_path / "noise.parquet")
    assert load(tmp_path / "noise.parquet", "binary").X.shape == (12, 2)


def test_load_text_columns_without_a_name(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("a,label,\n0.5,0,\n0.7,1,\n")  # a separator at the end of each line
    assert load(path, "binary").X.shape == (2, 1)
    path.write_text("a,label,\n0.5,0,2.5\n0.7,1,\n")
    with pytest.raises(DataError, match="column 3 has no name; give it a name, or remove it"):
        load(path, "binary")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.CSV", "a,label\r\n0.5,0\r\n0.75,1\r\n"),
        ("a.tsv", "a\tlabel\n0.5\t0\n0.75\t1\n"),
        ("a.csv", "sep=;\na;label\n0.5;0\n0.75;1\n"),
        ("a.csv", "# made by hand\na,label\n0.5,0\n0.75,1\n"),
        ("a.csv", "\n a , label \n\n0.5, 0\n\n0.75, 1\n"),
        ("a.csv", '"a","label"\r"0.5","0"\r"0.75","1"\r'),
    ],
)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize("packed", [False, True])
def test_load_text_reads_unambiguous_tables(
    tmp_path: Path, name: str, content: str, encoding: str, packed: bool
) -> None:
    path = tmp_path / (name + ".gz" * packed)
    raw = content.encode(encoding)
    path.write_bytes(gzip.compress(raw) if packed else raw)
    data = load(path, "binary", scale=False)
    assert data.X[np.argsort(data.y)].tolist() == [[0.5], [0.75]]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (
            "a;b;label\n0,0;0;0\n0,5;2;1\n",
            "separates its columns by ';'; .*; write its decimals with a point too",
        ),
        ('a,label\n"1,234",0\n5,1\n', "column 'a' of 'a.csv' holds '1,234' in line 2, which is not a number"),
        ('a,label\n"x\ny",0\n5,1\n', r"holds 'x\\ny' in line 2"),
        ("a,label\n1,0\n\n1_000,1\n", "holds '1_000' in line 4"),
        ("a,b,label\n1,2,0\n\n3,1\n", "line 4: has fewer fields than its first line"),
        ("# a,label\n1,0\n2,1\n", "line 1: begins with '#': is this the line of names, or a comment"),
        (
            "sep=;\na;label\n0,5;0\n1,5;1\n",
            "column 'a' of 'a.csv' holds '0,5' in line 3, which is not a number",
        ),
        ("a,a,label\n1,2,0\n\n3,,1\n", "column 'a' of .* missing or infinite values .*, first in line 4"),
    ],
)
def test_load_text_refuses_ambiguous_tables_with_the_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str, says: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.csv").write_text(content)
    with pytest.raises(DataError, match=says):
        load("a.csv", "binary")


def test_load_text_without_a_header_keeps_all_samples(tmp_path: Path) -> None:
    path = tmp_path / "iris.csv"
    path.write_text("5.1,3.5,Iris-setosa\n4.9,3.0,Iris-setosa\n7.0,3.2,Iris-versicolor\n")
    with pytest.raises(
        DataError, match=r"'Iris-setosa' is in the first line of 'iris\.csv' and a value in line 2"
    ):
        load(path, "binary", target="Iris-setosa")


def test_load_text_categories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a table for OpenML, NA is a category, and an empty field is missing."""
    monkeypatch.setenv("WORKBENCH_CACHE", str(tmp_path))
    (tmp_path / "openml").mkdir()
    text = "alley,size,class\nNA,1.5,a\n1e5,2.5,b\nPaved,3.5,a\n,4.5,b\n"
    (tmp_path / "openml" / "houses.csv").write_text(text)
    data = load("openml:houses", "binary", scale=False)
    assert data.X[np.argsort(data.X[:, 0])].tolist() == [
        [1.5, 0, 1, 0],
        [2.5, 1, 0, 0],
        [3.5, 0, 0, 1],
        [4.5, 0, 0, 0],
    ]
