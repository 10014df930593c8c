"""Keeping what is shown: figures, data, settings, and runs with a name."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, TypeVar

import ipywidgets as w

from workbench.base.files import atomic_write
from workbench.base.settings import SettingError
from workbench.experiment import Experiment
from workbench.figures import save
from workbench.figures.inputs import labels
from workbench.trace.table import export
from workbench.trace.trace import Trace
from workbench.widgets.explorer.ahead import names_of
from workbench.widgets.explorer.commands import papermill_command, yaml_of
from workbench.widgets.explorer.kept import Kept, delete, describe, keep, kept_runs
from workbench.widgets.explorer.tables import sentence, table
from workbench.widgets.guard import Pane, guarded

if TYPE_CHECKING:
    import plotly.graph_objects as go

T = TypeVar("T")
Drawing = Callable[[], "go.Figure"]


class Keeping(Pane):
    """Writes below one folder, `root`: run folders, and `exports` with figures, tables and settings."""

    def __init__(self, root: str | Path, reload: Callable[[Sequence[Trace]], None]) -> None:
        self.root, self.reload = Path(root), reload
        self.drawings: Mapping[str, Drawing] = {}
        self.traces: list[Trace] = []
        self.experiments: list[Experiment] = []
        self.engine, self.cluster = "sim", ""
        self.note = w.HTML()
        super().__init__([self.note, *self._export_controls(), *self._run_controls(), *self._list_controls()])
        self.refresh()

    # ---------------------------------------------------------------- figures, data, settings

    def _export_controls(self) -> list[w.Widget]:
        self.figure = w.Dropdown(description="Figure")
        self.format = w.Dropdown(description="as", options=["png", "svg", "pdf", "html"])
        self.theme = w.Dropdown(description="colours", options=["light", "dark"])
        self.data = w.Dropdown(description="Data of")
        self.data_format = w.Dropdown(description="as", options=["parquet", "csv"])
        self.setting = w.Dropdown(description="Setting of")
        self.yaml = w.Textarea(description="YAML", disabled=True, rows=8, layout={"width": "auto"})
        self.command = w.Textarea(description="papermill", disabled=True, rows=4, layout={"width": "auto"})
        self.setting.observe(lambda _: self._write_setting(), "value")
        rows = [
            [self.figure, self.format, self.theme, _button("Save figure", self.save_figure)],
            [self.data, self.data_format, _button("Save data", self.save_data)],
            [self.setting, _button("Save setting", self.save_setting)],
        ]
        return [_heading("Figures, data, settings"), *map(_row, rows), self.yaml, self.command]

    def offer(
        self,
        drawings: Mapping[str, Drawing],
        traces: Sequence[Trace],
        experiments: Sequence[Experiment],
        engine: str = "sim",
        cluster: str = "",
    ) -> None:
        """What can be kept now."""
        self.drawings, self.traces, self.experiments = drawings, list(traces), list(experiments)
        self.engine, self.cluster = engine, cluster
        offered(self.figure, list(drawings))
        names = labels(self.traces)
        offered(self.data, names)
        offered(self.run, names)
        offered(self.setting, names_of(self.experiments))
        self._write_setting()

    def _write_setting(self) -> None:
        chosen = _chosen(self.setting, self.experiments)
        self.yaml.value = "" if chosen is None else yaml_of(chosen)
        self.command.value = "" if chosen is None else papermill_command(chosen, self.engine, self.cluster)

    @guarded
    def save_figure(self) -> None:
        """Write the chosen figure; pictures take a browser some seconds, so that happens in a thread."""
        if self.figure.value is None:
            raise SettingError("figure: there is none to save yet")
        figure, path = self.drawings[self.figure.value](), self._path(self.figure.value, self.format.value)
        self._say(f"writing {path} …")
        Thread(target=self._save, args=(figure, path), name="workbench-save", daemon=True).start()

    @guarded
    def _save(self, figure: go.Figure, path: Path) -> None:
        self._say(f"written: {save(figure, path)}")

    @guarded
    def save_data(self) -> None:
        """Write the rounds of the chosen run."""
        trace = _chosen(self.data, self.traces)
        if trace is None:
            raise SettingError("data: no run is over yet; run something first")
        path = self._path(f"{self.data.value} rounds", self.data_format.value)
        self._say(f"written: {export(trace.rounds, path)}")

    @guarded
    def save_setting(self) -> None:
        """Write the chosen scheme's setting as YAML, and the papermill command beside it."""
        chosen = _chosen(self.setting, self.experiments)
        if chosen is None:
            raise SettingError("setting: none can be used as it stands; mend the fields that are marked")
        path = chosen.write(self._path(str(self.setting.value), "yaml"))
        script = path.with_suffix(".sh")
        with atomic_write(script, "w") as out:
            out.write(self.command.value + "\n")
        self._say(f"written: {path} and {script.name}; workbench run {path} runs it")

    def _path(self, name: str, suffix: str) -> Path:
        """A new file in the folder of exports."""
        folder = self.root / "exports"
        folder.mkdir(parents=True, exist_ok=True)
        slug = re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-")
        numbered = (folder / f"{slug}{f'-{i}' if i else ''}.{suffix}" for i in range(10**6))
        return next(path for path in numbered if not path.exists())

    def _say(self, text: str) -> None:
        self.tell("")
        self.note.value = sentence(text)

    # ---------------------------------------------------------------- runs

    def _run_controls(self) -> list[w.Widget]:
        self.run = w.Dropdown(description="Run")
        whole = {"continuous_update": False}  # sent when the field is left, so before a click on Keep
        self.name = w.Text(description="Name", **whole)
        self.about = w.Text(description="Note", **whole)
        self.tags = w.Text(description="Tags", placeholder="separated by commas", **whole)
        row = [self.run, self.name, self.about, self.tags, _button("Keep run", self.keep_run)]
        return [_heading("Keep a run"), _row(row)]

    def _list_controls(self) -> list[w.Widget]:
        self.filter = w.Text(
            description="Find", placeholder="name, note, tag or scheme", continuous_update=True
        )
        self.kept = w.SelectMultiple(description="Kept runs", rows=8)
        self.kept.layout.width = "auto"
        self.details = w.HTML()
        self.filter.observe(lambda _: self.refresh(), "value")
        self.kept.observe(lambda _: self._describe(), "value")
        buttons = [
            _button("Show", self.show_kept, "show the chosen runs on one axis"),
            _button(
                "Change name, note, tags", self.change, "write the three fields above into the chosen run"
            ),
            _button("Delete", self.ask, "asks before it deletes"),
            _button("Look again", self.refresh, "read the folder again"),
        ]
        self.question = w.HTML()
        self.confirm = _row(
            [self.question, _button("Delete for good", self.delete), _button("Keep them", self.forget)]
        )
        self.confirm.layout.display = "none"
        return [_heading("Kept runs"), self.filter, self.kept, self.details, _row(buttons), self.confirm]

    @guarded
    def keep_run(self) -> None:
        """Write the chosen run's folder."""
        trace = _chosen(self.run, self.traces)
        if trace is None:
            raise SettingError("run: no run is over yet; run something first")
        found = keep(trace, self.root, self.name.value, self.about.value, self.tags.value.split(","))
        self._say(f"kept: {found.folder}")
        self.refresh()

    @guarded
    def refresh(self) -> None:
        """Read the list of kept runs again."""
        wanted = self.filter.value.lower().split()
        runs = [run for run in kept_runs(self.root) if all(word in _text(run).lower() for word in wanted)]
        self.kept.value = ()  # first: the page fails on a choice that is no longer offered
        self.kept.options = [(_line(run), run) for run in runs]
        self._describe()

    @property
    def chosen(self) -> list[Kept]:
        """The runs that are marked in the list."""
        return list(self.kept.value)

    def _describe(self) -> None:
        runs = self.chosen
        self.forget()
        rows = [
            [r.name, r.note, ", ".join(r.tags), r.scheme, r.engine, r.when, str(r.workers), str(r.rounds)]
            for r in runs
        ]
        columns = ["name", "note", "tags", "scheme", "engine", "kept", "workers", "rounds"]
        self.details.value = table(columns, rows, "chosen runs", words=6) if rows else ""
        if len(runs) == 1:
            self.name.value, self.about.value, self.tags.value = (
                runs[0].name,
                runs[0].note,
                ", ".join(runs[0].tags),
            )

    def _some(self) -> list[Kept]:
        if not self.chosen:
            raise SettingError("kept runs: none is chosen; mark one or several in the list")
        return self.chosen

    @guarded
    def show_kept(self) -> None:
        """Load the chosen runs and show them on one axis."""
        traces = [run.load() for run in self._some()]
        self.reload(traces)
        self._say(f"shown: {', '.join(run.name for run in self.chosen)}")

    @guarded
    def change(self) -> None:
        """Write name, note and tags into the chosen run."""
        runs = self._some()
        if len(runs) > 1:
            raise SettingError(
                f"kept runs: {len(runs)} are chosen; choose the one whose name, note or tags change"
            )
        describe(runs[0].folder, self.name.value, self.about.value, self.tags.value.split(","))
        self._say(f"changed: {self.name.value}")
        self.refresh()

    @guarded
    def ask(self) -> None:
        """Ask before anything is deleted."""
        names = ", ".join(run.name for run in self._some())
        self.question.value = sentence(f"Delete {names} from the disk? This cannot be undone.", bad=True)
        self.confirm.layout.display = ""

    def forget(self) -> None:
        """Take the question away; nothing is deleted."""
        self.confirm.layout.display = "none"

    @guarded
    def delete(self) -> None:
        """Delete the chosen runs, after the question."""
        if self.confirm.layout.display == "none":
            raise SettingError("kept runs: nothing was asked; press Delete first")
        runs = self._some()
        self.forget()
        for run in runs:
            delete(run)
        self._say(f"deleted: {', '.join(run.name for run in runs)}")
        self.refresh()


def _line(run: Kept) -> str:
    tags = f" [{', '.join(run.tags)}]" if run.tags else ""
    return f"{run.name} · {run.scheme} on {run.engine}, {run.workers} workers, {run.rounds} rounds · {run.when}{tags}"


def _text(run: Kept) -> str:
    return f"{_line(run)} {run.note}"


def _heading(text: str) -> w.HTML:
    return w.HTML(f'<div class="wb wb-heading">{text}</div>')


def _button(words: str, call: Callable[[], None], tooltip: str = "") -> w.Button:
    button = w.Button(description=words, tooltip=tooltip or words.lower())
    button.layout.width = "auto"
    button.on_click(lambda _: call())
    return button


def _row(children: Sequence[w.Widget]) -> w.HBox:
    row = w.HBox(list(children))
    row.add_class("wb-row")
    return row


def offered(menu: w.Dropdown, names: Sequence[str]) -> None:
    """Offer names, and keep the choice where it is still there; a menu that was empty chooses none by itself."""
    if list(menu.options) == list(names):
        return
    before = menu.value
    menu.options = list(names)
    if names:
        menu.value = before if before in names else names[0]


def _chosen(menu: w.Dropdown, things: Sequence[T]) -> T | None:
    return things[menu.index] if menu.index is not None and menu.index < len(things) else None
