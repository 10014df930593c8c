"""What a tab of the explorer is, and the desk that all of them work at.

To add a tab, add a file to `tabs` with a subclass of `Tab`; nothing else needs an edit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from threading import RLock
from typing import Any, ClassVar, TypeVar

import plotly.graph_objects as go

from workbench.core.experiment import Experiment
from workbench.lab.figures.style import Theme
from workbench.lab.widgets.callbacks import Pane
from workbench.lab.widgets.forms.controls import Controls
from workbench.lab.widgets.forms.setup import Setup
from workbench.lab.widgets.plots.plot import Plot

Drawing = Callable[[Theme], "go.Figure | None"]
T = TypeVar("T", bound="Tab")


class Tab(Pane):
    """A tab; it may hear what happens, and looks up at the desk whatever it needs."""

    catalogue: ClassVar[dict[str, type[Tab]]] = {}
    key: ClassVar[str]  # its name as an attribute of the explorer
    title: ClassVar[str]
    place: ClassVar[float]  # in the row of tabs

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        Tab.catalogue[cls.key] = cls

    def __init__(self, desk: ExplorerState) -> None:
        self.desk = desk
        super().__init__()
        self.children = [self.message, *self.parts()]

    def parts(self) -> Iterable[Any]:
        """Make what stands in the tab."""
        return ()

    def changed(self) -> None:
        """The settings are others now."""

    def over(self) -> None:
        """All runs that are shown are over."""

    def opened(self) -> None:
        """The user chose this tab."""

    def figures(self) -> Mapping[str, Drawing]:
        """What can be kept, by name."""
        return {}


class ExplorerState:
    """What is set, and the tabs that make something of it."""

    def __init__(self, controls: Controls, folder: str | Path) -> None:
        self.controls, self.folder = controls, Path(folder)
        self.experiments: list[Experiment] = []  # what can be run as it stands
        self.setup: Setup | None = None  # what the controls say, where some of it can be used
        self.reason = ""  # why some of it cannot be used
        self.front: Callable[[Tab], None] = lambda tab: None  # shows a tab
        self._lock = RLock()  # callbacks come from several threads
        self.tabs = [cls(self) for cls in sorted(Tab.catalogue.values(), key=lambda cls: cls.place)]

    def tab(self, kind: type[T]) -> T:
        """The tab of a kind."""
        return next(tab for tab in self.tabs if isinstance(tab, kind))

    def refresh(self) -> None:
        """The settings have changed: judge them, and tell all tabs."""
        with self._lock:
            verdicts = self.controls.verdicts()
            self.experiments = [v.experiment for v in verdicts if v.experiment is not None]
            reasons = dict.fromkeys(v.reason for v in verdicts if v.experiment is None)
            self.reason = "; ".join(reasons) if verdicts else "no scheme is chosen; add one"
            self.setup = self.controls.setup() if self.experiments else None
            for tab in self.tabs:
                tab.changed()

    def over(self) -> None:
        """Runs are over: tell all tabs."""
        with self._lock:
            for tab in self.tabs:
                tab.over()


def shown(plots: Mapping[str, Plot]) -> dict[str, Drawing]:
    """Those plots that the user sees."""
    seen = {name: plot for name, plot in plots.items() if plot.drawn and plot.layout.display != "none"}
    return {name: plot.current for name, plot in seen.items()}
