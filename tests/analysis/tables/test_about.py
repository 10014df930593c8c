"""Saved runs: named, described, archived, and deleted after a confirmation."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import workbench as wb
from workbench.analysis.tables.about import RunNotes, delete, describe, keep, tidy
from workbench.core.base.locks import Lock
from workbench.core.trace.layout import ABOUT


@pytest.fixture(scope="module")
def trace() -> wb.Trace:
    return wb.run(wb.Experiment(scheme="GC", scheme_args={"stragglers": 2}, workers=6, rounds=3))


def names(root: Path) -> list[str]:
    return sorted(wb.runs(root).table["run"]) if root.is_dir() else []


def test_keep_saves_a_complete_run(trace: wb.Trace, tmp_path: Path) -> None:
    folder = keep(trace, tmp_path, "First: a try!", "with a note", ["tree ", "", "x"])
    assert folder == tmp_path / "first-a-try"
    (row,) = wb.runs(tmp_path).table.to_dict("records")
    assert (row["name"], row["note"], row["tags"]) == ("First: a try!", "with a note", "tree, x")
    assert (row["scheme"], row["engine"], row["workers"], row["rounds"]) == ("GC", "sim", 6, 3)
    assert wb.Trace.load(folder).same(trace)


@pytest.mark.parametrize("name", ["", "  ", "!?/.."])
def test_keep_requires_a_name(trace: wb.Trace, tmp_path: Path, name: str) -> None:
    with pytest.raises(wb.SettingError, match="name = "):
        keep(trace, tmp_path, name)
    assert names(tmp_path) == []


def test_keep_accepts_names_in_any_script(trace: wb.Trace, tmp_path: Path) -> None:
    found = [keep(trace, tmp_path, name).name for name in ("Größe 2", "木の数", "Δ" * 90)]
    assert found == ["grosse-2", "木の数", "δ" * 40]
    assert names(tmp_path) == sorted(found)


def test_keep_writes_only_below_its_folder(trace: wb.Trace, tmp_path: Path) -> None:
    assert keep(trace, tmp_path / "runs", "../../etc/passwd").parent == tmp_path / "runs"


def test_keep_refuses_a_used_name(trace: wb.Trace, tmp_path: Path) -> None:
    keep(trace, tmp_path, "One")
    with pytest.raises(wb.SettingError, match="choose another"):
        keep(trace, tmp_path, "one")


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
WORDS = st.fixed_dictionaries(
    {}, optional={"note": TEXT, "tags": st.lists(TEXT, max_size=4), "archived": st.booleans()}
)


@given(changes=st.lists(WORDS, max_size=4))
@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_describe_updates_only_the_given_fields(tmp_path: Path, changes: list[dict]) -> None:
    (tmp_path / ABOUT).unlink(missing_ok=True)
    expected = describe(tmp_path, name="One", when="2020-01-01T00:00:00")
    for change in changes:
        found = describe(tmp_path, **change)
        for name in ("name", "note", "tags", "when", "archived"):
            given = change.get(name, getattr(expected, name))
            wanted = tidy(given) if name == "tags" else given.strip() if name == "note" else given
            assert getattr(found, name) == wanted
        assert RunNotes.read(tmp_path) == found
        expected = found


def test_describe_refuses_a_name_without_letters(trace: wb.Trace, tmp_path: Path) -> None:
    folder = keep(trace, tmp_path, "One")
    with pytest.raises(wb.SettingError, match="name = "):
        describe(folder, name="?", note="new")
    assert RunNotes.read(folder).note == ""
    with pytest.raises(wb.SettingError, match="no longer exists"):
        describe(tmp_path / "gone", note="x")


def test_delete_removes_only_the_folder_of_the_run(trace: wb.Trace, tmp_path: Path) -> None:
    folder = keep(trace, tmp_path, "One")
    keep(trace, tmp_path, "Two")
    delete(folder)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["two"]


def test_delete_refuses_a_folder_that_is_not_a_run(trace: wb.Trace, tmp_path: Path) -> None:
    precious = tmp_path / "thesis"
    precious.mkdir()
    (precious / "chapter.tex").write_text("text")
    (precious / "spec.json").write_text("{}")
    with pytest.raises(wb.SettingError, match="nothing was deleted"):
        delete(precious)
    assert (precious / "chapter.tex").exists()


def test_delete_accepts_partial_runs_but_not_locked_ones(trace: wb.Trace, tmp_path: Path) -> None:
    folder = trace.save(tmp_path / "half")
    (folder / "run.json").unlink()
    lock = Lock(folder / ".lock")
    lock.take()
    with pytest.raises(wb.SettingError, match="this run is in use"):
        delete(folder)
    lock.release()
    delete(folder)
    assert list(tmp_path.iterdir()) == []


def test_delete_refuses_a_run_of_a_sweep(trace: wb.Trace, tmp_path: Path) -> None:
    folder = trace.save(tmp_path / "job" / "trace")
    (tmp_path / "job" / "status.json").write_text(json.dumps({"state": "done"}))
    for each in (folder, folder.parent):
        with pytest.raises(wb.SettingError, match="belongs to a sweep"):
            delete(each)
    assert wb.Trace.load(folder).same(trace)
