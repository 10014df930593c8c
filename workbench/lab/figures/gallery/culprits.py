"""Diagnosis: how much each worker lengthens the steps."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go

from workbench.analysis.recordings.verdict import Diagnosis
from workbench.lab.figures.style import GREY, VERMILLION, Theme, error_bars, new_figure, palette

MAX_BARS = 24  # max number of bars


def culprits(diagnosis: Diagnosis, theme: Theme = "light") -> go.Figure:
    """Draw each worker's share of the steps' time, with 90 % bands for the workers that stand out.

    `diagnosis`: result of `wb.diagnose`. Raises `SettingError` for an unknown theme.

    >>> figure = culprits(Diagnosis("two", 1.1, (), {"worker 0": 0.05, "worker 1": 0.0}, "links"))
    >>> list(figure.data[0].y)
    ['worker 0', 'worker 1']
    """
    found = {one.label: one for one in diagnosis.culprits}
    shown = sorted(diagnosis.costs, key=lambda who: -diagnosis.costs[who])[:MAX_BARS]
    costs = np.array([diagnosis.costs[who] for who in shown])
    low, high = (
        np.array([getattr(found[who], end) if who in found else diagnosis.costs[who] for who in shown])
        for end in ("low", "high")
    )
    rest = len(diagnosis.costs) - len(shown)
    text = f"steps take {diagnosis.slowdown:.4g} times what they would if all were like {diagnosis.like}"
    text += "" if found else " · nobody stands out"
    text += f" · {rest} that cost less are not shown" if rest else ""
    title = f"Who makes the steps long: {diagnosis.name}"
    figure = new_figure(theme, title, text, height=190 + 22 * len(shown))
    figure.add_bar(
        x=costs,
        y=shown,
        orientation="h",
        marker={"color": [VERMILLION if who in found else GREY for who in shown], "line": {"width": 0}},
        error_x=error_bars(low, costs, high, symmetric=False, thickness=1.5, color=palette(theme).muted),
        hovertemplate="%{y}<br>%{x:.3~p} of the time<extra></extra>",
    )
    figure.update_xaxes(title_text="share of the steps' time", tickformat=".3~p", rangemode="tozero")
    figure.update_yaxes(autorange="reversed", showgrid=False)
    if not shown:  # without bars, the axis gets a fixed range instead of arbitrary numbers
        figure.update_xaxes(range=[0, 1]).update_yaxes(showticklabels=False, ticks="")
    return figure
