"""Engines of ipyparallel: runs as on a pool, inspection of ranks between runs, and cleanup."""

from __future__ import annotations

import json
import logging
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

import workbench as wb
from workbench.core.base.errors import ClusterError, QuorumLost
from workbench.core.base.settings import SettingError
from workbench.lab.notebooks import execute
from workbench.mpi.launch.poolfolder import kept_in, shared
from workbench.mpi.launch.processes import is_alive
from workbench.mpi.running.ipyparallel import engines as keeping
from workbench.mpi.running.ipyparallel.interactive import Interactive
from workbench.mpi.running.ipyparallel.snapshot import RankSnapshot
from workbench.mpi.running.real import RealRun, attach, resume

pytestmark = [pytest.mark.mpi, pytest.mark.xdist_group("mpi")]

slow = pytest.mark.slow

PATIENCE = 120.0  # s after which a test counts as hanging
SPEC: dict[str, Any] = {
    "scheme": "CR",
    "scheme_args": {"children": 2, "layers": 2, "stragglers": 1},
    "workers": 6,
    "rounds": 15,
    "problem": "least_squares",
    "problem_args": {"samples": 240, "features": 30},
    "delays": {"kind": "shifted_exponential", "shift": 2e-5, "rate": 1e5},
}
GC = {**SPEC, "scheme": "GC", "scheme_args": {"stragglers": 1}, "workers": 3}


@pytest.fixture
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return a folder for shared files of engines that the user started. It is removed after the test."""
    place = shared(tmp_path)
    for name, value in kept_in(place).items():
        monkeypatch.setenv(name, value)
    yield place
    shutil.rmtree(place, ignore_errors=True)


@pytest.fixture(scope="module")
def engines() -> Iterator[Interactive]:
    with wb.interactive(6, progress=False) as engines:
        yield engines


def done(run: RealRun) -> wb.Trace:
    assert run.wait(PATIENCE), f"still running: {run}"
    return run.result()


def long_run(engines: Interactive, **fields: Any) -> RealRun:
    run = engines.start(wb.Experiment(**{**GC, "rounds": 5000, **fields}), checkpoint_every=0.0)
    return until(lambda: len(run.rows()["round"]) > 5, run)


def until(what: Callable[[], Any], run: RealRun) -> RealRun:
    end = time.monotonic() + PATIENCE
    while not what():
        assert not run.wait(0.01), run
        assert time.monotonic() < end, run
    return run


def all_gone(pids: list[int]) -> bool:
    end = time.monotonic() + PATIENCE
    while any(map(is_alive, pids)) and time.monotonic() < end:
        time.sleep(0.05)
    return not any(map(is_alive, pids))


def processes_of(engines: Interactive) -> list[int]:
    """Return the ids of the engines, their watchers, mpiexec, the controller and its children."""
    assert engines.engine_cluster is not None
    return [*engines.engine_cluster.pids(), *(place.pid for place in engines.places)]


# ---------------------------------------------------------------- runs


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {
            "scheme": "GC",
            "scheme_args": {"stragglers": 2},
            "workers": 4,
        },  # two engines have no rank in this run
        {"scheme": "RAR", "scheme_args": {}, "workers": 5},
        {"scheme": "UMW", "scheme_args": {}},
    ],
    ids=lambda fields: fields.get("scheme", "CR"),
)
@slow
def test_interactive_runs_equal_the_simulator(engines: Interactive, fields: dict[str, Any]) -> None:
    e = wb.Experiment(**{**SPEC, **fields})
    places = list(engines.places)
    trace, sim = done(engines.start(e)), wb.run(e)
    assert trace.engine == "mpi"
    assert trace.info["clean"]
    assert trace.info["refused"] == []
    np.testing.assert_allclose(trace.model, sim.model, rtol=1e-9)
    np.testing.assert_allclose(trace.rounds["loss"], sim.rounds["loss"], rtol=1e-9)
    assert [part.place for part in engines.view["part"]] == places


@slow
def test_interactive_run_is_stopped_and_attached(engines: Interactive) -> None:
    run = long_run(engines)
    other = attach(run.home)
    until(lambda: len(other.rows()["round"]), other)
    until(lambda: np.isfinite(run.rows()["loss"]).any(), run)
    other.stop()
    assert 5 < len(done(run).rounds) < 5000
    assert run.state == "stopped"
    assert len(done(other).rounds) == len(run.result().rounds)
    assert len(done(engines.start(wb.Experiment(**SPEC))).rounds) == 15


@slow
def test_interactive_runs_are_queued_with_user_code(engines: Interactive) -> None:
    sleeping = engines.at(2).apply_async(time.sleep, 2.0)
    runs = [engines.start(wb.Experiment(**SPEC)) for _ in range(3)]
    until(lambda: any("busy" in run.note for run in runs), runs[0])
    assert not sleeping.ready()
    for run in runs:
        done(run)
    assert sleeping.ready()


@slow
def test_interactive_queued_run_can_be_stopped(engines: Interactive) -> None:
    sleeping = engines.at(1).apply_async(time.sleep, 3.0)
    run = engines.start(wb.Experiment(**SPEC))
    until(lambda: "busy" in run.note, run)
    run.stop()
    assert len(done(run).rounds) == 0
    assert run.state == "stopped"
    assert not sleeping.ready()
    sleeping.get(PATIENCE)


# ---------------------------------------------------------------- inspection


def coded_gradient(part: RankSnapshot, e: wb.Experiment) -> np.ndarray[Any, Any]:
    """Return the gradient that a rank should have, computed from its parts."""
    problem, bounds = e.build_problem(), e.plan.bounds
    total = np.zeros(problem.size)
    for p, c in zip(part.parts, part.coefficients, strict=True):
        total += c * problem.gradient([(int(bounds[p]), int(bounds[p + 1]), 1.0)], part.model)
    return total


@slow
def test_interactive_ranks_can_be_inspected_between_runs(engines: Interactive) -> None:
    e = wb.Experiment(**SPEC)
    run = engines.start(e)
    trace = done(run)
    parts = engines.view["part"]
    assert [part.rank for part in parts] == list(range(7))
    for part in parts[1:]:
        work = e.plan.work[part.rank]
        np.testing.assert_array_equal(part.parts, work.parts)
        np.testing.assert_array_equal(part.coefficients, work.coefficients)
        assert (part.samples, part.parent) == (work.samples, e.plan.parent[part.rank])
        assert part.children == e.plan.children[part.rank]
        assert 0 <= part.round < e.rounds
        np.testing.assert_allclose(part.gradient, coded_gradient(part, e), rtol=1e-12)
        np.testing.assert_array_equal(part.gradient, part.expected(e))
        assert sum(part.ledger.counts["started"]) > 0
    np.testing.assert_array_equal(parts[0].model, trace.model)
    assert "no samples" in repr(parts[0])
    with pytest.raises(SettingError, match="rank = 0: holds no data"):
        parts[0].expected(e)
    assert f"{parts[3].samples} samples, parts" in repr(parts[3])


@slow
def test_interactive_user_objects_on_engines_are_kept(engines: Interactive) -> None:
    engines.view.execute("mine = part.rank * 10").get(PATIENCE)
    done(engines.start(wb.Experiment(**SPEC)))
    assert engines.view["mine"] == [0, 10, 20, 30, 40, 50, 60]
    assert engines.at(4)["mine"] == 40
    assert engines.at(4).apply_sync(os.getpid) == engines.places[4].pid


# ---------------------------------------------------------------- access


@slow
def test_interactive_keys_are_private_and_ports_loopback(engines: Interactive) -> None:
    assert engines.engine_cluster is not None
    folder = Path(engines.engine_cluster.folder.name)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    for path in folder.rglob("ipcontroller*.json"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert json.loads(path.read_text())["curve_serverkey"]
    for pid in processes_of(engines):
        process = psutil.Process(pid)
        if process.name() == "prterun":  # mpiexec's own process, whose interface cannot be configured
            continue
        listens = {c.laddr.ip for c in process.net_connections() if c.status == psutil.CONN_LISTEN}
        assert listens <= {"127.0.0.1"}, process


@slow
def test_interactive_requires_the_key(engines: Interactive, tmp_path: Path) -> None:
    import ipyparallel

    assert engines.engine_cluster is not None
    (path,) = Path(engines.engine_cluster.folder.name).rglob("ipcontroller*-client.json")
    info = json.loads(path.read_text())
    del info["curve_serverkey"]
    (tmp_path / "client.json").write_text(json.dumps(info))
    with pytest.raises(ipyparallel.TimeoutError):
        ipyparallel.Client(str(tmp_path / "client.json"), timeout=3)
    ipyparallel.Client(str(path), timeout=PATIENCE).close()


# ---------------------------------------------------------------- refusals


@slow
def test_interactive_refuses_invalid_requests(engines: Interactive) -> None:
    with pytest.raises(SettingError, match=r"workers = 12: there are engines for 6"):
        engines.start(wb.Experiment(**{**GC, "workers": 12}))
    with pytest.raises(SettingError, match=r"experiment = 3: give a wb.Experiment"):
        engines.start(3)  # type: ignore[arg-type]
    with pytest.raises(SettingError, match=r"rank = 7: there are 0 to 6"):
        engines.at(7)
    with pytest.raises(SettingError, match=r"client: 7 engines.* 10 in one world are needed"):
        wb.interactive(9, client=engines.client)


def test_interactive_refuses_invalid_arguments() -> None:
    with pytest.raises(SettingError, match=r"workers = 0: give"):
        wb.interactive(0)
    with pytest.raises(SettingError, match=r"client = 'here': give an ipyparallel Client"):
        wb.interactive(2, client="here")


@slow
def test_interactive_refuses_separate_engines(tmp_path: Path, memory: Path) -> None:
    import ipyparallel

    with (
        ipyparallel.Cluster(
            n=2, log=logging.Logger("engines", logging.CRITICAL + 1), profile_dir=str(tmp_path)
        ) as client,
        pytest.raises(SettingError, match="2 engines, 1 in the MPI world of the first"),
    ):
        wb.interactive(1, client=client)


@slow
def test_interactive_engines_that_cannot_start_give_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mpi4py").mkdir()
    (tmp_path / "mpi4py" / "__init__.py").write_text(
        "raise ImportError('libmpi.so.40: cannot open shared object')"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(ClusterError, match=r"3 engines: mpiexec could not start them \(.*libmpi\.so\.40"):
        wb.interactive(2, progress=False)


def test_interactive_reports_too_little_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeping, "MEGABYTES_PER_ENGINE", 10**9)
    with pytest.raises(ClusterError, match=r"workers = 2: 3 processes need about"):
        wb.interactive(2, progress=False)


# ---------------------------------------------------------------- existing engines


@slow
def test_interactive_uses_existing_engines(engines: Interactive) -> None:
    with wb.interactive(6, client=engines.client) as borrowed:
        assert done(borrowed.start(wb.Experiment(**SPEC))).info["clean"]
    with pytest.raises(ClusterError, match="closed"):
        borrowed.start(wb.Experiment(**SPEC))
    assert all(is_alive(place.pid) for place in engines.places)
    assert done(engines.start(wb.Experiment(**SPEC))).info["clean"]


@slow
def test_interactive_under_plain_mpiexec_ends_with_one_death(tmp_path: Path, memory: Path) -> None:
    import ipyparallel

    config = keeping.settings(4, str(tmp_path))
    config.MPIEngineSetLauncher.mpi_args = []
    cluster = ipyparallel.Cluster(
        engines="mpi",
        n=4,
        config=config,
        log=logging.Logger("engines", logging.CRITICAL + 1),
        profile_dir=str(tmp_path),
    )
    cluster.start_cluster_sync()
    try:
        with wb.interactive(3, client=cluster) as engines:
            run = long_run(engines, rounds=600)
            os.kill(engines.places[2].pid, signal.SIGKILL)
            assert run.wait(PATIENCE)
            assert isinstance(run.error, ClusterError)
            assert "died" in str(run.error)
            assert f"wb.resume({str(run.home)!r})" in str(run.error)
            with pytest.raises(ClusterError, match="start their cluster again"):
                engines.start(wb.Experiment(**GC))
    finally:
        cluster.stop_cluster_sync()
    assert len(done(resume(run.home)).rounds) == 600


# ---------------------------------------------------------------- deaths


@slow
def test_interactive_run_survives_a_dead_worker() -> None:
    with wb.interactive(3, progress=False) as engines:
        run = long_run(engines, rounds=400)
        os.kill(engines.places[2].pid, signal.SIGKILL)
        trace = done(run)
        assert len(trace.rounds) == 400
        np.testing.assert_allclose(trace.model, wb.run(run.experiment).model, rtol=1e-9)
        with pytest.raises(
            ClusterError, match=r"rank 2 \(process \d+ on .*\) died; wb.interactive\(3\) opens new"
        ):
            engines.start(wb.Experiment(**GC))
        assert engines.at(1)["part"].rank == 1
        pids = processes_of(engines)
    assert all_gone(pids)


@slow
def test_interactive_too_many_deaths_raise_quorum_lost() -> None:
    with wb.interactive(3, progress=False) as engines:
        run = long_run(engines)
        for rank in (1, 3):
            os.kill(engines.places[rank].pid, signal.SIGKILL)
        with pytest.raises(QuorumLost, match=r"worker[s ].*[13] \(process \d+ on"):
            done(run)


@slow
def test_interactive_run_without_its_master_is_resumed_elsewhere() -> None:
    with wb.interactive(3, progress=False) as engines:
        run = long_run(engines, rounds=300)
        pids = processes_of(engines)
        os.kill(engines.places[0].pid, signal.SIGKILL)
        with pytest.raises(ClusterError, match=r"rank 0 \(process \d+ on .*\) died; .*wb.resume"):
            done(run)
        assert all_gone(pids)
        trace = done(resume(run.home))
    np.testing.assert_allclose(trace.model, wb.run(run.experiment).model, rtol=1e-9)


@slow
def test_interactive_run_ends_with_a_failing_part(engines: Interactive) -> None:
    with wb.interactive(2, progress=False) as owner:
        owner.at(2).execute(
            "import workbench.mpi.running.ipyparallel.engine_side as seat; seat.run_worker = None"
        ).get(PATIENCE)
        borrowed = wb.interactive(2, client=owner.client)
        run = borrowed.start(wb.Experiment(**{**GC, "workers": 2}))
        with pytest.raises(ClusterError, match=r"rank 2 \(.*\) was aborted \(TypeError"):
            done(run)
        assert is_alive(borrowed.places[0].pid)  # they belong to the user and stay, although the run is over
        with pytest.raises(ClusterError, match="aborted"):
            done(attach(run.home))
        with pytest.raises(ClusterError, match="start their cluster again"):
            borrowed.start(wb.Experiment(**{**GC, "workers": 2}))


@slow
def test_interactive_killed_kernel_leaves_nothing() -> None:
    script = """
import time, workbench as wb
engines = wb.interactive(2, progress=False)
run = engines.start(wb.Experiment(scheme="UMW", workers=2, rounds=100000))
while not len(run.rows()["round"]):
    time.sleep(0.01)
print(*engines.engine_cluster.pids(), flush=True)
time.sleep(1000)
"""
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as kernel:
        assert kernel.stdout is not None
        pids = [int(word) for word in kernel.stdout.readline().split()]
        assert len(pids) > 6
        kernel.kill()
    assert all_gone(pids)


@slow
def test_interactive_killed_engines_leave_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with wb.interactive(1, progress=False) as engines:
        done(engines.start(wb.Experiment(**{**GC, "scheme": "UMW", "scheme_args": {}, "workers": 1})))
        assert engines.engine_cluster is not None
        pids, memory = processes_of(engines), shared(Path(engines.engine_cluster.folder.name))
        assert not memory.parent.exists() or list(memory.iterdir())
        for pid in (engines.engine_cluster._cluster.controller.pid, *(place.pid for place in engines.places)):
            os.kill(pid, signal.SIGKILL)
    assert all_gone(pids)
    assert not memory.exists()
    assert not list(tmp_path.iterdir())


@slow
def test_interactive_engines_end_with_the_kernel() -> None:
    script = """
import workbench as wb
engines = wb.interactive(2, progress=False)
engines.start(wb.Experiment(scheme="UMW", workers=2, rounds=100000))
print(engines.engine_cluster.folder.name, *engines.engine_cluster.pids(), flush=True)
"""
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=PATIENCE)
    folder, *pids = found.stdout.split()
    assert found.stderr == ""
    assert all_gone([int(pid) for pid in pids])
    assert not Path(folder).exists()


@slow
def test_interactive_notebook_with_other_parameters(tmp_path: Path) -> None:

    changed = {
        "children": 3,
        "layers": 1,
        "rounds": 5,
        "data": "breast_cancer",
        "problem": "logistic",
        "rank": 2,
    }
    root = Path(__file__).resolve().parents[4]
    notebook, out = root / "notebooks" / "03-look-inside.ipynb", tmp_path / "out.ipynb"
    done = execute(notebook, out, changed, root)
    cells = [c for c in done.cells if c.cell_type == "code"]
    texts = [str(c.outputs) for c in cells]
    assert "engines for 3 workers: ready" in texts[2]
    assert all(f"<rank {rank}, process" in texts[5] for rank in range(4))
    assert float(cells[6].outputs[0].data["text/plain"]) < 1e-12
    assert all(f"{rank} began" in texts[7] for rank in range(4))
