"""Grid of the table of runs, filled by a thread that reads the folders."""

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from threading import RLock, Thread
from typing import Any

import ipywidgets as w
import pandas as pd

from workbench.analysis.tables.table import LazyRuns, Runs
from workbench.core.base.settings import SettingError
from workbench.core.base.text import duration
from workbench.core.base.type_checks import span
from workbench.lab.widgets.callbacks import Pane, button, guarded, progress, row, seen, sentence
from workbench.lab.widgets.explorer.grid import Grid
from workbench.lab.widgets.forms.fields import number

MAX_LISTED_RUNS = 10**6  # max number of runs whose errors are listed
BAR_AFTER_S, DRAW_SHARE = 1.0, 0.2  # s until progress is shown; share of the time for drawing
Line = dict[str, Any]  # a row of the table
_FIXED_COLUMNS = ("run", "state", "scheme", "workers")
RESULTS = ("time", "loss")  # columns whose means are offered first
_COLUMNS = ("straggler_fraction", "load", *RESULTS, "time_to", "rounds_done", "tags", "note", "error")


class RunsGrid(Pane):
    """Grid of runs, with a selection. The enclosing widget overrides `_marked` and `_filled`."""

    def __init__(self, runs: Runs | str | Path) -> None:
        super().__init__()
        self.runs = runs if isinstance(runs, Runs) else LazyRuns(runs).runs()
        self._lock, self._turn, self._filling = RLock(), 0, False
        self._thread: Thread | None = None
        self._offered = set[str]()  # columns that were shown by default
        self.shown: list[int] = []  # indices of the grid's rows in the table
        self.bar = w.HTML()
        self.grid = Grid()
        self.grid.observe(lambda _: self._marked(), "selected_rows")

    def _marked(self) -> None:
        """Handle a change of the selected rows."""

    def _filled(self) -> None:
        """Handle a change of the columns."""

    def _columns(self) -> w.Widget:
        self.columns = w.SelectMultiple(description="Columns", rows=8)
        self.pinned = w.SelectMultiple(description="Pinned", rows=8)
        self.archived = w.Checkbox(description="Show archived", indent=False, layout={"width": "160px"})
        for widget in (self.columns, self.pinned, self.archived):
            widget.observe(lambda _: self._draw(), "value")
        lists = row(self.columns, self.pinned)
        about = "choose which columns are shown, and which stay in sight"
        self.choose = w.ToggleButton(description="Columns …", tooltip=about)
        self.choose.observe(lambda change: seen(change["new"], lists), "value")
        seen(False, lists)
        self.target = w.Text(
            description="Target", placeholder="0.1, or test_auc 0.9", continuous_update=False
        )
        self.target.tooltip = (
            "adds time_to: when the loss, or the metric named before the number, was first at this"
        )
        metric = "" if self.runs.metric == "loss" else f"{self.runs.metric} "
        self.target.value = "" if self.runs.target is None else f"{metric}{self.runs.target}"
        self.target.observe(lambda _: self._aim(), "value")
        again = button("Refresh", self.again, "read the folders again")
        return w.VBox([row(again, self.choose, self.target, self.archived), lists])

    @property
    def _usual(self) -> list[str]:
        """Columns that are shown by default, in order."""
        return list(dict.fromkeys((*_FIXED_COLUMNS, *self.runs.differing, *_COLUMNS)))

    def fill(self, runs: Runs) -> None:
        """Show a table; new default columns are shown, too, and selected runs stay selected."""
        with self._lock:
            marked = self._folders()
            self.runs = runs
            columns = {str(name): column for name, column in self.runs.table.items()}
            filled = [name for name, c in columns.items() if not (c.isna() | (c.astype(object) == "")).all()]
            chosen = {*self.columns.value, *(name for name in self._usual if name not in self._offered)}
            self._offered |= {name for name in self._usual if name in filled}
            pinned = self.pinned.value if self.columns.options else ("run",)
            self._filling = True  # all columns at once: every drawn table is sent
            for menu, names in ((self.columns, chosen), (self.pinned, pinned)):
                if list(menu.options) != filled:
                    menu.value = ()  # the page looks up the selection among the new options at once
                    menu.options = filled
                menu.value = [name for name in filled if name in names]
            self._filled()
            self._filling = False
            self._draw(marked)

    def _draw(self, marked: Sequence[str] | None = None) -> None:
        with self._lock:
            if self._filling:
                return
            marked = self._folders() if marked is None else marked
            table = self.runs.table
            shown = table if self.archived.value or not len(table) else table[~table["archived"].astype(bool)]
            if "when" in shown:  # the newest first; those of a sweep stay in its order
                shown = shown.sort_values("when", ascending=False, kind="stable")
            places = {folder: place for place, folder in enumerate(shown["folder"])}
            chosen, pinned = self.columns.value or ("run",), self.pinned.value
            first = [name for name in self.columns.options if name in chosen and name in pinned]
            ordered = dict.fromkeys([*first, *(name for name in self._usual if name in chosen), *chosen])
            self.shown = list(shown.index)
            rows = [places[folder] for folder in marked if folder in places]
            self.grid.draw(shown, list(ordered), len(first), rows)
            self._marked()  # some may be gone
            states = table["state"].value_counts().items() if len(table) else ()
            counts = ", ".join(f"{n:,} {state}" for state, n in states)
            where = str(self.runs.root.absolute()) if self.runs.root else "memory"
            self._say(
                f"{len(table):,} {'run' if len(table) == 1 else 'runs'} in {where}{f': {counts}' if counts else ''}"
            )

    @guarded
    def _aim(self) -> None:
        """Compute the times at which the loss, or the typed metric, first met the typed target."""
        metric, _, last = (text := self.target.value.strip()).rpartition(" ")
        target = number(last) if last else None
        if isinstance(target, str):
            raise SettingError(f"target = {text!r}: is not a number; write a loss such as 0.1, or nothing")
        self.report("")
        self.runs = replace(self.runs, target=target, metric=metric.strip() or "loss")
        self.again()

    @guarded
    def again(self) -> None:
        """Read the folders again. Runs that take longer to read appear later."""
        if self.runs.root is None:
            return
        self._turn += 1
        reading = LazyRuns(self.runs.root, self.runs.target, self.runs.metric)
        work = (reading, self._turn)
        self._thread = Thread(target=self._follow, args=work, name="workbench-table", daemon=True)
        self._thread.start()
        self._thread.join(BAR_AFTER_S)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until all runs are read. Return whether they are."""
        if self._thread is not None:
            self._thread.join(timeout)
        return self._thread is None or not self._thread.is_alive()

    @guarded
    def _follow(self, reading: LazyRuns, turn: int) -> None:
        """Read runs in a thread, report the progress, and show new runs."""
        began = reported = time.monotonic()
        due = began + BAR_AFTER_S
        try:
            for count in reading:
                if turn != self._turn:
                    return
                if (now := time.monotonic()) - reported > BAR_AFTER_S / 2:
                    reported, left = now, (now - began) * (len(reading) / count - 1)
                    text = f"{count:,} of {len(reading):,} runs read; about {duration(left)} left"
                    self.bar.value = progress("runs that are read", text, count / len(reading))
                if now > due and count > len(self.runs):
                    self._take(reading, turn)
                    due = time.monotonic() + max(BAR_AFTER_S, (time.monotonic() - now) * (1 / DRAW_SHARE - 1))
            self._take(reading, turn)
        finally:
            if turn == self._turn:
                self.bar.value = ""

    def _take(self, reading: LazyRuns, turn: int) -> None:
        found = reading.runs()
        with self._lock:
            if turn == self._turn:
                self.fill(found)

    def mark(self, *names: str) -> None:
        """Select runs by name, like clicks."""
        with self._lock:
            rows = {self.runs.table.at[i, "run"]: place for place, i in enumerate(self.shown)}
            self.grid.selected_rows = [rows[name] for name in names]

    @property
    def chosen(self) -> list[Line]:
        """Selected rows."""
        found = self._rows().to_dict("records")
        return [{str(name): value for name, value in run_row.items()} for run_row in found]

    def _rows(self) -> pd.DataFrame:
        rows = [self.shown[i] for i in self.grid.selected_rows if i < len(self.shown)]
        return self.runs.table.loc[rows]

    def _folders(self) -> list[str]:
        return list(self._rows()["folder"])

    def _some(self, most: int = MAX_LISTED_RUNS, least: int = 1) -> list[Line]:
        rows = self.chosen
        if not least <= len(rows) <= most:
            wanted = f"{least} or more" if most == MAX_LISTED_RUNS else span(least, most)
            how = f"click on {wanted} in the table, a second click deselects"
            raise SettingError(f"runs: {len(rows)} are selected; {how}")
        return rows

    def _say(self, text: str) -> None:
        self.note.value = sentence(text)
