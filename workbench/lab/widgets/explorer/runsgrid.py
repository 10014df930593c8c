"""Grid of the table of runs, filled by a thread that reads the folders."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from threading import RLock, Thread
from typing import Any

import ipywidgets as w
import pandas as pd

from workbench.analysis.tables.table import LazyRuns, Runs
from workbench.core.base.settings import SettingError
from workbench.core.base.text import duration
from workbench.core.base.type_checks import span
from workbench.lab.widgets.callbacks import Pane, guarded, progress, sentence
from workbench.lab.widgets.explorer.grid import Grid
from workbench.lab.widgets.explorer.session import PREFIX
from workbench.lab.widgets.forms.fields import number

MAX_LISTED_RUNS = 10**6  # max number of runs whose errors are listed
BAR_AFTER_S, DRAW_SHARE = 1.0, 0.2  # s until progress is shown; share of the time for drawing
Line = dict[str, Any]  # a row of the table
_FIRST_COLUMNS = ("scheme", "state", "when", "run")
# columns that are shown even if they are empty
_FIXED_COLUMNS = "scheme", "state", "when", "workers", "rounds_done", "time", "loss"
RESULTS = ("time", "loss")  # results whose means are offered first
_COLUMNS = (
    "workers", "straggler_fraction", "load", "rounds_done", "time", "time_to", "loss", "tags", "note", "error",
)  # fmt: skip


class RunsGrid(Pane):
    """Grid of runs, with a selection. The subclass `RunsTable` overrides `_marked` and `_filled`."""

    def __init__(self, runs: Runs | str | Path) -> None:
        super().__init__()
        self.runs = runs if isinstance(runs, Runs) else LazyRuns(runs).runs()
        self._lock, self._turn = RLock(), 0
        self._thread: Thread | None = None
        self.picked: tuple[str, ...] = ()  # columns that the user chose; empty: the usual columns
        self.shown: list[int] = []  # indices of the grid's rows in the table
        self.bar = w.HTML()
        self.grid = Grid()
        self.grid.on_message["columns"] = self.pick
        self.grid.observe(lambda _: self._marked(), "selected_rows")
        self.grid.observe(lambda _: self._draw(), "archived")
        self.grid.observe(lambda _: self._asked(), "asked")

    def _marked(self) -> None:
        """Handle a change of the selected rows."""

    def _filled(self) -> None:
        """Handle a table that was filled again. Its columns may have changed."""

    def _aims(self) -> w.Text:
        """Return the field of the target."""
        self.target = w.Text(
            description="Target", placeholder="0.1, or test_auc 0.9", continuous_update=False
        )
        self.target.tooltip = (
            "adds time_to: time at which the loss, or the metric named here, first reached the number"
        )
        metric = "" if self.runs.metric == "loss" else f"{self.runs.metric} "
        self.target.value = "" if self.runs.target is None else f"{metric}{self.runs.target}"
        self.target.observe(lambda _: self._aim(), "value")
        return self.target

    @property
    def usual(self) -> list[str]:
        """Columns with a value, in order. They are shown unless the user chose others."""
        names = dict.fromkeys((*_FIRST_COLUMNS, *self.runs.differing, *_COLUMNS))
        return [name for name in names if name in _FIXED_COLUMNS or _filled(self.runs.table.get(name))]

    def pick(self, names: Sequence[str]) -> None:
        """Show these columns. If there are none, show the usual ones."""
        self.picked = tuple(names)
        self._draw()

    @guarded
    def fill(self, runs: Runs) -> None:
        """Show a table. Selected runs stay selected."""
        with self._lock:
            marked = self._folders()
            self.runs = replace(runs, table=_dated(runs.table))
            self._filled()
            self._draw(marked)

    def _asked(self) -> None:
        """Send a column by which the user filters or sorts, if the page lacks it."""
        if any(name not in self.grid.rows and name in self.runs.table for name in self.grid.used):
            self._draw()

    def _draw(self, marked: Sequence[str] | None = None) -> None:
        with self._lock:
            marked = self._folders() if marked is None else marked
            table = self.runs.table
            away = table["archived"].astype(bool) if len(table) and "archived" in table else None
            shown = table if self.grid.archived or away is None else table[~away]
            places = {folder: place for place, folder in enumerate(shown["folder"])}
            self.shown = list(shown.index)
            rows = [places[folder] for folder in marked if folder in places]
            columns = [name for name in self.picked or self.usual if name in table]
            target = "" if self.runs.target is None else f"{self.runs.metric} {self.runs.target:g}"
            self.grid.draw(shown, columns, rows, self.picked, target)
            self._marked()  # some of the selected runs may no longer exist
            states = table["state"].value_counts().items() if len(table) else ()
            counts = ", ".join(f"{n:,} {state}" for state, n in states)
            root = self.runs.root
            where = f" in {root.absolute()}" if root and not root.name.startswith(PREFIX) else ""
            noun = "run" if len(table) == 1 else "runs"
            self._say(f"{len(table):,} {noun}{where}{f': {counts}' if counts else ''}")

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

    def select(self, *names: str) -> None:
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


def _filled(column: pd.Series[Any] | None) -> bool:
    """Return whether a column has a value."""
    return column is not None and not (column.isna() | (column.astype(object) == "")).all()


def _dated(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table in which every run has a date: that of its notes, else that of its folder's last change."""
    if not len(table) or "when" not in table:
        return table
    return table.assign(
        when=[when or _changed(folder) for when, folder in zip(table["when"], table["folder"], strict=True)]
    )


def _changed(folder: str) -> str:
    try:
        return datetime.fromtimestamp(Path(folder).stat().st_mtime).isoformat(timespec="seconds")
    except OSError:  # a planned run has no folder yet
        return ""
