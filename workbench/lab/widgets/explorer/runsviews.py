"""Views of the selected runs below their table: curves, one round, differences, text, means of groups."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import ipywidgets as w

from workbench.analysis.tables.rows import has_rounds
from workbench.analysis.tables.status import Status
from workbench.analysis.tables.table import Runs
from workbench.core.base.settings import SettingError
from workbench.core.experiment import Experiment, described
from workbench.core.running.run import Run, recorded
from workbench.core.trace.definitions import experiment_of
from workbench.core.trace.trace import Trace
from workbench.lab.figures.gallery.bands import bands
from workbench.lab.figures.gallery.convergence import convergence
from workbench.lab.figures.labels import plotted, setting, short, value_text
from workbench.lab.widgets.callbacks import (
    guarded,
    seen,
)
from workbench.lab.widgets.explorer.commands import papermill_command, yaml_of
from workbench.lab.widgets.explorer.runsgrid import Line, RunsGrid
from workbench.lab.widgets.explorer.tables import table
from workbench.lab.widgets.plots.liveplot import LivePlot
from workbench.lab.widgets.plots.player import Player
from workbench.lab.widgets.plots.plot import Plot

LOSS = (short("loss"), "loss")
MAX_PLOTTED_RUNS = 12  # max number of runs that are plotted together


class RunsViews(RunsGrid):
    """Views of the selected runs."""

    def __init__(self, runs: Runs | str | Path, show: Callable[[Sequence[Run]], None] | None) -> None:
        super().__init__(runs)
        self._show = show or self._below
        self.found = w.HTML()
        self.live, self.plot, self.player = LivePlot(), Plot(), Player()
        self.metric = w.Dropdown(description="Metric", options=[LOSS])
        self.metric.observe(lambda _: self._curves(), "value")
        self.text = w.Textarea(description="Text", rows=8, layout={"width": "auto"})
        self.round = w.BoundedIntText(description="Round", value=0, max=0)
        self.round.observe(lambda _: self._play(), "value")
        self.of = w.Dropdown(description="Mean of", options=[])
        self.by = w.SelectMultiple(description="by", options=[], rows=3)

    @guarded
    def _plot(self) -> None:
        """Draw the curves of the selected runs."""
        self.report("")
        self._curves()
        if not (rows := self.chosen):
            return
        texts = [f"{row['run']}: {row['error']}" for row in rows if row["error"]]
        if sum(map(has_rounds, rows)) > MAX_PLOTTED_RUNS:
            texts.insert(0, f"the first {MAX_PLOTTED_RUNS} are drawn")
        self._say("; ".join(texts[:4]))

    @guarded
    def _curves(self) -> None:
        """Draw the chosen metric of the selected runs that have it."""
        found = self.traces()
        names = list(dict.fromkeys(name for trace in found for name in plotted(trace.columns)))
        seen(len(names) > 1, self.metric)
        if not names:
            return
        options = [(short(name), name) for name in names]
        if list(self.metric.options) != options:
            chosen = self.metric.value if self.metric.value in names else names[0]
            with self.metric.hold_trait_notifications():
                self.metric.options, self.metric.value = options, chosen
        metric = self.metric.value
        drawn = [trace for trace in found if metric in trace.columns]
        self.plot.show(lambda theme: convergence(drawn, metric, theme=theme))

    def traces(self) -> list[Trace]:
        """Return the selected runs that have rounds, at most `MAX_PLOTTED_RUNS`. The message names unreadable ones."""
        found, bad = [], []
        for run_row in list(filter(has_rounds, self.chosen))[:MAX_PLOTTED_RUNS]:
            try:
                found.append(Trace.load(run_row["folder"]))
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
        self._some(MAX_PLOTTED_RUNS)
        self._show([recorded(trace) for trace in self.traces()])

    def _below(self, runs: Sequence[Run]) -> None:
        seen(True, self.live)
        self.live.show(runs, keep=True)

    @guarded
    def differ(self) -> None:
        """Show a table of the settings in which the two selected runs differ."""
        one, other = (row["run"] for row in self._some(2, least=2))
        found = self.runs.diff(one, other)
        rows = [
            [str(name), *(_short(each, name) for each in pair)] for name, *pair in found.itertuples(name=None)
        ]
        self.found.value = table(["", one, other], rows, f"what differs between {one} and {other}")

    @guarded
    def copy(self) -> None:
        """Show the selected run as YAML, and the papermill command that runs it."""
        (run_row,) = self._some(1)
        e = experiment_in(run_row)
        cluster = run_row["cluster"] if isinstance(run_row["cluster"], str) else ""
        self.text.value = f"{yaml_of(e)}\n# {papermill_command(e, run_row['engine'], cluster)}\n"
        seen(True, self.text)

    @guarded
    def group(self) -> None:
        """Show mean and band of a result over the runs of each group, usually seeds, as a table and a figure."""
        self._hide()
        found = self.runs.mean(self.of.value, list(self.by.value) or None)
        rows = [[_short(value) for value in line] for line in found.to_numpy(object)]
        by = found.attrs["by"]
        about = f"mean of {self.of.value}, with its 95 % band"
        self.found.value = table([str(name) for name in found], rows, about, len(by))
        if pooled := found.attrs["pooled"]:
            self._say(f"each mean is over runs that also differ in {', '.join(map(setting, pooled))}")
        if by and found["n"].any():
            self.plot.show(lambda theme: bands(found, theme=theme))

    def _hide(self) -> None:
        self.found.value = self.text.value = ""
        seen(False, self.text, self.plot, self.metric, self.round, self.player)
        seen(bool(self.live.runs), self.live)


def experiment_in(run_row: Line) -> Experiment:
    """Return the experiment that was run, or was planned."""
    folder = Path(run_row["folder"])
    status = None if folder.is_dir() else Status.read(folder.parent)
    return experiment_of(folder) if status is None else described(status.spec)


def _short(value: Any, name: str = "") -> str:
    return "–" if value is None or value != value else value_text(name, value)
