"""Records in a run folder, as a resumed run reads them."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import workbench as wb
from workbench.core.base.errors import RunError
from workbench.core.base.files import write_json
from workbench.core.trace import records
from workbench.core.trace.checkpoint import read_checkpoint
from workbench.core.trace.layout import ARRIVALS, ENDED, ROWS
from workbench.core.trace.records import LIVE_COLUMNS, ArrivalLog, read_arrivals, rewind


@pytest.mark.parametrize("rounds", [0, 1, 2, 3, 5])
def test_rewind_keeps_only_the_second_answers_of_a_repeated_round(tmp_path: Path, rounds: int) -> None:
    first = ArrivalLog(tmp_path, 0)
    for round in range(3):
        first([(round, 1, 0), (round, 2, 0)])
    with (tmp_path / ARRIVALS / "0.i64").open("ab") as torn:
        torn.write(b"half a row")
    np.zeros((3, len(LIVE_COLUMNS))).tofile(tmp_path / ROWS)
    np.zeros((3, 4)).tofile(tmp_path / records.MODELS)
    rewind(tmp_path, min(rounds, 3), 4)
    kept = {round: [(1, 0), (2, 0)] for round in range(min(rounds, 3))}
    assert read_arrivals(tmp_path, 0) == kept
    ArrivalLog(tmp_path, 0)([(rounds, 2, 0), (rounds, 3, 1)])
    assert read_arrivals(tmp_path, 0) == {**kept, rounds: [(2, 0), (3, 1)]}


def test_only_the_last_change_keeps_measured_times(tmp_path: Path) -> None:
    """A run that resumes before the last change still has the configurations of the earlier one."""
    rows = [[[0.1, None], [0.1, 0.2], [1, 1]]]
    for round in (3, 6):
        change = {"round": round, "after": "UMW"}
        ended = {
            "change": change,
            "memory": {"rows": rows, "way": ["UMW", {}]},
            "first": 0,
            "zero": 0.0,
            "offset": 0.0,
        }
        write_json(tmp_path / ENDED, {"state": records.SCHEME_CHANGED, **ended})
        records.ledgers_path(tmp_path).touch()
        records.note_change(tmp_path, round)
        (tmp_path / ENDED).unlink()
    memories = [change["memory"] for change in records.read_changes(tmp_path)]
    assert memories == [{"rows": [], "way": ["UMW", {}]}, {"rows": rows, "way": ["UMW", {}]}]
    assert [change["round"] for change in records.note_change(tmp_path, 4)] == [3]


class Filling:
    """File on a disk that accepts a number of bytes, then none until there is space again."""

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
def test_records_are_not_written_twice_after_a_full_disk(tmp_path: Path, room: int) -> None:
    record = records.RunRecorder(tmp_path, 0, 1e9)
    record.files[records.MODELS] = disk = Filling(record.files[records.MODELS], room)  # type: ignore[assignment]
    record.written = float("inf")  # rows are written only on request
    row = dict.fromkeys(records.LIVE_COLUMNS, 0.0)
    for round in range(3):
        record.add({**row, "round": round}, np.full(2, float(round)), None, {})
    with pytest.raises(RunError, match="free some space"):
        record.flush()
    assert not len(records.read_rows(tmp_path))  # no row without its model
    disk.room = 1000
    record.flush()
    assert records.read_rows(tmp_path)[:, 0].tolist() == [0, 1, 2]
    assert records.read_models(tmp_path, 2).tolist() == [[0, 0], [1, 1], [2, 2]]


ROW = dict.fromkeys(records.LIVE_COLUMNS, 0.0)


def saved(folder: Path, rounds: int = 4, begun: dict[str, str] | None = None) -> None:
    """Make a run with two parameters, saved after the given rounds, with its gradients."""
    record = records.RunRecorder(folder, 0, 1e9, gradients=True, begun=begun)
    for round in range(rounds):
        model = np.full(2, round + 1.0)
        record.add({**ROW, "round": round, "time": round + 0.5}, model, model, {"m": model, "t": round})
    record.save(np.full(2, float(rounds)), {"m": np.full(2, 0.5), "t": 7})
    record.lock.release()


@pytest.mark.parametrize("name", [records.ROWS, records.MODELS, records.GRADIENTS])
@pytest.mark.parametrize("missing", [1, 8, 17])
def test_rewind_refuses_missing_rounds_of_a_checkpoint(tmp_path: Path, name: str, missing: int) -> None:
    saved(tmp_path)
    whole = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(whole[:-missing])
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(
        wb.SettingError, match=rf"{name} has \d rounds, and the checkpoint was written after 4"
    ):
        rewind(tmp_path, read_checkpoint(tmp_path).rounds, 2)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    (tmp_path / name).write_bytes(whole + b"of a round that was cut off")
    assert rewind(tmp_path, 4, 2) == 3.5
    assert (tmp_path / name).read_bytes() == whole


def test_rewind_treats_a_missing_file_as_empty(tmp_path: Path) -> None:
    saved(tmp_path)
    (tmp_path / records.MODELS).unlink()
    with pytest.raises(wb.SettingError, match=r"models.f64 has 0 rounds"):
        rewind(tmp_path, 4, 2)


def test_records_reach_the_disk_before_the_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    fsync, replace = os.fsync, Path.replace

    def noted(handle: int) -> None:
        synced.append(Path(f"/proc/self/fd/{handle}").readlink().name)
        fsync(handle)

    def named(path: Path, target: Path) -> Path:
        synced.append(f"-> {target.name}")
        return replace(path, target)

    monkeypatch.setattr(os, "fsync", noted)
    monkeypatch.setattr(Path, "replace", named)
    saved(tmp_path)
    before = synced[: synced.index(f"-> {records.CHECKPOINT}")]
    assert {records.ROWS, records.MODELS, records.GRADIENTS} <= set(before)


@pytest.mark.parametrize("begun", [None, {"spec": "{}", "data": "å" * 64}])
def test_read_checkpoint_returns_what_was_saved(tmp_path: Path, begun: dict[str, str] | None) -> None:
    saved(tmp_path, begun=begun)
    found = read_checkpoint(tmp_path)
    assert (found.rounds, found.model.tolist(), found.begun) == (4, [4.0, 4.0], begun or {})
    assert (found.state["t"], found.state["m"].tolist()) == (7, [0.5, 0.5])


def test_read_checkpoint_refuses_damage_or_returns_the_same(tmp_path: Path) -> None:
    """Each third byte is changed, one at a time. Some bytes have no effect, such as a file's date in the archive."""
    saved(tmp_path, begun={"spec": "{}", "data": "0"})
    path = tmp_path / records.CHECKPOINT
    whole, right, rng = path.read_bytes(), read_checkpoint(tmp_path), np.random.default_rng(0)
    found_text: list[str] = []
    places = range(int(rng.integers(3)), len(whole), 3)
    for place in places:
        spoilt = bytearray(whole)
        spoilt[place] ^= int(rng.integers(1, 256))
        path.write_bytes(spoilt)
        try:
            found = read_checkpoint(tmp_path)
        except wb.SettingError as error:
            found_text.append(str(error))
            continue
        assert str(found) == str(right), place
    assert len(found_text) > 0.7 * len(places)
    assert all(text.startswith(f"{path}: is damaged (") and "\n" not in text for text in found_text)


@pytest.mark.parametrize("left", [0, 1, 30, 0.5, -1])
def test_read_checkpoint_refuses_a_torn_file(tmp_path: Path, left: float) -> None:
    saved(tmp_path)
    path = tmp_path / records.CHECKPOINT
    whole = path.read_bytes()
    path.write_bytes(whole[: int(left * len(whole)) if 0 < left < 1 else int(left)])
    with pytest.raises(wb.SettingError, match=r"checkpoint.npz: is damaged \("):
        read_checkpoint(tmp_path)


def test_checkpoints_use_a_bounded_share_of_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a large model on a slow disk, checkpoints are rarer.

    After a save of 1 s, the next one begins 1 s / MAX_CHECKPOINT_SHARE later at the earliest.
    """
    now, saved = 0.0, []
    monkeypatch.setattr(records.time, "monotonic", lambda: now)
    record = records.RunRecorder(tmp_path, 0, 2.0)

    def slow(model: Any, state: Any) -> None:
        nonlocal now
        saved.append(now)
        now += 1.0
        record.saved = now

    monkeypatch.setattr(record, "save", slow)
    for round in range(60):
        now += 1.0
        record.add(dict.fromkeys(LIVE_COLUMNS, float(round)), np.ones(2), None, {})
    assert saved[:2] == [3.0, pytest.approx(4.0 + 1 / records.MAX_CHECKPOINT_SHARE + 1, abs=1)]
    assert len(saved) <= 4


def test_records_write_events_only_for_a_watcher(tmp_path: Path) -> None:
    events = [(0, 1, "compute", 7.0, 7.0, 7.5, -1, 0, 0), (0, 0, "commit", 8.0, 8.0, 8.0, -1, 0, 0)]
    rank = records.LiveEventWriter(tmp_path, 1, events)
    rank.keep_up(1.0, 7.0)
    assert list(tmp_path.iterdir()) == []  # nobody watches the run
    watcher = records.LiveEventReader(tmp_path)
    rank.keep_up(1.05, 7.0)
    assert len(watcher()["round"]) == 0  # polled too soon
    rank.keep_up(2.0, 7.0)  # all events since the beginning
    found = watcher()
    assert found["kind"].tolist() == ["compute", "commit"]
    assert found["end"].tolist() == [0.5, 1.0]  # times count from the beginning of the run
    events.append((1, 1, "compute", 8.0, 8.0, 9.0, -1, 0, 0))
    rank.deaths.append((1, 2, "dead", 9.0, 9.0, 9.0, -1, 0, 0))
    rank.keep_up(3.0, 7.0)
    rank.keep_up(4.0, 7.0)
    found = watcher()  # each event is returned once
    assert sorted(zip(found["kind"], found["rank"], strict=True)) == [("compute", 1), ("dead", 2)]
    assert len(watcher()["round"]) == 0
    assert sorted(records.LiveEventReader(tmp_path)()["kind"]) == ["commit", "compute", "compute", "dead"]
    records.unwatched(tmp_path)
    rank.keep_up(5.0, 7.0)
    assert list(tmp_path.iterdir()) == []
