"""Tabs of the explorer: discovery by file, and notifications."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

import pytest

import workbench as wb
from workbench.lab.widgets.explorer import tabs
from workbench.lab.widgets.explorer.explorer import Explorer
from workbench.lab.widgets.explorer.tab import Tab

NEW = """from workbench.lab.widgets.explorer.tab import Tab


class Counting(Tab):
    key, title, place = "counting", "Counts", 1.5

    def parts(self):
        self.heard = []
        return []

    def changed(self):
        self.heard.append(len(self.desk.experiments))

    def over(self):
        self.heard.append("over")

    def opened(self):
        self.heard.append("opened")
"""


def test_tab_in_a_new_file_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # import the other tabs first, since those that are first imported below leave the catalogue with the new one
    for module in iter_modules(tabs.__path__):
        import_module(f"{tabs.__name__}.{module.name}")
    (tmp_path / "counting.py").write_text(NEW)
    monkeypatch.setattr(tabs, "__path__", [*tabs.__path__, str(tmp_path)])
    monkeypatch.setattr(Tab, "catalogue", dict(Tab.catalogue))
    try:
        explorer = Explorer([wb.Experiment(scheme="UMW", workers=3, rounds=2)], folder=tmp_path)
        assert explorer.tabs.titles == (
            "Before a run",
            "Run",
            "Rounds",
            "Counts",
            "One round",
            "Who is late?",
            "Runs",
            "Save / export",
        )
        explorer.run(60)
        explorer.tabs.selected_index = 3
        assert explorer.counting.heard == [1, "over", "opened"]
        explorer.controls.schemes.forms[0].remove.click()
        assert explorer.counting.heard[-1] == 0
        assert explorer.desk.reason == "no scheme is chosen; add one"
    finally:
        sys.modules.pop("workbench.lab.widgets.explorer.tabs.counting", None)
        vars(tabs).pop("counting", None)


def test_tabs_keep_their_order(tmp_path: Path) -> None:
    explorer = Explorer([wb.Experiment(scheme="UMW", workers=3, rounds=2)], folder=tmp_path)
    assert explorer.tabs.titles == (
        "Before a run",
        "Run",
        "Rounds",
        "One round",
        "Who is late?",
        "Runs",
        "Save / export",
    )
    keys = ["preview", "running", "stream", "round", "lateness", "history", "keeping"]
    assert [tab.key for tab in explorer.desk.tabs] == keys
