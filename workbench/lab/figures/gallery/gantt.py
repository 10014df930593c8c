"""Gantt chart of one round."""

from __future__ import annotations

from typing import Any

import numpy as np
import plotly.graph_objects as go

from workbench.core.trace.trace import Trace
from workbench.lab.figures.inputs import plural
from workbench.lab.figures.round_events import Bars, Round, events_of
from workbench.lab.figures.style import (
    CLEAR,
    COMPUTING,
    DECODING,
    DOWNLOADING,
    RECEIVING,
    SENDING,
    TOO_LATE,
    TRAVELLING,
    Theme,
    Unit,
    assembled,
    new_figure,
    palette,
    time_unit,
)

MAX_RANKS = 300
MIN_HEIGHT_PX = 400  # min height in px, which is that of the legend
_MAX_LABELLED_RANKS = 40  # max number of ranks for which every row has a label


def gantt(trace: Trace, round: int = 0, theme: Theme = "light") -> go.Figure:
    """Draw one round: a row per rank, a bar for each activity, a line at the round's end.

    `trace`: a run with events. `round`: from 0. `theme`: "light" or "dark".

    A message is on its sender's row: light while it travels and queues, solid while it passes the receiver's port.
    The receiver's row shows when its port was busy. Hollow bars are unused work: answers that came too late (with an
    x), and computations that were unfinished when the round ended. Results that never arrived in the round are hollow
    as well.

    Raises `SettingError` if the run has no such round, or its events were not kept.

    >>> import workbench as wb
    >>> trace = wb.run(wb.Experiment(scheme="GC", scheme_args={"stragglers": 2}, workers=6, rounds=3))
    >>> gantt(trace, 2).layout.xaxis.title.text
    'time since the round’s start (ms)'
    """
    r = events_of(trace, round)
    unit, ranks = time_unit(r.duration), min(r.plan.ranks, MAX_RANKS)
    title = f"{trace.label}, {plural(trace.experiment.workers, 'worker')}: round {round}"
    height = max(MIN_HEIGHT_PX, int(190 + ranks * np.clip(900 / ranks, 5, 30)))
    figure = new_figure(theme, title, _subtitle(r, unit), height)
    layers = [(name, _shown(bars), look) for name, bars, look in _layers(r, theme)]
    bars = [_bar(name, bars, look, unit, ranks) for name, bars, look in layers if len(bars.rank)]
    some = _crosses(r, unit), _deaths(r, theme), _faults(r, unit, theme), _commits(r, unit, theme)
    marks = [mark for mark in some if len(mark["y"])]
    look = {"barmode": "overlay", "legend": {"traceorder": "normal"}}
    return assembled(figure, [*bars, *marks], **_axes(r, unit), shapes=_uprights(r, unit, theme), **look)


def _shown(bars: Bars) -> Bars:
    return bars.where(bars.rank < MAX_RANKS)


def _subtitle(r: Round, unit: Unit) -> str:
    answers, late = len(set(r.work["rank"].tolist())), len(r.of("drop"))
    cut, idle = len(r.cut_off.rank), r.idle
    text = f"{r.duration * unit.scale:.4g} {unit.name} · {answers} computed · {late} too late"
    text += f" · {cut} cut off" + (f" · {idle} not asked" if idle else "")
    return text if r.plan.ranks <= MAX_RANKS else f"{text} · ranks 0 to {MAX_RANKS - 1} shown"


def _layers(r: Round, theme: str) -> list[tuple[str, Bars, dict[str, Any]]]:
    """Return the kinds of bars in drawing order. If ranks compute and send simultaneously, each kind has half a row."""
    muted, lower = palette(theme).muted, {"width": 0.4, "offset": 0.0}
    work, talk = ({"width": 0.4, "offset": -0.4}, lower) if r.overlapping else ({}, {})
    return [
        ("model comes down", r.downloading, {**_solid(DOWNLOADING), **work}),
        ("computes", r.bars(r.work), {**_solid(COMPUTING), **work}),
        ("message travels, queues", r.waiting, {**_solid(TRAVELLING), **talk}),
        ("message through the port", r.passing, {**_solid(SENDING), **talk}),
        ("port receives", r.receiving, {**_solid(RECEIVING), **lower}),
        ("exchanges a series of messages", r.exchanging, {**_solid(SENDING), **talk}),
        ("pauses: a fault", r.did("fault").lasting, {**_solid(muted), **work}),
        ("decodes", r.did("decode"), {**_solid(DECODING), **work}),
        ("answer too late: dropped", r.did("drop"), {**_hollow(SENDING), **talk}),
        ("still computing: cut off", r.cut_off, {**_hollow(COMPUTING), "text": "cut off", "ink": muted}),
        ("no answer in this round", r.silent, {**_hollow(muted), "text": "no answer", "ink": muted}),
    ]


def _solid(color: str) -> dict[str, Any]:
    return {"color": color, "line": {"width": 0}}


def _hollow(color: str) -> dict[str, Any]:
    return {"color": CLEAR, "line": {"width": 1.5, "color": color}}


def _bar(name: str, bars: Bars, look: dict[str, Any], unit: Unit, ranks: int) -> dict[str, Any]:
    marker = {key: look[key] for key in ("color", "line")}
    hollow = marker["color"] == CLEAR
    if hollow and ranks > _MAX_LABELLED_RANKS:
        marker["line"] = {**marker["line"], "width": 1}
    text = look.get("text") if ranks <= _MAX_LABELLED_RANKS else None
    place: dict[str, Any] = {"y": bars.rank, "width": look.get("width", 0.72), "offset": look.get("offset")}
    place |= {"base": bars.start * unit.scale, "x": (bars.end - bars.start) * unit.scale}
    font = {"size": 14, **({"color": look["ink"]} if "ink" in look else {})}
    label = {"text": text, "textposition": "inside", "insidetextanchor": "end", "textfont": font}
    hover = "<b>rank %{y}</b>: " + name + "<br>%{customdata}<extra></extra>"
    label |= {"customdata": bars.text, "hovertemplate": hover}
    return {"type": "bar", "name": name, "orientation": "h", "marker": marker, **place, **label}


def _crosses(r: Round, unit: Unit) -> dict[str, Any]:
    late, lowered = _shown(r.did("drop")), 0.2 if r.overlapping else 0.0
    marker = {"symbol": "x-thin", "size": 9, "line": {"width": 2.5, "color": TOO_LATE}}
    texts = [f"<b>rank {rank}</b>: {text}" for rank, text in zip(late.rank, late.text, strict=True)]
    hover = "%{customdata}<br>answer too late"
    marks = _marks("dropped", late.end * unit.scale, late.rank + lowered, marker, hover)
    return {**marks, "showlegend": False, "customdata": texts}


def _deaths(r: Round, theme: str) -> dict[str, Any]:
    ranks = sorted(rank for rank in r.dead if rank < MAX_RANKS)
    marker = {"symbol": "cross-thin", "size": 12, "line": {"width": 3, "color": palette(theme).text}}
    return _marks("dead", [0.0] * len(ranks), ranks, marker, "<b>rank %{y}</b>: dead")


def _faults(r: Round, unit: Unit, theme: str) -> dict[str, Any]:
    bars = _shown(r.did("fault"))
    marker = {"symbol": "triangle-up", "size": 10, "color": palette(theme).text}
    kinds = [r.faults.get(rank, "fault") for rank in bars.rank.tolist()]
    hover = "<b>rank %{y}</b>: fault (%{customdata})"
    return {**_marks("faults", bars.start * unit.scale, bars.rank, marker, hover), "customdata": kinds}


def _commits(r: Round, unit: Unit, theme: str) -> dict[str, Any]:
    bars = _shown(r.did("commit"))
    marker = {
        "symbol": "diamond",
        "size": 9 if len(bars.rank) > _MAX_LABELLED_RANKS else 12,
        "color": palette(theme).text,
    }
    hover = f"<b>rank %{{y}}</b> has the gradient<br>%{{x:.5g}} {unit.name}"
    return {**_marks("commits", bars.end * unit.scale, bars.rank, marker, hover), "cliponaxis": False}


def _marks(name: str, x: Any, y: Any, marker: dict[str, Any], hover: str) -> dict[str, Any]:
    look = {"mode": "markers", "marker": marker, "hovertemplate": f"{hover}<extra></extra>"}
    return {"type": "scatter", "name": name, "x": x, "y": y, **look}


def _uprights(r: Round, unit: Unit, theme: str) -> list[dict[str, Any]]:
    """Draw vertical lines at the end of the round, and at its start if some ranks began before it."""
    stroke = {"color": palette(theme).text, "width": 2}
    strokes = [(r.duration * unit.scale, stroke)]
    if r.early < 0:  # ranks that began before the previous round had ended on all ranks
        strokes.append((0.0, {**stroke, "width": 1, "dash": "dot"}))
    place = {"type": "line", "xref": "x", "y0": 0, "y1": 1, "yref": "y domain"}
    return [{**place, "x0": x, "x1": x, "line": look} for x, look in strokes]


def _axes(r: Round, unit: Unit) -> dict[str, dict[str, Any]]:
    first, last = r.early * unit.scale, r.duration * unit.scale
    room = 0.02 * (last - first)
    ranks = min(r.plan.ranks, MAX_RANKS)
    ticks = _ticks(ranks)
    title = f"time since the round’s start ({unit.name})"
    down = {"title": {"text": "rank"}, "range": [ranks - 0.4, -0.6], "showgrid": False, "tickmode": "array"}
    down |= {"tickvals": ticks, "ticktext": ["master" if rank == 0 else str(rank) for rank in ticks]}
    return {"xaxis": {"title": {"text": title}, "range": [first - room, last + room]}, "yaxis": down}


def _ticks(ranks: int) -> list[int]:
    """Return the ranks to label: all, or round numbers if there are many ranks."""
    if ranks <= _MAX_LABELLED_RANKS:
        return list(range(ranks))
    step = next(s for s in (5, 10, 20, 50, 100, 200, 500, 10**9) if ranks / s <= 20)
    return list(range(0, ranks, step))
