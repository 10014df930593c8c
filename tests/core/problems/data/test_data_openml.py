"""OpenML: files placed by the user, no network, and downloads of scikit-learn."""

import hashlib
import io
import json
import re
import socket
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import scipy.sparse

from workbench.core.problems.data import DataError, catalogue, load, table
from workbench.core.problems.data.openml import find


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Set an empty cache, and make every connection fail at once."""

    def refuse(*_: object, **__: object) -> None:
        raise socket.gaierror("refused by the test")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setenv("WORKBENCH_CACHE", str(tmp_path))
    (tmp_path / "openml").mkdir()
    return tmp_path


def deliver(monkeypatch: pytest.MonkeyPatch, data: object, target: object) -> list[dict[str, object]]:
    """Replace fetch_openml. Return the list of its calls."""
    calls: list[dict[str, object]] = []

    def fetch(**arguments: object) -> SimpleNamespace:
        calls.append(arguments)
        return SimpleNamespace(data=data, target=target, details={"name": "some", "version": "3"})

    monkeypatch.setattr("sklearn.datasets.fetch_openml", fetch)
    return calls


@pytest.mark.parametrize("name", ["gisette", "GISETTE"])
def test_openml_without_a_network_says_where_to_place_the_file(home: Path, name: str) -> None:
    with pytest.raises(
        DataError, match=r"refused by the test.*\.csv.*\.npz.*\.parquet.*\.svmlight"
    ) as caught:
        load(f"openml:{name}", "binary")
    assert str(home / "openml" / "gisette.csv") in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not any(path.is_file() for path in home.rglob("*"))


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".npz", ".npy", ".svmlight"])
def test_openml_uses_a_placed_file(home: Path, suffix: str) -> None:
    path = home / "openml" / f"gisette{suffix}"
    X = np.arange(1.0, 13).reshape(6, 2)
    y = np.array([-1, 1, 1, -1, 1, -1])
    frame = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "Class": y})
    match suffix:
        case ".csv":
            frame.to_csv(path, index=False)
        case ".parquet":
            frame.to_parquet(path)
        case ".npz":
            np.savez(path, X=X, y=y)
        case ".npy":
            np.save(path, np.column_stack([X, y]))
        case _:
            path.write_text("".join(f"{t} 1:{a} 2:{b}\n" for t, (a, b) in zip(y, X, strict=True)))
    data = load("openml:gisette", "binary", scale=False)
    order = np.argsort(data.X[:, 0])
    np.testing.assert_array_equal(data.X[order], X)
    np.testing.assert_array_equal(data.y[order], y == 1)
    assert path.name in data.note


def test_openml_reads_a_new_placed_file(home: Path) -> None:
    digests = set()
    for scale in (1, 2):
        np.save(home / "openml" / "boston.npy", scale * np.eye(3))
        digests.add(load("openml:Boston", "regression", scale=False).digest)
    assert len(digests) == 2


@pytest.mark.parametrize(
    ("asked", "means"),
    [
        ("openml:mnist", "mnist_784"),
        ("openml:MNIST_784", "mnist_784"),
        ("openml:amazon", "Amazon_employee_access"),
        ("openml:CIFAR-10", "CIFAR_10"),
        ("openml:Boston", "boston"),
        ("openml:Gisette", "gisette"),
        ("openml:adult", "adult"),
    ],
)
def test_openml_aliases(asked: str, means: str) -> None:
    assert find(asked).name == means


def test_openml_sets_have_a_fixed_version() -> None:
    listed = [name for name in catalogue() if name.startswith("openml:")]
    assert len(listed) == 5
    assert all(find(name).version == 1 for name in listed)


@pytest.mark.parametrize("source", ["openml:", "openml: ", "openml:../x", "openml:a/b", "openml:a b"])
def test_openml_refuses_invalid_names(source: str) -> None:
    with pytest.raises(DataError, match=r"is not the name of an OpenML data set; .*openml:gisette"):
        load(source, "binary")


def test_openml_by_number_or_name(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = deliver(monkeypatch, pd.DataFrame({"a": [1.0, 2.0]}), pd.Series([0, 1]))
    for source in ("openml:61", "openml:adult", "openml:mnist"):
        assert load(source, "binary").note == "OpenML data set some, version 3."
    chosen = [{key: call.get(key) for key in ("data_id", "name", "version")} for call in calls]
    assert chosen == [
        {"data_id": 61, "name": None, "version": None},
        {"data_id": None, "name": "adult", "version": "active"},
        {"data_id": None, "name": "mnist_784", "version": 1},
    ]
    assert all(call["data_home"] == home for call in calls)


def test_openml_categories_become_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    frame = pd.DataFrame(
        {
            "town": pd.Categorical(["rome", "oslo", "rome", "rome", None]),
            "age": [1, 2, 3, 4, 5],
            "size": ["L", "L", "S", "S", "XL"],
        }
    )
    deliver(monkeypatch, frame, pd.Series(pd.Categorical(["a", "b", "a", "b", "a"])))
    data = load("openml:people", "binary", scale=False)
    order = np.argsort(data.X[:, 0])
    # age, town=rome (3), size=L (2), size=S (2), town=oslo (1), size=XL (1)
    assert data.X[order].tolist() == [
        [1, 1, 1, 0, 0, 0],
        [2, 0, 1, 0, 1, 0],
        [3, 1, 0, 1, 0, 0],
        [4, 1, 0, 1, 0, 0],
        [5, 0, 0, 0, 0, 1],
    ]
    assert data.y[order].tolist() == [0, 1, 0, 1, 0]
    fewer = load("openml:people", "binary", scale=False, features=3)
    np.testing.assert_array_equal(fewer.X, data.X[:, :3])


@pytest.mark.parametrize("target", ["target", "ACTION"])
def test_openml_amazon_numbers_are_categories(home: Path, target: str) -> None:
    frame = pd.DataFrame({target: [1, 0, 1, 1], "RESOURCE": [7, 7, 9, 7], "ROLE": [1, 2, 3, 4]})
    frame.to_csv(home / "openml" / "amazon.csv", index=False)
    data = load("openml:amazon", "binary", scale=False)
    assert data.X.shape == (4, 6)
    assert sorted(data.X.sum(axis=0)) == [1, 1, 1, 1, 1, 3]
    assert data.X[:, 0].sum() == 3
    assert data.y.sum() == 3
    with pytest.raises(DataError, match=r"features: 7 .* at most 6"):
        load("openml:amazon", "binary", features=7)


def test_openml_many_categories_need_little_memory(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "BLOCK_BYTES", 1 << 16)
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"RESOURCE": rng.integers(0, 700, 500), "ROLE": rng.integers(0, 300, 500)})
    frame.assign(target=rng.integers(0, 2, 500)).to_csv(home / "openml" / "amazon.csv", index=False)
    data = load("openml:amazon", "binary", scale=False)
    assert data.X.shape[1] == frame["RESOURCE"].nunique() + frame["ROLE"].nunique()
    assert (data.X.sum(axis=1) == 2).all()
    assert (np.diff(data.X.sum(axis=0)) <= 0).all()


def test_openml_names_missing_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    frame = pd.DataFrame({"age": pd.array([1, None, 3], dtype="Int64"), "town": ["a", "b", "c"]})
    deliver(monkeypatch, frame, pd.Series([0, 1, 0]))
    with pytest.raises(DataError, match=r"column 'age' of .* has missing"):
        load("openml:people", "binary")


def test_openml_reads_sparse_matrices(monkeypatch: pytest.MonkeyPatch) -> None:
    X = np.array([[0, 2.0, 0], [1, 0, 0], [0, 0, 3]])
    deliver(monkeypatch, scipy.sparse.csr_matrix(X), np.array(["5", "6", "7"], dtype=object))
    data = load("openml:words", "multiclass", scale=False)
    np.testing.assert_array_equal(data.X[np.argsort(data.y)], X)


def test_openml_reports_a_set_without_a_target(monkeypatch: pytest.MonkeyPatch) -> None:
    deliver(monkeypatch, pd.DataFrame({"a": [1.0]}), None)
    with pytest.raises(DataError, match=r"no single target column; place it by hand as .*plain\.csv"):
        load("openml:plain", "regression")


def test_openml_refuses_an_unknown_set(monkeypatch: pytest.MonkeyPatch) -> None:
    def fetch(**_: object) -> None:
        raise ValueError("No active dataset nonsense found.")

    monkeypatch.setattr("sklearn.datasets.fetch_openml", fetch)
    with pytest.raises(DataError, match="No active dataset nonsense found"):
        load("openml:nonsense", "binary")


ARFF = """@RELATION people
@ATTRIBUTE town {rome,'new york'}
@ATTRIBUTE floor {1,2,3}
@ATTRIBUTE age NUMERIC
@ATTRIBUTE class {0,1}
@DATA
rome,1,20,0
'new york',3,30.5,1
rome,1,40,1
?,2,50,0
"""
FEATURES = [("town", "nominal"), ("floor", "nominal"), ("age", "numeric"), ("class", "nominal")]


class Answer(io.BytesIO):
    """Result of urlopen."""

    def info(self) -> dict[str, str]:
        return {}


def serve(request: object) -> Answer:
    """Reply as OpenML does for data set number 7."""
    url: str = request if isinstance(request, str) else request.full_url  # type: ignore[attr-defined]
    features = [
        {
            "index": str(index),
            "name": name,
            "data_type": kind,
            "is_target": str(name == "class").lower(),
            "is_ignore": "false",
            "is_row_identifier": "false",
            "number_of_missing_values": "0",
        }
        for index, (name, kind) in enumerate(FEATURES)
    ]
    description = {
        "id": "7",
        "name": "people",
        "version": "1",
        "description": "some",
        "format": "ARFF",
        "status": "active",
        "md5_checksum": hashlib.md5(ARFF.encode()).hexdigest(),
        "file_id": "7",  # field for scikit-learn 1.5
        "url": "test:/data/v1/download/7/people.arff",
    }
    answers = {
        "/download/": ARFF,
        "/data_name/": {
            "data": {"dataset": [{"did": 7, "name": "people", "version": 1, "status": "active"}]}
        },
        "/features/": {"data_features": {"feature": features}},
        "/qualities/": {"data_qualities": {"quality": [{"name": "NumberOfInstances", "value": "4.0"}]}},
        "/data/": {"data_set_description": description},
    }
    answer = next(answer for part, answer in answers.items() if part in url)
    return Answer((answer if isinstance(answer, str) else json.dumps(answer)).encode())


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("source", ["openml:people", "openml:7"])
def test_openml_reads_scikit_learn_downloads(monkeypatch: pytest.MonkeyPatch, source: str) -> None:
    monkeypatch.setattr("sklearn.datasets._openml.urlopen", serve)
    data = load(source, "binary", scale=False)
    order = np.argsort(data.X[:, 0])
    # age, floor=1 (2), town=rome (2), then those with one sample: town=new york, floor=2, floor=3
    assert data.X[order].tolist() == [
        [20, 1, 1, 0, 0, 0],
        [30.5, 0, 0, 1, 0, 1],
        [40, 1, 1, 0, 0, 0],
        [50, 0, 0, 0, 1, 0],
    ]
    assert data.y[order].tolist() == [0, 1, 1, 0]
    assert data.note == "OpenML data set people, version 1."


@pytest.mark.filterwarnings("error")
def test_openml_known_sets_are_numeric(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sklearn.datasets._openml.urlopen", serve)
    monkeypatch.setitem(globals(), "ARFF", re.sub("rome|'new york'|[?]", "5", ARFF))
    data = load("openml:boston", "regression", scale=False)
    assert data.X.shape == (4, 3)
    assert sorted(data.X[:, 1]) == [1, 1, 2, 3]
