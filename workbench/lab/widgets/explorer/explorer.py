"""Explorer: set parameters, see forecasts at once, run, open a round, save results."""

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

import ipywidgets as w

from workbench.core.base.settings import SettingError, path_of
from workbench.core.contract.delays import DelayModel
from workbench.core.contract.optimisers import Optimiser, Schedule
from workbench.core.contract.scheme import Scheme
from workbench.core.experiment import Experiment
from workbench.core.presets.codedreduce import baselines
from workbench.core.problems import ProblemArgs
from workbench.core.running.run import checked
from workbench.core.trace.trace import Trace
from workbench.lab.widgets.assets import Sheet
from workbench.lab.widgets.callbacks import guarded
from workbench.lab.widgets.closing import of_cell
from workbench.lab.widgets.explorer import tabs
from workbench.lab.widgets.explorer.header import Header
from workbench.lab.widgets.explorer.tab import ExplorerState, Tab
from workbench.lab.widgets.explorer.tabbed import Tabbed
from workbench.lab.widgets.explorer.tabs.preview import Preview
from workbench.lab.widgets.explorer.tabs.running import Running
from workbench.lab.widgets.forms.controls import Controls, preset_of
from workbench.lab.widgets.plots.plot import Stills

EXAMPLE: dict[str, Any] = {
    "problem": "softmax",
    "problem_args": {"data": "digits", "intercept": True, "l2": 1e-4},
    # a heavy tail, so that there are visible stragglers
    "delays": {"kind": "pareto", "shift": 5e-4, "shape": 1.3},
    "link": {"latency": 1e-3, "bandwidth": 1e6},
    "rounds": 100,
}


class Explorer(w.VBox):
    """Header, controls and tabs. Each tab is an attribute with the tab's name.

    Pages of 900 pixels and more have the controls beside the tabs. Narrower pages show them as a line of values.
    """

    def __init__(
        self, experiments: Sequence[Experiment], name: str = "", folder: str | Path = "runs"
    ) -> None:
        folder = path_of(folder, "folder")
        for module in iter_modules(tabs.__path__):
            import_module(f"{tabs.__name__}.{module.name}")
        self.controls = Controls(experiments, self.refresh, name)
        self.desk = ExplorerState(self.controls, folder)
        for tab in self.desk.tabs:
            setattr(self, tab.key, tab)
        self.tabs = Tabbed(self.desk.tabs, [tab.title for tab in self.desk.tabs])
        self.tabs.observe(self._opened, "selected_index")
        self.desk.front = self._front
        running = self.desk.tab(Running)
        self.header = Header(self.controls, running)
        running.button.on_click(lambda _: self._front(running))
        body = w.HBox([self.controls, self.tabs]).add_class("wb-split")
        super().__init__([Sheet(), self.header, body])
        self.add_class("wb").add_class("wb-explorer")
        self.refresh()
        for family in (Scheme, DelayModel, ProblemArgs, Optimiser, Schedule):
            family.catalogue.on_change(self._defined)

    def report(self, text: str) -> None:
        """Show an error in the first tab."""
        self.desk.tabs[0].report(text)

    @guarded
    def refresh(self) -> None:
        """Validate the settings after a change, and forecast."""
        self.desk.refresh()
        self.header.tools.renew()

    @guarded
    def _defined(self) -> None:
        """Offer a newly defined class, for example of a notebook's cell. If the class is chosen, forecast again."""
        if self.controls.renew():
            self.refresh()

    def _opened(self, change: Any) -> None:
        if change["new"] is not None:
            self.desk.tabs[change["new"]].opened()

    def _front(self, tab: Tab) -> None:
        self.tabs.selected_index = self.desk.tabs.index(tab)

    def _ipython_display_(self) -> None:
        """Display the explorer, with pictures of forecasts and curves for readers without a kernel."""
        plots = {
            "forecast of round times": self.desk.tab(Preview).times,
            "curves": self.desk.tab(Running).plot,
        }
        Stills(plots).show(self._repr_mimebundle_())

    @property
    def experiments(self) -> list[Experiment]:
        """Experiments that can be run with the current settings."""
        return self.desk.experiments

    @property
    def traces(self) -> list[Trace]:
        """Traces of the shown runs that have ended."""
        return self.desk.tab(Running).traces

    def run(self, timeout: float | None = None) -> list[Trace]:
        """Start all runs and wait for their end. Raises `SettingError` if the settings cannot be run."""
        if self.desk.reason:
            raise SettingError(self.desk.reason)
        running = self.desk.tab(Running)
        running.begin()
        running.plot.wait(timeout)
        return running.traces


def explore(setting: str | Experiment | Sequence[Experiment] = "", folder: str | Path = "runs") -> Explorer:
    """Open the explorer. A cell that is run again closes the explorer that it opened before.

    `setting`: initial settings: the name of a preset, an experiment, or several; default: CodedReduce and its
    baselines on the bundled digits. `folder`: folder of saved runs and exports.

    Raises `SettingError` if the preset does not exist.

    >>> explorer = explore("fig8")
    >>> [e.scheme for e in explorer.experiments]
    ['UMW', 'GC', 'RAR', 'SGD', 'CR']
    """
    if isinstance(setting, str):
        chosen: Sequence[Experiment] = preset_of(setting) if setting else baselines(4, 3, 1, **EXAMPLE)
        return of_cell(lambda: Explorer(chosen, setting, folder))
    found = checked(setting)
    return of_cell(lambda: Explorer(found, "", folder))
