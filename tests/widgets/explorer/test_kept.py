"""Runs with a name: kept, described, found, deleted after a question and never by mistake."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import workbench as wb
from workbench.widgets.explorer.kept import ABOUT, Kept, delete, describe, keep, kept_runs


@pytest.fixture(scope="module")
def trace() -> wb.Trace:
    return wb.run(wb.Experiment(scheme="GC", scheme_args={"stragglers": 2}, workers=6, rounds=3))


def test_a_kept_run_comes_back_whole(trace: wb.Trace, tmp_path: Path) -> None:
    kept = keep(trace, tmp_path, "First: a try!", "with a note", ["tree ", "", "x"])
    assert kept.folder == tmp_path / "first-a-try"
    assert (kept.name, kept.note, kept.tags) == ("First: a try!", "with a note", ("tree", "x"))
    assert (kept.scheme, kept.engine, kept.workers, kept.rounds) == ("GC", "sim", 6, 3)
    assert wb.Trace.load(kept.folder).same(trace)
    assert kept_runs(tmp_path) == [kept]


@pytest.mark.parametrize("name", ["", "  ", "!?/.."])
def test_a_run_needs_a_name(trace: wb.Trace, tmp_path: Path, name: str) -> None:
    with pytest.raises(wb.SettingError, match="name = "):
        keep(trace, tmp_path, name)
    assert kept_runs(tmp_path) == []


def test_names_stay_below_the_folder(trace: wb.Trace, tmp_path: Path) -> None:
    kept = keep(trace, tmp_path / "runs", "../../etc/passwd")
    assert kept.folder.parent == tmp_path / "runs"


def test_a_second_run_of_a_name_is_refused(trace: wb.Trace, tmp_path: Path) -> None:
    keep(trace, tmp_path, "One")
    with pytest.raises(wb.SettingError, match="choose another"):
        keep(trace, tmp_path, "one")


def test_what_is_said_can_be_changed_and_the_date_stays(trace: wb.Trace, tmp_path: Path) -> None:
    kept = keep(trace, tmp_path, "One", "before")
    describe(kept.folder, "Two", "after", ["t"])
    (found,) = kept_runs(tmp_path)
    assert (found.name, found.note, found.tags, found.when) == ("Two", "after", ("t",), kept.when)


def test_the_newest_come_first_and_folders_without_words_are_listed(trace: wb.Trace, tmp_path: Path) -> None:
    for name, when in (
        ("a", "2020-01-01T00:00:00"),
        ("b", "2022-01-01T00:00:00"),
        ("c", "2021-01-01T00:00:00"),
    ):
        describe(keep(trace, tmp_path, name).folder, name, "", [], when)
    trace.save(tmp_path / "sub" / "plain")
    (tmp_path / "a" / ABOUT).write_text("{ not json")
    names = [run.name for run in kept_runs(tmp_path)]
    assert set(names) == {"a", "b", "c", "sub/plain"}
    assert names.index("b") < names.index("c")


def test_no_folder_no_runs(tmp_path: Path) -> None:
    assert kept_runs(tmp_path / "nothing") == []


def test_deleting_removes_the_folder_and_nothing_else(trace: wb.Trace, tmp_path: Path) -> None:
    kept, other = keep(trace, tmp_path, "One"), keep(trace, tmp_path, "Two")
    delete(kept)
    assert kept_runs(tmp_path) == [other]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["two"]


def test_what_is_no_run_folder_is_never_deleted(trace: wb.Trace, tmp_path: Path) -> None:
    precious = tmp_path / "thesis"
    precious.mkdir()
    (precious / "chapter.tex").write_text("text")
    with pytest.raises(wb.SettingError, match="nothing was deleted"):
        delete(Kept(precious, "thesis"))
    assert (precious / "chapter.tex").exists()


def test_a_run_of_a_sweep_is_not_deleted(trace: wb.Trace, tmp_path: Path) -> None:
    trace.save(tmp_path / "job" / "trace")
    (tmp_path / "job" / "status.json").write_text(json.dumps({"state": "done"}))
    (run,) = kept_runs(tmp_path)
    with pytest.raises(wb.SettingError, match="belongs to a sweep"):
        delete(run)
    assert wb.Trace.load(run.folder).same(trace)
