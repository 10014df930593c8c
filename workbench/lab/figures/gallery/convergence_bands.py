"""Learning curves: means over repetitions with confidence bands."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go

from workbench.core.base.intervals import Band, band
from workbench.core.base.settings import unknown_name
from workbench.core.base.types import Array
from workbench.core.contract.scheme import mark_note
from workbench.core.trace.trace import Trace
from workbench.lab.figures.gallery.convergence import MAX_LINEAR_RATIO_Y, log_x, title
from workbench.lab.figures.inputs import named, plural, shared
from workbench.lab.figures.labels import metric_words
from workbench.lab.figures.lines import Curve, about, draw, scale_y
from workbench.lab.figures.speedups import AXES, known, repetitions, seedless
from workbench.lab.figures.style import Theme, log_ticks, new_figure

POINTS_PER_CURVE = 400  # number of points of a curve over time


def convergence_bands(
    traces: Sequence[Trace],
    metric: str = "loss",
    x: str = "time",
    level: float = 0.95,
    theme: Theme = "light",
) -> go.Figure:
    """Draw the mean of a metric over runs that differ only in their seed, with its confidence band.

    `traces`: runs, such as `wb.runs(folder).traces()`. Runs that differ only in their seed make one curve. `metric`: a
    column of `trace.rounds`. `x`: "time" (s) or "round". Over time, metrics are interpolated linearly between updates,
    until the first run ends. The time axis is logarithmic if run lengths differ widely. `level`: level of the
    confidence interval of the mean.

    Raises `SettingError` if metric, x, level or theme is unknown, or there are no traces.

    >>> import workbench as wb
    >>> traces = wb.compare([wb.Experiment(rounds=20, seed=seed) for seed in range(3)])
    >>> [curve.name for curve in convergence_bands(traces).data if curve.showlegend]
    ['CR (3 runs)']
    """
    if x not in ("time", "round"):
        raise unknown_name("x", x, ["time", "round"])
    groups = repetitions(traces)
    series = named([seedless(group[0]) for group in groups])
    log = log_x(traces, x)
    curves = []
    for s, group in zip(series, groups, strict=True):
        label = f"{s.marked} ({plural(len(group), 'run')})"
        curves.append(Curve(label, s.style, *_curve(group, metric, x, level, log), len(group)))
    note = mark_note(s.trace.experiment.scheme for s in series)
    facts = filter(None, (shared([group[0] for group in groups]), about(curves, level), note))
    figure = new_figure(theme, title(metric, x), " · ".join(facts))
    joined = max(len(curve.x) for curve in curves) > 1  # a single round is a point
    draw(figure, curves, joined, scale_y(curves, MAX_LINEAR_RATIO_Y), markers=False)
    figure.update_xaxes(title_text=AXES[x], **(_log_axis(curves) if log else {}))
    figure.update_yaxes(title_text=metric_words(metric))
    return figure.update_layout(showlegend=True, legend_itemwidth=44)


def _log_axis(curves: Sequence[Curve]) -> dict[str, object]:
    low, high = min(curve.x[0] for curve in curves), max(curve.x[-1] for curve in curves)
    return {"type": "log", "tickformat": "~g", **log_ticks(low, high)}


def _curve(group: Sequence[Trace], metric: str, x: str, level: float, log: bool) -> tuple[Array, Band]:
    times, values = map(list, zip(*(known(trace, metric, x) for trace in group), strict=True))
    if x == "round":
        shortest = min(len(value) for value in values)
        return times[0][:shortest], band([value[:shortest] for value in values], level)
    if not log and all(metric in trace.initial for trace in group):
        times = [np.concatenate([[0.0], time]) for time in times]
        values = [np.concatenate([[t.initial[metric]], v]) for t, v in zip(group, values, strict=True)]
    between = np.geomspace if log else np.linspace
    grid = between(max(time[0] for time in times), min(time[-1] for time in times), POINTS_PER_CURVE)
    return grid, band([np.interp(grid, t, v) for t, v in zip(times, values, strict=True)], level)
