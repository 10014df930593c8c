"""Bundled and synthetic data sets, and their options."""

import subprocess
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.core.problems.data import DataError, catalogue, load, reopen, table

BUNDLED = [(name, task) for name, info in catalogue().items() if info.bundled for task in info.tasks]


@pytest.mark.parametrize(("name", "task"), BUNDLED)
def test_catalogue_describes_what_load_returns(name: str, task: str) -> None:
    info, data = catalogue()[name], load(name, task)
    assert data.X.shape == (info.samples, info.features)
    assert data.y.shape == (info.samples,)
    assert data.name == name
    if task == "regression":
        assert data.classes == 0
    else:
        assert data.classes == (info.classes or {"binary": 2, "multiclass": 10}[task])
        assert set(np.unique(data.y)) == set(range(data.classes))
    assert data.note.endswith(".")
    assert ("stand-in" in data.note) == (name in ("synthetic", "synthetic_images", "digits"))


@pytest.mark.parametrize(("name", "task"), BUNDLED)
def test_load_returns_read_only_memory_maps(name: str, task: str) -> None:
    data = load(name, task, intercept=True)
    assert isinstance(data.X, np.memmap)
    assert data.X.dtype == data.y.dtype == np.float64
    assert data.X.flags.c_contiguous
    assert not data.X.flags.writeable
    assert not data.y.flags.writeable
    assert (data.X[:, -1] == 1).all()


@pytest.mark.parametrize(("name", "task"), [pair for pair in BUNDLED if pair[0] != "synthetic"])
def test_load_standardises_columns(name: str, task: str) -> None:
    raw, data = load(name, task, scale=False), load(name, task)
    if name == "synthetic_images":  # standardised by channel
        np.testing.assert_allclose(data.X.reshape(len(data.X), 3, -1).mean(axis=(0, 2)), 0, atol=1e-12)
        return
    constant = np.ptp(raw.X, axis=0) == 0
    np.testing.assert_allclose(data.X.mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(data.X[:, ~constant].std(axis=0), 1)
    assert (data.X[:, constant] == 0).all()
    if name == "digits":
        assert constant.any()


@given(samples=st.integers(1, 150), features=st.integers(1, 4), seed=st.integers(0, 5))
def test_load_samples_and_features_limits(samples: int, features: int, seed: int) -> None:
    whole = load("iris", "multiclass", scale=False, seed=seed)
    some = load("iris", "multiclass", samples=samples, features=features, scale=False, seed=seed)
    np.testing.assert_array_equal(some.X, whole.X[:samples, :features])
    np.testing.assert_array_equal(some.y, whole.y[:samples])
    assert some.classes == 3


def test_load_shuffles_by_the_seed() -> None:
    first, again, other = (load("iris", "multiclass", seed=seed) for seed in (0, 0, 1))
    assert first.digest == again.digest != other.digest
    # each fifth has all classes, although the source is sorted by class
    assert all(set(np.unique(part)) == {0, 1, 2} for part in np.split(first.y, 5))


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("digits", "binary"), r"task: 'binary' .*10 classes.*'multiclass' \(the softmax.*breast_cancer"),
        (("diabetes", "multiclass"), r"task: 'multiclass' .*quantity.*'regression'.*digits"),
        (("breast_cancer", "regression"), r"task: 'regression' .*2 classes.*'binary'.*diabetes"),
        (("iris", "clustering"), r"task: 'clustering' .*regression, binary, multiclass"),
        (("irs", "multiclass"), r"source: 'irs' .*'iris'.*synthetic.*openml:NAME.*\.csv"),
    ],
)
def test_load_names_sources_that_suit(arguments: tuple[str, str], says: str) -> None:
    with pytest.raises(DataError, match=says):
        load(*arguments)


@pytest.mark.parametrize(
    ("choice", "says"),
    [
        ({"samples": 151}, "samples: 151 .* at most 150"),
        ({"features": 5}, "features: 5 .* at most 4"),
        ({"samples": 0}, "samples: 0 .* 1 or more"),
        ({"features": -1}, "features: -1 .* 1 or more"),
        ({"samples": 1.5}, "samples: 1.5 .* whole number"),
        ({"samples": True}, "samples: True .* whole number"),
        ({"seed": -1}, "seed: -1 .* 0 or more"),
    ],
)
def test_load_refuses_an_unsuitable_option(choice: dict[str, int], says: str) -> None:
    with pytest.raises(DataError, match=says):
        load("iris", "multiclass", **choice)


def test_load_accepts_numpy_numbers() -> None:
    assert load("iris", "multiclass", samples=np.int64(7)).X.shape == (7, 4)


def test_load_regression_is_the_papers_model() -> None:
    data = load("synthetic", "regression", samples=20000, features=30)
    assert data.truth is not None
    noise = data.y - data.X @ data.truth
    assert abs(noise.mean()) < 0.03
    assert abs(noise.std() - 1) < 0.03
    np.testing.assert_allclose(np.cov(data.X.T), np.eye(30), atol=0.06)
    assert abs(np.corrcoef(noise, data.X[:, 0])[0, 1]) < 0.03
    assert 0.5 < data.truth.std() < 1.5
    drawn = (data.truth[:9], data.X[0, :9], noise[:9])
    assert len({tuple(values.round(6)) for values in drawn}) == 3  # from three random streams


def test_load_binary_truth_predicts_the_probabilities() -> None:
    data = load("synthetic", "binary", samples=50000, features=30)
    assert data.truth is not None
    logits = data.X @ data.truth
    assert 2 < logits.std() < 4  # 3 x . t / sqrt(p) with t ~ N(0, I)
    chance = 1 / (1 + np.exp(-logits))
    for low in np.arange(0, 1, 0.1):
        inside = (low <= chance) & (chance < low + 0.1)
        assert abs(data.y[inside].mean() - chance[inside].mean()) < 0.05


def test_load_ten_classes_can_be_learned() -> None:
    data = load("synthetic", "multiclass", samples=5000, features=8)
    assert data.truth is None
    assert data.classes == 10
    means = np.stack([data.X[data.y == c].mean(axis=0) for c in range(10)])
    right = (np.argmax(data.X @ means.T, axis=1) == data.y).mean()
    assert right > 0.3  # by chance: 0.1


@pytest.mark.parametrize("scale", [False, True])
def test_load_truth_is_for_the_prepared_columns(scale: bool) -> None:
    plain = load("synthetic", "regression", samples=50)
    data = load("synthetic", "regression", samples=50, intercept=True, scale=scale)
    assert plain.truth is not None
    assert data.truth is not None
    assert data.truth.shape == (21,)
    np.testing.assert_allclose(data.X @ data.truth, plain.X @ plain.truth)
    assert scale or data.truth[-1] == 0


@pytest.mark.parametrize("task", ["regression", "binary", "multiclass"])
def test_load_is_independent_of_the_block_size(
    task: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    digests = set()
    for size in (1, 5000, 1 << 22):
        monkeypatch.setattr(table, "BLOCK_BYTES", size)
        monkeypatch.setenv("WORKBENCH_CACHE", str(tmp_path / str(size)))
        digests.add(load("synthetic", task, samples=301, features=17, intercept=True).digest)
    assert len(digests) == 1


def test_load_uses_little_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKBENCH_CACHE", str(tmp_path))
    tracemalloc.start()
    data = load("synthetic", "regression", samples=10000, features=1000, intercept=True)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 0.4 * data.X.nbytes


def test_reopen_maps_the_same_data_in_another_process() -> None:
    data = load("wine", "multiclass")
    same = reopen(data.folder)
    assert same.digest == data.digest
    assert (same.name, same.classes, same.note) == (data.name, data.classes, data.note)
    np.testing.assert_array_equal(same.X, data.X)


def test_reopen_refuses_what_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"folder: .* call load again"):
        reopen(tmp_path / "nothing")


def test_data_import_is_light() -> None:
    heavy = {"sklearn", "pandas", "pyarrow", "scipy"}
    code = f"import sys, workbench.core.problems.data; print({heavy!r} & set(sys.modules))"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "set()"
