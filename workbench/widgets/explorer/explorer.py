"""The explorer: turn knobs, see at once what they would do, run, look into a round, keep what is worth keeping."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from threading import RLock
from typing import Any

import ipywidgets as w

from workbench.base.settings import SettingError
from workbench.experiment import Experiment
from workbench.published.codedreduce import rivals
from workbench.running.run import checked, recorded
from workbench.trace.trace import Trace
from workbench.widgets.explorer.keeping import Drawing, Keeping
from workbench.widgets.explorer.oneround import OneRound
from workbench.widgets.explorer.preview import Preview
from workbench.widgets.explorer.running import Running
from workbench.widgets.forms.controls import Controls, preset_of
from workbench.widgets.guard import guarded
from workbench.widgets.sheet import Sheet

TABS = ("Before a run", "Run", "One round", "Keep")
EXAMPLE: dict[str, Any] = {
    "problem": "softmax",
    "problem_args": {"data": "digits", "intercept": True, "l2": 1e-4},
    "delays": {"kind": "pareto", "shift": 5e-4, "shape": 1.3},  # a heavy tail: stragglers are what one sees
    "link": {"latency": 1e-3, "bandwidth": 1e6},
    "rounds": 100,
}


class Explorer(w.VBox):
    """Controls on the left, pictures on the right. `experiments` are what can be run as it stands."""

    def __init__(
        self, experiments: Sequence[Experiment], name: str = "", folder: str | Path = "runs"
    ) -> None:
        self._lock = RLock()  # callbacks come from several threads
        self.experiments: list[Experiment] = []
        self.preview = Preview(self._clicked_map)
        self.running = Running(lambda: self.experiments, self._over)
        self.round = OneRound()
        self.keeping = Keeping(folder, self.reload)
        self.controls = Controls(experiments, self.refresh, name)
        self.tabs = w.Tab([self.preview, self.running, self.round, self.keeping], titles=TABS)
        self.tabs.observe(lambda _: self._offer(), "selected_index")
        body = w.HBox([self.controls, self.tabs])
        body.add_class("wb-explorer")
        super().__init__([Sheet(), body])
        self.refresh()

    def tell(self, text: str) -> None:
        """Say what went wrong where the user looks first."""
        self.preview.tell(text)

    @guarded
    def refresh(self) -> None:
        """The settings have changed: judge them, look ahead."""
        with self._lock:
            verdicts = self.controls.verdicts()
            self.experiments = [v.experiment for v in verdicts if v.experiment is not None]
            reasons = list(dict.fromkeys(v.reason for v in verdicts if v.experiment is None))
            if not verdicts:
                reasons = ["no scheme is chosen; add one"]
            self.running.allow("; ".join(reasons))
            setup = self.controls.setup() if self.experiments else None
            self.preview.update(self.experiments, setup, self.controls.shapes.shape(), "; ".join(reasons))

    def _clicked_map(self, stragglers: int, latency: float) -> None:
        self.controls.set_alpha_and_latency(stragglers, latency)

    @guarded
    def _over(self) -> None:
        with self._lock:
            self.round.show(self.running.traces)
            self._offer()

    def reload(self, traces: Sequence[Trace]) -> None:
        """Show runs that were kept."""
        self.running.show([recorded(trace) for trace in traces])
        self.tabs.selected_index = TABS.index("Run")

    @property
    def traces(self) -> list[Trace]:
        """Results of the runs that are shown and over."""
        return self.running.traces

    def run(self, timeout: float | None = None) -> list[Trace]:
        """Press Run and wait for the end; raises `SettingError` where the settings cannot be run."""
        if self.running.button.disabled:
            verdicts = self.controls.verdicts()
            raise SettingError(next((v.reason for v in verdicts if v.reason), "no scheme is chosen; add one"))
        self.running.start()
        self.running.plot.wait(timeout)
        return self.traces

    @guarded
    def _offer(self) -> None:
        """Tell the last tab what there is to keep."""
        plots = {**self.preview.figures(), **self.round.figures()}
        drawings: dict[str, Drawing] = {
            name: _drawing(self, plot) for name, plot in plots.items() if plot.drawn
        }
        if self.running.traces:
            drawings = {"convergence": lambda: self.running.figure(self.keeping.theme.value), **drawings}
        engine, cluster = self.running.engine.value, self.running.cluster.value or ""
        self.keeping.offer(drawings, self.running.traces, self.experiments, engine, cluster)


def _drawing(explorer: Explorer, plot: Any) -> Drawing:
    return lambda: plot.current(explorer.keeping.theme.value)


def explore(setting: str | Experiment | Sequence[Experiment] = "", folder: str | Path = "runs") -> Explorer:
    """Open the explorer.

    Parameters
    ----------
    setting
        Where to begin: the name of a preset, an experiment, or several; default: CodedReduce and its rivals on the
        bundled digits.
    folder
        Where runs and exports are kept.

    Raises
    ------
    SettingError
        There is no preset of that name.

    Examples
    --------
    >>> explorer = explore("fig8")
    >>> [e.scheme for e in explorer.experiments]
    ['UMW', 'GC', 'RAR', 'SGD', 'CR']
    """
    if isinstance(setting, str):
        chosen: Sequence[Experiment] = preset_of(setting) if setting else rivals(4, 3, 1, **EXAMPLE)
        return Explorer(chosen, setting, folder)
    return Explorer(checked(setting), "", folder)
