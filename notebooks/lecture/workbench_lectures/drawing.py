"""Common parts of the lectures' figures: curves in a scheme's style, points, a line at the value of the slider."""

from __future__ import annotations

from collections.abc import Sequence
from math import log10
from typing import Any

import plotly.graph_objects as go

from workbench.core.base.types import Array
from workbench.lab.figures.style import Style, log_ticks, palette

HEIGHT = 520  # px, so that figure and sliders fit into a window of 720 px


def curve(x: Array, y: Array, name: str, style: Style, hover: str = "%{y:.4g}", **more: Any) -> go.Scatter:
    """Draw a line in a scheme's colour and dash."""
    line = {"color": style.color, "dash": style.dash, "width": 3}
    about = f"<b>{name}</b><br>{hover}<extra></extra>"
    return go.Scatter(x=x, y=y, name=name, mode="lines", line=line, hovertemplate=about, **more)


def points(
    x: Sequence[float], y: Sequence[float], name: str, style: Style, hover: str = "%{y:.4g}"
) -> go.Scatter:
    """Draw the markers of a scheme's curve, in the colour and shape of the scheme."""
    marker = {"color": style.color, "symbol": style.symbol, "size": 13}
    about = f"<b>{name}</b><br>{hover}<extra></extra>"
    return go.Scatter(
        x=x, y=y, name=name, mode="markers", marker=marker, hovertemplate=about, showlegend=False
    )


def here(figure: go.Figure, x: float, text: str, theme: str) -> None:
    """Draw a line at the value of a slider."""
    muted, ground = palette(theme).muted, palette(theme).background
    figure.add_vline(x=x, line={"color": muted, "width": 2, "dash": "dot"})
    # annotations on a logarithmic axis use the exponent
    place = log10(x) if figure.layout.xaxis.type == "log" else x
    figure.add_annotation(
        x=place, y=1.0, yref="paper", text=text, showarrow=False, xanchor="left", yanchor="top",
        xshift=6, font={"size": 15, "color": muted}, bgcolor=ground,
    )  # fmt: skip


def log_axis(low: float, high: float) -> dict[str, Any]:
    """Return a logarithmic axis over a span, with few ticks and plain numbers."""
    return {"type": "log", "range": [log10(low), log10(high)], "tickformat": "~g", **log_ticks(low, high)}
