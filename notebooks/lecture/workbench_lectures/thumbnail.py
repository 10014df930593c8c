"""Small picture of a figure for the list of lectures: its lines, bars and cells as SVG, without text."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import Any

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from workbench.core.base.types import Array
from workbench.lab.figures.gallery.phase_diagram import mixed
from workbench.lab.figures.page import PALETTES
from workbench.lab.figures.style import BLUE, VERMILLION

WIDTH, HEIGHT, EDGE = 144, 90, 4  # px
MAX_POINTS = 60  # max points of a line
MAX_CELLS = 24  # max rows or columns of a heat map
NEUTRAL = PALETTES["light"].neutral


def thumbnail(figure: go.Figure) -> str:
    """Return a figure as a small SVG that is read without its labels.

    >>> thumbnail(go.Figure(go.Scatter(x=[0, 1], y=[0, 1], mode="lines", line={"color": "#0072B2"}))).count("<path")
    1
    """
    maps = [trace for trace in figure.data if trace.type == "heatmap"]
    inside = "".join(_cells(maps[0]) if maps else _drawn(figure))
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" aria-hidden="true">{inside}</svg>'


def _drawn(figure: go.Figure) -> Iterator[str]:
    """Draw lines and bars in the plane of the first axes."""
    traces = [
        t for t in figure.data if t.type in ("scatter", "bar") and (t.xaxis or "x") == "x" and t.x is not None
    ]
    planes = [_plane(figure, trace) for trace in traces]
    every = [points for points in planes if len(points)]
    if not every:
        return
    low, high = np.nanmin(np.concatenate(every), axis=0), np.nanmax(np.concatenate(every), axis=0)
    span = np.where(high > low, high - low, 1.0)
    down = (
        figure.layout.yaxis.autorange == "reversed"
        or (figure.layout.yaxis.range or (0, 1))[0] > (figure.layout.yaxis.range or (0, 1))[1]
    )
    for trace, points in zip(traces, planes, strict=True):
        if not len(points):
            continue
        share = (points - low) / span
        share[:, 1] = share[:, 1] if down else 1 - share[:, 1]
        at = EDGE + share * (np.array([WIDTH, HEIGHT]) - 2 * EDGE)
        yield from _bars(trace, at) if trace.type == "bar" else _line(trace, at)


def _plane(figure: go.Figure, trace: Any) -> Array:
    """Return the points of a trace, (n, 2). A bar has two points, its ends."""
    x, y = (_numbers(values) for values in (trace.x, trace.y))
    if trace.type == "bar" and trace.orientation == "h":
        start = np.broadcast_to(np.asarray(0.0 if trace.base is None else trace.base, dtype=float), x.shape)
        return np.stack([np.ravel([start, start + x], order="F"), np.repeat(y, 2)], axis=1)
    if trace.type == "bar":
        return np.stack([np.repeat(x, 2), np.ravel([np.zeros_like(y), y], order="F")], axis=1)
    points = np.stack([x, y], axis=1)[:: max(1, len(x) // MAX_POINTS)]
    for column, axis in enumerate((figure.layout.xaxis, figure.layout.yaxis)):
        if axis.type == "log":
            points[:, column] = np.log10(np.where(points[:, column] > 0, points[:, column], np.nan))
    for column, axis in enumerate((figure.layout.xaxis, figure.layout.yaxis)):
        if axis.range is not None:
            low, high = sorted(map(float, axis.range))
            points = points[(points[:, column] >= low) & (points[:, column] <= high)]
    return points[np.isfinite(points).all(axis=1)]


def _numbers(values: Any) -> Array:
    """Return values as numbers. Names are replaced by their positions."""
    found = np.asarray(values).ravel()
    if found.dtype.kind in "OUS":
        return np.unique(found.astype(str), return_inverse=True)[1].astype(float)
    return found.astype(float)


def _line(trace: Any, at: Array) -> Iterator[str]:
    color = trace.line.color or (trace.marker.color if isinstance(trace.marker.color, str) else None) or BLUE
    if "lines" in (trace.mode or "lines"):
        path = "L".join(f"{x:.0f} {y:.0f}" for x, y in at)
        yield f'<path d="M{path}" fill="none" stroke="{escape(str(color))}" stroke-width="2"/>'
    else:
        yield from (
            f'<circle cx="{x:.0f}" cy="{y:.0f}" r="2" fill="{escape(str(color))}"/>'
            for x, y in at[:MAX_POINTS]
        )


def _bars(trace: Any, at: Array) -> Iterator[str]:
    color = trace.marker.color if isinstance(trace.marker.color, str) else BLUE
    horizontal, count = (
        trace.orientation == "h",
        max(len(np.unique(at[:, 1 if trace.orientation == "h" else 0])), 1),
    )
    thick = max(1.0, min(8.0, 0.7 * (HEIGHT if horizontal else WIDTH) / (count + 1)))
    for (x0, y0), (x1, y1) in zip(at[::2], at[1::2], strict=True):
        yield f'<path d="M{x0:.0f} {y0:.0f}L{x1:.0f} {y1:.0f}" stroke="{escape(color)}" stroke-width="{thick:.1f}"/>'


def _cells(trace: Any) -> Iterator[str]:
    """Draw a heat map from blue over grey to red."""
    z: NDArray[Any] = np.asarray(trace.z, dtype=float)
    z = z[:: -(-len(z) // MAX_CELLS), :: -(-z.shape[1] // MAX_CELLS)]
    most = float(np.nanmax(np.abs(z))) or 1.0
    wide, high = (WIDTH - 2 * EDGE) / z.shape[1], (HEIGHT - 2 * EDGE) / len(z)
    for (row, column), value in np.ndenumerate(z):
        if np.isfinite(value):
            color = mixed(VERMILLION if value > 0 else BLUE, NEUTRAL, abs(value) / most)
            place = f'x="{EDGE + column * wide:.1f}" y="{EDGE + row * high:.1f}"'
            yield f'<rect {place} width="{wide:.1f}" height="{high:.1f}" fill="{color}"/>'
