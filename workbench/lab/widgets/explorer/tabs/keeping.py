"""Tab to save runs, and to export figures, data and settings."""

import re
from collections.abc import Sequence
from pathlib import Path
from threading import Thread
from typing import TypeVar

import ipywidgets as w
import plotly.graph_objects as go

from workbench.analysis.tables.about import keep
from workbench.analysis.tables.exports import export
from workbench.core.base.files import write_file
from workbench.core.base.settings import SettingError
from workbench.core.experiment import Experiment
from workbench.core.trace.trace import Trace
from workbench.lab.figures.inputs import labels
from workbench.lab.figures.save import save
from workbench.lab.widgets.callbacks import button, fields_about, guarded, offered, row, sentence
from workbench.lab.widgets.explorer.ahead import names_of
from workbench.lab.widgets.explorer.commands import papermill_command, yaml_of
from workbench.lab.widgets.explorer.tab import Drawing, Tab
from workbench.lab.widgets.explorer.tabs.history import History
from workbench.lab.widgets.explorer.tabs.running import Running

T = TypeVar("T")


class Keeping(Tab):
    """Tab that exports to the folder `root`: run folders, and `exports` with figures, tables and settings."""

    key, title, place = "keeping", "Save / export", 3

    def parts(self) -> list[w.Widget]:
        self.root = self.desk.folder
        self.drawings: dict[str, Drawing] = {}
        self.traces: list[Trace] = []
        self.experiments: list[Experiment] = []
        return [self.note, *self._export_controls(), *self._run_controls()]

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
        return [
            _heading("Figures, data, settings"),
            row(self.figure, self.format, self.theme, button("Save figure", self.save_figure)),
            row(self.data, self.data_format, button("Save data", self.save_data)),
            row(self.setting, button("Save setting", self.save_setting)),
            row(button("Report", self.save_report)),
            self.yaml,
            self.command,
        ]

    @guarded
    def opened(self) -> None:
        """Offer the figures that can be saved now, the curves of the runs first."""
        running = self.desk.tab(Running)
        tabs = [running, *(tab for tab in self.desk.tabs if tab is not running)]
        self.drawings = {name: drawing for tab in tabs for name, drawing in tab.figures().items()}
        self.traces = running.traces
        names = labels(self.traces)
        offered(self.figure, list(self.drawings))
        offered(self.data, names)
        offered(self.run, names)
        self._settings()

    def _settings(self) -> None:
        self.experiments = list(self.desk.experiments)
        offered(self.setting, names_of(self.experiments))
        self._write_setting()

    over = opened

    def changed(self) -> None:
        """Show the current settings as text if the tab has been opened before."""
        if self.setting.options:
            self._settings()

    def _write_setting(self) -> None:
        chosen, running = _chosen(self.setting, self.experiments), self.desk.tab(Running)
        self.yaml.value = self.command.value = ""
        if chosen is not None:
            self.yaml.value = yaml_of(chosen)
            engine, cluster = running.engine.value, running.cluster.value or ""
            self.command.value = papermill_command(chosen, engine, cluster)

    @guarded
    def save_figure(self) -> None:
        """Write the chosen figure in a thread, because a browser takes some seconds for static pictures."""
        if self.figure.value is None:
            raise SettingError("figure: there is none to save yet")
        figure = self.drawings[self.figure.value](self.theme.value)
        path = self._path(self.figure.value, self.format.value)
        self._say(f"writing {path} …")
        Thread(target=self._save, args=(figure, path), name="workbench-save", daemon=True).start()

    @guarded
    def _save(self, figure: go.Figure, path: Path) -> None:
        self._say(f"written: {save(figure, path)}")

    @guarded
    def save_data(self) -> None:
        trace = _chosen(self.data, self.traces)
        if trace is None:
            raise SettingError("data: no run is over yet; run something first")
        path = self._path(f"{self.data.value} rounds", self.data_format.value)
        self._say(f"written: {export(trace.rounds, path)}")

    @guarded
    def save_setting(self) -> None:
        """Write the chosen scheme's settings as YAML, with the papermill command beside them."""
        chosen = _chosen(self.setting, self.experiments)
        if chosen is None:
            raise SettingError("setting: none can be used; fix the fields in red")
        path = chosen.write(self._path(str(self.setting.value), "yaml"))
        script = path.with_suffix(".sh")
        write_file(script, self.command.value + "\n")
        self._say(f"written: {path} and {script.name}; workbench run {path} runs it")

    @guarded
    def save_report(self) -> None:
        """Write one page of the finished runs, or of the forecast if nothing has run, in a thread."""
        from workbench.lab.batch.report_page import report  # loads pandas

        source: Sequence[Trace] | Sequence[Experiment] = self.desk.tab(Running).traces or list(
            self.desk.experiments
        )
        if not source:
            raise SettingError("report: there is nothing to report; fix the fields in red")
        path = self._path("report", "html")
        self._say(f"writing {path} …")
        write = guarded(lambda tab: tab._say(f"written: {report(source, path)}"))
        Thread(target=write, args=(self,), name="workbench-report", daemon=True).start()

    def _path(self, name: str, suffix: str) -> Path:
        """Return a new path in the folder of exports."""
        folder = self.root / "exports"
        folder.mkdir(parents=True, exist_ok=True)
        slug = re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-")
        numbered = (folder / f"{slug}{f'-{i}' if i else ''}.{suffix}" for i in range(10**6))
        return next(path for path in numbered if not path.exists())

    def _say(self, text: str) -> None:
        self.report("")
        self.note.value = sentence(text)

    # ---------------------------------------------------------------- runs

    def _run_controls(self) -> list[w.Widget]:
        self.run = w.Dropdown(description="Run")
        self.name, self.about, self.tags = fields = fields_about()
        keep = button("Save run", self.keep_run)
        return [_heading("Save a run"), row(self.run, *fields, keep)]

    @guarded
    def keep_run(self) -> None:
        trace = _chosen(self.run, self.traces)
        if trace is None:
            raise SettingError("run: no run is over yet; run something first")
        found = keep(trace, self.root, self.name.value, self.about.value, self.tags.value.split(","))
        self._say(f"kept: {found}")
        self.desk.tab(History).turn_to(self.root)


def _heading(text: str) -> w.HTML:
    return w.HTML(f'<div class="wb wb-heading">{text}</div>')


def _chosen(menu: w.Dropdown, values: Sequence[T]) -> T | None:
    return values[menu.index] if menu.index is not None and menu.index < len(values) else None
