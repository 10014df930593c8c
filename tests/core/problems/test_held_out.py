"""Held-out samples: their choice, their absence from training, and their metrics on both engines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from sklearn.metrics import log_loss, roc_auc_score

import workbench as wb
from workbench.core.base.older import renamed
from workbench.core.base.settings import SettingError
from workbench.core.base.types import Array
from workbench.core.problems import get
from workbench.core.problems.data import DataError, held_out, held_out_count, load
from workbench.core.problems.held_out import auc

pytestmark = pytest.mark.usefixtures("cache")
BINARY: dict[str, Any] = {"data": "breast_cancer", "test": 0.25}


def experiment(**fields: Any) -> wb.Experiment:
    known: dict[str, Any] = {
        "scheme": "UMW",
        "workers": 4,
        "rounds": 6,
        "problem": "logistic",
        "problem_args": BINARY,
        "optimiser_args": {"step": 0.5},
    }
    return wb.Experiment(**{**known, **fields})


def rows_of(X: Array, y: Array) -> list[tuple[float, ...]]:
    return sorted(map(tuple, np.column_stack([X, y]).tolist()))


# ------------------------------------------------------------------------------------------------ the split


@given(st.lists(st.integers(2, 40), min_size=2, max_size=6), st.floats(0.05, 0.95), st.integers(0, 99))
def test_held_out_share_of_each_class_is_within_one_sample(sizes: list[int], share: float, seed: int) -> None:
    y = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(sizes)), sizes))
    count = int(share * len(y) + 0.5)
    assume(0 < count < len(y))
    shares = np.array(sizes) * count / len(y)
    if np.minimum(shares, sizes - shares).min() < 1:  # otherwise a class may be too small, which is refused
        return
    found = held_out(y, len(sizes), count, seed)
    assert found.sum() == count == held_out_count(share, len(y))
    for label, size in enumerate(sizes):
        apart = int(found[y == label].sum())
        assert abs(apart - size * count / len(y)) < 1
        assert apart < size
    np.testing.assert_array_equal(found, held_out(y, len(sizes), count, seed))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=12)
@given(st.sampled_from(["breast_cancer", "digits", "diabetes", "synthetic"]), st.data())
def test_held_out_split_is_disjoint_and_complete(source: str, data: st.DataObject) -> None:
    task = {"diabetes": "regression", "digits": "multiclass"}.get(source, "binary")
    seed, test = data.draw(st.integers(0, 3)), data.draw(st.sampled_from([0.1, 0.5, 40]))
    samples = 150 if source == "synthetic" else None
    options: dict[str, Any] = {"scale": False, "seed": seed, "samples": samples}
    whole, split = load(source, task, **options), load(source, task, test=test, **options)
    assert split.X_test is not None
    assert split.y_test is not None
    together = np.vstack([split.X, split.X_test]), np.concatenate([split.y, split.y_test])
    assert rows_of(*together) == rows_of(whole.X, whole.y)
    assert len(split.y_test) == held_out_count(test, len(whole.y))


def test_held_out_rows_do_not_change_the_scale() -> None:
    data = load("breast_cancer", "binary", test=0.3)
    raw = load("breast_cancer", "binary", test=0.3, scale=False)
    assert data.X_test is not None
    assert raw.X_test is not None
    assert isinstance(data.X_test, np.memmap)
    np.testing.assert_allclose(data.X.mean(axis=0), 0, atol=1e-12)
    expected = (raw.X_test - raw.X.mean(axis=0)) / raw.X.std(axis=0)
    np.testing.assert_allclose(data.X_test, expected, rtol=1e-9, atol=1e-9)
    assert np.abs(data.X_test.mean(axis=0)).max() > 0.01


def test_held_out_split_is_equal_for_all_schemes_and_leaves_their_parts() -> None:
    found = [experiment(scheme=scheme, workers=6) for scheme in ("UMW", "GC", "RAR", "D-SGD")]
    assert {e.problem_spec.open().digest for e in found} == {found[0].problem_spec.open().digest}  # type: ignore[attr-defined]
    for e in found:
        assert e.plan.samples == e.shape()[0] == e.problem_spec.declared_samples() == 569 - 142
    other = experiment(problem_args={**BINARY, "data_seed": 1})
    assert other.problem_spec.open().digest != found[0].problem_spec.open().digest  # type: ignore[attr-defined]


def test_held_out_batches_are_of_training_samples() -> None:
    e = experiment(batch=50)
    assert e.sampler is not None
    assert e.sampler.samples == 427


def test_held_out_smoothness_is_that_of_training_samples() -> None:
    data = load("breast_cancer", "binary", test=0.25)
    expected = 0.25 * np.linalg.eigvalsh(data.X.T @ data.X)[-1] / len(data.X)
    assert experiment().build_problem().smoothness() == pytest.approx(expected)


# ------------------------------------------------------------------------------------------------ metrics


@given(
    st.lists(st.tuples(st.integers(-3, 3), st.booleans()), min_size=2, max_size=60).filter(
        lambda pairs: len({label for _, label in pairs}) == 2
    )
)
def test_auc_equals_scikit_learns(pairs: list[tuple[int, bool]]) -> None:
    scores, labels = (np.array(column, dtype=float) for column in zip(*pairs, strict=True))
    assert auc(scores, labels) == pytest.approx(roc_auc_score(labels, scores), abs=1e-12)
    assert np.isnan(auc(scores, np.zeros(len(scores))))
    assert np.isnan(auc(scores + np.nan, labels))


def test_held_out_metrics_of_logistic_equal_numpy() -> None:
    e = experiment(problem_args={**BINARY, "l2": 0.1})
    trace, data = wb.run(e), e.problem_spec.open()  # type: ignore[attr-defined]
    scores = data.X_test @ trace.model
    last = trace.rounds.iloc[-1]
    assert last["test_loss"] == pytest.approx(log_loss(data.y_test, 1 / (1 + np.exp(-scores))), rel=1e-10)
    assert last["test_accuracy"] == np.mean((scores > 0) == data.y_test)
    assert last["test_auc"] == pytest.approx(roc_auc_score(data.y_test, scores), abs=1e-12)
    assert trace.initial["test_auc"] == 0.5


@pytest.mark.parametrize(("problem", "source"), [("softmax", "breast_cancer"), ("softmax", "digits")])
def test_held_out_metrics_of_softmax_equal_numpy(problem: str, source: str) -> None:
    e = experiment(problem=problem, problem_args={"data": source, "test": 0.25})
    trace, data = wb.run(e), e.problem_spec.open()  # type: ignore[attr-defined]
    scores = data.X_test @ trace.model.reshape(data.X.shape[1], -1)
    chance = np.exp(scores - scores.max(axis=1, keepdims=True))
    chance /= chance.sum(axis=1, keepdims=True)
    last = trace.rounds.iloc[-1]
    assert last["test_loss"] == pytest.approx(log_loss(data.y_test, chance), rel=1e-9)
    assert last["test_accuracy"] == np.mean(scores.argmax(axis=1) == data.y_test)
    assert ("test_auc" in trace.columns) == (source == "breast_cancer")
    if source == "breast_cancer":
        assert last["test_auc"] == pytest.approx(roc_auc_score(data.y_test, scores[:, 1] - scores[:, 0]))


def test_held_out_metrics_of_least_squares_are_the_loss_only() -> None:
    e = experiment(
        problem="least_squares",
        problem_args={"data": "diabetes", "test": 0.2},
        optimiser_args={"step": 0.1},
    )
    trace, data = wb.run(e), e.problem_spec.open()  # type: ignore[attr-defined]
    expected = 0.5 * np.mean((data.X_test @ trace.model - data.y_test) ** 2)
    assert trace.columns["test_loss"][-1] == pytest.approx(expected)
    assert not {"test_accuracy", "test_auc"} & set(trace.columns)


@pytest.mark.parametrize("fields", [{}, {"batch": 60}, {"scheme": "D-SGD"}])
def test_held_out_metrics_have_the_cadence_of_the_loss_and_leave_the_models(fields: dict[str, Any]) -> None:
    e = experiment(evaluate_every=4, rounds=10, **fields)
    rounds = wb.run(e).rounds
    assert np.flatnonzero(rounds["test_loss"].notna()).tolist() == [3, 7, 9]
    assert rounds["test_auc"].notna().equals(rounds["loss"].notna())
    often = wb.run(e.replace(evaluate_every=1)).rounds
    assert often["time"].equals(rounds["time"])
    np.testing.assert_array_equal(often["test_loss"][[3, 7, 9]], rounds["test_loss"][[3, 7, 9]])


@pytest.mark.mpi
@pytest.mark.xdist_group("mpi")
@pytest.mark.parametrize("batch", [None, 100])
def test_held_out_metrics_of_real_ranks_equal_the_simulators(batch: int | None) -> None:
    e = experiment(scheme="GC", batch=batch, evaluate_every=2, delays={"kind": "constant", "shift": 1e-6})
    simulated, real = wb.run(e), wb.run(e, engine="mpi")
    names = ["loss", "test_loss", "test_accuracy", "test_auc"]
    np.testing.assert_allclose(real.rounds[names], simulated.rounds[names], rtol=1e-8)
    assert real.initial == pytest.approx(simulated.initial)


# ------------------------------------------------------------------------------------------------ files


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    data = load("breast_cancer", "binary", scale=False, features=3)
    names = ",".join(["target", "a", "b", "c"])
    paths = tmp_path / "train.csv", tmp_path / "test.csv"
    for path, part in zip(paths, (slice(400), slice(400, None)), strict=True):
        labels = np.where(data.y[part] > 0.5, "benign", "malignant")
        lines = [f"{y},{','.join(map(repr, x))}" for y, x in zip(labels, data.X[part].tolist(), strict=True)]
        path.write_text("\n".join([names, *lines]) + "\n")
    return paths


def test_held_out_file_has_the_columns_and_classes_of_the_data(files: tuple[Path, Path]) -> None:
    train, test = map(str, files)
    data, alone = load(train, "binary", test=test), load(train, "binary")
    np.testing.assert_array_equal(data.X, alone.X)
    raw, apart = load(train, "binary", scale=False), load(test, "binary", scale=False)
    assert data.X_test is not None
    assert data.y_test is not None
    expected = (apart.X - raw.X.mean(axis=0)) / raw.X.std(axis=0)
    np.testing.assert_allclose(rows_of(data.X_test, data.y_test), rows_of(expected, apart.y), rtol=1e-9)
    trace = wb.run(experiment(problem_args={"data": train, "test": test}))
    assert trace.experiment.shape()[0] == 400
    assert trace.columns["test_auc"][-1] > 0.9


def test_held_out_file_that_changed_is_read_again(files: tuple[Path, Path]) -> None:
    train, test = files
    before = load(str(train), "binary", test=str(test))
    test.write_text("\n".join(test.read_text().splitlines()[:-1]) + "\n")
    after = load(str(train), "binary", test=str(test))
    assert before.y_test is not None
    assert after.y_test is not None
    assert len(after.y_test) == len(before.y_test) - 1


def test_held_out_sparse_file_may_end_with_an_earlier_column(tmp_path: Path) -> None:
    (tmp_path / "a.svm").write_text("1 1:2 4:1\n0 2:1\n1 3:5\n0 1:1\n")
    (tmp_path / "b.svm").write_text("1 1:2 2:3\n0 2:1\n")
    data = load(str(tmp_path / "a.svm"), "binary", test=str(tmp_path / "b.svm"), scale=False)
    assert data.X_test is not None
    assert data.X_test.tolist() == [[2, 3, 0, 0], [0, 1, 0, 0]]


def test_held_out_file_that_does_not_fit_is_refused(files: tuple[Path, Path], tmp_path: Path) -> None:
    train, test = files
    lines = test.read_text().splitlines()
    cases = {
        "fewer.csv": (["target,a,b", "benign,1,2"], "has 2 columns besides the target and .* has 3"),
        "renamed.csv": (["target,a,b,d", *lines[1:]], "has 'd' as column 3 where .* has 'c'"),
        "class.csv": (["target,a,b,c", "odd,1,2,3"], "has 3 different values|class 'odd' in line 2"),
        "gap.csv": (["target,a,b,c", "benign,1,2,nan"], "missing or infinite"),
    }
    for name, (text, sentence) in cases.items():
        (tmp_path / name).write_text("\n".join(text) + "\n")
        with pytest.raises(DataError, match=sentence):
            load(str(train), "binary", test=str(tmp_path / name))
    with pytest.raises(DataError, match=r"problem_args\.test: there is no file"):
        experiment(problem_args={"data": str(train), "test": "none.csv"}).build_problem()
    with pytest.raises(DataError, match=r"problem_args\.test: .* take a share such as 0.2"):
        experiment(problem_args={"test": str(test)}).build_problem()


# ------------------------------------------------------------------------------------------------ refusals


@pytest.mark.parametrize("test", [0, 1, 0.0, 1.0, -0.2, 1.5, True])
def test_held_out_share_that_is_not_a_share_is_refused(test: Any) -> None:
    with pytest.raises(SettingError, match=rf"problem_args\.test = {test!r}: take a share between 0 and 1"):
        experiment(problem_args={**BINARY, "test": test})


@pytest.mark.parametrize("test", [0.0001, 569, 600])
def test_held_out_share_that_leaves_nothing_is_refused(test: float) -> None:
    with pytest.raises(
        (SettingError, DataError), match=r"problem_args\.test: .* of 569 samples; take a share"
    ):
        experiment(problem_args={**BINARY, "test": test})


@pytest.mark.parametrize(("count", "sizes"), [(1, [2, 40]), (41, [2, 40])])
def test_held_out_share_that_leaves_a_class_without_samples_is_refused(count: int, sizes: list[int]) -> None:
    with pytest.raises(DataError, match=r"would leave a class without any, .* take a share nearer to a half"):
        held_out(np.repeat([0, 1], sizes), 2, count, seed=0)


def test_held_out_class_of_one_sample_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "lonely.csv"
    path.write_text("target,x\na,1\na,2\nb,3\nb,4\nc,5\n")
    sentence = "class 2 .* has one sample only in line 6"
    with pytest.raises(DataError, match=rf"problem_args\.test: {sentence}"):
        experiment(problem="softmax", problem_args={"data": str(path), "test": 0.4}).build_problem()


def test_held_out_samples_of_version_one_still_load(tmp_path: Path) -> None:
    args = {"data": "synthetic", "samples": 60, "held_out": 20}
    spec = renamed({"scheme": "UMW", "problem": "cnn", "problem_args": args})
    assert spec["problem_args"] == {"data": "synthetic", "samples": 80, "test": 20}
    assert get("cnn")(**spec["problem_args"]).count() == 60
    assert renamed({"held_out": 0, "samples": 3}) == {"samples": 3}


def test_held_out_samples_of_a_smaller_problem_keep_their_share() -> None:
    args = experiment().problem_spec
    for samples in (50, 101, 300):
        fewer = args.fewer(samples)
        assert abs(fewer.count() - samples) <= 1
        assert fewer.test == 0.25  # type: ignore[attr-defined]
    counted = get("logistic")(samples=400, test=100).fewer(150)
    assert (counted.count(), counted.samples) == (150, 200)  # type: ignore[attr-defined]
