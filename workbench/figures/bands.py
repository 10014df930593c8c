"""Means over repetitions with their confidence bands: a result against a setting, and learning curves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import plotly.graph_objects as go

from workbench.figures.curves import NAMES
from workbench.figures.inputs import named, shared
from workbench.figures.speedup import AXES, abscissa, column
from workbench.figures.style import Style, Theme, fade, log_ticks, new_figure, scheme_style
from workbench.intervals import Band, band
from workbench.protocol import Array
from workbench.settings import SettingError, unknown_name
from workbench.trace import Trace

if TYPE_CHECKING:
    import pandas as pd

POINTS = 400  # of a band over time
_RATIO = 20.0  # beyond it, ratios say more than differences: logarithmic axis
_WORDS = {
    "time": "time of the whole run (s)",
    "round_time": "time per round (s)",
    "time_to": "time to the target (s)",
}


class _Line(NamedTuple):
    label: str
    style: Style
    x: Any  # numbers, or texts on a categorical axis
    band: Band
    n: int


def bands(summary: pd.DataFrame, x: str | None = None, theme: Theme = "light") -> go.Figure:
    """Draw a result against a setting, one line with its confidence band for each combination of the others.

    Parameters
    ----------
    summary
        What `wb.runs(folder).mean(of, by=[...])` returns.
    x
        One of its groups' columns; default: the last one with numbers. Texts give points with error bars.

    Raises
    ------
    SettingError
        The table is no such summary or is empty, or x is none of its groups' columns.

    Examples
    --------
    >>> import pandas as pd
    >>> table = pd.DataFrame({"rate": [1, 2], "n": 5, "never": 0, "mean": [3.0, 2.0], "low": [2.5, 1], "high": [4, 3]})
    >>> table.attrs.update(of="time", by=["rate"], level=0.95)
    >>> [line.name for line in bands(table).data if line.showlegend]
    ['time']
    """
    by = _groups(summary)
    x = _abscissa(summary, by) if x is None else x
    if x not in by:
        raise unknown_name("x", x, by)
    # Schemes side by side keep their looks: one line, of one point, each.
    lines = list(_lines(summary, x, [name for name in by if name != x or x == "scheme"]))
    numbers = all(_is_number(value) for line in lines for value in line.x)
    of = str(summary.attrs["of"])
    figure = new_figure(theme, f"{_upper(_plain(of))} versus {x}", _about(lines, summary.attrs["level"]))
    _draw(figure, lines, joined=numbers)
    _scale_x(figure, lines, x, numbers)
    figure.update_yaxes(title_text=_WORDS.get(of, _plain(of)), **_scale_y(lines))
    figure.update_layout(showlegend=True, legend_itemwidth=44)
    return figure


def convergence_bands(
    traces: Sequence[Trace],
    metric: str = "loss",
    x: str = "time",
    level: float = 0.95,
    theme: Theme = "light",
) -> go.Figure:
    """Draw the mean of a metric over the runs that differ in nothing but their seed, with its confidence band.

    Parameters
    ----------
    traces
        Runs, such as `wb.runs(folder).traces()`; those with one experiment but for the seed make one curve.
    metric
        A column of `trace.rounds`.
    x
        "time" (s): at each moment, straight between the updates, until the first of the runs ends. "round": round by
        round.
    level
        Of the confidence interval of the mean.

    Raises
    ------
    SettingError
        Metric, x, level or theme is unknown, or there are no traces.

    Examples
    --------
    >>> import workbench as wb
    >>> traces = wb.compare([wb.Experiment(rounds=20, seed=seed) for seed in range(3)])
    >>> [curve.name for curve in convergence_bands(traces).data if curve.showlegend]
    ['CR (3 runs)']
    """
    if x not in ("time", "round"):
        raise unknown_name("x", x, ["time", "round"])
    groups = _repetitions(traces)
    series = named([replace(group[0], experiment=group[0].experiment.replace(seed=0)) for group in groups])
    lines = [
        _Line(_counted(s.label, len(group)), s.style, *_curve(group, metric, x, level), len(group))
        for s, group in zip(series, groups, strict=True)
    ]
    title = f"{_upper(_plain(metric))} versus {'wall clock' if x == 'time' else 'rounds'}"
    facts = shared([group[0] for group in groups])
    figure = new_figure(theme, title, " · ".join(filter(None, (facts, _about(lines, level)))))
    _draw(figure, lines, joined=True, markers=False)
    figure.update_xaxes(title_text=AXES[x])
    figure.update_yaxes(title_text=NAMES.get(metric, _plain(metric)), **_scale_y(lines))
    figure.update_layout(showlegend=True, legend_itemwidth=44)
    return figure


# ---------------------------------------------------------------- a result against a setting


def _groups(summary: pd.DataFrame) -> list[str]:
    by = list(summary.attrs.get("by", []))
    if not by or "of" not in summary.attrs or not {"mean", "low", "high", *by} <= set(summary):
        raise SettingError(
            "summary: is no table of means by a setting or more; give what wb.runs(folder).mean(of, by=[...]) returns"
        )
    if not len(summary):
        raise SettingError("summary: is empty; no run is done yet")
    return by


def _abscissa(summary: pd.DataFrame, by: list[str]) -> str:
    numeric = [name for name in by if all(_is_number(value) for value in summary[name].dropna())]
    return (numeric or by)[-1]


def _lines(summary: pd.DataFrame, x: str, others: list[str]) -> Iterator[_Line]:
    seen: dict[str, int] = {}
    groups = summary.groupby(others, dropna=False, sort=False) if others else [((), summary)]
    for key, group in groups:
        rows = group.dropna(subset=[x, "mean"])
        facts = {name: value for name, value in zip(others, key, strict=True) if value == value}
        scheme = str(facts.pop("scheme", ""))
        words = ", ".join(
            [*([scheme] if scheme else []), *(f"{_last(k)}={_short(v)}" for k, v in facts.items())]
        )
        style = scheme_style(scheme or words or "all", seen.get(scheme, 0))
        seen[scheme] = seen.get(scheme, 0) + 1
        if len(rows):
            ends = Band(*(rows[name].to_numpy(float) for name in ("mean", "low", "high")))
            yield _Line(
                words or str(summary.attrs["of"]), style, rows[x].tolist(), ends, int(rows["n"].max())
            )


def _short(value: Any) -> str:
    return f"{value:g}" if _is_number(value) else str(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.number) and not isinstance(value, bool)


def _scale_x(figure: go.Figure, lines: Sequence[_Line], x: str, numbers: bool) -> None:
    figure.update_xaxes(title_text=x)
    values = [value for line in lines for value in line.x]
    if not numbers:
        figure.update_xaxes(type="category")
    elif min(values) > 0 and max(values) > _RATIO * min(values):
        figure.update_xaxes(type="log", tickformat="~g", **log_ticks(min(values), max(values)))
    elif all(float(value).is_integer() for value in values) and max(values) - min(values) <= 12:
        figure.update_xaxes(dtick=1)


# ---------------------------------------------------------------- learning curves


def _repetitions(traces: Sequence[Trace]) -> list[list[Trace]]:
    named(traces)  # refuses what are no traces
    groups: dict[tuple[str, str], list[Trace]] = {}
    for trace in traces:
        key = trace.engine, trace.experiment.replace(seed=0).model_dump_json()
        groups.setdefault(key, []).append(trace)
    return list(groups.values())


def _curve(group: Sequence[Trace], metric: str, x: str, level: float) -> tuple[Array, Band]:
    values = [column(trace, metric) for trace in group]
    times = [abscissa(trace, x) for trace in group]
    if x == "round":
        shortest = min(len(value) for value in values)
        return times[0][:shortest], band([value[:shortest] for value in values], level)
    if all(metric in trace.initial for trace in group):
        times = [np.concatenate([[0.0], time]) for time in times]
        values = [np.concatenate([[t.initial[metric]], v]) for t, v in zip(group, values, strict=True)]
    grid = np.linspace(max(time[0] for time in times), min(time[-1] for time in times), POINTS)
    return grid, band([np.interp(grid, t, v) for t, v in zip(times, values, strict=True)], level)


def _counted(text: str, n: int) -> str:
    return f"{text} ({n} run{'s' * (n > 1)})"


# ---------------------------------------------------------------- both


def _draw(figure: go.Figure, lines: Sequence[_Line], joined: bool, markers: bool = True) -> None:
    """Bands first, so that no line lies under another's band."""
    if joined:
        figure.add_traces([_area(line) for line in lines if line.n > 1])
    for line in lines:
        look = "lines+markers" if joined and markers else "lines" if joined else "markers"
        ends = {"array": line.band.high - line.band.mean, "arrayminus": line.band.mean - line.band.low}
        figure.add_scatter(
            x=line.x,
            y=line.band.mean,
            error_y=None if joined or line.n < 2 else {"type": "data", "thickness": 2.5, "width": 8, **ends},
            mode=look,
            name=line.label,
            legendgroup=line.label,
            showlegend=True,
            line={"color": line.style.color, "dash": line.style.dash, "width": 3},
            marker={"color": line.style.color, "symbol": line.style.symbol, "size": 11},
            hovertemplate=f"<b>{line.label}</b><br>%{{x}}<br>mean %{{y:.5g}}<extra></extra>",
        )


def _area(line: _Line) -> go.Scatter:
    """The band, as one closed curve; on a logarithmic axis it ends where numbers are no longer positive."""
    known = np.isfinite(line.band.low)
    x = np.asarray(line.x)[known]
    low, high = line.band.low[known], line.band.high[known]
    if line.band.mean.min() > 0:
        low = np.maximum(low, line.band.mean.min() / 10)
    return go.Scatter(
        x=np.concatenate([x, x[::-1]]),
        y=np.concatenate([high, low[::-1]]),
        fill="toself",
        fillcolor=fade(line.style.color, 0.2),
        line={"width": 0},
        mode="lines",
        name=f"{line.label} band",
        legendgroup=line.label,
        showlegend=False,
        hoverinfo="skip",
    )


def _scale_y(lines: Sequence[_Line]) -> dict[str, Any]:
    values = np.concatenate([line.band.mean for line in lines])
    values = values[np.isfinite(values)]
    if len(values) and values.min() > 0 and values.max() > _RATIO * values.min():
        return {
            "type": "log",
            "exponentformat": "power",
            **log_ticks(float(values.min()), float(values.max())),
        }
    return {}


def _about(lines: Sequence[_Line], level: float) -> str:
    counts = {line.n for line in lines}
    if counts == {1}:
        return "single runs: no band"
    number = str(counts.pop()) if len(counts) == 1 else f"{min(counts)} to {max(counts)}"
    return f"band: {100 * level:g} % confidence interval of the mean over {number} runs"


def _last(name: str) -> str:
    return name.rsplit(".", 1)[-1]


def _plain(name: str) -> str:
    return _last(name).replace("_", " ")


def _upper(text: str) -> str:
    return text[:1].upper() + text[1:]
