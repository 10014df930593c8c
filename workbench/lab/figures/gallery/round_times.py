"""Distribution of round times."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import plotly.graph_objects as go

from workbench.analysis.planning.quantities import quantity_of
from workbench.core.base.settings import SettingError, short
from workbench.core.base.types import Array
from workbench.core.contract.scheme import mark_note, marked
from workbench.core.forecasting import Forecast
from workbench.core.trace.trace import Trace
from workbench.lab.figures.inputs import labels
from workbench.lab.figures.passes import data_share
from workbench.lab.figures.style import (
    Style,
    Theme,
    Unit,
    fade,
    log_ticks,
    marks,
    new_figure,
    palette,
    styles,
    time_unit,
)

# rounds count as equally long if the longest takes at most this factor times the shortest
MAX_EQUAL_RATIO = 1.01
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


class _Row(NamedTuple):
    label: str
    style: Style
    seconds: Array
    share: float  # share of the data that a round commits


def round_times(
    runs: Sequence[Trace | Forecast] | Mapping[str, Trace | Forecast], theme: Theme = "light", skip: int = 0
) -> go.Figure:
    """Draw the round times: one box per run, on a logarithmic axis.

    `runs`: traces or forecasts, or a dict from name to trace or forecast. A name that begins with a scheme's (such as
    "CR forecast") has the scheme's colour. `theme`: "light" or "dark". `skip`: number of first rounds of each trace to
    leave out, since in a real run they may take longer, until caches are filled.

    A row states which share of the data its rounds use, if it is less than all. Such rounds are
    shorter because they do less.

    Raises `SettingError` if there is nothing to draw, an item is neither trace nor forecast, or a trace has no rounds
    after those that are left out.

    >>> import workbench as wb
    >>> e = wb.Experiment(scheme="UMW", workers=4, rounds=20)
    >>> figure = round_times({"UMW": wb.run(e), "UMW forecast": wb.forecast(e)})
    >>> [box.name for box in figure.data if box.type == "box"]
    ['UMW', 'UMW forecast']
    """
    rows = _rows(runs, skip)
    unit = time_unit(min(float(row.seconds.mean()) for row in rows))
    about = "box: middle half and median · whiskers: 5 to 95 % · diamond: mean"
    if skip:
        about += f" · runs without {'their first round' if skip == 1 else f'their first {skip} rounds'}"
    about = " · ".join(filter(None, [about, mark_note(row.label for row in rows)]))
    figure = new_figure(theme, "Time per round", about, height=max(300, 180 + 76 * len(rows)))
    figure.add_traces([_box(row, unit) for row in rows])
    figure.add_traces([_mean(row, unit, theme) for row in rows])
    order = {"categoryorder": "array", "categoryarray": [row.label for row in reversed(rows)]}
    # all boxes are added in one call, because plotly validates the whole figure in each call, and a slider waits for it
    return figure.update_layout(
        xaxis={"title": {"text": f"time per round ({unit.name})"}, "tickformat": "~g", **_scale(rows, unit)},
        yaxis={**order, "showgrid": False, "ticks": "", "range": [-0.6, len(rows) - 0.4]},
        annotations=[_mean_text(row) for row in rows],
        showlegend=False,
        margin={"r": 150},
    )


def _scale(rows: Sequence[_Row], unit: Unit) -> dict[str, object]:
    """Return a logarithmic scale, or a linear one if a drawn quantile is 0, which a logarithm cannot show."""
    ends = np.array([np.quantile(row.seconds, (QUANTILES[0], QUANTILES[-1])) for row in rows])
    low, high = float(ends.min()), float(ends.max())
    if low <= 0:
        return {"type": "linear", "rangemode": "tozero"}
    if high > MAX_EQUAL_RATIO * low:
        return {"type": "log", **log_ticks(low, high)}
    # if all rounds are equally long, rounding errors would otherwise determine the axis
    ends = np.array([low, high]) * unit.scale * [2 / 3, 3 / 2]
    return {"type": "log", "nticks": 10, "range": np.log10(ends).tolist()}


def _rows(runs: Sequence[Trace | Forecast] | Mapping[str, Trace | Forecast], skip: int) -> list[_Row]:
    runs = [runs] if isinstance(runs, (Trace, Forecast)) else runs
    if not isinstance(runs, Collection):
        raise SettingError(f"runs = {short(runs)}: is not a list; give at least one Trace or Forecast")
    if not len(runs):
        raise SettingError("runs = []: is empty; give at least one Trace or Forecast")
    pairs = list(runs.items()) if isinstance(runs, Mapping) else _name(list(runs))
    looks = styles(r.experiment.scheme if isinstance(r, Trace) else name.split(" ")[0] for name, r in pairs)
    found = zip(pairs, looks, strict=True)
    return [_Row(label, style, _seconds(run, skip), data_share(run)) for (label, run), style in found]


def _name(runs: list[Trace | Forecast]) -> list[tuple[str, Trace | Forecast]]:
    traces = [r for r in runs if isinstance(r, Trace)]
    found = (marked(label, r.experiment.scheme) for label, r in zip(labels(traces), traces, strict=True))
    return [(next(found) if isinstance(r, Trace) else f"forecast {i}", r) for i, r in enumerate(runs, 1)]


def _seconds(run: Trace | Forecast, skip: int) -> Array:
    if isinstance(run, Trace):
        times = np.asarray(run.columns["time"], dtype=float)
        if not len(times):
            raise SettingError(f"runs: the run of {run.label} finished no round; draw one with rounds")
        if not 0 <= skip < len(times):
            why = f"{run.label} has {len(times)} rounds; take 0 to {len(times) - 1}"
            raise SettingError(f"skip = {short(skip)}: {why}")
        return np.diff(times, prepend=0.0)[skip:]
    if isinstance(run, Forecast):
        return np.asarray(run.seconds)
    raise SettingError(f"runs: a {type(run).__name__} has no round times; give Trace or Forecast")


def _box(row: _Row, unit: Unit) -> go.Box:
    """Draw a box from quantiles, so that a figure of a million rounds stays small."""
    low, q1, median, q3, high = (np.array([q]) for q in np.quantile(row.seconds, QUANTILES) * unit.scale)
    stroke, fill = {"color": row.style.color, "width": 2.5}, fade(row.style.color, 0.3)
    look = {"orientation": "h", "width": 0.5, "line": stroke, "fillcolor": fill, "hoverinfo": "x+name"}
    place = {"lowerfence": low, "q1": q1, "median": median, "q3": q3, "upperfence": high}
    return go.Box(y=[row.label], name=row.label, **place, **look)


def _mean(row: _Row, unit: Unit, theme: str) -> go.Scatter:
    colors = palette(theme)
    edge = {"color": colors.background, "width": 1.5}
    marker = {"symbol": "diamond", "size": 11, "color": colors.text, "line": edge}
    hover = f"<b>{row.label}</b><br>mean %{{x:.4g}} {unit.name}"
    return marks([row.seconds.mean() * unit.scale], [row.label], f"{row.label} mean", marker, hover)


def _mean_text(row: _Row) -> dict[str, object]:
    # each row has its own unit, because means may differ by orders of magnitude
    text = f"mean {quantity_of(float(row.seconds.mean()))}"
    text += f"<br>{100 * row.share:.2g} % of the data" if row.share < 1 else ""
    place = {"xref": "paper", "x": 1.01, "xanchor": "left", "y": row.label, "yref": "y"}
    return {"text": text, **place, "showarrow": False, "align": "left", "font": {"size": 16}}
