"""Figure above its sliders."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from workbench.lab.figures.style import Theme
from workbench.lab.widgets.callbacks import Pane, guarded
from workbench.lab.widgets.plots.plot import Plot
from workbench_lectures.knobs import K, SliderHost

if TYPE_CHECKING:
    import plotly.graph_objects as go

Drawing = Callable[[K, Theme], "go.Figure"]


class View(Pane):
    """Figure with its sliders, which have the same values as those of all other views."""

    def __init__(self, desk: SliderHost[K], names: Sequence[str], draw: Drawing[K]) -> None:
        self.panel, self.plot = desk.panel(names), Plot()
        super().__init__([self.panel, self.plot])
        self.add_class("wb-lecture-view")
        desk.on_move(names, self.redraw)
        self.plot.show(lambda theme: draw(desk.knobs, theme))

    @guarded
    def redraw(self) -> None:
        """Draw the figure for the current sliders."""
        self.report("")
        self.plot.redraw()
