"""Tab of all runs: saved runs, sweeps, and recent real runs."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ipywidgets as w

from workbench.core.base.files import cache_folder
from workbench.core.running.run import Run
from workbench.lab.widgets.callbacks import guarded
from workbench.lab.widgets.explorer.tab import Drawing, Tab, shown
from workbench.lab.widgets.explorer.tabs.running import Running


class History(Tab):
    """Tab of all runs; the table is read when the tab is opened, because a folder may hold thousands of runs."""

    key, title, place = "history", "Runs", 2.7

    def parts(self) -> list[w.Widget]:
        self.box = w.VBox()
        self.table: Any = None  # loaded when it is opened
        places = [("Saved runs and sweeps", self.desk.folder), ("Recent real runs", cache_folder("runs"))]
        self.where = w.Dropdown(description="Runs", options=places)
        self.where.observe(lambda _: self.opened(), "value")
        return [self.where, self.box]

    @guarded
    def opened(self) -> None:
        self.report("")
        folder = Path(self.where.value)
        folder.mkdir(parents=True, exist_ok=True)
        if self.table is None or self.table.runs.root != folder:
            from workbench.lab.widgets.explorer.runstable import RunsTable  # loads itables

            self.table = RunsTable(folder, self._show)
            self.box.children = [self.table]
        else:
            self.table.again()

    def _show(self, shown: Sequence[Run]) -> None:
        """Show runs on the live plot, beside the present ones or instead of them."""
        running = self.desk.tab(Running)
        running.show(shown, keep=True)
        self.desk.front(running)

    def figures(self) -> dict[str, Drawing]:
        if self.table is None:
            return {}
        return shown({"kept runs": self.table.plot, "a kept run's round": self.table.player})
