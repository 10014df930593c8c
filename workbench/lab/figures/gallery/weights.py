"""Decode weights: how a parent combines its children's messages."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from workbench.core.base.types import Array
from workbench.core.contract.plan import MASTER
from workbench.core.trace.trace import Trace
from workbench.lab.figures.decoding import Weights, decode_weights
from workbench.lab.figures.inputs import plural, runs, signed
from workbench.lab.figures.style import BLUE, HUES, VERMILLION, Theme, marks, new_figure, palette

HEIGHT_PX = 360
MAX_PRINTED_BARS = 24  # max number of bars for which every weight is printed


def weights(trace: Trace, round: int, parent: int = MASTER, theme: Theme = "light") -> go.Figure:
    """Draw the decode weights of a parent in a round: a bar per message used, a cross per late sender.

    Raises `SettingError` as `decode_weights` does, and for an unknown theme.

    >>> import workbench as wb
    >>> trace = wb.run(wb.Experiment(scheme="GC", scheme_args={"stragglers": 2}, workers=6, rounds=3))
    >>> weights(trace, 1).data[0].name
    'weight'
    """
    found = decode_weights(trace, round, parent)
    who = "the master" if parent == MASTER else f"rank {parent}"
    title = f"{trace.label}: decode weights of {who} in round {round}"
    figure = new_figure(theme, title, _used(found), height=HEIGHT_PX)
    for row, number in product(range(len(found.weight)), np.unique(found.number).tolist()):
        figure.add_trace(_bars(found, row, number))
    if len(found.late):
        figure.add_trace(_crosses(found))
    senders = {*found.rank.tolist(), *found.late.tolist()}
    step = 1 if len(senders) <= MAX_PRINTED_BARS else None
    figure.update_xaxes(title_text="sender’s rank", dtick=step, showgrid=False)
    figure.update_yaxes(title_text="weight", zeroline=True, zerolinecolor=palette(theme).muted)
    figure.update_layout(barmode="group", showlegend=len(figure.data) > 1)
    return figure


def _used(found: Weights) -> str:
    used = np.any(np.abs(found.weight) > 1e-12, axis=0)
    texts = [f"{plural(len(used), 'message')} came in time"]
    if not used.all():
        texts.append(f"{int(np.sum(~used))} not needed")
    if len(found.late):
        texts.append(f"too late: {runs(found.late.tolist())}")
    return " · ".join(texts)


def _bars(found: Weights, row: int, number: int) -> go.Bar:
    """Return the weights of each sender's message with this number, for every k-th coordinate from `row` on."""
    mine, many = found.number == number, len(found.weight) > 1
    names = [f"message {number + 1}"] if found.number.any() else []
    names += [f"coordinates {row}, {row + len(found.weight)}, …"] if many else []
    color = HUES[(row + len(found.weight) * number) % len(HUES)] if names else BLUE
    return numbered(
        found.rank[mine],
        found.weight[row][mine],
        not many and len(found.rank) <= MAX_PRINTED_BARS,
        name=", ".join(names) or "weight",
        marker={"color": color, "line": {"width": 0}},
        customdata=[", ".join([*names[:1], f"came at {t:.5g} s"]) for t in found.time[mine].tolist()],
        hovertemplate="<b>rank %{x}</b><br>weight %{y:.5g}<br>%{customdata}<extra></extra>",
    )


def numbered(x: NDArray[Any], y: Array, printed: bool, **more: Any) -> go.Bar:
    """Draw bars, with their values above them if there are few."""
    text = [signed(value) for value in y] if printed and len(y) <= MAX_PRINTED_BARS else None
    return go.Bar(x=x, y=y, text=text, textposition="outside", cliponaxis=False, **more)


def _crosses(found: Weights) -> go.Scatter:
    cross = {"symbol": "x-thin", "size": 11, "line": {"width": 2.5, "color": VERMILLION}}
    at = found.late, np.zeros(len(found.late))
    return marks(*at, "too late: dropped", cross, "<b>rank %{x}</b>: too late")
