"""Bells wake who is rung, and are silent where they cannot hang."""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from workbench.mpi.engine import bell
from workbench.mpi.engine.bell import WORD, Bell

LONG = 60.0  # s; a test that really sleeps so long has failed


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="bells-") as name:
        yield Path(name)


def test_a_ring_before_the_sleep_is_not_lost(folder: Path) -> None:
    zero, one = Bell(folder, 0), Bell(folder, 1)
    one.ring([0])
    assert zero.sleep(LONG)
    assert not zero.sleep(0.0)


def test_a_ring_during_the_sleep_ends_it(folder: Path) -> None:
    zero, one = Bell(folder, 0), Bell(folder, 1)
    threading.Timer(0.05, lambda: one.ring([0])).start()
    began = time.monotonic()
    assert zero.sleep(LONG)
    assert time.monotonic() - began < LONG


def test_many_rings_are_few(folder: Path) -> None:
    zero, one = Bell(folder, 0), Bell(folder, 1)
    for _ in range(100_000):  # more than a pipe holds: the rest are not missed
        one.ring([0])
    heard = 0
    while zero.sleep(0.0):
        heard += 1
    assert 1 <= heard <= 100


def test_who_rings_for_a_word_is_told_apart(folder: Path) -> None:
    zero, one = Bell(folder, 0), Bell(folder, 1)
    one.ring([0])
    assert zero.sleep(LONG)
    assert not zero.words
    one.ring([0], WORD)
    one.ring([0])
    assert zero.sleep(LONG)
    assert zero.words


def test_who_has_died_is_not_missed(folder: Path) -> None:
    zero, one = Bell(folder, 0), Bell(folder, 1)
    one.ring([0])
    assert zero.ear is not None
    os.close(zero.ear)
    one.ring([0])


def test_who_is_not_there_is_not_missed(folder: Path) -> None:
    Bell(folder, 1).ring([0, 2, 3])


@pytest.mark.parametrize("place", [None, "missing", "x" * 300])
def test_a_bell_that_cannot_hang_is_silent(folder: Path, place: str | None) -> None:
    bell = Bell(None if place is None else folder / place, 0)
    assert not bell.hangs
    bell.ring([0])
    assert not bell.sleep(0.0)


def test_nobody_else_can_ring(folder: Path) -> None:
    Bell(folder, 0)
    assert folder.stat().st_mode & 0o077 == 0


def test_more_may_be_rung_than_files_may_be_open(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bell, "MOST", 2)
    one, *others = (Bell(folder, rank) for rank in range(6))
    for _ in range(3):
        one.ring(range(1, 6))
        assert all(other.sleep(LONG) for other in others)
    assert len(one._ropes) == 2
