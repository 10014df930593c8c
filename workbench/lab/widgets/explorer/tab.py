"""Base of the explorer's tabs, and the state that they share.

To add a tab, add a file to `tabs` with a subclass of `Tab`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from threading import RLock
from typing import Any, ClassVar, TypeVar

import plotly.graph_objects as go

from workbench.core.experiment import Experiment
from workbench.lab.figures.style import Theme
from workbench.lab.widgets.callbacks import Pane
from workbench.lab.widgets.forms.controls import Controls
from workbench.lab.widgets.forms.setup import Setup, Verdict, field_at_fault
from workbench.lab.widgets.plots.forecasts import Forecasts
from workbench.lab.widgets.plots.plot import Plot

Drawing = Callable[[Theme], "go.Figure | None"]
T = TypeVar("T", bound="Tab")


class Tab(Pane):
    """Base of tabs. A tab is notified of changes, and reads the shared state from `desk`."""

    catalogue: ClassVar[dict[str, type[Tab]]] = {}
    key: ClassVar[str]  # name of the explorer's attribute
    title: ClassVar[str]
    place: ClassVar[float]  # position in the row of tabs

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        Tab.catalogue[cls.key] = cls

    def __init__(self, desk: ExplorerState) -> None:
        self.desk = desk
        super().__init__()
        self.children = [self.message, *self.parts()]

    def parts(self) -> Iterable[Any]:
        """Return the widgets of the tab."""
        return ()

    def changed(self) -> None:
        """Update the tab after a change of the settings."""

    def over(self) -> None:
        """Update the tab after all shown runs have ended."""

    def opened(self) -> None:
        """Update the tab when the user opens it."""

    def figures(self) -> Mapping[str, Drawing]:
        """Return the figures that can be saved, by name."""
        return {}


class ExplorerState:
    """Settings, and the tabs that show them."""

    def __init__(self, controls: Controls, folder: str | Path) -> None:
        self.controls, self.folder = controls, Path(folder)
        self.experiments: list[Experiment] = []  # experiments that can be run with the current settings
        self.verdicts: list[Verdict] = []  # of the schemes, in order
        self.setup: Setup | None = None  # settings of the controls if at least one scheme's are valid
        self.reason = ""  # why other schemes' settings are invalid
        self.front: Callable[[Tab], None] = lambda tab: None  # function that shows a tab
        self._lock = RLock()  # callbacks come from several threads
        self.tabs = [cls(self) for cls in sorted(Tab.catalogue.values(), key=lambda cls: cls.place)]

    def tab(self, kind: type[T]) -> T:
        """Return the tab of a class."""
        return next(tab for tab in self.tabs if isinstance(tab, kind))

    def refresh(self) -> None:
        """Validate the settings after a change, and notify all tabs."""
        with self._lock:
            self.verdicts = verdicts = self.controls.verdicts()
            self.experiments = [v.experiment for v in verdicts if v.experiment is not None]
            reasons = dict.fromkeys(v.reason for v in verdicts if v.experiment is None)
            self.reason = "; ".join(reasons) if verdicts else "no scheme is chosen; add one"
            self.setup = self.controls.setup() if self.experiments else None
            for tab in self.tabs:
                tab.changed()

    def refuse(self, failures: Sequence[tuple[Experiment, str]]) -> None:
        """Mark the fields named in the errors of forecasts or runs of experiments, until the next change."""
        with self._lock:
            for experiment, reason in failures:
                failed = Verdict(None, *field_at_fault(reason), reason)
                self.verdicts = [failed if v.experiment == experiment else v for v in self.verdicts]
            if failures:
                self.controls.mark(self.controls.setup(), self.verdicts)

    def over(self) -> None:
        """Notify all tabs that runs have ended."""
        with self._lock:
            for tab in self.tabs:
                tab.over()


def shown(plots: Mapping[str, Plot | Forecasts]) -> dict[str, Drawing]:
    """Return the plots that the user sees."""
    seen = {name: plot for name, plot in plots.items() if plot.drawn and plot.layout.display != "none"}
    return {name: plot.current for name, plot in seen.items()}
