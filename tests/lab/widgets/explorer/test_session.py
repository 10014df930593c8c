"""Runs made in the explorer are in its table at once. A saved run is in the table of its folder."""

from __future__ import annotations

from pathlib import Path

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
