"""Folders of pools that have ended do not stay."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from workbench.launch import pools
from workbench.launch.places import here, is_alive
from workbench.launch.supervisor import GONE, shared


@pytest.fixture
def dead() -> int:
    """Number of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


@pytest.mark.parametrize(
    ("owner_lives", "gone", "ranks", "host", "stays"),
    [
        (False, True, None, None, False),
        (False, False, "dead", "here", False),  # its supervisor was killed, too
        (False, False, "alive", "here", True),
        (False, False, "dead", "elsewhere", True),  # nothing is known of other hosts' processes
        (False, False, None, None, True),  # it is only starting
        (True, True, "dead", "here", True),  # its owner may still ask why it ended
    ],
)
def test_only_what_is_over_is_swept_away(
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
        (folder / GONE).write_text("{}")
    if ranks is not None:
        pid = os.getpid() if ranks == "alive" else dead
        place = [pid, here().host if host == "here" else "another-host"]
        (folder / pools.READY).write_text(json.dumps({"places": [place, place]}))
    pools.sweep()
    assert folder.exists() == stays


def test_processes_that_the_system_hides_are_there(dead: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As for ranks in a namespace of their own where /proc is mounted with hidepid."""

    def hidden(*_: object) -> str:
        raise FileNotFoundError

    monkeypatch.setattr(Path, "read_text", hidden)
    assert is_alive(os.getpid())
    assert not is_alive(dead)


@pytest.mark.mpi
@pytest.mark.xdist_group("mpi")
@pytest.mark.parametrize("abruptly", [False, True])
def test_ranks_leave_no_shared_memory(abruptly: bool) -> None:
    from workbench.clusters import load

    pool = load("local").open_here(3)
    assert isinstance(pool, pools.ChildPool)
    pool.await_ready()
    memory = shared(pool.folder)
    if memory.parent.exists():
        assert list(memory.iterdir())  # the ranks do share memory there
    if abruptly:
        for pid in [pool.supervisor.pid, *(pid for pid, _ in pool.places)]:
            os.kill(pid, signal.SIGKILL)
        pool.supervisor.wait()
    pool.close()
    assert not memory.exists()
