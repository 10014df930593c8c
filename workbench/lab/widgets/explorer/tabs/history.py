"""Tab of all runs: saved runs, sweeps, and recent real runs."""

from collections.abc import Sequence
from pathlib import Path
from threading import RLock
from typing import Any

import ipywidgets as w

from workbench.core.base.files import cache_folder
from workbench.core.experiment import Experiment
from workbench.core.running.run import Run
from workbench.lab.widgets.callbacks import guarded
from workbench.lab.widgets.closing import close
from workbench.lab.widgets.explorer.session import SessionRuns
from workbench.lab.widgets.explorer.tab import Drawing, Tab, shown
from workbench.lab.widgets.explorer.tabs.running import Running


class History(Tab):
    """Tab of all runs. The table is read when the tab is opened, because a folder may have thousands of runs."""

    key, title, place = "history", "Runs", 2.7

    def parts(self) -> list[w.Widget]:
        self.box = w.VBox()
        self.table: Any = None  # table of runs, made when the tab is first opened
        self._wanted, self._lock = False, RLock()  # runs may end in other threads while the table is loaded
        self.session = SessionRuns()
        places = [
            ("Runs of this explorer", self.session.folder),
            ("Saved runs and sweeps", self.desk.folder),
            ("Recent real runs", cache_folder("runs")),
        ]
        self.where = w.Dropdown(description="Runs", options=places, value=self.desk.folder)
        self.where.observe(lambda _: self._again(), "value")
        return [self.where, self.box]

    @guarded
    def opened(self) -> None:
        """Read the runs of the chosen folder."""
        self.report("")
        self._wanted = True
        with self._lock:
            self._read()

    def _read(self) -> None:
        folder = Path(self.where.value)
        folder.mkdir(parents=True, exist_ok=True)
        if self.table is None or self.table.runs.root != folder:
            from workbench.lab.widgets.explorer.runstable import RunsTable

            before, self.table = self.table, RunsTable(folder, self._show, self._use)
            self.box.children = [self.table]
            if before is not None:
                close(before)
        else:
            self.table.again()

    @guarded
    def over(self) -> None:
        """List the runs that have ended, including unsaved ones."""
        if self.session.add(self.desk.tab(Running).made):
            self.turn_to(self.session.folder)

    def turn_to(self, folder: Path) -> None:
        """Show the runs of a folder that has a new run."""
        if self.where.value != folder:
            self.where.value = folder
        else:
            self._again()

    def _again(self) -> None:
        """Read the chosen folder again if the tab has been opened before."""
        if self._wanted:
            self.opened()

    def _show(self, shown: Sequence[Run]) -> None:
        """Show runs on the live plot, beside the runs that it shows already."""
        running = self.desk.tab(Running)
        running.show(shown, keep=True)
        self.desk.front(running)

    def _use(self, experiment: Experiment) -> None:
        """Take over the settings of a run, and show their forecast."""
        self.desk.controls.take([experiment])
        self.desk.front(self.desk.tabs[0])

    def figures(self) -> dict[str, Drawing]:
        if self.table is None:
            return {}
        return shown({"kept runs": self.table.plot, "a kept run's round": self.table.player})
