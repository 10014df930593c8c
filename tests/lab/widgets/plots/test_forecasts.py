"""The table of forecasts: HTML at once, and a figure only where a page makes an image of it."""

from __future__ import annotations

import json
from typing import Any

import plotly.graph_objects as go
import pytest

from tests.support.widget_messages import receives
from workbench.lab.widgets.plots.forecasts import Forecasts


def test_figure_is_drawn_on_request_only(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[str] = []
    sent: list[dict[str, Any]] = []

    def draw(theme: str) -> go.Figure:
        drawn.append(theme)
        return go.Figure(layout_title_text="one")

    table = Forecasts()
    monkeypatch.setattr(table, "send", lambda content, buffers=None: sent.append(content))
    receives(table, {"kind": "figure"})
    assert (table.drawn, table.current(), sent) == (False, None, [])
    table.show("<b>one</b>", "Time per round", draw)  # type: ignore[arg-type]
    assert (table.html, table.label, table.serial, drawn) == ("<b>one</b>", "Time per round", 1, [])
    table.page = "dark"
    receives(table, {"kind": "figure"})
    assert drawn == ["dark"]
    assert json.loads(sent[0]["figure"])["layout"]["title"]["text"] == "one"
