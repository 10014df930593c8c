"""The tab of the diagnosis: of shown or saved runs, and of files."""

from __future__ import annotations

from pathlib import Path

import workbench as wb
from tests.support.flight_dumps import four
from workbench.analysis.tables.about import keep
from workbench.lab.widgets.explorer.explorer import Explorer
from workbench.lab.widgets.explorer.tabs.lateness import Lateness

SLOW = {"kind": "heterogeneous", "slow": 0.3, "slow_straggles": 0.9}


def test_lateness_tab_opens_runs_and_files(tmp_path: Path) -> None:
    e = wb.Experiment(scheme="UMW", workers=8, rounds=40, delays=SLOW)
    run = keep(wb.run(e), tmp_path, "slow ones")
    explorer = Explorer([e], folder=tmp_path)
    tab = explorer.desk.tab(Lateness)
    tab.look()
    assert "there is none yet" in tab.message.value
    tab.opened()
    assert list(tab.run.options) == ["kept: slow ones"]
    tab.run.value = "kept: slow ones"
    tab.look()
    (worst, *_) = wb.diagnose(run).culprits
    assert worst.who in tab.text.value
    assert "saves" in tab.text.value
    assert "would save" in tab.text.value
    assert set(tab.figures()) == {"who was late when", "who makes the steps long"}
    rows = "\n".join(f"{w},{t},{1 + (w == 2) + 0.01 * (t % 3)}" for w in range(4) for t in range(30))
    (tmp_path / "mine.csv").write_text(f"worker,step,seconds\n{rows}\n")
    tab.file.value = str(tmp_path / "mine.csv")
    tab.look()
    assert "worker 2 costs" in tab.text.value
    tab.file.value = str(tmp_path / "nowhere.csv")
    tab.look()
    assert "there is no such file" in tab.message.value
    assert not tab.button.disabled


def test_lateness_tab_shows_the_card_of_a_hang(tmp_path: Path) -> None:
    explorer = Explorer([wb.Experiment(scheme="UMW", workers=4)], folder=tmp_path / "runs")
    tab = explorer.desk.tab(Lateness)
    tab.file.value = str(four(tmp_path / "stuck"))
    tab.look()
    assert tab.message.value == ""
    assert "The job waits for rank 2" in tab.text.value
    assert "3 of 4 ranks" in tab.text.value
    assert "all_reduce 3" in tab.text.value
    assert "py-spy dump" in tab.text.value
    assert tab.figures() == {}
    assert not tab.button.disabled
