"""The index of runs is a cache: whether it exists, is missing or is damaged, the table equals the folders."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

import workbench as wb
from tests.support.sampled_cases import sampled_cases
from workbench.analysis.tables import index, rows
from workbench.analysis.tables.about import describe
from workbench.analysis.tables.index import file_of


@pytest.fixture(scope="module")
def trace() -> wb.Trace:
    return wb.run(wb.Experiment(scheme="GC", scheme_args={"stragglers": 1}, workers=4, rounds=4))


@pytest.fixture
def root(trace: wb.Trace, tmp_path: Path) -> Path:
    for name in "abc":
        trace.save(tmp_path / "runs" / name)
    return tmp_path / "runs"


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the names of the runs that are read from their folders, filled during the test."""
    found: list[str] = []

    def read(place: rows.Place, *rest: object) -> rows.Row:
        found.append(place.name)
        return rows.read(place, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(index, "read", read)
    return found


def fresh(root: Path) -> pd.DataFrame:
    """Return the table as read without an index."""
    file_of().unlink(missing_ok=True)
    return wb.runs(root).table


def test_index_avoids_repeated_reading(root: Path, reads: list[str]) -> None:
    first = wb.runs(root).table
    assert reads == ["a", "b", "c"]
    pd.testing.assert_frame_equal(wb.runs(root).table, first)
    assert reads == ["a", "b", "c"]


def add(root: Path) -> None:
    shutil.copytree(root / "a", root / "d")


CHANGES: dict[str, tuple[Callable[[Path], object], list[str]]] = {
    "a note": (lambda root: describe(root / "b", note="new"), ["b"]),
    "a new run": (add, ["d"]),
    "a run is gone": (lambda root: shutil.rmtree(root / "a"), []),
    "another run in its place": (
        lambda root: (shutil.rmtree(root / "c"), shutil.copytree(root / "a", root / "c")),
        ["c"],
    ),
    "a byte of the same length": (
        lambda root: (root / "a" / "spec.json").write_bytes(
            (root / "a" / "spec.json").read_bytes().replace(b"GC", b"XX")
        ),
        ["a"],
    ),
    "half a folder": (lambda root: (root / "a" / "run.json").unlink(), ["a"]),
}


@pytest.mark.parametrize("what", list(CHANGES))
def test_index_reads_only_changed_runs(root: Path, reads: list[str], what: str) -> None:
    wb.runs(root)
    change, expected = CHANGES[what]
    change(root)
    reads.clear()
    found = wb.runs(root).table
    assert reads == expected
    pd.testing.assert_frame_equal(found, fresh(root))


def test_index_reads_damaged_and_unfinished_runs_again(root: Path, reads: list[str]) -> None:
    (root / "a" / "rounds.parquet").write_text("PAR1")
    for _ in range(2):
        reads.clear()
        assert wb.runs(root).table["state"].tolist() == ["damaged", "done", "done"]
        assert "a" in reads


def test_index_keeps_rows_for_other_targets(root: Path, trace: wb.Trace, reads: list[str]) -> None:
    losses = trace.columns["loss"]
    for target in (float(losses[1]), float(losses[3]), float(losses[1])):
        for _ in range(2):
            assert wb.runs(root, target=target).table["time_to"].tolist() == [trace.time_to(target)] * 3
    assert "time_to" not in wb.runs(root).table
    assert reads == ["a", "b", "c"]  # settings and results do not depend on the target


def test_index_retries_rounds_that_could_not_be_read(
    root: Path, trace: wb.Trace, monkeypatch: pytest.MonkeyPatch
) -> None:
    wb.runs(root)
    target = float(trace.columns["loss"][1])

    def broken(*_: object) -> dict[str, float]:
        raise OSError("the disk is asleep")

    with monkeypatch.context() as patched:
        patched.setattr(index, "reached", broken)
        rows = wb.runs(root, target=target).table
        assert rows["error"].tolist() == ["time_to: the disk is asleep"] * 3
    again = wb.runs(root, target=target).table
    assert again["time_to"].tolist() == [trace.time_to(target)] * 3
    assert again["error"].tolist() == [""] * 3


def test_index_is_shared_by_nested_folders(root: Path, reads: list[str]) -> None:
    wb.runs(root)
    reads.clear()
    assert wb.runs(root.parent).table["run"].tolist() == ["runs/a", "runs/b", "runs/c"]
    assert wb.runs(root / "b").table["run"].tolist() == ["b"]
    assert reads == []


def test_index_keeps_rows_of_an_interrupted_read(root: Path, reads: list[str]) -> None:
    found = index.rows(root)
    next(found)
    found.close()  # type: ignore[attr-defined]
    wb.runs(root)
    assert reads == ["a", "b", "c"]


@pytest.mark.parametrize(
    "damage", sampled_cases("damage", 2, ["text", "no table", "odd rows", "locked", "a folder"])
)
def test_index_is_rebuilt_if_damaged(root: Path, damage: str) -> None:
    before, file = wb.runs(root).table, file_of()
    assert file.is_file()
    base = sqlite3.connect(file)
    if damage == "text":
        file.write_text("this is not a database")
    elif damage == "no table":
        base.execute("DROP TABLE rows")
        base.commit()
    elif damage == "odd rows":
        base.execute("UPDATE rows SET row = '[3'")
        base.commit()
    elif damage == "locked":
        base.execute("BEGIN EXCLUSIVE")
    else:
        file.unlink()
        file.mkdir()
    pd.testing.assert_frame_equal(wb.runs(root).table, before)
    base.close()
    if damage == "a folder":
        file.rmdir()
