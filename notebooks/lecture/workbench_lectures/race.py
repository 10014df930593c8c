"""Live part of a lecture: a Run button, the duration, growing curves, and speedups."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ipywidgets as w

from workbench.core.experiment import Experiment
from workbench.core.trace.trace import Trace
from workbench.lab.figures.speedups import common_target, speedups
from workbench.lab.widgets.callbacks import Pane, guarded
from workbench.lab.widgets.explorer.tables import speeds
from workbench.lab.widgets.forms.fields import menu
from workbench.lab.widgets.plots.liveplot import LivePlot
from workbench_lectures.knobs import K, Panel, SliderHost
from workbench_lectures.playback import Clock, Playback, PlaybackRun, length, play

SECONDS = {"10": "10 seconds", "30": "half a minute", "120": "two minutes"}

Entries = Callable[[K], Sequence[Experiment]]


class Race(Pane):
    """Runs of a lecture's experiments with the current sliders, all on the same stragglers.

    `changed` is called when the state that a reloaded page needs has changed.
    """

    def __init__(
        self,
        desk: SliderHost[K],
        entries: Entries[K],
        names: Sequence[str] = (),
        x: str = "time",
        y: str = "loss",
        changed: Callable[[], None] = lambda: None,
        clock: Clock = time.time,
    ) -> None:
        self.desk, self.entries, self.changed, self.clock = desk, entries, changed, clock
        self.playback: Playback | None = None
        self.runs: list[PlaybackRun] = []
        self.values: dict[str, Any] = {}  # values of the sliders for the shown runs
        self.plot = LivePlot(x=x, y=y)
        self.plot.when_over(self._over)
        self.plot.observe(lambda _: self._speeds(), "target")
        self.button = w.Button(description="Run", button_style="primary", tooltip="run all schemes")
        self.plot.started_by(self.button, self.start)
        self.lasts = Panel([menu("lasts", "show it in", SECONDS)], lambda _: None)
        self.lasts.fill({"lasts": "10"})
        self.table = w.HTML()
        bar = w.HBox([self.button, self.lasts])
        bar.add_class("wb-row")
        super().__init__([*([desk.panel(names)] if names else []), bar, self.plot, self.table])
        self.add_class("wb-lecture-view")

    @guarded
    def start(self) -> None:
        """Start all runs from the beginning."""
        experiments = self.entries(self.desk.knobs)
        pace = length(experiments) / float(self.lasts.values["lasts"])
        self._show(self.desk.knobs.model_dump(), Playback(pace, self.clock(), clock=self.clock))

    def run(self, timeout: float | None = None) -> list[Trace]:
        """Start all runs, and wait for their results but not for the animation, for notebooks without a viewer."""
        self.start()
        return [run.result() for run in self.runs if run.wait(timeout)]

    def _show(self, values: Mapping[str, Any], playback: Playback, limits: Sequence[int | None] = ()) -> None:
        self.report("")
        self.playback, self.values = playback, dict(values)
        self.runs = play(self.entries(type(self.desk.knobs)(**values)), playback, limits)
        self.table.value, self.plot.target = "", None
        self.plot.show(self.runs)
        self.changed()

    @property
    def traces(self) -> list[Trace]:
        """Results of runs that were shown to the end."""
        return [run.result() for run in self.runs if run.state == "finished"]

    @guarded
    def _over(self) -> None:
        failed = [f"{run.label}: {run.note}" for run in self.runs if run.state == "failed"]
        self.report("; ".join(dict.fromkeys(failed)))
        self.changed()  # the animation may have been stopped
        traces = self.traces
        if len(traces) == len(self.runs) and self.plot.target is None and self.plot.y == "loss":
            self.plot.target = a_target(traces)

    @guarded
    def _speeds(self) -> None:
        traces = [trace for trace in self.traces if self.plot.y in trace.columns]
        if self.plot.target is None or not traces or len(traces) < len(self.runs):
            self.table.value = ""
            return
        target = float(self.plot.target)
        self.table.value = speeds(speedups(traces, target, self.plot.y), target)

    # ---------------------------------------------------------------- a reloaded page

    def kept(self) -> dict[str, Any]:
        """Return the state that the next page needs to continue."""
        view = {"lasts": self.lasts.values["lasts"], "x": self.plot.x, "y": self.plot.y}
        if self.playback is None:
            return view
        film = {"pace": self.playback.pace, "began": self.playback.began, "stopped": self.playback.stopped}
        return {**view, "knobs": self.values, "film": film, "limits": [run.limit for run in self.runs]}

    def recall(self, kept: Mapping[str, Any]) -> None:
        """Repeat the same runs, and continue to show them at the current time of the clock."""
        self.lasts.fill({"lasts": str(kept.get("lasts", "10"))})
        self.plot.x, self.plot.y = kept.get("x", self.plot.x), kept.get("y", self.plot.y)
        if "film" in kept:
            self._show(kept["knobs"], Playback(**kept["film"], clock=self.clock), kept["limits"])


def a_target(traces: Sequence[Trace]) -> float:
    """Return a loss that all runs reach: in logarithms, four fifths of the way to their common loss at the end.

    >>> import workbench as wb
    >>> trace = wb.run(wb.Experiment(workers=12, rounds=20))
    >>> trace.columns["loss"].min() < a_target([trace]) < trace.initial["loss"]
    True
    """
    end, start = common_target(traces), max(trace.initial["loss"] for trace in traces)
    return float(f"{end**0.8 * start**0.2:.2g}") if 0 < end < start else end
