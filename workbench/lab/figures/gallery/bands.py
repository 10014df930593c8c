"""Means over repetitions with their confidence bands: a result against a setting, and learning curves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from workbench.core.base.intervals import Band
from workbench.core.base.settings import SettingError, unknown_name
from workbench.core.base.text import upper
from workbench.core.contract.scheme import mark_note, marked
from workbench.lab.figures.labels import axis, result, setting, value_text
from workbench.lab.figures.lines import Curve, about, draw, scale_y
from workbench.lab.figures.style import Theme, log_ticks, new_figure, scheme_style

# above this ratio of largest to smallest value, an axis is logarithmic, because ratios then matter more than
# differences
_MAX_LINEAR_RATIO, _MAX_LINEAR_RATIO_TIME = 20.0, 6.0
_TIMES = ("time", "round_time", "time_to")


def bands(summary: pd.DataFrame, x: str | None = None, theme: Theme = "light") -> go.Figure:
    """Draw a result against a setting, a line and confidence band for each combination of the other settings.

    `summary`: result of `wb.runs(folder).mean(of, by=[...])`. `x`: one of the columns in `by`, by default
    the last numeric one, else the last. For text columns, points with error bars are drawn. `theme`: "light" or "dark".
    The subtitle lists other settings in which the runs of a mean differ.

    Raises `SettingError` if the table is not such a summary or is empty, or x is not one of these columns.

    >>> import pandas as pd
    >>> table = pd.DataFrame({"rate": [1, 2], "n": 5, "never": 0, "mean": [3.0, 2.0], "low": [2.5, 1], "high": [4, 3]})
    >>> table.attrs.update(of="time", by=["rate"], level=0.95)
    >>> [line.name for line in bands(table).data if line.showlegend]
    ['time']
    """
    by = _groups(summary)
    x = abscissa(summary, by) if x is None else x
    if x not in by:
        raise unknown_name("x", x, by)
    # if schemes are on the x axis, each one is a line with one point, so that it has its style
    curves = list(_curves(summary, x, [name for name in by if name != x or x == "scheme"]))
    numbers = all(_is_number(value) for curve in curves for value in curve.x)
    of = str(summary.attrs["of"])
    short, long = result(of)
    title = f"{upper(short)} {'versus' if numbers else 'by'} {setting(x)}"
    text = about(curves, summary.attrs["level"])
    if pooled := summary.attrs.get("pooled"):
        text = f"{text} · each mean is over runs that also differ in {', '.join(map(setting, pooled))}"
    used = list(dict.fromkeys(summary["scheme"])) if "scheme" in summary else []
    figure = new_figure(theme, title, " · ".join(filter(None, [text, mark_note(used)])))
    most = _MAX_LINEAR_RATIO_TIME if of in _TIMES else _MAX_LINEAR_RATIO
    draw(figure, curves, numbers, scale_y(curves, most))
    _scale_x(figure, curves, axis(x, used), numbers)
    figure.update_yaxes(title_text=long)
    return figure.update_layout(showlegend=True, legend_itemwidth=44)


def _groups(summary: pd.DataFrame) -> list[str]:
    by = list(summary.attrs.get("by", []))
    if not by or "of" not in summary.attrs or not {"mean", "low", "high", *by} <= set(summary):
        why = "give what wb.runs(folder).mean(of, by=[...]) returns"
        raise SettingError(f"summary: is not a table of means by one or more settings; {why}")
    if not len(summary):
        raise SettingError("summary: is empty; no run is done yet")
    return by


def abscissa(summary: pd.DataFrame, by: list[str]) -> str:
    """Return the last numeric setting of a summary, else the last one."""
    numeric = [name for name in by if all(_is_number(value) for value in summary[name].dropna())]
    return (numeric or by)[-1]


def _curves(summary: pd.DataFrame, x: str, others: list[str]) -> Iterator[Curve]:
    seen: Counter[str] = Counter()
    groups = summary.groupby(others, dropna=False, sort=False) if others else [((), summary)]
    for key, group in groups:
        rows = _everywhere(group, x, summary[x].dropna()).dropna(subset=[x, "mean"])
        facts = dict(zip(others, key, strict=True))
        scheme, label = str(facts.get("scheme", "")), group_label(facts)
        style = scheme_style(scheme or label or "all", seen[scheme])
        seen[scheme] += 1
        if len(rows):
            ends = Band(*(rows[name].to_numpy(float) for name in ("mean", "low", "high")))
            at = [marked(value, value) if x == "scheme" else value for value in rows[x].tolist()]
            yield Curve(label or str(summary.attrs["of"]), style, at, ends, int(rows["n"].max()))


def group_label(facts: Mapping[str, Any]) -> str:
    """Return the label of a group of runs: its scheme, then its other settings, without unknown ones.

    >>> group_label({"scheme": "GC", "link.latency": 0.1, "workers": float("nan")})
    'GC, latency=0.1'
    """
    known = {name: value for name, value in facts.items() if value == value}
    scheme = [marked(name := str(known.pop("scheme")), name)] if "scheme" in known else []
    return ", ".join([*scheme, *(f"{n.rsplit('.', 1)[-1]}={value_text(n, v)}" for n, v in known.items())])


def _everywhere(group: pd.DataFrame, x: str, values: pd.Series[Any]) -> pd.DataFrame:
    """Return the rows of a group. If its scheme lacks the parameter, its mean is drawn at both ends of the axis."""
    if len(group) != 1 or not len(values) or not group[x].isna().all() or not all(map(_is_number, values)):
        return group
    ends = sorted({float(values.min()), float(values.max())})
    return pd.concat([group.assign(**{x: end}) for end in ends])


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.number) and not isinstance(value, bool)


def _scale_x(figure: go.Figure, curves: Sequence[Curve], text: str, numbers: bool) -> None:
    figure.update_xaxes(title_text=text)
    values = [value for curve in curves for value in curve.x]
    if not numbers:
        figure.update_xaxes(type="category")
    elif min(values) > 0 and max(values) > _MAX_LINEAR_RATIO * min(values):
        figure.update_xaxes(type="log", tickformat="~g", **log_ticks(min(values), max(values)))
    elif all(float(value).is_integer() for value in values) and max(values) - min(values) <= 12:
        figure.update_xaxes(dtick=1)
