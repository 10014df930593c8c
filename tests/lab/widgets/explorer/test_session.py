"""Runs made in the explorer are in its table at once, and in its menus. A saved run is in the table of its folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import workbench as wb
from workbench.lab.widgets.explorer.explorer import explore
from workbench.lab.widgets.explorer.session import SessionRuns

SMALL = wb.baselines(2, 2, 1, problem_args={"samples": 40, "features": 3}, rounds=4)


def test_session_runs_are_listed_at_once_and_a_kept_one_after_it_was_kept(tmp_path: Path) -> None:
    explorer = explore(SMALL, tmp_path / "runs")
    history, runs = explorer.history, explorer.tabs.titles.index("Runs")
    explorer.run(60)
    explorer.tabs.selected_index = runs
    assert history.table.wait(30)
    assert sorted(history.table.runs.table["scheme"]) == sorted(e.scheme for e in SMALL)
    assert "5 runs: 5 done" in history.table.note.value  # the private folder's path says nothing to a user
    explorer.run(60)  # while the table is shown
    assert history.table.wait(30)
    assert len(history.table.runs) == 10
    history.table.select("1-umw")
    history.table.show()  # showing a recorded run adds no run to the session
    assert len(list(history.session.folder.iterdir())) == 10
    keeping = explorer.keeping
    keeping.opened()
    keeping.run.value, keeping.name.value = "CR", "Mine"
    keeping.keep_run()
    assert history.where.value == tmp_path / "runs"
    assert history.table.wait(30)
    assert list(history.table.runs.table["name"]) == ["Mine"]
    assert f"1 run in {tmp_path / 'runs'}: 1 done" in history.table.note.value


def test_session_folder_is_private_and_ends_with_the_explorer() -> None:
    session = SessionRuns()
    session.add([wb.run(SMALL[0])])
    folder = session.folder
    assert folder.stat().st_mode & 0o077 == 0
    del session
    assert not folder.exists()


def test_explorer_menu_of_rounds_names_an_adaptive_run_by_its_schemes(tmp_path: Path) -> None:
    """The choice of a run and its stream stay when the schemes are known at the end."""
    delay_model = {"kind": "constant", "shift": 1e-3}
    settings = {"workers": 4, "rounds": 12, "problem_args": {"samples": 40}, "delays": delay_model}
    adaptive = wb.Experiment(scheme="GC", adaptive=True, **settings)
    explorer = explore([adaptive, adaptive.replace(adaptive=False)], tmp_path / "runs")
    tab, running = explorer.stream, explorer.running
    running.plot.show(wb.start_all([adaptive, adaptive.replace(adaptive=False)]))
    shown: list[Any] = []
    tab.rounds.stream.observe(lambda change: shown.append(change["new"]), "edition")
    changes = type(running.plot.runs[0]).changes
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(running.plot.runs[0]), "changes", property(lambda run: []))
        tab.opened()
        assert tab.menu.options == (("adaptive (GC)", 0), ("GC", 1))
        tab.menu.value = 0
    assert type(running.plot.runs[0]).changes is changes
    assert running.plot.wait(60)
    before = len(shown)
    tab.over()
    assert tab.menu.options == (("adaptive (GC, then UMW)", 0), ("GC", 1))
    assert tab.menu.value == 0
    assert tab.rounds.stream.run is running.plot.runs[0]
    assert len(shown) == before
