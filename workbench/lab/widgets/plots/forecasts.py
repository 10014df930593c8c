"""Table of round times that follows a slider: HTML of the kernel, without plotly.js."""

from __future__ import annotations

from typing import Any

import traitlets as t

from workbench.lab.widgets.assets import script
from workbench.lab.widgets.plots.plot import Draw, Picture


class Forecasts(Picture):
    """Table with pictures. The figure of the same data is drawn only to be saved, or for readers without a kernel.

    >>> table = Forecasts()
    >>> table.show("<b>12 ms</b>", "Time per round", lambda theme: go.Figure())
    >>> table.html, table.drawn
    ('<b>12 ms</b>', True)
    """

    _esm = t.Unicode(script("forecasts")).tag(sync=True)
    html = t.Unicode().tag(sync=True)

    def show(self, html: str, label: str, draw: Draw) -> None:
        """Show a table. `draw` returns the figure of its data."""
        self._draw, self.layout.display = draw, ""
        with self.hold_sync():
            self.html, self.label = html, label
            self.serial += 1

    def on_message(self, content: dict[str, Any]) -> None:
        """Send the figure to a page that makes a static image of it."""
        if content.get("kind") == "figure" and (figure := self.current(self.theme)) is not None:
            self.send({"kind": "figure", "figure": figure.to_json()})
