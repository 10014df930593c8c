"""Default steps of optimisers, computed from the data, and data that allow no default step."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import workbench as wb

NOTHING = {  # file -> X whose columns are all 0 after standardising
    "constant.npz": np.full((40, 3), 7.0),
    "zero.npz": np.zeros((40, 3)),
    "one-row.npz": np.array([[1.0, 2.0, 3.0]]),
}


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name, X in NOTHING.items():
        np.savez(name, X=X, y=np.arange(len(X), dtype=float))
    return tmp_path


def on(name: str, **fields: object) -> wb.Experiment:
    args = {"data": name, **fields.pop("problem_args", {})}  # type: ignore[dict-item]
    base = {"scheme": "UMW", "workers": 1, "rounds": 3, "problem": "least_squares"}
    return wb.Experiment(**{**base, "problem_args": args, **fields})


@pytest.mark.parametrize("name", NOTHING)
@pytest.mark.parametrize(
    ("optimiser", "field"), [("gd", "step"), ("nesterov", "step"), ("inverse_time", "c1")]
)
def test_optimiser_step_of_zero_data_is_refused(data: Path, name: str, optimiser: str, field: str) -> None:
    with pytest.raises(
        wb.SettingError, match=rf"^optimiser_args\.{field}: is empty, .* every column is 0 .*write a"
    ):
        wb.run(on(name, optimiser=optimiser))
    assert len(wb.run(on(name, optimiser=optimiser, optimiser_args={field: 0.1})).rounds) == 3


@pytest.mark.parametrize("name", NOTHING)
def test_optimiser_step_of_zero_data_with_a_constant_or_regularisation(data: Path, name: str) -> None:
    with pytest.raises(wb.SettingError, match="every column is 0"):
        wb.tune([on(name)])
    for more in ({"intercept": True}, {"l2": 0.1}):
        assert np.isfinite(wb.run(on(name, problem_args=more)).columns["loss"]).all()


def test_optimiser_step_of_overflowing_data_is_refused(data: Path) -> None:
    np.savez("huge.npz", X=np.full((4, 1), 1e200), y=np.arange(4.0))
    with np.errstate(over="ignore"), pytest.raises(wb.SettingError, match="their size is out of range"):
        wb.run(on("huge.npz", problem_args={"scale": False}))


@pytest.mark.parametrize("name", ["gd", "nesterov"])
def test_optimiser_keeps_the_precision_of_the_model(name: str) -> None:
    """A gradient in float32, such as that of a network, leaves the model in float64. Neither array is changed."""
    e = wb.Experiment(problem="least_squares", optimiser=name, optimiser_args={"step": 0.1})
    problem, optimiser = e.build_problem(), e.build_optimiser()
    model = np.array(problem.start())
    gradient, was = np.ones(model.shape, np.float32), model.copy()
    moved, _ = optimiser.update(optimiser.start(problem), model, gradient, problem, 0)
    assert moved.dtype == np.float64
    np.testing.assert_array_equal(model, was)
    np.testing.assert_array_equal(gradient, 1.0)
