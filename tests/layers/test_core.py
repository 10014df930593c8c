"""Core and analysis without the dependencies of the other layers.

`.ci/run` runs these tests with the dependencies of straggler-workbench alone, and of straggler-workbench[check].
"""

from __future__ import annotations

import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import pytest

import workbench as wb
from workbench.core.base.errors import MissingLayer
from workbench.core.base.settings import SettingError

pytestmark = pytest.mark.skipif(
    find_spec("plotly") is not None or find_spec("mpi4py") is not None,
    reason="needs an environment without the other layers' packages: tools/layer_env.py core",
)

ROOT = Path(__file__).resolve().parents[2]
TRACES = ROOT.parent / "shared" / "data" / "traces"
SMALL = {"workers": 4, "rounds": 5}


def test_core_import_loads_no_other_layer() -> None:
    code = "import sys, workbench; print([m for m in sys.modules if m.count('.') == 1 and m.startswith('workbench.')])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert found.strip() == "['workbench.core']"


@pytest.mark.parametrize("scheme", ["UMW", "GC", "RAR", "SGD", "FedBuff"])
def test_core_runs_and_forecasts(scheme: str) -> None:
    e = wb.Experiment(scheme=scheme, **SMALL)
    assert len(wb.run(e).rounds) == 5
    assert wb.forecast(e).mean > 0


def test_core_compares_saves_loads_replays_and_tabulates(tmp_path: Path) -> None:
    traces = wb.compare([wb.Experiment(scheme=name, **SMALL) for name in ("UMW", "GC")])
    for trace in traces:
        trace.save(tmp_path / trace.label)
        assert wb.Trace.load(tmp_path / trace.label).replay().same(trace)
    assert sorted(wb.runs(tmp_path).done["scheme"]) == ["GC", "UMW"]


@pytest.mark.skipif(
    find_spec("hypothesis") is None, reason="hypothesis is an extra: tools/layer_env.py core check"
)
def test_core_checks_a_scheme() -> None:
    assert wb.check("UMW", examples=5).ok


@pytest.mark.skipif(find_spec("hypothesis") is not None, reason="hypothesis is installed")
def test_core_check_names_the_pip_command() -> None:
    with pytest.raises(MissingLayer, match=r"needs hypothesis, .*pip install 'straggler-workbench\[check\]'"):
        wb.check("UMW", examples=5)


@pytest.mark.parametrize("replay", [False, True])
def test_core_plans_on_a_kept_profile(replay: bool) -> None:
    profile = ROOT / "tests" / "corpus" / "e5b3171" / "profile.yaml"
    found = wb.plan(profile, rounds=5, schemes=["UMW", "GC"], replay=replay)
    assert {choice.scheme for choice in found.choices} == {"UMW", "GC"}
    assert found.best.low <= found.best.seconds <= found.best.high
    assert len(wb.run(found.best.experiment.replace(rounds=5)).rounds) == 5


def test_core_diagnoses_a_table_of_times(tmp_path: Path) -> None:
    rows = [f"{w},{t},{1.0 + (w == 2)}" for t in range(40) for w in range(6)]
    (tmp_path / "times.csv").write_text("worker,step,seconds\n" + "\n".join(rows) + "\n")
    found = wb.diagnose(tmp_path / "times.csv")
    assert found.culprits[0].who == "worker 2"


def test_core_records_and_diagnoses_a_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for rank in range(3):
        monkeypatch.setenv("RANK", str(rank))
        with wb.record(tmp_path / "steps") as recorder:
            for batch in recorder.batches(range(30)):
                time.sleep(0.02 * (rank == 1))
                recorder.step(samples=1 + batch)
    found = wb.diagnose(tmp_path / "steps")
    assert found.culprits[0].who == "worker 1"


@pytest.mark.skipif(not TRACES.is_dir(), reason="the recorded traces of ../shared/data are not here")
def test_core_diagnoses_public_recordings() -> None:
    assert wb.diagnose(TRACES / "alibaba_job_1.csv").slowdown >= 1.0


@pytest.mark.parametrize(
    ("name", "extra"),
    [("explore", "lab"), ("figures", "lab"), ("watch", "lab"), ("interactive", "lab"), ("attach", "mpi")],
)
def test_missing_layer_names_the_pip_command(name: str, extra: str) -> None:
    with pytest.raises(
        MissingLayer, match=rf"wb\.{name}: needs \w+, .*pip install 'straggler-workbench\[{extra}\]'"
    ):
        getattr(wb, name)


def test_missing_layer_engine_is_refused() -> None:
    with pytest.raises(SettingError, match=r"mpi: needs mpi4py.*\[mpi\]"):
        wb.run(wb.Experiment(scheme="UMW", **SMALL), engine="mpi")


@pytest.mark.parametrize("command", ["sweep plan.yaml", "lectures", "run --engine mpi"])
def test_missing_layer_command_is_one_sentence(command: str, tmp_path: Path) -> None:
    call = [sys.executable, "-m", "workbench", *command.split()]
    found = subprocess.run(call, cwd=tmp_path, capture_output=True, text=True)
    assert found.returncode == 2
    assert "pip install 'straggler-workbench[" in found.stderr
    assert found.stderr.count("\n") == 1
