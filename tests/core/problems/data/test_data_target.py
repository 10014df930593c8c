"""The target column of a table: only a named column is used."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import workbench as wb
from tests.support.foreign_folders import older
from workbench.core.problems.data import load
from workbench.core.problems.data.frames import TARGET_NAMES
from workbench.lab.widgets.forms.form import ChoiceForm

COLUMNS = ["churned", *(f"x{j}" for j in range(20))]
ENDINGS = (".csv", ".parquet")


def churn(folder: Path, ending: str = ".csv", names: list[str] | None = None) -> Path:
    """Write a table whose first column is the target, and whose last one is a feature."""
    table = np.random.default_rng(3).standard_normal((60, len(names or COLUMNS)))
    table[:, 0] = table[:, 1] > 0
    frame, path = pd.DataFrame(table, columns=names or COLUMNS), folder / f"churn{ending}"
    frame.to_csv(path, index=False) if ending == ".csv" else frame.to_parquet(path)
    return path


def experiment(path: Path, **more: object) -> wb.Experiment:
    return wb.Experiment(
        scheme="UMW", problem="logistic", workers=3, rounds=2, problem_args={"data": str(path), **more}
    )


@pytest.mark.parametrize("ending", ENDINGS)
def test_target_must_be_named(tmp_path: Path, ending: str) -> None:
    path = churn(tmp_path, ending)
    with pytest.raises(wb.DataError) as caught:
        wb.run(experiment(path))
    assert str(caught.value) == (
        f"problem_args.target: 'churn{ending}' has no column called target, label, class or y; "
        f"name the one to learn: {', '.join(COLUMNS)}"
    )


@pytest.mark.parametrize("ending", ENDINGS)
def test_target_is_the_named_column(tmp_path: Path, ending: str) -> None:
    path = churn(tmp_path, ending)
    data = load(path, "binary", target="churned", scale=False)
    assert data.X.shape == (60, 20)
    np.testing.assert_array_equal(data.y, data.X[:, 0] > 0)
    assert wb.run(experiment(path, target="churned")).columns["accuracy"][-1] > 0.8


def test_target_choice_is_cached_separately(tmp_path: Path) -> None:
    path = churn(tmp_path)
    folders = {load(path, "regression", target=name).folder for name in ("churned", "x0", "x19")}
    assert len(folders) == 3
    np.save(tmp_path / "a.npy", np.eye(3))
    assert load(tmp_path / "a.npy", "regression").folder == load(tmp_path / "a.npy", "regression").folder


@given(
    names=st.lists(
        st.sampled_from(["target", "label", "class", "y", "a", "Target", "Y"]), min_size=1, unique=True
    )
)
def test_target_name_is_matched_exactly_if_unique(
    tmp_path_factory: pytest.TempPathFactory, names: list[str]
) -> None:
    path = churn(tmp_path_factory.mktemp("named"), names=["x", *names])
    fitting = [name for name in names if name.lower() in TARGET_NAMES]
    if len(fitting) == 1:
        column = pd.read_csv(path)[fitting[0]].to_numpy()
        np.testing.assert_array_equal(np.sort(load(path, "regression").y), np.sort(column))
        return
    with pytest.raises(wb.DataError, match=r"^target: 'churn\.csv' has ") as caught:
        load(path, "regression")
    assert all(repr(name) in str(caught.value) for name in fitting)
    assert str(caught.value).endswith(", ".join(["x", *names]))


def test_target_case_matters_only_if_ambiguous(tmp_path: Path) -> None:
    path = churn(tmp_path, names=["Y", "y", "Goal"])
    assert len(load(path, "regression", target="goal").y) == 60
    first, second = (load(path, "regression", target=name, scale=False) for name in "Yy")
    assert set(first.y) == {0, 1} != set(second.y)
    with pytest.raises(wb.DataError, match="columns 'Y' and 'y'; name the one"):
        load(path, "regression")


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("synthetic", "target: 'x' names a column, and 'synthetic' has its own target; leave it empty"),
        ("diabetes", "'diabetes' has its own target"),
        ("a.npy", "'a.npy' has no names of columns; leave it empty"),
        ("churn.csv", r"target: 'x' is not a column of 'churn.csv'; its columns are churned, x0, x1"),
    ],
)
def test_target_that_is_not_a_column_gives_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, says: str
) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("a.npy", np.eye(3))
    churn(tmp_path)
    with pytest.raises(wb.DataError, match=says):
        load(name, "regression", target="x")
    with pytest.raises(wb.DataError, match="target: 5 is not text"):
        load(name, "regression", target=5)  # type: ignore[arg-type]


def test_target_error_lists_few_of_many_columns(tmp_path: Path) -> None:
    path = churn(tmp_path, names=[f"x{j}" for j in range(500)])
    with pytest.raises(wb.DataError, match=r"x23 and 476 more$"):
        load(path, "regression")


def test_target_of_a_placed_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKBENCH_CACHE", str(tmp_path))
    (tmp_path / "openml").mkdir()
    churn(tmp_path / "openml").rename(tmp_path / "openml" / "telco.csv")
    with pytest.raises(wb.DataError, match=r"'telco\.csv' has no column called"):
        load("openml:telco", "binary")
    assert set(load("openml:telco", "binary", target="churned").y) == {0, 1}
    frame = pd.DataFrame(np.eye(3), columns=["CRIM", "MEDV", "LSTAT"])
    frame.to_csv(tmp_path / "openml" / "boston.csv", index=False)
    assert load("openml:boston", "regression").X.shape == (3, 2)  # OpenML declares this target


def test_target_is_a_field_of_forms_files_and_sweeps(tmp_path: Path) -> None:
    e = experiment(churn(tmp_path), target="churned")
    assert wb.Experiment.read(e.write(tmp_path / "e.yaml")) == e
    assert wb.Experiment.read(e.write(tmp_path / "e.json")) == e
    sweep = wb.batch.Sweep(
        base=e.model_dump(mode="json", exclude_unset=True), grid={"problem_args.target": ["churned", "x3"]}
    )
    assert [item.label for item in sweep.items()] == ["target=churned", "target=x3"]
    form = ChoiceForm("Problem", "problem", wb.problems.ProblemArgs.catalogue, "logistic")
    form.choose("logistic", e.problem_args)
    assert form.settings() == e.problem_args
    for name in ("least_squares", "logistic", "softmax", "cnn"):
        field = next(f for f in wb.problems.get(name).fields() if f["name"] == "target")
        assert "column to learn" in field["description"]


def test_target_of_folders_from_older_versions(tmp_path: Path) -> None:
    """The old spec names no column. Its run folder loads, but running the experiment again requires a column."""
    path = churn(tmp_path)
    folder = wb.run(experiment(path, target="churned")).save(tmp_path / "kept")
    experiment(path).write(folder / "spec.json")
    older(folder)
    trace = wb.Trace.load(folder)
    assert len(trace.rounds) == 2
    assert len(wb.runs(tmp_path)) == 1
    with pytest.raises(wb.DataError, match=r"problem_args\.target: .* name the one to learn: churned"):
        trace.replay()
