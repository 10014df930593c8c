"""A loss written in NumPy: a problem like the others. `wb.check` finds a wrong gradient."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import workbench as wb
from workbench.core.base.settings import SettingError

EXAMPLE = """
import numpy as np

def huber(model, X, y):
    off = X @ model - y
    near = np.abs(off) <= 1.0
    loss = np.where(near, 0.5 * off**2, np.abs(off) - 0.5).mean()
    return float(loss), X.T @ np.clip(off, -1.0, 1.0) / len(y)
"""


def squares(model: Any, X: Any, y: Any) -> Any:
    off = X @ model - y
    return 0.5 * float(off @ off) / len(y), X.T @ off / len(y)


def sums(model: Any, X: Any, y: Any) -> Any:
    """Return sums instead of means, which is wrong."""
    off = X @ model - y
    return 0.5 * float(off @ off), X.T @ off


def slip(model: Any, X: Any, y: Any) -> Any:
    """Return half the gradient, which is wrong."""
    loss, gradient = squares(model, X, y)
    return loss, 0.5 * gradient


def no_gradient(model: Any, X: Any, y: Any) -> Any:
    return squares(model, X, y)[0]


def ones() -> Any:
    return np.ones(10)


def experiment(function: Any, **fields: Any) -> wb.Experiment:
    args = {"loss_and_gradient": function, "data": "diabetes", "samples": 60, **fields.pop("args", {})}
    small: dict[str, Any] = {"scheme": "GC", "scheme_args": {"stragglers": 1}, "workers": 4, "rounds": 5}
    return wb.Experiment(problem="numpy", problem_args=args, **{**small, **fields})


def test_numpy_problem_of_squares_is_least_squares() -> None:
    mine = experiment(squares, optimiser_args={"step": 0.1})
    args = {name: mine.problem_args[name] for name in ("data", "samples")}
    theirs = mine.replace(problem="least_squares", problem_args=args)
    losses = [wb.run(e, numeric=numeric).columns["loss"] for e in (mine, theirs) for numeric in (False, True)]
    for loss in losses:
        np.testing.assert_allclose(loss, losses[0], rtol=1e-10)
    assert mine.build_problem().smoothness() == pytest.approx(theirs.build_problem().smoothness(), rel=0.05)


def test_numpy_problem_check_finds_mistakes() -> None:
    assert wb.check(experiment(squares).problem_spec, examples=10).ok
    for wrong, delay_model in ((sums, "slices"), (slip, "differences")):
        broken = wb.check(experiment(wrong).problem_spec, examples=10).failed
        assert delay_model in {row.property for row in broken}


@pytest.mark.mpi
@pytest.mark.xdist_group("mpi")
def test_numpy_problem_of_a_file_on_real_processes(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(EXAMPLE)
    e = experiment(f"{file}:huber", args={"first": ones}, optimiser_args={"step": 0.1})
    real, simulated = wb.run(e, engine="mpi", folder=str(tmp_path / "run")), wb.run(e)
    np.testing.assert_allclose(real.columns["loss"], simulated.columns["loss"], rtol=1e-10)
    assert (tmp_path / "run" / "own-huber.py").read_text() == EXAMPLE
    file.write_text(EXAMPLE.replace("0.5 * off**2", "0.6 * off**2"))
    with pytest.raises(SettingError, match="huber: its definition is not what the run began with"):
        wb.attach(str(tmp_path / "run"))


def test_numpy_problem_refuses_wrong_arguments() -> None:
    with pytest.raises(
        SettingError, match=r"loss_and_gradient: gives something else; return the mean loss and"
    ):
        wb.run(experiment(no_gradient))
    with pytest.raises(SettingError, match=r"first = 'nothing': nothing of that name is defined here"):
        experiment(squares, args={"first": "nothing"})
