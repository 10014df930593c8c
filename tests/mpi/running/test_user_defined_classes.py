"""User-defined schemes, delay models and optimisers, from a cell or a user file, on real processes."""

from __future__ import annotations

from pathlib import Path

import pytest

import workbench as wb
from tests.support.notebook_cells import CHECKS, THROUGH, assert_script_passes, program
from tests.support.sampled_cases import rotated
from tests.support.user_plugins import FILE
from workbench.core.base.settings import SettingError

pytestmark = [pytest.mark.mpi, pytest.mark.xdist_group("mpi")]

SMALL = {
    "workers": 3,
    "rounds": 4,
    "problem": "least_squares",
    "problem_args": {"samples": 30, "features": 4},
}

SCHEDULE = """
from workbench.core.contract.optimisers import Schedule

class Alternating(Schedule):
    kind = "alternating"

    def share_at(self, t):
        return 1.0 - 0.5 * (t % 2)
"""


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    file = tmp_path / "mine.py"
    file.write_text(FILE)
    return file


def experiment(mine: Path) -> wb.Experiment:
    return wb.Experiment(
        scheme=f"{mine}:Half", delays={"kind": f"{mine}:Even"}, optimiser=f"{mine}:Slowly", **SMALL
    )


def test_user_defined_file_runs_on_both_engines(mine: Path, tmp_path: Path) -> None:
    e = experiment(mine)
    assert "Half" in wb.schemes.names()
    simulated, folder = wb.run(e), tmp_path / "run"
    real = wb.run(e, engine="mpi", folder=str(folder))
    assert real.rounds["loss"].to_numpy() == pytest.approx(simulated.rounds["loss"].to_numpy(), rel=1e-12)
    plain = wb.run(e.replace(optimiser="gd"))
    # the user's optimiser takes half the step
    assert real.rounds["loss"].iloc[-1] > plain.rounds["loss"].iloc[-1]
    assert {path.name for path in folder.glob("own-*")} == {"own-Half.py", "own-Even.py", "own-Slowly.py"}
    assert (folder / "own-Half.py").read_text() == FILE
    assert "own-Half.py" in (folder / "SHA256SUMS").read_text()
    for path in folder.rglob("*"):
        assert not path.is_file() or b"cloudpickle" not in path.read_bytes()
    assert wb.attach(str(folder)).result().same(real)


def test_user_defined_class_that_changed_is_refused(mine: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    trace, simulated = wb.run(experiment(mine), engine="mpi", folder=str(folder)), wb.run(experiment(mine))
    mine.write_text(FILE.replace("super().update(state, model, 0.5", "super().update(state, model, 0.25"))
    with pytest.raises(SettingError, match=r"Slowly: its definition is not what the run began with"):
        wb.attach(str(folder))
    with pytest.raises(SettingError, match="Slowly: its definition is not what the run began with"):
        simulated.replay()
    mine.write_text(FILE.replace("import numpy as np", "import numpy as np  # the same"))
    assert wb.attach(str(folder)).result().same(trace)


@rotated
def test_user_defined_classes_of_a_cell_through_a_run_life_cycle(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    assert_script_passes(program(CHECKS + THROUGH, cluster="local", folder=str(folder)))
    assert "TIMES = 1.0" in (folder / "own-Half.py").read_text()
    trace = wb.Trace.load(folder)  # the class is not defined in this process, so its name is shown
    assert (trace.label, trace.experiment.delays.kind) == ("Half", "pauses")
    for use in (trace.replay, lambda: wb.attach(folder), lambda: wb.forecast(trace.experiment)):
        with pytest.raises(
            SettingError, match=r"kind = 'pauses': .*kept in .*own-Half.py, .*; run that first"
        ):
            use()


def test_user_defined_class_that_cannot_be_sent_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "locked.py"
    file.write_text(FILE.replace("TIMES = 1.0", "import threading\nTIMES = threading.Lock()"))
    with pytest.raises(SettingError, match="variable 'TIMES' of summed holds a lock"):
        wb.run(wb.Experiment(scheme=f"{file}:Half", **SMALL), engine="mpi")


def test_user_defined_file_names_that_are_wrong(mine: Path, tmp_path: Path) -> None:
    for name, says in {
        f"{tmp_path}/other.py:Half": "there is no file",
        f"{mine}:Quarter": "defines no class 'Quarter'",
        f"{mine}:np": "defines no class 'np'",
        f"{mine}:Even": "is not a scheme",
    }.items():
        with pytest.raises(SettingError, match=says):
            wb.Experiment(scheme=name, workers=3)
    (tmp_path / "bad.py").write_text("x = 1\nraise KeyError('oh')\n")
    with pytest.raises(SettingError, match=r"line 2 of the file cannot be run \(KeyError: 'oh'\)"):
        wb.Experiment(scheme=f"{tmp_path}/bad.py:Half", workers=3)


def test_user_defined_schedule_and_nested_delays_run_on_both_engines(mine: Path, tmp_path: Path) -> None:
    """Classes nested in an optimiser or a delay model are sent to the ranks and stored, like others."""
    mine.write_text(FILE + SCHEDULE)
    delays = {"kind": "changing", "before": {"kind": f"{mine}:Even"}, "after": {"kind": "constant"}, "at": 2}
    args = {"rate": 0.1, "schedule": {"kind": f"{mine}:Alternating"}}
    e = wb.Experiment(scheme="UMW", delays=delays, optimiser="adam", optimiser_args=args, **SMALL)
    folder = tmp_path / "run"
    real = wb.run(e, engine="mpi", folder=str(folder))
    assert real.columns["loss"] == pytest.approx(wb.run(e).columns["loss"], rel=1e-9)
    assert {path.name for path in folder.glob("own-*")} == {"own-Even.py", "own-Alternating.py"}
    assert wb.attach(str(folder)).result().same(real)
