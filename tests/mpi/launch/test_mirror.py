"""The mirror of a run folder: copied piece by piece."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from workbench.core.trace import layout, records
from workbench.core.trace.checkpoint import read_checkpoint
from workbench.core.trace.layout import RANKS_LOCK
from workbench.mpi.launch import mirror as news
from workbench.mpi.launch.mirror import DeltaRequest, Mirror, file_sizes

ROW = dict.fromkeys(records.LIVE_COLUMNS, 0.0)


def fetched(there: Path, mirror: Mirror) -> bool:
    """Send one request, and apply the reply. Return whether there is more."""
    answer, data = DeltaRequest(**mirror.question()).read(there)
    mirror.take(answer, data)
    return bool(answer["more"])


def rounds(record: records.RunRecorder, first: int, last: int) -> None:
    for round in range(first, last):
        record.add({**ROW, "round": round}, np.full(3, float(round)), None, {})
    record.flush()


def contents(folder: Path) -> dict[str, bytes]:
    files = [p for p in folder.rglob("*") if p.is_file() and p.name != RANKS_LOCK]
    return {str(p.relative_to(folder)): p.read_bytes() for p in files}


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    for name in ("there", "here"):
        (tmp_path / name).mkdir()
    return tmp_path / "there", tmp_path / "here"


def test_mirror_copies_a_growing_folder_end_last(
    folders: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(news, "BYTES_PER_PIECE", 100)  # bytes, so that there are several replies
    there, here = folders
    mirror = Mirror(here, {})
    fetched(there, mirror)
    assert not contents(here)
    record = records.RunRecorder(there, 0, 1e9)
    rounds(record, 0, 4)
    while fetched(there, mirror):
        assert not (here / layout.ENDED).exists()
    assert np.array_equal(records.read_rows(here), records.read_rows(there))
    rounds(record, 4, 9)
    records.ArrivalLog(there, 2)([(0, 1, 0), (1, 1, 0)])
    record.save(np.ones(3), {})
    record.end({"state": "finished"}, [b"book"])
    mirror.hurry()
    while fetched(there, mirror):
        assert not (here / layout.ENDED).exists()
    assert contents(here) == contents(there)
    assert records.read_arrivals(here, 2) == {0: [(1, 0)], 1: [(1, 0)]}


@pytest.mark.parametrize("piece", [70, 100, 10**6])
def test_mirror_copies_rounds_before_their_checkpoint(
    folders: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, piece: int
) -> None:
    monkeypatch.setattr(news, "BYTES_PER_PIECE", piece)  # bytes per reply
    there, here = folders
    record, mirror = records.RunRecorder(there, 0, 1e9), Mirror(here, {})
    for round in range(12):
        rounds(record, round, round + 1)
        record.save(np.full(3, float(round)), {})
        mirror.hurry()
        fetched(there, mirror)
        if (here / layout.CHECKPOINT).exists():
            records.check_long_enough(here, read_checkpoint(here).rounds, 3)
    while fetched(there, mirror):
        mirror.hurry()
    assert read_checkpoint(here).rounds == 12


def test_mirror_with_two_followers(folders: tuple[Path, Path]) -> None:
    there, here = folders
    record = records.RunRecorder(there, 0, 1e9)
    rounds(record, 0, 3)
    first, second = Mirror(here, {}), Mirror(here, {})
    fetched(there, first)
    fetched(there, second)
    rounds(record, 3, 5)
    fetched(there, Mirror(here, {}))
    fetched(there, first)
    assert np.array_equal(records.read_rows(here), records.read_rows(there))
    assert np.array_equal(records.read_models(here, 3), records.read_models(there, 3))


def test_mirror_appends_a_resumed_run(folders: tuple[Path, Path]) -> None:
    there, here = folders
    old = records.RunRecorder(here, 0, 1e9)
    rounds(old, 0, 3)
    mirror = Mirror(here, file_sizes(here))
    new = records.RunRecorder(there, 3, 1e9)
    rounds(new, 3, 5)
    fetched(there, mirror)
    assert records.read_rows(here)[:, 0].tolist() == [0, 1, 2, 3, 4]
    assert records.read_models(here, 3)[:, 0].tolist() == [0, 1, 2, 3, 4]


def test_mirror_delays_large_models(folders: tuple[Path, Path]) -> None:
    there, here = folders
    record = records.RunRecorder(there, 0, 1e9)
    mirror = Mirror(here, {})
    mirror.free = float("inf")
    rounds(record, 0, 3)
    fetched(there, mirror)
    assert len(records.read_rows(here)) == 3
    assert not (here / records.MODELS).exists()
    record.end({"state": "finished"}, [])
    fetched(there, mirror)
    assert len(records.read_models(here, 3)) == 3
    assert (here / layout.ENDED).exists()


@pytest.mark.parametrize("name", ["../x", "/etc/x", "arrivals/../x", "arrivals/../../x", "spec.json"])
def test_mirror_refuses_other_names(folders: tuple[Path, Path], name: str) -> None:
    _, here = folders
    piece: dict[str, Any] = {"name": name, "offset": 0, "bytes": 1}
    with pytest.raises(ValueError, match="not a file of a run folder"):
        Mirror(here, {}).take({"pieces": [piece]}, b"x")
