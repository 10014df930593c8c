"""Table of round times that follows a slider: HTML of the kernel, without plotly.js."""

from __future__ import annotations

from typing import Any

import plotly.graph_objects as go
import traitlets as t

from workbench.lab.figures.design import style_sheet
from workbench.lab.figures.style import Theme
from workbench.lab.widgets.assets import script
from workbench.lab.widgets.plots.plot import Draw, Drawn


class Forecasts(Drawn):
    """Table with pictures. The figure of the same data is drawn only to be saved, or for readers without a kernel.

    >>> table = Forecasts()
    >>> table.show("<b>12 ms</b>", "Time per round", lambda theme: go.Figure())
    >>> table.html, table.drawn
    ('<b>12 ms</b>', True)
    """

    _esm = t.Unicode(script("forecasts")).tag(sync=True)
    _css = t.Unicode(style_sheet()).tag(sync=True)
    html = t.Unicode().tag(sync=True)
    label = t.Unicode().tag(sync=True)  # label for screen readers
    serial = t.Int().tag(sync=True)  # increased with each table

    def __init__(self, **traits: Any) -> None:
        super().__init__(**traits)
        self._draw: Draw | None = None

    def show(self, html: str, label: str, draw: Draw) -> None:
        """Show a table. `draw` returns the figure of its data."""
        self._draw, self.layout.display = draw, ""
        with self.hold_sync():
            self.html, self.label = html, label
            self.serial += 1

    @property
    def drawn(self) -> bool:
        """Whether there is a table."""
        return self._draw is not None

    def current(self, theme: Theme = "light") -> go.Figure | None:
        """Return the figure of the shown data, or None."""
        return self._draw(theme) if self._draw else None

    def on_message(self, content: dict[str, Any]) -> None:
        """Send the figure to a page that makes a static image of it."""
        if content.get("kind") == "figure" and (figure := self.current(self.theme)) is not None:
            self.send({"kind": "figure", "figure": figure.to_json()})
