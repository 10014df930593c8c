"""Stream of rounds: the state of every worker in every round, with its utilisation and lateness."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go

from workbench.core.base.settings import SettingError
from workbench.core.base.type_checks import span
from workbench.core.trace.stream import STATES, Stream
from workbench.core.trace.trace import Trace
from workbench.lab.figures.inputs import check_traces, plural
from workbench.lab.figures.style import BLUE, ORANGE, PINK, VERMILLION, Theme, new_figure, palette

MAX_ROUNDS = 400  # max number of drawn rounds; if there are more, the newest
MAX_NUMBERED_ROWS = 12  # max number of rows, or of rounds, for which each has a number


def colors(theme: str) -> dict[str, str]:
    """Return the colours of the worker states, and those of text, secondary text and background.

    >>> list(colors("light"))[:3]
    ['waits', 'computes', 'queues']
    """
    p = palette(theme)
    light = {"queues": "#F5D9A6", "dead": "#1B1F24"}
    shades = light if theme == "light" else {"queues": "#7A5A1C", "dead": "#EEF0F3"}
    states = [p.neutral, BLUE, shades["queues"], ORANGE, VERMILLION, PINK, shades["dead"]]
    return {**dict(zip(STATES, states, strict=True)), "ink": p.text, "soft": p.muted, "ground": p.background}


def stream(
    trace: Trace, first: int | None = None, rounds: int = MAX_ROUNDS, theme: Theme = "light"
) -> go.Figure:
    """Draw a row per worker over the rounds: computing, waiting, sending, late, dropped or dead.

    `trace`: a run with events. `first`: first drawn round. By default, the last rounds are drawn. `rounds`: max number
    of rounds. All rounds have the same width, whatever their time. Beside the rows are the share of the time in which a
    worker computed, and the share of rounds that ended without its answer. `theme`: "light" or "dark".

    Raises `SettingError` if the events of the trace were not kept.

    >>> import workbench as wb
    >>> trace = wb.run(wb.Experiment(scheme="GC", scheme_args={"stragglers": 2}, workers=6, rounds=3))
    >>> stream(trace).data[0].z.shape
    (6, 24)
    """
    check_traces([trace])
    table = Stream.of(trace)
    if not len(table):
        raise SettingError("trace: kept no events; run with events=True")
    begin = max(len(table) - rounds, 0) if first is None else min(max(first - table.first, 0), len(table) - 1)
    shown = table.grid[begin : begin + rounds]
    z = shown.transpose(1, 0, 2).reshape(table.workers, -1)
    x = table.first + begin + (np.arange(z.shape[1]) + 0.5) / table.slices
    look, workers = colors(theme), np.arange(1, table.workers + 1)
    title = f"{trace.label}, {plural(table.workers, 'worker')}: what they did, round by round"
    late = table.lateness()
    there = slice(begin, begin + rounds)
    share = table.late[there].sum() / max(table.asked[there].sum(), 1)
    start, many = table.first + begin, "s" * (len(shown) > 1)
    about = f"round{many} {span(start, start + len(shown) - 1)} · {share:.1%} of the answers"
    figure = new_figure(theme, title, f"{about} late", int(np.clip(260 + 8 * table.workers, 410, 930)))
    figure.set_subplots(
        rows=1, cols=3, shared_yaxes=True, column_widths=[0.76, 0.12, 0.12], horizontal_spacing=0.035
    )
    scale = [[(i + d) / len(STATES), look[name]] for i, name in enumerate(STATES) for d in (0, 1)]
    names = np.array(STATES)[z]
    figure.add_trace(
        go.Heatmap(
            z=z, x=x, y=workers, zmin=-0.5, zmax=len(STATES) - 0.5, colorscale=scale, customdata=names, showscale=False,
            hovertemplate="worker %{y}, round %{x:.0f}: %{customdata}<extra></extra>",
        ),
        1, 1,
    )  # fmt: skip
    for name in STATES:
        marker = {"color": look[name], "symbol": "square", "size": 13}
        figure.add_scatter(x=[None], y=[None], mode="markers", name=name, marker=marker, row=1, col=1)
    sides = (("computing", table.utilisation(), BLUE), ("late", late, VERMILLION))
    for column, (name, values, color) in enumerate(sides, 2):
        bar = {"orientation": "h", "marker_color": color, "showlegend": False, "name": name}
        figure.add_bar(x=values, y=workers, **bar, row=1, col=column)
        axis = {"title_text": name, "tickformat": ".0%", "rangemode": "tozero", "nticks": 3}
        figure.update_xaxes(**axis, row=1, col=column)
    figure.update_xaxes(title_text="round", showgrid=False, row=1, col=1)
    dtick = 1 if table.workers <= MAX_NUMBERED_ROWS else None
    figure.update_yaxes(range=[table.workers + 0.5, 0.5], showgrid=False, dtick=dtick)
    figure.update_xaxes(dtick=1 if len(shown) <= MAX_NUMBERED_ROWS else None, row=1, col=1)
    figure.update_yaxes(title_text="worker", row=1, col=1)
    figure.update_layout(legend={"orientation": "h", "y": 1, "yanchor": "bottom", "x": 0}, bargap=0.15)
    return figure.update_layout(margin={"t": 126})  # space for the subtitle
