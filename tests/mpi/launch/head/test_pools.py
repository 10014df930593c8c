"""Pools: folders and shared memory of finished pools are removed."""

from __future__ import annotations

import json
import mmap
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from workbench.core.base.errors import ClusterError
from workbench.core.base.files import private_folder
from workbench.mpi.clusters.warm import Pools
from workbench.mpi.launch import poolfolder
from workbench.mpi.launch.head import pools
from workbench.mpi.launch.poolfolder import SHARED_MEMORY_FOLDER, PoolFolder, shared
from workbench.mpi.launch.processes import ProcessId, awaited, is_alive, this_process


@pytest.fixture
def dead() -> int:
    """Return the number of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


@pytest.mark.parametrize(
    ("owner_lives", "gone", "ranks", "host", "stays"),
    [
        (False, True, None, None, False),
        (False, False, "dead", "here", False),  # the supervisor was killed as well
        (False, False, "alive", "here", True),
        (False, False, "dead", "elsewhere", True),  # processes on other hosts are unknown
        (False, False, None, None, True),  # the pool is starting
        (True, True, "dead", "here", True),  # the pool's owner may still ask why the pool ended
    ],
)
def test_remove_stale_removes_only_finished_pools(
    owner_lives: bool,
    gone: bool,
    ranks: str | None,
    host: str | None,
    stays: bool,
    dead: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pools, "pools_folder", lambda: tmp_path)
    folder = tmp_path / f"{os.getpid() if owner_lives else dead}-abc"
    folder.mkdir()
    if gone:
        PoolFolder(folder).end()
    if ranks is not None:
        pid = os.getpid() if ranks == "alive" else dead
        place = ProcessId(pid, this_process().host if host == "here" else "another-host")
        PoolFolder(folder).begin([place, place])
    pools.remove_stale()
    assert folder.exists() == stays


@pytest.mark.parametrize(
    ("alone", "host", "stays"), [(True, "here", False), (True, "elsewhere", True), (False, "here", True)]
)
def test_remove_stale_removes_a_pool_that_never_started(
    alone: bool, host: str, stays: bool, dead: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pools, "pools_folder", lambda: tmp_path)
    folder = pools.make_folder(2, lambda folder: [], dead, alone=alone)
    settings = PoolFolder(folder).settings()
    if host == "elsewhere":
        (folder / "pool.json").write_text(json.dumps({**settings, "host": "another-host"}))
    folder = folder.rename(folder.with_name(f"{dead}-abc"))
    pools.remove_stale()
    assert folder.exists() == stays


def test_remove_stale_removes_shared_memory_of_killed_pools(
    dead: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Shared memory is removed even without the pool's folder, unless the pool's client is alive."""
    monkeypatch.setattr(pools, "pools_folder", lambda: private_folder(tmp_path / "pools"))
    monkeypatch.setattr(poolfolder, "SHARED_MEMORY_FOLDER", tmp_path)
    left, used, others = (
        tmp_path / name
        for name in (
            f"straggler-workbench-{dead}-abc-local.pool",
            f"straggler-workbench-{os.getpid()}-abc-local.pool",
            "another",
        )
    )
    for folder in (left, used, others):
        folder.mkdir()
    pools.remove_stale()
    assert [folder.exists() for folder in (left, used, others)] == [False, True, True]


def test_is_alive_of_hidden_processes(dead: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """`is_alive` is also used for ranks in a separate namespace, where /proc is mounted with hidepid."""

    def hidden(*_: object) -> str:
        raise FileNotFoundError

    monkeypatch.setattr(Path, "read_text", hidden)
    assert is_alive(os.getpid())
    assert not is_alive(dead)


@pytest.mark.parametrize("come", [0, 4])
def test_pool_start_is_given_up_without_progress(
    come: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The timeout of 0.6 s begins again with each rank that comes. `come`: number of ranks that come at all.

    Four ranks come 0.3 s apart, so that all of them need longer than one timeout.
    """
    monkeypatch.setattr(pools.FolderPool, "start_patience", 0.6)
    monkeypatch.setattr(pools.ChildPool, "close", lambda _: None)
    folder = pools.make_folder(4, lambda _: [], os.getpid(), within=tmp_path)
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as supervisor:
        pool = pools.ChildPool({}, folder, 4, supervisor=supervisor)

        def slowly(note: str, message: int, ranks: int) -> None:
            time.sleep(0.3)
            up = pool.files.up
            connecting = up == 4 and not pool.files.ready
            assert (note, message) == (
                ("connecting processes", 0) if connecting else ("starting processes", up)
            )
            if up < come:
                pool.files.count(up + 1)
            elif come:
                pool.files.begin([this_process()] * 4)

        try:
            if come:
                pool.await_ready(slowly)
                assert len(pool.places) == 4
            else:
                with pytest.raises(ClusterError, match="4 processes: not up in time"):
                    pool.await_ready(slowly)
        finally:
            supervisor.kill()


def test_remove_stale_removes_unmapped_shared_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pools, "pools_folder", lambda: private_folder(tmp_path.with_suffix(".pools")))
    monkeypatch.setattr(poolfolder, "SHARED_MEMORY_FOLDER", tmp_path)
    names = (f"host.{os.getuid()}.1.0", f"host.{os.getuid()}.2.0", f"host.{os.getuid() + 1}.3.0")
    left, held, others = (tmp_path / f"sm_segment.{name}" for name in names)
    for file in (left, held, others):
        file.write_bytes(bytes(4096))
        os.utime(file, (0.0, 0.0))
    fresh = tmp_path / f"sm_segment.host.{os.getuid()}.4.0"
    fresh.touch()
    with held.open("r+b") as file, mmap.mmap(file.fileno(), 0):
        pools.remove_stale()
        assert {*tmp_path.iterdir()} == {held, others, fresh}


@pytest.mark.mpi
@pytest.mark.xdist_group("mpi")
@pytest.mark.parametrize("abruptly", [False, True])
def test_ranks_leave_no_shared_memory(abruptly: bool) -> None:
    from workbench.mpi.clusters import load

    pool = load("local").site.open(3)
    assert isinstance(pool, pools.ChildPool)
    pool.await_ready()
    memory = shared(pool.folder)
    if memory.parent.exists():
        assert list(memory.iterdir())  # the ranks share memory in this folder
    if abruptly:
        for pid in [pool.supervisor.pid, *(pid for pid, _ in pool.places)]:
            os.kill(pid, signal.SIGKILL)
        pool.supervisor.wait()
    pool.close()
    assert not memory.exists()


@pytest.mark.mpi
@pytest.mark.xdist_group("mpi")
def test_pools_whose_master_was_killed_leave_nothing() -> None:
    mine = Pools()
    first = mine.get(2)
    assert isinstance(first, pools.ChildPool)
    first.await_ready()
    os.kill(first.places[0][0], signal.SIGKILL)
    assert first.wait(60.0), "still running"
    second = mine.get(2)
    assert isinstance(second, pools.ChildPool)
    assert second is not first
    mine.close()
    assert not [
        pool for pool in (first, second) for place in (pool.folder, shared(pool.folder)) if place.exists()
    ]


@pytest.mark.skipif(
    sys.platform != "linux" or subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode != 0,
    reason="this system does not let users mount a small disk",
)
@pytest.mark.parametrize(("megabytes", "ranks", "fits"), [(4, 3, False), (64, 3, True), (64, 1000, False)])
def test_pool_reports_too_little_shared_memory(megabytes: int, ranks: int, fits: bool) -> None:
    check = f"from workbench.mpi.launch import mpiexec; mpiexec.check_room({ranks}, 1)"
    mount = f"mount -t tmpfs -o size={megabytes}m tmpfs {SHARED_MEMORY_FOLDER}"
    command = ["unshare", "-m", "sh", "-c", f'{mount} && exec "$0" -c "$1"', sys.executable, check]
    found = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (found.returncode == 0) == fits
    assert fits or f"{SHARED_MEMORY_FOLDER}: {megabytes} MB of shared memory are free" in found.stderr


@pytest.mark.mpi
def test_supervisor_exit_status_shows_its_termination(tmp_path: Path) -> None:
    """PBS recognises a cancelled job by this exit status."""
    command = [sys.executable, "-c", "import time; time.sleep(600)"]
    folder = pools.make_folder(1, lambda _: command, None, within=tmp_path)
    supervisor = pools.supervised(folder)
    # it has started mpiexec, and handles signals
    assert awaited(psutil.Process(supervisor.pid).children, 60.0)
    supervisor.terminate()
    assert supervisor.wait(60.0) == 128 + signal.SIGTERM
    assert PoolFolder(folder).gone() is not None
