"""Pictures of the book: plotly figures in both themes, as plain data."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import plotly.graph_objects as go

from workbench.analysis.planning.quantities import number_text
from workbench.core.base.types import Array, chop
from workbench.core.trace.trace import Trace
from workbench.lab import figures
from workbench.lab.figures.style import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PALE,
    PINK,
    SKY,
    VERMILLION,
    Style,
    Theme,
    fade,
    log_ticks,
    new_figure,
    palette,
    scheme_style,
)
from workbench_book.values import COLUMNS, Kind, Line, Picture

# column -> colour and marker; only recorded and measured values have a filled star
COLUMN_STYLES = {
    "ours": (BLUE, "circle"),
    "per_round": (SKY, "circle-open"),
    "exact": (GREEN, "cross"),
    "events": (PINK, "triangle-up"),
    "low": (SKY, "triangle-left"),
    "high": (SKY, "triangle-right"),
    "fitted": (ORANGE, "square-open"),
    "tested": (ORANGE, "square"),
    "scaled": (GREY, "circle-open"),
    "recorded": (VERMILLION, "star"),
    "measured": (VERMILLION, "star"),
}
BANDS = ((BLUE, "circle", "dash"), (VERMILLION, "square", "dot"), (GREEN, "diamond", "dashdot"))
MOST_POINTS = 300  # max points of a curve, since a page has many curves
Curves = Mapping[str, tuple[Any, Any]]


def picture(draw: Callable[[Theme], go.Figure], caption: str, kind: Kind = "simulated") -> Picture:
    """Draw in both themes. Content that the themes share is stored once.

    >>> picture(lambda theme: new_figure(theme, "empty"), "nothing").light["title"]["text"]
    'empty'
    """
    light, dark = (json.loads(draw(theme).to_json()) for theme in ("light", "dark"))
    for each in (light, dark):
        each["layout"].pop("template", None)  # the page has both templates, once
    other = None if dark["data"] == light["data"] else dark["data"]
    return Picture(caption, light["data"], light["layout"], dark["layout"], other, kind)


def convergence(
    traces: Sequence[Trace], metric: str, target: float | None, caption: str, x: str = "time"
) -> Picture:
    """Draw a metric against wall clock, like `wb.figures.convergence`."""
    return picture(
        lambda theme: figures.convergence(traces, metric, x=x, target=target, theme=theme), caption
    )


def numbers(
    lines: Sequence[Line],
    title: str,
    axis: str,
    caption: str,
    log: bool = True,
    heads: Mapping[str, str] = MappingProxyType({}),
) -> Picture:
    """Draw the paper's numbers and ours, line by line, on one axis, which may be logarithmic.

    `heads`: headings of columns that differ from the usual ones, as in a `Result`.
    """
    columns = [c for c in COLUMNS if any(c in line.values for line in lines)]

    def draw(theme: Theme) -> go.Figure:
        figure = new_figure(theme, title, height=190 + max(46 * len(lines), 30 * (len(columns) + 1)))
        figure.add_traces([_column(lines, column, heads.get(column, COLUMNS[column])) for column in columns])
        if any(line.published is not None for line in lines):
            figure.add_trace(_published(lines, palette(theme).text))
        figure.update_yaxes(categoryorder="array", categoryarray=[line.what for line in lines][::-1])
        figure.update_xaxes(title_text=axis, tickformat="~g")
        if log:
            figure.update_xaxes(type="log", **_ticks(lines))
        return figure

    return picture(draw, caption, "real" if "measured" in columns else "simulated")


def agreement(lines: Sequence[Line], one: str, other: str, text: str) -> str:
    """Describe the largest deviation of two columns.

    >>> agreement([Line("a", None, {"ours": 1.0, "exact": 1.02})], "ours", "exact", "Formula and simulation")
    'Formula and simulation agree within 2 %'
    """
    off = max(abs(line.values[one] / line.values[other] - 1) for line in lines)
    return f"{text} agree within {100 * off:.2g} %"


def _ticks(lines: Sequence[Line]) -> dict[str, object]:
    values = [v for line in lines for v in (*line.values.values(), line.published) if v and 0 < v < np.inf]
    return log_ticks(min(values), max(values)) if values else {}


def _column(lines: Sequence[Line], column: str, heading: str) -> go.Scatter:
    color, symbol = COLUMN_STYLES[column]
    chosen = [line for line in lines if column in line.values]
    return go.Scatter(
        x=[line.values[column] for line in chosen],
        y=[line.what for line in chosen],
        mode="markers",
        name=heading,
        marker={"color": color, "symbol": symbol, "size": 14, "line": {"width": 2, "color": color}},
        hovertemplate=f"%{{y}}: %{{x:.4~g}}<extra>{heading}</extra>",
    )


def _published(lines: Sequence[Line], color: str) -> go.Scatter:
    chosen = [line for line in lines if line.published is not None]
    return go.Scatter(
        x=[line.published for line in chosen],
        y=[line.what for line in chosen],
        mode="markers",
        name="the paper",
        marker={"color": color, "symbol": "diamond-open", "size": 17, "line": {"width": 3, "color": color}},
        hovertemplate="%{y}: %{x:.4~g}<extra>the paper</extra>",
    )


def curves(
    found: Curves,
    title: str,
    x: str,
    y: str,
    caption: str,
    styles: Mapping[str, Style] | None = None,
    log: tuple[bool, bool] = (False, False),
    kind: Kind = "simulated",
) -> Picture:
    """Draw lines by label. A label that starts with a scheme's name has the scheme's style."""
    looks = styles or looks_of(list(found))

    def draw(theme: Theme) -> go.Figure:
        figure = new_figure(theme, title, height=max(520, 180 + 24 * len(found)))
        for label, (xs, ys) in found.items():
            figure.add_trace(_curve(label, np.asarray(xs, float), np.asarray(ys, float), looks[label]))
        ends = [_ends([pair[axis] for pair in found.values()]) for axis in (0, 1)]
        figure.update_xaxes(title_text=x, **_axis(log[0], ends[0]))
        figure.update_yaxes(title_text=y, **_axis(log[1], ends[1]))
        return figure

    return picture(draw, caption, kind)


def _ends(columns: Sequence[Any]) -> tuple[float, float]:
    """Return the least and the largest positive value."""
    values = np.concatenate([np.asarray(column, float) for column in columns])
    values = values[np.isfinite(values) & (values > 0)]
    return (float(values.min()), float(values.max())) if len(values) else (1.0, 1.0)


def _axis(log: bool, ends: tuple[float, float]) -> dict[str, object]:
    if not log:
        return {"type": "linear", "tickformat": "~g"}
    wide = ends[1] / ends[0] > 1e4
    return {
        "type": "log",
        **log_ticks(*ends),
        **({"exponentformat": "power"} if wide else {"tickformat": "~g"}),
    }


def banded(
    x: Sequence[float],
    found: Mapping[str, tuple[Array, Array, Array]],
    marks: Mapping[str, float],
    title: str,
    axis: str,
    y: str,
    caption: str,
) -> Picture:
    """Draw a band (least, middle, largest) for each label against `x`, on logarithmic axes.

    `marks`: published values by label. Points with a value of 0 or infinity are left out.
    """
    finite = np.concatenate([np.ravel(each) for each in found.values()] + [np.array([*marks.values(), 1.0])])
    ends = _ends([finite])

    def draw(theme: Theme) -> go.Figure:
        figure = new_figure(theme, title, height=560)
        for place, (label, (low, middle, high)) in enumerate(found.items()):
            color, symbol, dash = BANDS[place]
            for trace in _band(label, np.asarray(x), (low, middle, high), color, symbol):
                figure.add_trace(trace)
            if label in marks:
                figure.add_trace(_mark(f"{label}, the paper", x, marks[label], color, dash))
        figure.add_hline(y=1.0, line={"color": palette(theme).muted, "width": 1})
        figure.update_xaxes(title_text=axis, type="log", tickformat="~g", **log_ticks(min(x), max(x)))
        figure.update_yaxes(title_text=y, type="log", tickformat="~g", **log_ticks(*ends))
        return figure

    return picture(draw, caption)


def _band(
    label: str, x: Array, band: tuple[Array, Array, Array], color: str, symbol: str
) -> tuple[go.Scatter, go.Scatter]:
    """Draw a filled band with its line."""
    there = (np.isfinite(np.stack(band)) & (np.stack(band) > 0)).all(axis=0)
    low, middle, high = (np.asarray(each)[there] for each in band)
    x = x[there]
    fill = go.Scatter(
        x=np.concatenate([x, x[::-1]]), y=np.concatenate([high, low[::-1]]), fill="toself", mode="lines",
        fillcolor=fade(color, 0.25), line={"width": 0}, showlegend=False, hoverinfo="skip",
    )  # fmt: skip
    line = go.Scatter(
        x=x, y=middle, name=label, mode="lines+markers", line={"color": color, "width": 3},
        marker={"symbol": symbol, "size": 11, "color": color}, customdata=np.stack([low, high], axis=1),
        hovertemplate=label
        + " at %{x}: %{y:.4~g} (%{customdata[0]:.4~g} to %{customdata[1]:.4~g})<extra></extra>",
    )  # fmt: skip
    return fill, line


def _mark(label: str, x: Sequence[float], value: float, color: str, dash: str) -> go.Scatter:
    """Draw a published number as a dashed line."""
    return go.Scatter(
        x=[min(x), max(x)], y=[value, value], mode="lines", name=label,
        line={"color": color, "dash": dash, "width": 2}, hovertemplate=f"{label}: {value:.4g}<extra></extra>",
    )  # fmt: skip


def looks_of(labels: Sequence[str]) -> dict[str, Style]:
    """Return a style per label. Several labels of one scheme differ in dash and marker."""
    seen: dict[str, int] = {}
    found = {}
    for label in labels:
        scheme = label.split(" ")[0].rstrip(",")
        found[label] = scheme_style(scheme, seen.get(scheme, 0))
        seen[scheme] = seen.get(scheme, 0) + 1
    return found


def _curve(label: str, xs: Array, ys: Array, style: Style) -> go.Scatter:
    kept = np.unique(np.linspace(0, len(xs) - 1, min(len(xs), MOST_POINTS)).round().astype(int))
    few = len(kept) <= 12
    return go.Scatter(
        x=xs[kept],
        y=ys[kept],
        name=label,
        mode="lines+markers" if few else "lines",
        line={"color": style.color, "dash": style.dash, "width": 3},
        marker={"symbol": style.symbol, "size": 10, "color": style.color},
        hovertemplate=f"<b>{label}</b><br>%{{x:.5~g}}, %{{y:.5~g}}<extra></extra>",
    )


def heat(
    table: Array, rows: Sequence[str], columns: Sequence[str], title: str, axes: tuple[str, str], caption: str
) -> Picture:
    """Draw a table of computed numbers as colours, with the numbers. NaN is empty."""
    table = chop(table, np.nanmax(np.abs(table)))
    text = [["" if np.isnan(v) else number_text(v, 4) for v in row] for row in table]

    def draw(theme: Theme) -> go.Figure:
        figure = new_figure(theme, title, height=220 + 44 * len(rows))
        figure.add_trace(
            go.Heatmap(
                z=table, x=columns, y=rows, text=text, texttemplate="%{text}", textfont={"color": palette(theme).text},
                colorscale=[[0.0, fade(GREY, PALE / 4)], [1.0, fade(BLUE, PALE)]], hoverongaps=False,
                colorbar={"thickness": 16},
            )
        )  # fmt: skip
        figure.update_xaxes(title_text=axes[0], type="category", showgrid=False)
        figure.update_yaxes(title_text=axes[1], type="category", autorange="reversed", showgrid=False)
        return figure

    return picture(draw, caption, "computed")


def bars(
    parts: Mapping[str, Mapping[str, float]], title: str, axis: str, caption: str, base: float = 0.0
) -> Picture:
    """Draw horizontal bars, one group per outer key of `parts`.

    With a positive base, bars start there on a logarithmic axis.
    """
    inner = list(dict.fromkeys(name for each in parts.values() for name in each))
    values = [v for each in parts.values() for v in each.values()]
    scale: dict[str, Any] = {"type": "linear"}
    if base:  # space for the numbers beside the bars
        scale = {"type": "log", **log_ticks(min(values), max(values))}
        scale["range"] = np.log10([min(values) / 1.7, max(values) * 1.7]).tolist()

    def draw(theme: Theme) -> go.Figure:
        figure = new_figure(theme, title, height=220 + 26 * len(parts) * len(inner))
        for i, name in enumerate(inner):
            found = {group: each[name] for group, each in parts.items() if name in each}
            figure.add_trace(_bars(name, found, base, i))
        figure.update_layout(barmode="group", legend={"traceorder": "normal"}, showlegend=len(inner) > 1)
        figure.update_xaxes(title_text=axis, tickformat="~g", **scale)
        figure.update_yaxes(autorange="reversed", showgrid=False)
        return figure

    return picture(draw, caption)


def _bars(name: str, found: Mapping[str, float], base: float, place: int) -> go.Bar:
    colors = (BLUE, VERMILLION, SKY, ORANGE, GREEN, PINK, GREY)
    shapes = ("", "/", "x", "-", ".", "\\", "+")
    return go.Bar(
        y=list(found),
        x=[value - base for value in found.values()],
        base=base,
        name=name,
        orientation="h",
        marker={"color": colors[place % 7], "pattern": {"shape": shapes[place % 7], "fillmode": "overlay"}},
        text=[f"{value:.3g}" for value in found.values()],
        textposition="outside",
        cliponaxis=False,
        hovertemplate=f"%{{y}}, {name}: %{{text}}<extra></extra>",
    )


def dots(found: Curves, title: str, x: str, y: str, caption: str) -> Picture:
    """Draw points by label on logarithmic axes, with the line of equality.

    Labels that end in "tested" have open markers.
    """
    values = np.concatenate([np.asarray([*xs, *ys], float) for xs, ys in found.values()])
    ends = [values.min() / 1.2, values.max() * 1.2]

    def draw(theme: Theme) -> go.Figure:
        figure = new_figure(theme, title, height=620)
        line = {"color": palette(theme).muted, "dash": "dot", "width": 2}
        figure.add_trace(go.Scatter(x=ends, y=ends, mode="lines", line=line, name="equal", hoverinfo="skip"))
        for label, (xs, ys) in found.items():
            style = scheme_style(label.split(" ")[0])
            symbol = style.symbol + ("-open" if label.endswith("tested") else "")
            marker = {"color": style.color, "symbol": symbol, "size": 13, "line": {"width": 2}}
            figure.add_trace(go.Scatter(x=xs, y=ys, mode="markers", name=label, marker=marker))
        figure.update_xaxes(title_text=x, type="log", tickformat="~g", **log_ticks(*ends))
        figure.update_yaxes(title_text=y, type="log", tickformat="~g", **log_ticks(*ends))
        return figure

    return picture(draw, caption)
