"""Convergence: a metric over time, rounds, bytes or samples."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from workbench.analysis.planning.quantities import quantity
from workbench.core.base.text import upper
from workbench.core.base.types import Array
from workbench.core.contract.scheme import mark_note
from workbench.core.trace.metrics import SMOOTHED_EVALUATIONS, rises
from workbench.core.trace.trace import Trace
from workbench.lab.figures.inputs import Series, named, shared
from workbench.lab.figures.labels import metric_words, ratio_text, short
from workbench.lab.figures.speedups import (
    AXES,
    abscissa,
    check_target,
    column,
    crossing,
    known,
    ratio,
    reached,
    reference_of,
)
from workbench.lab.figures.style import CLEAR, Theme, log_scale, log_ticks, marks, new_figure, palette

MAX_POINTS = 2000
MARKERS_PER_CURVE = 8
# above this ratio of largest to smallest value, an axis is logarithmic, because ratios then matter more than
# differences
_MAX_LINEAR_RATIO_X, MAX_LINEAR_RATIO_Y = 6.0, 20.0


def convergence(
    traces: Sequence[Trace],
    metric: str = "loss",
    x: str = "time",
    target: float | None = None,
    theme: Theme = "light",
) -> go.Figure:
    """Draw a metric against time, rounds, bytes or samples; one curve per run.

    `traces`: runs. Those of one scheme are labelled by the settings in which they differ. `metric`: a column of
    `trace.rounds`, such as loss or test_accuracy. `x`: "time" (s), "round", "bytes" or "samples" (cumulative); time is
    logarithmic if the lengths of runs differ widely. `target`: value of the metric. The legend has the x value at
    which each run reaches it, and the ratio to that of CR (or of the fastest run). With mini-batches, the mean of the
    last five evaluations counts.

    Raises `SettingError` if metric, x or theme is unknown, the target is not a number, or there are no traces.

    >>> import workbench as wb
    >>> [curve.name for curve in convergence([wb.run(wb.Experiment(rounds=20))]).data]
    ['CR']
    """
    series = named(traces)
    column(series[0].trace, metric)  # checked before it is used in the title
    abscissa(series[0].trace, x)
    log = log_x([s.trace for s in series], x)
    note = mark_note(s.trace.experiment.scheme for s in series)
    facts = " · ".join(filter(None, [shared([s.trace for s in series]), note]))
    figure = new_figure(theme, title(metric, x), facts, height=640)
    names = [s.marked for s in series]
    if target is not None:
        names = _with_target(figure, series, metric, x, target, theme)
    figure.add_traces(_curves(series, names, metric, x, log))
    figure.update_xaxes(title_text=AXES[x], **_scale_x(series, x, log))
    figure.update_yaxes(title_text=metric_words(metric), **_scale_y(series, metric))
    if target is not None:
        _target_line(figure, metric, target, theme)
    return figure.update_layout(legend_itemwidth=44)


def title(metric: str, x: str) -> str:
    """Return the title: metric versus axis.

    >>> title("loss", "time")
    'Training loss versus time'
    """
    return f"{upper(short(metric))} versus {_word(x)}"


def _scale_y(series: Sequence[Series], metric: str) -> dict[str, object]:
    """Return a logarithmic axis for metrics that decrease over a large ratio, else a linear one."""
    values = np.concatenate([column(s.trace, metric) for s in series])
    return {"type": "linear", **({} if rises(metric) else log_scale(values, MAX_LINEAR_RATIO_Y))}


def _scale_x(series: Sequence[Series], x: str, log: bool) -> dict[str, object]:
    ends = np.concatenate([abscissa(s.trace, x)[[0, -1]] for s in series])
    form = "~g" if x == "time" else "~s"  # "~g" avoids the small digits between decades
    ticks = {"type": "log", **log_ticks(ends.min(), ends.max())} if log else {"type": "linear"}
    return {"tickformat": form, **ticks}


def _curves(
    series: Sequence[Series], names: Sequence[str], metric: str, x: str, log: bool
) -> list[go.Scatter]:
    phases = np.arange(len(series)) / len(series)
    curves = [_curve(s, metric, x, log, phase) for s, phase in zip(series, phases, strict=True)]
    for rank, (curve, name) in enumerate(zip(curves, names, strict=True), start=1000):
        curve.update(name=name, legendrank=rank)
    # If curves coincide, a dashed one is drawn later, so that a solid one is visible in its gaps.
    return sorted(curves, key=lambda curve: curve.line.dash != "solid")


def _curve(s: Series, metric: str, x: str, log: bool, phase: float) -> go.Scatter:
    xs, ys = points(s.trace, metric, x, log)
    # Points without a marker get a transparent one, because a legend shows a trace's first colour, and its mean size.
    colors = np.where(marked(xs, log, phase), s.style.color, CLEAR)
    return go.Scatter(
        x=xs,
        y=ys,
        legendgroup=s.label,
        mode="lines+markers",
        line={"color": s.style.color, "dash": s.style.dash, "width": 3},
        marker={"symbol": s.style.symbol, "size": 11, "color": colors},
        hovertemplate=f"<b>{s.label}</b><br>{metric} %{{y:.5g}}<br>{x} %{{x:.5~g}}<extra></extra>",
    )


def points(trace: Trace, metric: str, x: str, log: bool) -> tuple[Array, Array]:
    """Return the points of a run's curve that are drawn, from round 0 on if the axis has a zero."""
    xs, ys = known(trace, metric, x)
    indices = thin(len(xs), MAX_POINTS)
    xs, ys = xs[indices], ys[indices]
    if log or metric not in trace.initial:
        return xs, ys
    return np.concatenate([[0.0], xs]), np.concatenate([[trace.initial[metric]], ys])


def thin(count: int, most: int) -> NDArray[np.int64]:
    """Return at most `most` of `count` indices: both ends, and more at the start, where curves are steep.

    >>> thin(5, 10).tolist()
    [0, 1, 2, 3, 4]
    """
    if count <= most:
        return np.arange(count)
    even = np.linspace(0, count - 1, most // 2)
    dense = np.geomspace(1, count, most - most // 2) - 1
    return np.unique(np.concatenate([even, dense]).round().astype(np.int64))


def marked(xs: Array, log: bool, phase: float) -> NDArray[np.bool_]:
    """Return the points that get a marker: the first one, and a few others evenly along the axis.

    `phase` (0 to 1) shifts them, so that the markers of equal curves do not hide each other.
    """
    along = np.log(xs) if log else xs
    wanted = along[0] + (along[-1] - along[0]) * (np.arange(MARKERS_PER_CURVE) + phase) / MARKERS_PER_CURVE
    places = np.clip(np.searchsorted(along, wanted), 0, len(xs) - 1)
    return np.isin(np.arange(len(xs)), [0, *places])


def log_x(traces: Sequence[Trace], x: str) -> bool:
    """Return whether the lengths of the runs differ so much that the time axis should be logarithmic."""
    starts, ends = ([abscissa(trace, x)[at] for trace in traces] for at in (0, -1))
    return bool(x == "time" and min(starts) > 0 and max(ends) > _MAX_LINEAR_RATIO_X * min(ends))


# ---------------------------------------------------------------- target


def _with_target(
    figure: go.Figure, series: Sequence[Series], metric: str, x: str, target: float, theme: str
) -> list[str]:
    """Draw where each run reaches the target. Return legend entries with these times."""
    check_target(target)
    found = [crossing(s.trace, metric, target, x) for s in series]
    base = reference_of(series, found)
    places = [reached(s.trace, metric, target) for s in series]
    hits = [(s, place) for s, place in zip(series, places, strict=True) if place is not None]
    figure.add_traces([_met(s, metric, place, x, theme) for s, place in hits])
    heading = f"{_word(x)} to {short(metric)} {target:.4g}"
    if base is not None:
        heading += f"<br>(multiple of {series[base].label}’s)"
    if any(s.trace.experiment.batch is not None for s in series):
        heading += f"<br>mean of {SMOOTHED_EVALUATIONS} evaluations"
    figure.update_layout(legend_title_text=heading)
    unit = found[base] if base is not None else float("nan")
    return [f"{s.marked}  {_entry(at, unit, x)}" for s, at in zip(series, found, strict=True)]


def _word(x: str) -> str:
    return "rounds" if x == "round" else x


def _entry(at: float, base: float, x: str) -> str:
    if at != at:
        return "never"
    return f"{quantity(at, x)}  ({ratio_text(ratio(at, base), 3)})" if base > 0 else quantity(at, x)


def _target_line(figure: go.Figure, metric: str, target: float, theme: str) -> None:
    """Draw the target. In a page, js/fit.js moves its label to a side where no curve crosses it."""
    colors, log, up = palette(theme), figure.layout.yaxis.type == "log", rises(metric)
    if log and target <= 0:
        return  # a logarithmic axis has no such place
    stroke = {"color": colors.muted, "width": 2, "dash": "dot"}
    figure.add_shape(type="line", xref="paper", x0=0, x1=1, y0=target, y1=target, line=stroke)
    # At the right end, decreasing curves are below the target and increasing ones above. On a
    # logarithmic axis, the slowest curve is still close to it. At the left, decreasing ones are far above.
    left = figure.layout.xaxis.type == "log" and not up
    label = {"text": f"{short(metric)} {target:.4g}", "font": {"size": 15}, "bgcolor": colors.background}
    place = {"x": 1 - left, "xref": "paper", "xanchor": "left" if left else "right"}
    place |= {"y": np.log10(target) if log else target, "yanchor": "bottom" if left or not up else "top"}
    figure.add_annotation(name="target", showarrow=False, **label, **place)


def _met(s: Series, metric: str, place: int, x: str, theme: str) -> go.Scatter:
    """Draw a ring around the first point at which a curve reaches the target."""
    marker = {"symbol": "circle-open", "size": 18, "color": palette(theme).text, "line": {"width": 2.5}}
    at = [abscissa(s.trace, x)[place]], [column(s.trace, metric)[place]]
    hover = f"<b>{s.label}</b> reaches the target<br>{x} %{{x:.5~g}}"
    return marks(*at, f"{s.label} reaches the target", marker, hover, legendgroup=s.label, showlegend=False)
