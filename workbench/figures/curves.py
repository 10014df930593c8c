"""Convergence: a metric over wall clock, rounds, bytes or samples."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from workbench.figures.inputs import Series, named, shared
from workbench.figures.speedup import AXES, RISING, abscissa, check_target, column, crossing, position
from workbench.figures.style import CLEAR, Theme, new_figure, palette
from workbench.protocol import Array
from workbench.trace import Trace

MOST_POINTS = 2000
MARKERS = 8
_RATIO_X, _RATIO_Y = 6.0, 20.0  # beyond these, ratios say more than differences: logarithmic axis
_NAMES = {
    "loss": "training loss",
    "relative_error": "relative change ‖θₜ − θₜ₋₁‖² / ‖θₜ₋₁‖²",
    "model_error": "model error ‖θₜ − θ*‖² / ‖θ*‖²",
    "residual": "decoding error ‖b − 1‖²",
    "auc": "AUC",
}


def convergence(
    traces: Sequence[Trace],
    metric: str = "loss",
    x: str = "time",
    target: float | None = None,
    theme: Theme = "light",
) -> go.Figure:
    """Draw a metric against wall clock, rounds, bytes or samples; one curve per run.

    Parameters
    ----------
    traces
        Runs to compare; several of one scheme are labelled by the settings in which they differ.
    metric
        A column of `trace.rounds`, such as loss, accuracy, relative_error.
    x
        "time" (s), "round", "bytes" or "samples" (cumulative). Time is logarithmic where runs differ widely.
    target
        Draws a line there; the legend says where each run meets it, as a multiple of CR's (or the fastest's).
    theme
        "light" or "dark".

    Raises
    ------
    SettingError
        Metric, x or theme is unknown, the target is no number, or there are no traces.

    Examples
    --------
    >>> import workbench as wb
    >>> traces = wb.compare([wb.Experiment(scheme=s, workers=12, rounds=20) for s in ("UMW", "CR")])
    >>> figure = convergence(traces, target=0.6)
    >>> [curve.legendgroup for curve in figure.data if curve.mode == "lines+markers"]
    ['UMW', 'CR']
    """
    series = named(traces)
    logs = _log_x(series, x), _log_y(series, metric)
    figure = new_figure(theme, _title(metric, x), shared(traces), height=640)
    names = [s.label for s in series]
    if target is not None:
        names = _with_target(figure, series, metric, x, target, theme)
    figure.add_traces([_curve(s, metric, x, logs[0], name) for s, name in zip(series, names, strict=True)])
    figure.update_layout(legend_itemwidth=44)
    _axes(figure, metric, x, logs)
    return figure


def _title(metric: str, x: str) -> str:
    over = {"time": "wall clock", "round": "rounds", "bytes": "bytes", "samples": "samples"}[x]
    name = _short(metric)
    return f"{name[:1].upper()}{name[1:]} versus {over}"


def _short(metric: str) -> str:
    """Name a metric without its formula."""
    return _NAMES.get(metric, metric.replace("_", " ")).split(" ‖")[0]


def _axes(figure: go.Figure, metric: str, x: str, logs: tuple[bool, bool]) -> None:
    kinds = ["log" if log else "linear" for log in logs]
    figure.update_xaxes(title_text=AXES[x], type=kinds[0])
    figure.update_yaxes(title_text=_NAMES.get(metric, metric.replace("_", " ")), type=kinds[1])
    figure.update_xaxes(tickformat="~g" if x == "time" else "~s")  # "~g": no shrunken digits between decades
    if logs[1]:
        figure.update_yaxes(exponentformat="power")


def _curve(s: Series, metric: str, x: str, log: bool, name: str) -> go.Scatter:
    xs, ys = points(s.trace, metric, x, log)
    return go.Scatter(
        x=xs,
        y=ys,
        name=name,
        legendgroup=s.label,
        mode="lines+markers",
        line={"color": s.style.color, "dash": s.style.dash, "width": 3},
        # Other points have clear markers: legends show a trace's first colour, and its mean size and opacity.
        marker={
            "symbol": s.style.symbol,
            "size": 11,
            "color": np.where(marked(xs, log), s.style.color, CLEAR),
        },
        hovertemplate=f"<b>{s.label}</b><br>{metric} %{{y:.5g}}<br>{x} %{{x:.5~g}}<extra></extra>",
    )


def points(trace: Trace, metric: str, x: str, log: bool) -> tuple[Array, Array]:
    """Thin a run's curve; it starts at zero, before the first round, where the axis has a zero."""
    xs, ys = abscissa(trace, x), column(trace, metric)
    kept = thin(len(xs), MOST_POINTS)
    xs, ys = xs[kept], ys[kept]
    if log or metric not in trace.initial:
        return xs, ys
    return np.concatenate([[0.0], xs]), np.concatenate([[trace.initial[metric]], ys])


def thin(count: int, most: int) -> NDArray[np.int64]:
    """Choose at most that many of `count` points: the ends, dense at the start, where curves are steep.

    >>> thin(5, 10).tolist()
    [0, 1, 2, 3, 4]
    """
    if count <= most:
        return np.arange(count)
    even = np.linspace(0, count - 1, most // 2)
    dense = np.geomspace(1, count, most - most // 2) - 1
    return np.unique(np.concatenate([even, dense]).round().astype(np.int64))


def marked(xs: Array, log: bool) -> NDArray[np.bool_]:
    """Choose the few points that carry a marker, evenly along the axis."""
    along = np.log(xs) if log else xs
    wanted = np.linspace(along[0], along[-1], MARKERS)
    places = np.clip(np.searchsorted(along, wanted), 0, len(xs) - 1)
    return np.isin(np.arange(len(xs)), places)


def _log_x(series: Sequence[Series], x: str) -> bool:
    """Say whether runs differ so much in length that equal speedups should be equal distances."""
    ends = [abscissa(s.trace, x)[-1] for s in series]
    return x == "time" and min(ends) > 0 and max(ends) / min(ends) > _RATIO_X


def _log_y(series: Sequence[Series], metric: str) -> bool:
    values = np.concatenate([column(s.trace, metric) for s in series])
    values = values[np.isfinite(values)]
    if metric in RISING or not len(values) or values.min() <= 0:
        return False
    return bool(values.max() / values.min() > _RATIO_Y)


# ---------------------------------------------------------------- target


def _with_target(
    figure: go.Figure, series: Sequence[Series], metric: str, x: str, target: float, theme: str
) -> list[str]:
    """Draw the target and where each run meets it; returns legend entries that say so."""
    check_target(target)
    found = [crossing(s.trace, metric, target, x) for s in series]
    base = _reference(series, found)
    _target_line(figure, metric, target, theme)
    figure.add_traces(
        [_met(s, metric, at, x, theme) for s, at in zip(series, found, strict=True) if at == at]
    )
    heading = f"{_word(x)} to {_short(metric)} {target:g}"
    if base is not None:
        heading += f"<br>(multiple of {series[base].label}’s)"
    figure.update_layout(legend_title_text=heading)
    unit = found[base] if base is not None else float("nan")
    return [f"{s.label}  {_entry(at, unit, x)}" for s, at in zip(series, found, strict=True)]


def _reference(series: Sequence[Series], found: Sequence[float]) -> int | None:
    """CR where it is there and meets the target, else the fastest, else none."""
    if any(s.trace.experiment.scheme == "CR" for s in series) and found[position(series, "CR")] > 0:
        return position(series, "CR")
    reached = [i for i, at in enumerate(found) if at > 0]
    return min(reached, key=lambda i: found[i]) if reached else None


def _word(x: str) -> str:
    return {"time": "time", "round": "rounds", "bytes": "bytes", "samples": "samples"}[x]


def _entry(at: float, base: float, x: str) -> str:
    if at != at:
        return "never"
    return f"{quantity(at, x)}  ({at / base:.3g}×)" if base == base else quantity(at, x)


def quantity(value: float, x: str) -> str:
    """Write a place on the x axis with its unit.

    >>> quantity(2_120_000, "bytes"), quantity(12.34, "time")
    ('2.12 MB', '12.3 s')
    """
    if x == "time":
        return f"{value:#.3g}".rstrip(".") + " s"
    power = min(4, max(0, int(np.log10(max(value, 1.0)) // 3)))
    prefix = ["", "k", "M", "G", "T"][power]
    return f"{value / 1000**power:.3g} {prefix}{'B' if x == 'bytes' else ''}".strip()


def _target_line(figure: go.Figure, metric: str, target: float, theme: str) -> None:
    line = {"color": palette(theme).muted, "width": 2, "dash": "dot"}
    # At the right end curves have passed the target: falling ones are below the line, rising ones above.
    side = "top" if metric in RISING else "bottom"
    label = {
        "text": f"{_short(metric)} {target:g}",
        "textposition": "end",
        "yanchor": side,
        "font": {"size": 15},
    }
    figure.add_shape(type="line", xref="paper", x0=0, x1=1, y0=target, y1=target, line=line, label=label)


def _met(s: Series, metric: str, at: float, x: str, theme: str) -> go.Scatter:
    """Ring around the first point of a curve that meets the target."""
    place = int(np.flatnonzero(abscissa(s.trace, x) == at)[0])
    return go.Scatter(
        x=[at],
        y=[column(s.trace, metric)[place]],
        mode="markers",
        name=f"{s.label} meets the target",
        legendgroup=s.label,
        showlegend=False,
        marker={"symbol": "circle-open", "size": 18, "color": palette(theme).text, "line": {"width": 2.5}},
        hovertemplate=f"<b>{s.label}</b> meets the target<br>{x} %{{x:.5~g}}<extra></extra>",
    )
