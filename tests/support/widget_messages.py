"""Messages between a widget and a page, without a page."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from workbench.lab.widgets.forms.form import Form
from workbench.lab.widgets.plots.liveplot import LivePlot
from workbench.lab.widgets.plots.plot import Drawn


def types(form: Form, **texts: str) -> None:
    """Type into fields of a form. The messages are those of js/form.js."""
    count = form.heard.get("page", 0) + 1
    receives(form, {"kind": "typed", "view": "page", "count": count, "texts": texts})


def receives(widget: Drawn | Form, content: dict[str, Any]) -> None:
    """Receive a message from the page."""
    widget._handle_custom_msg(content, [])


class View:
    """View of a live plot that stores the messages that it gets, and requests missing ones, like js/live.js."""

    def __init__(self, plot: LivePlot) -> None:
        self.plot, self.frames, self.bytes = plot, 0, 0
        self.edition = plot.edition
        self.curves: list[dict[str, NDArray[np.float32]]] = [{} for _ in plot.curves]
        plot.send = self.hear  # type: ignore[method-assign]

    def rows(self, curve: int) -> int:
        return len(self.curves[curve].get("round", ()))

    def ask(self) -> None:
        receives(self.plot, {"kind": "from", "rows": [self.rows(i) for i in range(len(self.curves))]})

    def hear(self, content: dict[str, Any], buffers: list[bytes]) -> None:
        assert content["kind"] == "rows"
        self.frames += 1
        self.bytes += sum(map(len, buffers))
        if content["edition"] != self.edition:
            self.edition, self.curves = content["edition"], [{} for _ in self.plot.curves]
        gap = False
        for part, buffer in zip(content["parts"], buffers, strict=True):
            gap |= self.take(part, np.frombuffer(buffer, np.float32).reshape(len(part["columns"]), -1))
        if gap:
            self.ask()

    def take(self, part: dict[str, Any], table: NDArray[np.float32]) -> bool:
        if part["first"] > self.rows(part["curve"]):
            return True
        curve = self.curves[part["curve"]]
        for name, column in zip(part["columns"], table, strict=True):
            before = curve.get(name, np.zeros(0, np.float32))[: part["first"]]
            curve[name] = np.concatenate([before, column])
        return False
