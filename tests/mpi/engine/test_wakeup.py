"""Wake-up pipes: they wake a sleeping rank, and are disabled where they cannot be created."""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from workbench.mpi.engine import wakeup
from workbench.mpi.engine.wakeup import CONTROL, WakeupPipe

LONG = 60.0  # s; a test that really sleeps this long has failed


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="bells-") as name:
        yield Path(name)


def test_wakeup_before_the_sleep_is_not_lost(folder: Path) -> None:
    zero, one = WakeupPipe(folder, 0), WakeupPipe(folder, 1)
    one.notify([0])
    assert zero.sleep(LONG)
    assert not zero.sleep(0.0)


def test_wakeup_ends_the_sleep(folder: Path) -> None:
    zero, one = WakeupPipe(folder, 0), WakeupPipe(folder, 1)
    threading.Timer(0.05, lambda: one.notify([0])).start()
    began = time.monotonic()
    assert zero.sleep(LONG)
    assert time.monotonic() - began < LONG


def test_wakeup_merges_many_notifications(folder: Path) -> None:
    zero, one = WakeupPipe(folder, 0), WakeupPipe(folder, 1)
    for _ in range(100_000):  # more bytes than a pipe holds; the others are dropped
        one.notify([0])
    heard = 0
    while zero.sleep(0.0):
        heard += 1
    assert 1 <= heard <= 100


def test_wakeup_distinguishes_control_messages(folder: Path) -> None:
    zero, one = WakeupPipe(folder, 0), WakeupPipe(folder, 1)
    one.notify([0])
    assert zero.sleep(LONG)
    assert not zero.control_pending
    one.notify([0], CONTROL)
    one.notify([0])
    assert zero.sleep(LONG)
    assert zero.control_pending


def test_wakeup_of_a_dead_rank_is_ignored(folder: Path) -> None:
    zero, one = WakeupPipe(folder, 0), WakeupPipe(folder, 1)
    one.notify([0])
    assert zero._read_fd is not None
    os.close(zero._read_fd)
    one.notify([0])


def test_wakeup_of_a_missing_rank_is_ignored(folder: Path) -> None:
    WakeupPipe(folder, 1).notify([0, 2, 3])


@pytest.mark.parametrize("place", [None, "missing", "x" * 300])
def test_wakeup_pipe_that_cannot_be_made_is_disabled(folder: Path, place: str | None) -> None:
    timer = WakeupPipe(None if place is None else folder / place, 0)
    assert not timer.enabled
    timer.notify([0])
    assert not timer.sleep(0.0)


def test_wakeup_pipe_is_private(folder: Path) -> None:
    WakeupPipe(folder, 0)
    assert folder.stat().st_mode & 0o077 == 0


def test_wakeup_works_beyond_the_limit_of_open_files(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wakeup, "MAX_OPEN_PIPES", 2)
    one, *others = (WakeupPipe(folder, rank) for rank in range(6))
    for _ in range(3):
        one.notify(range(1, 6))
        assert all(other.sleep(LONG) for other in others)
    assert len(one._write_fds) == 2
