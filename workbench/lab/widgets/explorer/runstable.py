"""The table of all runs as a widget: sort, filter, mark; plot, look into a round, run again, go on, compare."""

import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from threading import RLock, Thread
from typing import Any

import ipywidgets as w
import pandas as pd

from workbench.analysis.tables.about import delete, describe
from workbench.analysis.tables.status import Status
from workbench.analysis.tables.table import LazyRuns, Runs
from workbench.core.base.settings import SettingError
from workbench.core.base.text import duration
from workbench.core.base.type_checks import span
from workbench.core.experiment import Experiment, described
from workbench.core.running.run import Run, recorded
from workbench.core.running.start import start
from workbench.core.trace.definitions import experiment_of
from workbench.core.trace.trace import Trace
from workbench.core.trace.trust import runnable
from workbench.lab.figures.gallery.bands import bands
from workbench.lab.figures.gallery.convergence import convergence
from workbench.lab.widgets.assets import Sheet
from workbench.lab.widgets.callbacks import (
    Pane,
    button,
    fields_about,
    guarded,
    offered,
    progress,
    row,
    seen,
    sentence,
    trust_box,
    trusted,
)
from workbench.lab.widgets.explorer.commands import papermill_command, yaml_of
from workbench.lab.widgets.explorer.grid import Grid
from workbench.lab.widgets.explorer.tables import table
from workbench.lab.widgets.forms.fields import number
from workbench.lab.widgets.plots.liveplot import LivePlot
from workbench.lab.widgets.plots.player import Player
from workbench.lab.widgets.plots.plot import Plot
from workbench.mpi.running.real import resume

MOST, MANY = 12, 10**6  # runs that are plotted together; that words are written about
SOON, SHARE = 1.0, 0.2  # s until one sees how far reading is; of the time may go into showing what is read
Line = dict[str, Any]  # a row of the table
_ALWAYS = ("run", "state", "scheme", "workers")
_THEN = ("straggler_fraction", "load", "time", "loss", "time_to", "rounds_done", "tags", "note", "error")
FORMS = {"CSV": "csv", "Parquet": "parquet", "MLflow's file store": "mlflow", "RO-Crate": "ro-crate"}


class RunsTable(Pane):
    """The table of runs, one row each; marked rows are plotted on one axis at once.

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
        super().__init__()
        self.runs = runs if isinstance(runs, Runs) else LazyRuns(runs).runs()
        self._lock, self._turn, self._filling = RLock(), 0, False
        self._thread: Thread | None = None
        self._offered = set[str]()  # columns that were shown without being asked for
        self.shown: list[int] = []  # rows of the table, as they stand in the grid
        self._drawn: list[str] = []  # folders of those that were marked when something was last made of it
        self._show = show or self._below
        self.bar, self.found = w.HTML(), w.HTML()
        self.live, self.plot, self.player = LivePlot(), Plot(), Player()
        self.text = w.Textarea(description="Text", rows=8, layout={"width": "auto"})
        self.round = w.BoundedIntText(description="Round", value=0, max=0)
        self.round.observe(lambda _: self._play(), "value")
        self.grid = Grid()
        self.grid.observe(lambda _: self._marked(), "selected_rows")
        above = [Sheet(), self.message, self.bar, self.note, self._columns(), self.grid]
        # What was asked for stands above the curves, which are there anyhow.
        below = [self.found, self.text, self.round, self.player, self.live, self.plot]
        self.children = [*above, self._actions(), self._choices(), self._words(), *below]
        self._hide()
        if isinstance(runs, Runs):
            self.fill(runs)
        else:
            self.again()

    # ---------------------------------------------------------------- the grid

    def _columns(self) -> w.Widget:
        self.columns = w.SelectMultiple(description="Columns", rows=8)
        self.pinned = w.SelectMultiple(description="Pinned", rows=8)
        self.archived = w.Checkbox(description="Show archived", indent=False, layout={"width": "160px"})
        for part in (self.columns, self.pinned, self.archived):
            part.observe(lambda _: self._draw(), "value")
        lists = row(self.columns, self.pinned)
        about = "choose which columns are shown, and which stay in sight"
        self.choose = w.ToggleButton(description="Columns …", tooltip=about)
        self.choose.observe(lambda change: seen(change["new"], lists), "value")
        seen(False, lists)
        self.target = w.Text(description="Target", placeholder="loss, for time_to", continuous_update=False)
        self.target.tooltip = "adds time_to: when the loss was first at or below this"
        self.target.value = "" if self.runs.target is None else str(self.runs.target)
        self.target.observe(lambda _: self._aim(), "value")
        again = button("Refresh", self.again, "read the folders again")
        return w.VBox([row(again, self.choose, self.target, self.archived), lists])

    @property
    def _usual(self) -> list[str]:
        """Columns that are shown as long as nobody chooses others, in order."""
        return list(dict.fromkeys((*_ALWAYS, *self.runs.differing, *_THEN)))

    def fill(self, runs: Runs) -> None:
        """Show a table that was read; usual columns that are new are shown, too, and marked runs stay so."""
        with self._lock:
            marked = self._folders()
            self.runs = runs
            columns = {str(name): column for name, column in self.runs.table.items()}
            held = [name for name, c in columns.items() if not (c.isna() | (c.astype(object) == "")).all()]
            chosen = {*self.columns.value, *(name for name in self._usual if name not in self._offered)}
            self._offered |= {name for name in self._usual if name in held}
            pinned = self.pinned.value if self.columns.options else ("run",)
            self._filling = True  # all columns at once: every table that is drawn is sent
            for menu, names in ((self.columns, chosen), (self.pinned, pinned)):
                if list(menu.options) != held:
                    menu.value = ()  # the page looks for what is chosen among the new ones at once
                    menu.options = held
                menu.value = [name for name in held if name in names]
            numbers = [str(n) for n in self.runs.table.select_dtypes("number") if n not in self.runs.settings]
            offered(self.of, sorted(numbers, key=lambda name: name not in _THEN[2:4]))
            if list(self.by.options) != list(self.runs.settings):
                self.by.options = self.runs.settings
            self._filling = False
            self._draw(marked)

    def _draw(self, marked: Sequence[str] | None = None) -> None:
        with self._lock:
            if self._filling:
                return
            marked = self._folders() if marked is None else marked
            table = self.runs.table
            kept = table if self.archived.value or not len(table) else table[~table["archived"].astype(bool)]
            places = {folder: place for place, folder in enumerate(kept["folder"])}
            chosen, pinned = self.columns.value or ("run",), self.pinned.value
            first = [name for name in self.columns.options if name in chosen and name in pinned]
            ordered = dict.fromkeys([*first, *(name for name in self._usual if name in chosen), *chosen])
            self.shown = list(kept.index)
            rows = [places[folder] for folder in marked if folder in places]
            self.grid.draw(kept, list(ordered), len(first), rows)
            self._marked()  # some may be gone
            states = table["state"].value_counts().items() if len(table) else ()
            counts = ", ".join(f"{n:,} {state}" for state, n in states)
            where = str(self.runs.root.absolute()) if self.runs.root else "memory"
            self._say(
                f"{len(table):,} {'run' if len(table) == 1 else 'runs'} in {where}{f': {counts}' if counts else ''}"
            )

    @guarded
    def _aim(self) -> None:
        """Read when the loss was first at or below what was typed."""
        target = number(text) if (text := self.target.value.strip()) else None
        if isinstance(target, str):
            raise SettingError(f"target = {text!r}: is not a number; write a loss such as 0.1, or nothing")
        self.report("")
        self.runs = replace(self.runs, target=target)
        self.again()

    @guarded
    def again(self) -> None:
        """Read the folders again; returns once that is done, or soon: what is read later is shown as it comes."""
        if self.runs.root is None:
            return
        self._turn += 1
        reading = LazyRuns(self.runs.root, self.runs.target, self.runs.metric)
        work = (reading, self._turn)
        self._thread = Thread(target=self._follow, args=work, name="workbench-table", daemon=True)
        self._thread.start()
        self._thread.join(SOON)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until all is read; says whether it is."""
        if self._thread is not None:
            self._thread.join(timeout)
        return self._thread is None or not self._thread.is_alive()

    @guarded
    def _follow(self, reading: LazyRuns, turn: int) -> None:
        """Read in a thread, say how far it is, and show what is read where that is more than is shown."""
        began = told = time.monotonic()
        due = began + SOON
        try:
            for count in reading:
                if turn != self._turn:
                    return
                if (now := time.monotonic()) - told > SOON / 2:
                    told, left = now, (now - began) * (len(reading) / count - 1)
                    words = f"{count:,} of {len(reading):,} runs read; about {duration(left)} left"
                    self.bar.value = progress("runs that are read", words, count / len(reading))
                if now > due and count > len(self.runs):
                    self._take(reading, turn)
                    due = time.monotonic() + max(SOON, (time.monotonic() - now) * (1 / SHARE - 1))
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
        """Mark runs by name, as clicks do."""
        with self._lock:
            rows = {self.runs.table.at[i, "run"]: place for place, i in enumerate(self.shown)}
            self.grid.selected_rows = [rows[name] for name in names]

    @property
    def chosen(self) -> list[Line]:
        """The rows that are marked."""
        found = self._rows().to_dict("records")
        return [{str(name): value for name, value in line.items()} for line in found]

    def _rows(self) -> pd.DataFrame:
        rows = [self.shown[i] for i in self.grid.selected_rows if i < len(self.shown)]
        return self.runs.table.loc[rows]

    def _folders(self) -> list[str]:
        return list(self._rows()["folder"])

    def _some(self, most: int = MANY, least: int = 1) -> list[Line]:
        rows = self.chosen
        if not least <= len(rows) <= most:
            wanted = f"{least} or more" if most == MANY else span(least, most)
            how = f"click on {wanted} in the table, a second click unmarks"
            raise SettingError(f"runs: {len(rows)} are marked; {how}")
        return rows

    # ---------------------------------------------------------------- what one does with runs

    def _actions(self) -> w.Widget:
        offered = {
            "Select all filtered": (
                self.grid.mark_found,
                "mark all runs that the search and the conditions leave",
            ),
            "Clear selection": (self.mark, "mark none"),
            "Look into a round": (self.look, "one round of the selected run in slow motion"),
            "Show on the live plot": (self.show, "the selected runs beside those that run"),
            "Run again": (self.rerun, "start the selected runs' experiments anew"),
            "Resume": (self.resume, "resume the selected real run, or follow it if it is under way"),
            "What differs": (self.differ, "settings and results in which two selected runs differ"),
            "As text": (self.copy, "the selected run as YAML and as a papermill line"),
            "Archive": (self.archive, "put the selected runs away, or bring them back; nothing is deleted"),
            "Delete": (self.ask, "asks before it deletes"),
        }
        self.question = w.HTML()
        answers = self._button("Delete for good", self.delete), self._button("Cancel", self.forget)
        self.confirm = row(self.question, *answers)
        self.forget()
        self.trust = trust_box("selected runs")
        buttons = [self._button(words, *how) for words, how in offered.items()]
        return w.VBox([row(*buttons, self.trust), self.confirm])

    def _button(self, words: str, call: Callable[[], None], tooltip: str = "") -> w.Button:
        """A button; what an earlier one complained about is over."""

        def press() -> None:
            self.report("")
            call()

        return button(words, press, tooltip)

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
    def _plot(self) -> None:
        """Draw the curves of what is marked, at once."""
        self.report("")
        if found := self.traces():
            self.plot.show(lambda theme: convergence(found, theme=theme))
        if not (rows := self.chosen):
            return
        said = [f"{len(rows):,} marked", *(f"{row['run']}: {row['error']}" for row in rows if row["error"])]
        if sum(row["state"] == "done" for row in rows) > MOST:
            said[0] += f", the first {MOST} are drawn"
        self._say("; ".join(said[:4]))

    def traces(self) -> list[Trace]:
        """Those of the selected runs that have rounds, at most so many; says which cannot be read."""
        found, bad = [], []
        for line in [each for each in self.chosen if each["state"] == "done"][:MOST]:
            try:
                found.append(Trace.load(line["folder"]))
            except SettingError as error:
                bad.append(str(error))
        if bad:
            self.report("; ".join(bad))
        return found

    @guarded
    def look(self) -> None:
        """Show a round of the selected run in slow motion."""
        self._some(1)
        trace = next(iter(self.traces()), None)
        if trace is None:
            raise SettingError(f"run = {self.chosen[0]['run']!r}: has no rounds to look into")
        self.round.max = len(trace.columns["time"]) - 1
        seen(True, self.round)
        self._play()

    @guarded
    def _play(self) -> None:
        found = self.traces()
        if found and self.round.layout.display != "none":
            self.player.play(found[0], self.round.value)

    @guarded
    def show(self) -> None:
        """Show the selected runs on the live plot."""
        self._some(MOST)
        self._show([recorded(trace) for trace in self.traces()])

    def _below(self, runs: Sequence[Run]) -> None:
        seen(True, self.live)
        self.live.show(runs, keep=True)

    @guarded
    def rerun(self) -> None:
        """Start the experiments of the selected runs again; they are shown as they go on."""
        rows, trust = self._some(MOST), trusted(self.trust)
        self._show([_again(row, trust) for row in rows])

    @guarded
    def resume(self) -> None:
        """Go on with the selected run."""
        (line,) = self._some(1)
        self._show([resume(line["folder"], trust=trusted(self.trust))])
        self._say(f"goes on in {line['folder']}")

    @guarded
    def differ(self) -> None:
        """Show in what the two selected runs differ, and nothing else."""
        one, other = (row["run"] for row in self._some(2, least=2))
        found = self.runs.diff(one, other)
        rows = [[str(name), *map(_short, pair)] for name, *pair in found.itertuples(name=None)]
        self.found.value = table(["", one, other], rows, f"what differs between {one} and {other}")

    @guarded
    def copy(self) -> None:
        """Show the selected run as YAML, and the papermill line that runs it."""
        (line,) = self._some(1)
        e = _experiment(line)
        cluster = line["cluster"] if isinstance(line["cluster"], str) else ""
        self.text.value = f"{yaml_of(e)}\n# {papermill_command(e, line['engine'], cluster)}\n"
        seen(True, self.text)

    @guarded
    def archive(self) -> None:
        """Put the selected runs away; those that are away come back."""
        rows = self._some()
        away = not all(row["archived"] for row in rows)
        self._write(rows, lambda _: {"archived": away}, "archived" if away else "brought back")

    @guarded
    def ask(self) -> None:
        """Ask before anything is deleted."""
        rows = self._some()
        more = f" and {len(rows) - 5} more" if len(rows) > 5 else ""
        names = ", ".join(row["run"] for row in rows[:5]) + more
        self.question.value = sentence(f"Delete {names} from the disk? This cannot be undone.", bad=True)
        seen(True, self.confirm)

    def forget(self) -> None:
        """Take the question away; nothing is deleted."""
        seen(False, self.confirm)

    @guarded
    def delete(self) -> None:
        """Delete the selected runs, after the question."""
        if self.confirm.layout.display == "none":
            raise SettingError("runs: nothing was asked; press Delete first")
        rows = self._some()
        self.forget()
        try:
            for line in rows:
                delete(Path(line["folder"]))
        finally:
            self.again()
        self._say(f"deleted: {', '.join(row['run'] for row in rows)}")

    # ---------------------------------------------------------------- words, groups

    def _words(self) -> w.Widget:
        self.name, self.about, self.tags = fields = fields_about()
        return row(*fields, self._button("Write", self.write, "into the selected runs' folders"))

    @guarded
    def write(self) -> None:
        """Write name, note and tags into the selected run; into several: the tags, beside those they have."""
        rows = self._some()
        if len(rows) == 1:
            name = {"name": self.name.value} if self.name.value.strip() else {}
            self._write(rows, lambda _: {"note": self.about.value, "tags": [self.tags.value], **name})
        else:
            self._write(rows, lambda line: {"tags": [str(line["tags"] or ""), self.tags.value]})

    def _write(
        self, rows: Sequence[Line], words: Callable[[Line], dict[str, Any]], done: str = "written"
    ) -> None:
        for line in rows:
            folder = Path(line["folder"])  # of a sweep's run that has none yet: words lie in the one above
            describe(folder if folder.is_dir() else folder.parent, **words(line))
        self.again()
        more = f" and {len(rows) - 5:,} more" if len(rows) > 5 else ""
        self._say(f"{done}: {', '.join(line['run'] for line in rows[:5])}{more}")

    def _choices(self) -> w.Widget:
        self.of = w.Dropdown(description="Mean of", options=[])
        self.by = w.SelectMultiple(description="by", options=[], rows=3)
        self.form = w.Dropdown(description="Export as", options=FORMS)
        hint = "a new file, or a folder"
        self.path = w.Text(description="to", placeholder=hint, continuous_update=False)
        group = self._button("Group", self.group, "mean and band over the runs of each group")
        export = self._button("Export", self.export, "write the selected runs, or all where none is marked")
        return w.VBox([row(self.of, self.by, group), row(self.form, self.path, export)])

    @guarded
    def export(self) -> None:
        """Write the selected runs, or all that are shown, in the chosen form."""
        if not (text := self.path.value.strip()):
            raise SettingError("to: nothing is written there; name a new file, or a folder, such as runs.csv")
        path = Path(text).expanduser()
        if path.exists():
            raise SettingError(f"to = {text!r}: exists already; choose a new name")
        rows = self._rows() if self.grid.selected_rows else self.runs.table.loc[self.shown]
        found = replace(self.runs, table=rows)
        self._say(f"{len(rows):,} runs written: {found.export(path, self.form.value).absolute()}")

    @guarded
    def group(self) -> None:
        """Mean and band of a result over the runs of each group, usually seeds, as a table and drawn."""
        self._hide()
        found = self.runs.mean(self.of.value, list(self.by.value) or None)
        rows = [[_short(value) for value in line] for line in found.to_numpy(object)]
        by = found.attrs["by"]
        about = f"mean of {self.of.value}, with its 95 % band"
        self.found.value = table([str(name) for name in found], rows, about, len(by))
        if by and found["n"].any():
            self.plot.show(lambda theme: bands(found, theme=theme))

    def _hide(self) -> None:
        self.forget()
        self.found.value = self.text.value = ""
        seen(False, self.text, self.plot, self.round, self.player)
        seen(bool(self.live.runs), self.live)

    def _say(self, text: str) -> None:
        self.note.value = sentence(text)


def _experiment(line: Line) -> Experiment:
    """What was run, or was to be."""
    folder = Path(line["folder"])
    status = None if folder.is_dir() else Status.read(folder.parent)
    return experiment_of(folder) if status is None else described(status.spec)


def _again(line: Line, trust: bool) -> Run:
    """Run it again, where what its folder names may be run."""
    with runnable(f, trust) if (f := Path(line["folder"])).is_dir() else nullcontext(_experiment(line)) as e:
        return start(e, line["engine"])


def _short(value: Any) -> str:
    if value is None or value != value:
        return "–"
    return f"{value:.5g}" if isinstance(value, float) else str(value)
