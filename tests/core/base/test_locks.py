"""Locks: one holder among threads and processes, released when its process ends."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest

from workbench.core.base.locks import Lock, _listed
from workbench.core.base.settings import SettingError

pytest.importorskip("fcntl")


def test_lock_is_taken_by_one_of_many(tmp_path: Path) -> None:
    together = Barrier(6)

    def take(path: Path) -> Lock | None:
        lock = Lock(path)
        together.wait(60)
        return lock if lock.take() else None

    with ThreadPoolExecutor(6) as threads:
        for turn in range(3):  # each lock is held until all threads have tried
            (won,) = filter(None, threads.map(take, [tmp_path / str(turn)] * 6))
            assert Lock(tmp_path / str(turn)).locked
            won.release()
            won.release()
            assert not Lock(tmp_path / str(turn)).locked


def test_lock_is_released_when_its_holder_is_killed(tmp_path: Path) -> None:
    script = (
        "import pathlib, sys, time\nfrom workbench.core.base.locks import Lock\n"
        "lock = Lock(pathlib.Path(sys.argv[1]))\nprint(lock.take(), flush=True)\ntime.sleep(600)\n"
    )
    holder = subprocess.Popen([sys.executable, "-c", script, str(tmp_path / "lock")], stdout=subprocess.PIPE)
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"True\n"
        assert not Lock(tmp_path / "lock").take()
    finally:
        holder.kill()
        holder.wait()
    assert Lock(tmp_path / "lock").take()


def test_lock_is_not_held_by_a_fork(tmp_path: Path) -> None:
    lock, (read, write) = Lock(tmp_path / "lock"), os.pipe()
    assert lock.take()
    if not (child := os.fork()):  # a forked child inherits the open file
        os.read(read, 1)
        os._exit(0)
    lock.release()
    assert not Lock(tmp_path / "lock").locked
    os.write(write, b".")
    os.waitpid(child, 0)


def test_lock_of_a_read_only_folder_can_be_queried(tmp_path: Path) -> None:
    assert not Lock(tmp_path / "lock").locked
    assert not (tmp_path / "lock").exists()


def reading(path: Path, script: str = "import fcntl, sys\nfile = open(sys.argv[1])\n") -> Any:
    """Start another program that holds a read lock."""
    script += "fcntl.flock(file, fcntl.LOCK_SH)\nprint('held', flush=True)\nsys.stdin.read()\n"
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    holder: Any = subprocess.Popen([sys.executable, "-c", script, str(path)], **pipes)
    assert holder.stdout.readline() == b"held\n"
    return holder


def test_lock_query_does_not_block_a_run(tmp_path: Path) -> None:
    path = tmp_path / ".lock"
    path.touch()
    holder = reading(path)
    try:
        with pytest.raises(SettingError, match=r"\.lock: another program holds a read lock on it; end that"):
            Lock(path).take()
        assert not Lock(path).locked  # a read lock does not count as the lock of a run
    finally:
        holder.communicate()
    lock = Lock(path)
    assert lock.take()
    lock.release()


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o277])
def test_lock_file_is_private_whatever_the_umask(umask: int, tmp_path: Path) -> None:
    path, before = tmp_path / ".lock", os.umask(umask)
    try:
        lock = Lock(path)
        assert lock.take()
        lock.release()
    finally:
        os.umask(before)
    assert not path.stat().st_mode & 0o077
    path.chmod(0o666)  # permissions of an older version
    assert Lock(path).take()
    assert not path.stat().st_mode & 0o077


@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
def test_lock_refuses_what_is_not_a_file(kind: str, tmp_path: Path) -> None:
    path = tmp_path / ".lock"
    if kind == "link":
        path.symlink_to(tmp_path / "elsewhere")
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.mkdir()
    with pytest.raises(OSError, match=r"Errno"):
        Lock(path).take()
    assert not Lock(path).locked
    assert not (tmp_path / "elsewhere").exists()


def test_lock_holder_is_listed_for_another_user(tmp_path: Path) -> None:
    if not Path("/proc/locks").is_file():
        pytest.skip("no list of locks")
    lock = Lock(tmp_path / ".lock")
    assert lock.take()
    assert _listed(tmp_path / ".lock")
    lock.release()
    assert not _listed(tmp_path / ".lock")
