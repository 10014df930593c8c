"""What a run that goes on finds in its folder."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from workbench.errors import RunError
from workbench.launch import records
from workbench.launch.records import ARRIVALS, LIVE, ROWS, Arrivals, read_arrivals, rewind


@pytest.mark.parametrize("rounds", [0, 1, 2, 3, 5])
def test_a_round_that_is_gone_through_again_keeps_only_its_second_answers(
    tmp_path: Path, rounds: int
) -> None:
    first = Arrivals(tmp_path, 0)
    for round in range(3):
        first([(round, 1, 0), (round, 2, 0)])
    with (tmp_path / ARRIVALS / "0.i64").open("ab") as torn:
        torn.write(b"half a row")
    np.zeros((3, len(LIVE))).tofile(tmp_path / ROWS)
    rewind(tmp_path, min(rounds, 3), 4)
    kept = {round: [(1, 0), (2, 0)] for round in range(min(rounds, 3))}
    assert read_arrivals(tmp_path, 0) == kept
    Arrivals(tmp_path, 0)([(rounds, 2, 0), (rounds, 3, 1)])
    assert read_arrivals(tmp_path, 0) == {**kept, rounds: [(2, 0), (3, 1)]}


class Filling:
    """A file on a disk that takes so many bytes, then none until there is room again."""

    def __init__(self, file: Any, room: int) -> None:
        self.file, self.room = file, room

    def write(self, data: bytes) -> int:
        if not self.room:
            raise OSError(errno.ENOSPC, "No space left on device")
        taken = int(self.file.write(data[: self.room]))
        self.room -= taken
        return taken

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)


@pytest.mark.parametrize("room", [0, 5, 24, 31])
def test_what_a_full_disk_took_is_not_written_twice(tmp_path: Path, room: int) -> None:
    record = records.Record(tmp_path, 0, 1e9)
    record.files[records.MODELS] = disk = Filling(record.files[records.MODELS], room)  # type: ignore[assignment]
    record.written = float("inf")  # nothing is written down before it is asked for
    row = dict.fromkeys(records.LIVE, 0.0)
    for round in range(3):
        record.add({**row, "round": round}, np.full(2, float(round)), None, {})
    with pytest.raises(RunError, match="free some space"):
        record.flush()
    assert not len(records.read_rows(tmp_path))  # no row without its model
    disk.room = 1000
    record.flush()
    assert records.read_rows(tmp_path)[:, 0].tolist() == [0, 1, 2]
    assert records.read_models(tmp_path, 2).tolist() == [[0, 0], [1, 1], [2, 2]]
