"""Files of earlier versions load, and runs on the virtual clock give the same bits as those of version 1.0."""

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from threadpoolctl import threadpool_info

import workbench as wb
from tests.support.sampled_cases import rotated
from workbench.core.base.older import renamed
from workbench.mpi import clusters

CORPUS = Path(__file__).parent / "corpus"
V1_0 = CORPUS / "e5b3171"
FOLDERS = sorted(path.name for path in (V1_0 / "folders").iterdir())
SIMULATED = [name for name in FOLDERS if "mpi" not in name and name != "stopped"]
TRACES = json.loads((CORPUS / "traces.json").read_text())

# Other kernels of BLAS round sums differently, so equal bits cannot be expected from them
KERNELS = (
    "SkylakeX",
    "Cooperlake",
    "SapphireRapids",
)  # those of processors with AVX-512, which made the files
same_kernels = pytest.mark.skipif(
    not any(each.get("architecture") in KERNELS for each in threadpool_info()),
    reason="the files were made by kernels of BLAS with AVX-512; those of this processor round differently",
)


@pytest.fixture
def copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a copy of the corpus of version 1.0, and enter it, since recorded times have relative paths."""
    shutil.copytree(V1_0, tmp_path / "v1")
    monkeypatch.chdir(tmp_path / "v1")
    return tmp_path / "v1"


@pytest.mark.parametrize("name", FOLDERS)
def test_corpus_run_folder_loads(name: str, copy: Path) -> None:
    trace = wb.Trace.load(copy / "folders" / name)
    assert len(trace.rounds) > 0
    assert trace.experiment.workers == trace.experiment.plan.workers
    assert trace.engine == ("mpi" if "mpi" in name or name == "stopped" else "sim")


@same_kernels
@pytest.mark.parametrize("name", [name for name in SIMULATED if name != "adaptive"])
def test_corpus_simulated_run_replays_bit_equal(name: str, copy: Path) -> None:
    trace = wb.Trace.load(copy / "folders" / name)
    assert trace.replay().same(trace)


def test_corpus_adaptive_run_replays_with_equal_losses(copy: Path) -> None:
    """The rule that chooses the scheme was replaced. All its schemes are exact, so only times differ."""
    trace = wb.Trace.load(copy / "folders/adaptive")
    again = trace.replay()
    np.testing.assert_allclose(again.rounds["loss"], trace.rounds["loss"], rtol=1e-12)
    assert again.replay().same(again)


def test_corpus_changes_of_scheme(copy: Path) -> None:
    changes = wb.Trace.load(copy / "folders/mpi-adaptive").changes
    assert [change.after for change in changes] == ["UMW"]


def test_corpus_runs_are_listed(copy: Path) -> None:
    table = wb.runs(copy / "folders").table
    assert sorted(table["run"]) == FOLDERS
    assert list(table["run"][table["state"] == "stopped"]) == ["stopped"]
    assert set(table["state"]) == {"done", "stopped"}
    assert set(table["scheme"]) == {"ASGD", "CR", "GC", "SGD", "UMW"}


@same_kernels
def test_corpus_run_is_attached(copy: Path) -> None:
    run = wb.attach(copy / "folders/mpi")
    assert run.result().same(wb.Trace.load(copy / "folders/mpi"))


@rotated
@pytest.mark.mpi
def test_corpus_stopped_run_is_resumed(copy: Path) -> None:
    before = wb.Trace.load(copy / "folders/stopped")
    trace = wb.resume(copy / "folders/stopped").result()
    assert len(trace.rounds) == trace.experiment.rounds == 60
    assert trace.rounds["loss"].tolist()[: len(before.rounds)] == before.rounds["loss"].tolist()


@pytest.mark.parametrize("name", ["profile.json", "profile.yaml"])
def test_corpus_profile_loads_and_forecasts(name: str) -> None:
    profile = wb.ClusterProfile.load(V1_0 / name)
    assert profile.workers == 3
    e = wb.Experiment(scheme="UMW", workers=3, problem="least_squares")
    assert profile.forecast(e, rounds=20).mean > 0
    assert profile.replayed().forecast(e, rounds=20).mean > 0


def test_corpus_sweep_folder_is_listed(copy: Path) -> None:
    assert list(wb.runs(copy / "sweep").table["state"]) == ["done", "done"]
    for path in (copy / "sweep").glob("leave=*"):
        assert wb.Trace.load(path / "trace").label == "UMW"


def test_corpus_sweep_folder_is_complete(copy: Path) -> None:
    """Finished runs are found, so that none is run again."""
    summary = wb.batch.sweep(copy / "sweep")
    assert (summary.before, dict(summary.states)) == (2, {})


@pytest.mark.parametrize("path", sorted((V1_0 / "clusters").glob("*.yaml")), ids=lambda path: path.stem)
def test_corpus_cluster_file_loads(path: Path) -> None:
    assert clusters.load(path).kind == path.stem


def digest(trace: wb.Trace) -> str:
    """Return a hash of all rounds, events and the model of a run."""
    total = hashlib.sha256()
    for table in (trace.rounds, trace.events):
        for name in table:
            total.update(str(name).encode())
            values = table[name].to_numpy()
            total.update(values.tobytes() if values.dtype != object else json.dumps(values.tolist()).encode())
    total.update(np.asarray(trace.model).tobytes())
    return total.hexdigest()


@same_kernels
@pytest.mark.parametrize("case", TRACES, ids=lambda case: f"{case['number']}-{case['spec']['scheme']}")
def test_corpus_trace_is_bit_equal_to_version_1_0(case: dict[str, Any]) -> None:
    assert digest(wb.run(wb.Experiment(**renamed(case["spec"])))) == case["digest"]
