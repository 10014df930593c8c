"""The folder of a pool: fields are read back as written."""

from __future__ import annotations

from pathlib import Path

import pytest

from workbench.mpi.launch.poolfolder import ARRAYS, PoolFolder
from workbench.mpi.launch.processes import ProcessId


@pytest.fixture
def pool(tmp_path: Path) -> PoolFolder:
    """Return a new pool folder."""
    found = PoolFolder(tmp_path / "1-abc.pool")
    found.make({"ranks": 3, "owner": None})
    return found


def test_pool_folder_of_a_new_pool(pool: PoolFolder) -> None:
    assert pool.settings() == {"ranks": 3, "owner": None}
    assert (pool.ready, pool.up, pool.quitting, pool.gone(), pool.lost()) == (False, 0, False, None, [])
    assert pool.next_task() is None
    assert pool.path.stat().st_mode & 0o077 == 0
    with pytest.raises(OSError, match="ready"):
        pool.places()


def test_pool_folder_round_trip(pool: PoolFolder) -> None:
    places = [ProcessId(7, "here"), ProcessId(8, "there")]
    pool.count(2)
    pool.begin(places)
    pool.lose({2, 1})
    pool.quit()
    pool.end(reason="why", gone=["there"])
    assert (pool.up, pool.ready, pool.places()) == (2, True, places)
    assert (pool.lost(), pool.quitting) == ([1, 2], True)
    assert pool.gone() == {"reason": "why", "gone": ["there"]}


def test_pool_folder_runs_are_in_order(pool: PoolFolder, tmp_path: Path) -> None:
    first = pool.hand_in({"folder": str(tmp_path), "run": 1}, b"arrays")
    pool.hand_in({"folder": str(tmp_path), "run": 2}, b"arrays")
    assert pool.next_task() == first
    assert (tmp_path / ARRAYS).read_bytes() == b"arrays"
    first.unlink()
    assert pool.next_task() not in (None, first)


def test_pool_folder_log_has_only_the_messages(pool: PoolFolder) -> None:
    assert pool.logged() == []
    pool.log.write_text("----\n  a host is gone \n\n-- \nlast\n")
    assert pool.logged() == ["a host is gone", "last"]


def test_pool_folder_is_removed(pool: PoolFolder) -> None:
    pool.remove()
    assert not pool.path.exists()
