"""Locks: one holder, across threads and processes, and gone with it."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from workbench.core.base.locks import Lock

pytest.importorskip("fcntl")


def test_of_many_who_take_it_at_once_one_can(tmp_path: Path) -> None:
    together = Barrier(6)

    def take(path: Path) -> Lock | None:
        lock = Lock(path)
        together.wait(60)
        return lock if lock.take() else None

    with ThreadPoolExecutor(6) as threads:
        for turn in range(3):  # each takes as long as the others look
            (won,) = filter(None, threads.map(take, [tmp_path / str(turn)] * 6))
            assert Lock(tmp_path / str(turn)).held
            won.release()
            won.release()
            assert not Lock(tmp_path / str(turn)).held


def test_a_lock_is_gone_with_a_holder_that_is_killed(tmp_path: Path) -> None:
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


def test_a_fork_that_lives_on_does_not_keep_it(tmp_path: Path) -> None:
    lock, (read, write) = Lock(tmp_path / "lock"), os.pipe()
    assert lock.take()
    if not (child := os.fork()):  # it has the file open, too, and does nothing
        os.read(read, 1)
        os._exit(0)
    lock.release()
    assert not Lock(tmp_path / "lock").held
    os.write(write, b".")
    os.waitpid(child, 0)


def test_a_folder_that_may_only_be_read_can_be_asked(tmp_path: Path) -> None:
    assert not Lock(tmp_path / "lock").held
    assert not (tmp_path / "lock").exists()
