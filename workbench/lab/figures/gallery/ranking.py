"""Ranking: the planner's configurations by time, with uncertainties and the causes of their round times."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go

from workbench.analysis.planning.advice import Advice, Choice
from workbench.analysis.planning.quantities import INEXACT_MARK, quantity_of
from workbench.core.base.settings import SettingError
from workbench.core.contract.scheme import mark_note
from workbench.lab.figures.scheme_grid import MAX_EQUAL_RATIO
from workbench.lab.figures.style import (
    BLUE,
    GREY,
    ORANGE,
    VERMILLION,
    Theme,
    error_bars,
    log_ticks,
    marks,
    new_figure,
    scheme_style,
    time_unit,
)

MAX_BARS = 14
MAX_TICKS = 6  # max number of labels of a linear axis
MIN_SHOWN_SHARE = 0.005  # min share of predictions in which a choice is the fastest that is written
COLORS = {"computing": GREY, "stragglers": VERMILLION, "latency": ORANGE, "transfers": BLUE}


def ranking(advice: Advice, most: int = MAX_BARS, theme: Theme = "light") -> go.Figure:
    """Draw the best configuration of each scheme, and the next best ones, with the causes of their round times.

    `advice`: result of `wb.plan`. `most`: max number of configurations. `theme`: "light" or "dark".

    Raises `SettingError` for an unknown theme, or if there is nothing to show.

    >>> import workbench as wb
    >>> from workbench.analysis.planning.planner import plan
    >>> from workbench.analysis.planning.measuring import simulated
    >>> measured = simulated(wb.Experiment(scheme="UMW", workers=3), rounds=8)
    >>> figure = ranking(plan(measured, rounds=5, schemes=["UMW", "GC"], effort=0))
    >>> figure.data[0].y[0]
    'UMW'
    """
    if most < 1:
        raise SettingError(f"most = {most}: take 1 or more")
    shown = picked(advice, most)
    unit = time_unit(min(choice.seconds for choice in shown))
    about = f"expected time {advice.target}, each at its own step; bars: nine in ten runs"
    if advice.favourite is not advice.best:
        about = f"most often: {advice.favourite.name}; {about}"
    figure = new_figure(theme, advice.headline, about, height=230 + 44 * len(shown))
    figure.set_subplots(
        rows=1, cols=2, shared_yaxes=True, column_widths=[0.6, 0.4], horizontal_spacing=0.09,
        subplot_titles=("Time to the target", "A round is made of"),
    )  # fmt: skip
    for choice in shown:
        _add(figure, choice, unit.scale)
    _parts(figure, shown)
    names = [choice.marked for choice in reversed(shown)]
    labels = {
        "tickvals": names,
        "ticktext": [_name_and_ties(choice, shown) for choice in reversed(shown)],
    }
    figure.update_yaxes(categoryorder="array", categoryarray=names, showgrid=False, ticks="", **labels)
    inexact = "" if all(choice.exact for choice in shown) else f"{INEXACT_MARK}: inexact, rounds simulated"
    notes = [note for note in (inexact, mark_note(choice.scheme for choice in shown)) if note]
    if notes:
        figure.update_yaxes(row=1, col=1, title_text="<br>".join(notes))
    figure.update_xaxes(row=1, col=1, title_text=f"time ({unit.name})", **_scale(shown, unit.scale))
    figure.update_xaxes(row=1, col=2, title_text="share of the time", tickformat=".0%", range=[0, 1])
    figure.update_annotations(selector={"yref": "paper"}, font={"size": 17})
    legend = {"orientation": "h", "x": 1.0, "xanchor": "right", "traceorder": "normal"}
    legend |= {"y": 0.0, "yref": "container", "yanchor": "bottom"}
    return figure.update_layout(
        barmode="stack", margin_t=130, margin_b=110, legend=legend, meta={"stacks": True}
    )


def picked(advice: Advice, most: int = MAX_BARS) -> list[Choice]:
    """Return the configurations to draw, sorted by time: the best of every scheme, then the best others."""
    firsts = {id(choice) for choice in advice.schemes[:most]}
    others = [choice for choice in advice.choices if id(choice) not in firsts][: max(most - len(firsts), 0)]
    shown = firsts | {id(choice) for choice in others}
    return [choice for choice in advice.choices if id(choice) in shown]


def _add(figure: go.Figure, choice: Choice, scale: float) -> None:
    style = scheme_style(choice.scheme)
    low, middle, high = (seconds * scale for seconds in (choice.low, choice.seconds, choice.high))
    hover = (
        f"<b>{choice.name}</b><br>{quantity_of(choice.seconds)} ({quantity_of(choice.low)} to"
        f" {quantity_of(choice.high)})<br>{quantity_of(choice.per_round)} a round, {choice.rounds:.0f} rounds:"
        f" {choice.source}<br>{choice.step}"
    )
    marker = {"color": style.color, "symbol": style.symbol, "size": 13}
    bars = error_bars(low, middle, high, thickness=3, width=7, color=style.color)
    mark = marks([middle], [choice.marked], choice.name, marker, hover, showlegend=False, error_x=bars)
    figure.add_trace(mark, row=1, col=1)


def _name_and_ties(choice: Choice, shown: Sequence[Choice]) -> str:
    """Return the name of a configuration, and below it how often it is the fastest, or with which it ties."""
    other = next(each for each in shown if _ties(each, choice))
    small = [f"as fast as {other.marked}"] if other is not choice else []
    if not small and choice.sure >= MIN_SHOWN_SHARE:
        tied = any(each is not choice and _ties(each, choice) for each in shown)
        small = [f"{'with its equals ' if tied else ''}fastest in {choice.sure:.0%}"]
    return "<br>".join([choice.marked, *(f'<span style="font-size:85%">{text}</span>' for text in small)])


def _ties(one: Choice, other: Choice) -> bool:
    """Return whether two configurations are equally fast, with the same spread."""
    pairs = ((one.seconds, other.seconds), (one.low, other.low), (one.high, other.high))
    return all(max(pair) <= MAX_EQUAL_RATIO * min(pair) for pair in pairs)


def _parts(figure: go.Figure, shown: Sequence[Choice]) -> None:
    known = [choice for choice in shown if choice.parts]
    for name, color in COLORS.items():
        seconds = np.array([max(choice.parts[name], 0.0) for choice in known])
        whole = np.array([sum(max(cost, 0.0) for cost in choice.parts.values()) for choice in known])
        figure.add_bar(
            row=1,
            col=2,
            x=seconds / np.maximum(whole, 1e-300),
            y=[choice.marked for choice in known],
            orientation="h",
            name=name,
            marker={"color": color},
            customdata=[quantity_of(float(s)) for s in seconds],
            hovertemplate=f"{name}: %{{customdata}} a round, %{{x:.0%}}<extra></extra>",
        )


def _scale(shown: Sequence[Choice], scale: float) -> dict[str, object]:
    low, high = min(c.low for c in shown) * scale, max(c.high for c in shown) * scale
    if low > 0 and high > 6 * low:
        ends = [float(np.log10(low)) - 0.08, float(np.log10(high)) + 0.08]
        return {"type": "log", "tickformat": "~g", "range": ends, **log_ticks(low, high)}
    return {"type": "linear", "range": [0, 1.05 * high], "nticks": MAX_TICKS}
