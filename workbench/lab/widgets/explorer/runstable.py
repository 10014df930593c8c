"""Table of all runs as a widget: sort, filter, select; plot, open a round, run again, resume, compare."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import ipywidgets as w

from workbench.analysis.tables.about import delete, describe
from workbench.analysis.tables.table import Runs
from workbench.core.base.settings import SettingError
from workbench.core.experiment import Experiment
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
    trusted,
)
from workbench.lab.widgets.explorer.runsbar import RunsBar
from workbench.lab.widgets.explorer.runsgrid import RESULTS, Line
from workbench.lab.widgets.explorer.runsviews import MAX_PLOTTED_RUNS, RunsViews, experiment_in
from workbench.mpi.running.real import resume

# a row's menu, see js/grid.js; states: run states in which an entry is offered
MENU: list[dict[str, Any]] = [
    {"key": "round", "text": "Open a round", "states": ["done", "stopped"]},
    {"key": "live", "text": "Show on the live plot", "states": ["done", "stopped"]},
    {"key": "use", "text": "Use these settings"},
    {"key": "again", "text": "Run again"},
    {
        "key": "resume",
        "text": "Resume",
        "states": ["running", "stopped", "interrupted", "failed"],
        "real": True,
    },
    {"key": "copy", "text": "Copy as code"},
    {"key": "archive", "text": "Archive", "other": "Restore"},
    {"key": "delete", "text": "Delete …", "danger": True},
]
FORMS = {"CSV": "csv", "Parquet": "parquet", "MLflow database": "mlflow", "RO-Crate": "ro-crate"}


class RunsTable(RunsViews):
    """Table of runs, with one row for each run. The selected runs are plotted together.

    The search takes words. Filters take ranges and texts for any column. Notes are written into the runs' folders.

    runs: result of `wb.runs`, or a folder. show: shows runs that are started here (default: a live plot below).
    use: function that takes over the settings of a run. Without it, the action is not offered.

    >>> import tempfile, workbench as wb
    >>> folder = tempfile.mkdtemp()
    >>> _ = wb.run(wb.Experiment(rounds=5)).save(f"{folder}/one")
    >>> shown = RunsTable(folder)
    >>> _ = shown.wait()
    >>> shown.select("one")
    >>> shown.traces()[0].label, shown.plot.label
    ('CR', 'Training loss versus time')
    """

    def __init__(
        self,
        runs: Runs | str | Path = "runs",
        show: Callable[[Sequence[Run]], None] | None = None,
        use: Callable[[Experiment], None] | None = None,
    ) -> None:
        super().__init__(runs, show)
        self._use = use
        self._drawn: list[str] = []  # folders of the runs that were selected at the last drawing
        self.grid.on_message["act"] = self.act
        self.grid.actions = [each for each in MENU if use is not None or each["key"] != "use"]
        folded = [self._words(), self._means(), self._exports(), self._confirm()]
        above = [Sheet(), self.message, self._bar(), *folded, self.bar, self.grid, self.note]
        # forms and results that the user requested are above the curves; the curves are always shown
        below = [self.found, self.text, self.round, self.player, self.live, self.metric, self.plot]
        self.children = [*above, *below]
        self._hide()
        self._fold()
        self.acts.renew(())
        if isinstance(runs, Runs):
            self.fill(runs)
        else:
            self.again()

    def _filled(self) -> None:
        numbers = [str(n) for n in self.runs.table.select_dtypes("number") if n not in self.runs.settings]
        offered(self.of, sorted(numbers, key=lambda name: name not in RESULTS))
        if list(self.by.options) != list(self.runs.settings):
            self.by.options = self.runs.settings

    # ---------------------------------------------------------------- what is above the rows

    def _bar(self) -> w.Widget:
        acts: dict[str, Callable[[], None]] = {}
        acts |= {"means": lambda: self._fold(self.grouping), "export": lambda: self._fold(self.exporting)}
        acts |= {"tag": lambda: self._fold(self.words), "refresh": self.again, "clear": self.select}
        acts |= {"compare": self.differ, "resume": self.resume, "live": self.show}
        acts |= {"archive": self.archive, "delete": self.ask}
        self.acts: RunsBar = RunsBar(self._aims(), acts, self._button)
        self.trust = self.acts.trust
        return self.acts

    def _fold(self, wanted: w.Widget | None = None) -> None:
        """Show or hide one of the rows of fields below the bar. Hide the others."""
        for each in (self.words, self.grouping, self.exporting):
            was = each.layout.display == "none"
            seen(was and each is wanted, each)

    def _confirm(self) -> w.Widget:
        self.question = w.HTML()
        answers = (
            self._button("Delete for good", self.delete).add_class("wb-danger"),
            self._button("Cancel", self.forget),
        )
        self.confirm = row(self.question, *answers)
        return self.confirm

    def _button(self, label: str, call: Callable[[], None], tooltip: str = "") -> w.Button:
        """Make a button. A click removes the message of an earlier click."""

        def press() -> None:
            self.report("")
            call()

        return button(label, press, tooltip)

    # ---------------------------------------------------------------- actions on runs

    def act(self, action: str, row: int) -> None:
        """Select one run, and do the action of its menu."""
        self.report("")
        self.grid.selected_rows = [row]
        calls = {
            "round": self.look,
            "live": self.show,
            "use": self.use,
            "again": self.rerun,
            "resume": self.resume,
        }
        calls |= {"copy": self.copy, "archive": self.archive, "delete": self.ask}
        calls[action]()

    @guarded
    def use(self) -> None:
        """Take over the settings of the selected run."""
        (run_row,) = self._some(1)
        if self._use is not None:
            self._use(experiment_in(run_row))

    def _marked(self) -> None:
        with self._lock:
            if (marked := self._folders()) == self._drawn:
                return
            self._drawn, rows = marked, self.chosen
        self._hide()
        self.acts.renew(rows)
        if not rows or self.grouping.layout.display != "none":
            self._fold()
        if len(rows) == 1:
            self.name.value, self.about.value = str(rows[0]["name"] or ""), str(rows[0]["note"] or "")
            self.tags.value = str(rows[0]["tags"] or "")
        self._plot()

    @guarded
    def rerun(self) -> None:
        """Start the experiments of the selected runs again, and show them live."""
        rows, trust = self._some(MAX_PLOTTED_RUNS), trusted(self.trust)
        with self._asking_for_trust():
            self._show([_again(row, trust) for row in rows])

    @contextmanager
    def _asking_for_trust(self) -> Iterator[None]:
        """If a run that names code is rejected in this context, offer the checkbox for trust."""
        try:
            yield
        except SettingError:
            seen(True, self.trust)
            raise

    @guarded
    def resume(self) -> None:
        """Resume the selected run."""
        (run_row,) = self._some(1)
        with self._asking_for_trust():
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
        seen(False, self.trust)
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
        self.words = row(*fields, self._button("Write", self.write, "into the selected runs' folders"))
        return self.words

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
            # notes on a run of a sweep are stored in the run's own folder, above the folder of the trace
            folder = Path(run_row["folder"])
            describe(folder if folder.is_dir() else folder.parent, **notes(run_row))
        self.again()
        more = f" and {len(rows) - 5:,} more" if len(rows) > 5 else ""
        self._say(f"{done}: {', '.join(run_row['run'] for run_row in rows[:5])}{more}")

    def _means(self) -> w.Widget:
        group = self._button("Group", self.group, "mean and band over the runs of each group")
        self.grouping = row(self.of, self.by, group)
        return self.grouping

    def _exports(self) -> w.Widget:
        self.form = w.Dropdown(description="Export as", options=FORMS)
        hint = "a new file, or a folder"
        self.path = w.Text(description="to", placeholder=hint, continuous_update=False)
        export = self._button("Export", self.export, "write the selected runs, or all where none is selected")
        self.exporting = row(self.form, self.path, export)
        return self.exporting

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
    """Run an experiment again, if the code that its folder names may run."""
    with (
        runnable(f, trust)
        if (f := Path(run_row["folder"])).is_dir()
        else nullcontext(experiment_in(run_row)) as e
    ):
        return start(e, run_row["engine"])
