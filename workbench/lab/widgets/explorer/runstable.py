"""Table of all runs as a widget: sort, filter, select; plot, open a round, run again, resume, compare."""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import ipywidgets as w

from workbench.analysis.tables.about import delete, describe
from workbench.analysis.tables.table import Runs
from workbench.core.base.settings import SettingError
from workbench.core.running.run import Run
from workbench.core.running.start import start
from workbench.core.trace.trust import runnable
from workbench.lab.widgets.assets import Sheet
from workbench.lab.widgets.callbacks import (
    button,
    fields_about,
    guarded,
    offered,
    row,
    seen,
    sentence,
    trust_box,
    trusted,
)
from workbench.lab.widgets.explorer.runsgrid import RESULTS, Line
from workbench.lab.widgets.explorer.runsviews import MAX_PLOTTED_RUNS, RunsViews, experiment_in
from workbench.mpi.running.real import resume

FORMS = {"CSV": "csv", "Parquet": "parquet", "MLflow database": "mlflow", "RO-Crate": "ro-crate"}


class RunsTable(RunsViews):
    """Table of runs, with one row for each run. The selected runs are plotted together.

    Search takes words; conditions take ranges and texts for any column. What is written goes into the runs' folders.

    runs: what `wb.runs` answers, or a folder. show: shows runs that are started here; default: a live plot below.

    >>> import tempfile, workbench as wb
    >>> folder = tempfile.mkdtemp()
    >>> _ = wb.run(wb.Experiment(rounds=5)).save(f"{folder}/one")
    >>> shown = RunsTable(folder)
    >>> _ = shown.wait()
    >>> shown.mark("one")
    >>> shown.traces()[0].label, shown.plot.label
    ('CR', 'Training loss versus wall clock')
    """

    def __init__(
        self, runs: Runs | str | Path = "runs", show: Callable[[Sequence[Run]], None] | None = None
    ) -> None:
        super().__init__(runs, show)
        self._drawn: list[str] = []  # folders of the runs that were selected at the last drawing
        above = [Sheet(), self.message, self.bar, self.note, self._columns(), self.grid]
        # What was requested is above the curves, which are always shown.
        below = [self.found, self.text, self.round, self.player, self.live, self.metric, self.plot]
        self.children = [*above, self._actions(), self._choices(), self._words(), *below]
        self._hide()
        if isinstance(runs, Runs):
            self.fill(runs)
        else:
            self.again()

    def _filled(self) -> None:
        numbers = [str(n) for n in self.runs.table.select_dtypes("number") if n not in self.runs.settings]
        offered(self.of, sorted(numbers, key=lambda name: name not in RESULTS))
        if list(self.by.options) != list(self.runs.settings):
            self.by.options = self.runs.settings

    # ---------------------------------------------------------------- actions on runs

    def _actions(self) -> w.Widget:
        offered = {
            "Select all filtered": (
                self.grid.mark_found,
                "select all runs that match the search and the conditions",
            ),
            "Clear selection": (self.mark, "select none"),
            "Look into a round": (self.look, "one round of the selected run in slow motion"),
            "Show on the live plot": (self.show, "the selected runs beside those that run"),
            "Run again": (self.rerun, "start the selected runs' experiments again"),
            "Resume": (self.resume, "resume the selected real run, or attach to it if it is under way"),
            "What differs": (self.differ, "settings and results in which two selected runs differ"),
            "As text": (self.copy, "the selected run as YAML and as a papermill line"),
            "Archive": (self.archive, "archive the selected runs, or restore them; nothing is deleted"),
            "Delete": (self.ask, "asks before it deletes"),
        }
        self.question = w.HTML()
        answers = self._button("Delete for good", self.delete), self._button("Cancel", self.forget)
        self.confirm = row(self.question, *answers)
        self.forget()
        self.trust = trust_box("selected runs")
        buttons = [self._button(label, *how) for label, how in offered.items()]
        return w.VBox([row(*buttons, self.trust), self.confirm])

    def _button(self, label: str, call: Callable[[], None], tooltip: str = "") -> w.Button:
        """Make a button. A click removes the message of an earlier click."""

        def press() -> None:
            self.report("")
            call()

        return button(label, press, tooltip)

    def _marked(self) -> None:
        with self._lock:
            if (marked := self._folders()) == self._drawn:
                return
            self._drawn, rows = marked, self.chosen
        self._hide()
        if len(rows) == 1:
            self.name.value, self.about.value = str(rows[0]["name"] or ""), str(rows[0]["note"] or "")
            self.tags.value = str(rows[0]["tags"] or "")
        self._plot()

    @guarded
    def rerun(self) -> None:
        """Start the experiments of the selected runs again, and show them live."""
        rows, trust = self._some(MAX_PLOTTED_RUNS), trusted(self.trust)
        self._show([_again(row, trust) for row in rows])

    @guarded
    def resume(self) -> None:
        """Resume the selected run."""
        (run_row,) = self._some(1)
        self._show([resume(run_row["folder"], trust=trusted(self.trust))])
        self._say(f"resumed in {run_row['folder']}")

    @guarded
    def archive(self) -> None:
        """Archive the selected runs, or restore those that are archived."""
        rows = self._some()
        away = not all(row["archived"] for row in rows)
        self._write(rows, lambda _: {"archived": away}, "archived" if away else "restored")

    @guarded
    def ask(self) -> None:
        """Ask the user before runs are deleted."""
        rows = self._some()
        more = f" and {len(rows) - 5} more" if len(rows) > 5 else ""
        names = ", ".join(row["run"] for row in rows[:5]) + more
        self.question.value = sentence(f"Delete {names} from the disk? This cannot be undone.", bad=True)
        seen(True, self.confirm)

    def forget(self) -> None:
        """Remove the question without deleting runs."""
        seen(False, self.confirm)

    def _hide(self) -> None:
        self.forget()
        super()._hide()

    @guarded
    def delete(self) -> None:
        """Delete the selected runs, after the question."""
        if self.confirm.layout.display == "none":
            raise SettingError("runs: nothing was asked; press Delete first")
        rows = self._some()
        self.forget()
        try:
            for run_row in rows:
                delete(Path(run_row["folder"]))
        finally:
            self.again()
        self._say(f"deleted: {', '.join(row['run'] for row in rows)}")

    # ---------------------------------------------------------------- names, notes, tags, groups

    def _words(self) -> w.Widget:
        self.name, self.about, self.tags = fields = fields_about()
        return row(*fields, self._button("Write", self.write, "into the selected runs' folders"))

    @guarded
    def write(self) -> None:
        """Write name, note and tags into the selected run. For several runs, add the tags."""
        rows = self._some()
        if len(rows) == 1:
            name = {"name": self.name.value} if self.name.value.strip() else {}
            self._write(rows, lambda _: {"note": self.about.value, "tags": [self.tags.value], **name})
        else:
            self._write(rows, lambda run_row: {"tags": [str(run_row["tags"] or ""), self.tags.value]})

    def _write(
        self, rows: Sequence[Line], notes: Callable[[Line], dict[str, Any]], done: str = "written"
    ) -> None:
        for run_row in rows:
            # a run of a sweep without a folder: its notes are in the folder above
            folder = Path(run_row["folder"])
            describe(folder if folder.is_dir() else folder.parent, **notes(run_row))
        self.again()
        more = f" and {len(rows) - 5:,} more" if len(rows) > 5 else ""
        self._say(f"{done}: {', '.join(run_row['run'] for run_row in rows[:5])}{more}")

    def _choices(self) -> w.Widget:
        self.form = w.Dropdown(description="Export as", options=FORMS)
        hint = "a new file, or a folder"
        self.path = w.Text(description="to", placeholder=hint, continuous_update=False)
        group = self._button("Group", self.group, "mean and band over the runs of each group")
        export = self._button("Export", self.export, "write the selected runs, or all where none is selected")
        return w.VBox([row(self.of, self.by, group), row(self.form, self.path, export)])

    @guarded
    def export(self) -> None:
        """Write the selected runs, or all shown runs, in the chosen format."""
        if not (text := self.path.value.strip()):
            raise SettingError("to: nothing is written there; name a new file, or a folder, such as runs.csv")
        path = Path(text).expanduser()
        if path.exists():
            raise SettingError(f"to = {text!r}: exists already; choose a new name")
        rows = self._rows() if self.grid.selected_rows else self.runs.table.loc[self.shown]
        found = replace(self.runs, table=rows)
        self._say(f"{len(rows):,} runs written: {found.export(path, self.form.value).absolute()}")


def _again(run_row: Line, trust: bool) -> Run:
    """Run it again, if the code that its folder names may run."""
    with (
        runnable(f, trust)
        if (f := Path(run_row["folder"])).is_dir()
        else nullcontext(experiment_in(run_row)) as e
    ):
        return start(e, run_row["engine"])
