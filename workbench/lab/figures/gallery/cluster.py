"""Measured cluster: computing times of its workers, the fitted delay model, and its links."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import wrap
from typing import Any

import numpy as np
import plotly.graph_objects as go

from workbench.analysis.planning.delay_fits import drawn
from workbench.analysis.planning.distribution_fits import straggling
from workbench.analysis.planning.linkfit import link_text
from workbench.analysis.planning.measurements import QUANTILES, Recorded
from workbench.analysis.planning.profile import ClusterProfile
from workbench.core.base.types import Array
from workbench.lab.figures.inputs import plural
from workbench.lab.figures.scheme_grid import MAX_EQUAL_RATIO
from workbench.lab.figures.style import (
    BLUE,
    GREEN,
    HUES,
    ORANGE,
    VERMILLION,
    Theme,
    Unit,
    error_bars,
    log_ticks,
    new_figure,
    palette,
    time_unit,
)

MAX_POINTS = 400
MAX_LINE_CHARACTERS = 105  # max characters in a line of the subtitle, on a page of 1100 px
DRAWN_ROUNDS, DRAWN_WORKERS = 40, 500
PANELS = (
    "Two workers, round by round",
    "Every worker",
    "Distribution and fitted delay model",
    "Messages and fitted link",
)
Look = dict[str, Any]


def cluster(measured: ClusterProfile, theme: Theme = "light") -> go.Figure:
    """Draw four panels of a measured cluster.

    The first shows the workers that straggle most and least over the rounds, as in figure 1 of paper 4. The second has
    the times of every worker, with a colour per host. The third has the share of times that exceed a given time, with
    the fitted delay model. The last has the times of messages by length.

    Raises `SettingError` for an unknown theme.

    >>> import workbench as wb
    >>> from workbench.analysis.planning.measuring import simulated
    >>> figure = cluster(simulated(wb.Experiment(scheme="UMW", workers=3), rounds=8))
    >>> [panel.text for panel in figure.layout.annotations][:2]
    ['Two workers, round by round', 'Every worker']
    """
    shown = measured.recorded[measured.main]
    unit = time_unit(shown.typical)
    about = _about(measured)
    more = 21 * (len(about) - 2)  # px of subtitle lines beyond the second one
    figure = new_figure(theme, f"Cluster {measured.cluster}", "<br>".join(about), height=980 + more)
    figure.set_subplots(rows=2, cols=2, subplot_titles=PANELS, horizontal_spacing=0.1, vertical_spacing=0.16)
    _over_rounds(figure, shown, unit)
    _by_worker(figure, measured, shown, unit)
    _distribution(figure, measured, theme, unit)
    _messages(figure, measured)
    figure.update_annotations(font={"size": 17})
    legend = {"orientation": "h", "x": 0.0, "y": 0.0, "yref": "container", "yanchor": "bottom"}
    return figure.update_layout(margin_t=130 + more, margin_b=130, legend=legend, meta={"stacks": True})


def _about(measured: ClusterProfile) -> list[str]:
    """Return the lines of the subtitle. Plotly does not break lines, and cuts long ones."""
    notes = measured.notes()
    when, problem = measured.date[:16].replace("T", " "), measured.problem.replace("_", " ")
    start = f"measured {when} UTC, {measured.workers} workers, {problem}"
    more = notes[0] if notes else plural(len(measured.hosts), "host")
    return [start, *wrap(more, MAX_LINE_CHARACTERS)]


# ---------------------------------------------------------------- workers


def _line(figure: go.Figure, panel: Look, x: Any, y: Any, name: str, **look: Any) -> None:
    figure.add_scatter(**panel, x=x, y=y, mode="lines", name=name, line={"width": 2.8, **look})


def _dots(figure: go.Figure, panel: Look, x: Any, quantiles: Array, width: int, **look: Any) -> None:
    """Draw medians, with bars from the 5 % to the 95 % quantile. `quantiles` has shape (5, dots)."""
    low, middle, high = quantiles[[0, 2, 4]]
    bars = error_bars(low, middle, high, thickness=2, width=width)
    figure.add_scatter(**panel, x=x, y=middle, mode="markers", error_y=bars, **look)


def _over_rounds(figure: go.Figure, shown: Recorded, unit: Unit) -> None:
    """Draw the times of the most and the least straggling worker over the rounds."""
    panel, rounds = {"row": 1, "col": 1}, np.arange(len(shown.times))
    most, least = extremes(shown.times)
    words = ("straggles most", "straggles least")
    if most == least or np.array_equal(shown.times[:, most], shown.times[:, least]):
        words, least = ("like all others",) * 2, most
    curves = ((most, words[0], VERMILLION, "solid"), (least, words[1], BLUE, "dash"))
    for worker, label, color, dash in curves[: 1 if most == least else 2]:
        times, name = shown.times[:, worker] * unit.scale, f"worker {worker + 1} {label}"
        _line(figure, panel, rounds, times, name, color=color, dash=dash, width=2.2)
    figure.update_xaxes(**panel, title_text="round")
    figure.update_yaxes(**panel, title_text=f"time of a task ({unit.name})", rangemode="tozero")


def extremes(times: Array) -> tuple[int, int]:
    """Return the indices of the workers that straggle most and least.

    Without stragglers, they are ordered by mean time.

    >>> extremes(np.array([[1.0, 9.0, 1.1], [1.0, 9.0, 1.1]]))
    (1, 0)
    """
    late = straggling(times)
    score = times.mean(axis=0) / times.mean() + (0.0 if late is None else 1e3 * late.sum(axis=0))
    return int(np.argmax(score)), int(np.argmin(score))


def _by_worker(figure: go.Figure, measured: ClusterProfile, shown: Recorded, unit: Unit) -> None:
    """Draw median and 5 % to 95 % range of each worker's times, host by host."""
    panel, few = {"row": 1, "col": 2}, measured.workers <= 40
    quantiles = np.quantile(shown.times, QUANTILES, axis=0) * unit.scale
    hosts = measured.host_of_each()
    for place, host in enumerate(measured.hosts):
        here = np.flatnonzero(hosts == place)
        marker = {"color": HUES[place % len(HUES)], "size": 8 if few else 5}
        hover = f"worker %{{x}} on {host.name}<br>median %{{y:.4g}} {unit.name}<extra></extra>"
        look = {"marker": marker, "hovertemplate": hover, "showlegend": len(measured.hosts) <= len(HUES)}
        _dots(figure, panel, here + 1, quantiles[:, here], 3 if few else 0, name=host.name, **look)
    figure.update_xaxes(**panel, title_text="worker (bars: 5 to 95 %)")
    figure.update_yaxes(**panel, title_text=f"time of a task ({unit.name})", rangemode="tozero")


# ---------------------------------------------------------------- the delay model


def _distribution(figure: go.Figure, measured: ClusterProfile, theme: str, unit: Unit) -> None:
    """Draw the share of times that exceed a given time, on a logarithmic axis that shows the tail."""
    panel, place = {"row": 2, "col": 1}, measured.main
    shown, best = measured.recorded[place], measured.delay_models[place][0]
    delay_model = drawn(best.delays, DRAWN_ROUNDS, DRAWN_WORKERS) * shown.typical
    label = f"{best.delays.kind.replace('_', ' ')}{'' if best.fits else ' (does not fit)'}"
    ink = palette(theme).text
    for times, name, color, dash in (
        (shown.times, "measured", ink, "solid"),
        (delay_model, label, ORANGE, "dash"),
    ):
        x, y = survival(times)
        _line(figure, panel, x * unit.scale, y, name, color=color, dash=dash, shape="hv")
    ticks = [10.0**-k for k in range(5)]
    figure.update_yaxes(
        **panel, type="log", title_text="share of tasks that take longer", tickvals=ticks,
        ticktext=[f"{100 * t:g} %" for t in ticks], range=[np.log10(0.5 / shown.times.size), 0.05],
    )  # fmt: skip
    distance = f"Kolmogorov distance {best.distance:.2f}"
    every = np.concatenate([shown.times.ravel(), delay_model.ravel()]) * unit.scale
    low, high = float(every.min()), float(every.max())
    around = {"range": [0.5 * low, 1.5 * low]} if high <= MAX_EQUAL_RATIO * low else {}
    figure.update_xaxes(**panel, title_text=f"time of a task ({unit.name}); {distance}", nticks=6, **around)


def survival(times: Array) -> tuple[Array, Array]:
    """Return selected times and, for each one, the share of all times that are at least as long.

    >>> survival(np.array([2.0, 1.0]))[1].tolist()
    [1.0, 0.5]
    """
    ordered = np.sort(times, axis=None)
    shares = 1 - np.arange(len(ordered)) / len(ordered)
    # Evenly spaced in the logarithm of the share, so that the tail has enough points.
    indices = np.unique(
        len(ordered) - np.geomspace(1, len(ordered), min(MAX_POINTS, len(ordered))).astype(int)
    )
    return ordered[indices], shares[indices]


# ---------------------------------------------------------------- links


def _messages(figure: go.Figure, measured: ClusterProfile) -> None:
    """Draw transfer times by length, with the times of the fitted link."""
    lengths, up, down = by_length(measured.recorded)
    panel, unit = {"row": 2, "col": 2}, time_unit(float(np.median(up[:, 2])))
    directions = [("answers", BLUE, "circle", 1.0, up), ("models", GREEN, "square", 1.12, down)]
    # models of a simulated cluster may take no time
    directions = [direction for direction in directions if direction[-1].any()]
    for name, color, symbol, shift, quantiles in directions:
        marker = {"color": color, "symbol": symbol, "size": 9}
        beside = lengths * shift  # x positions, so that both directions are side by side
        _dots(figure, panel, beside, quantiles.T * unit.scale, 4, name=name, marker=marker)
    port, low, high = measured.fitted.port, float(lengths.min()), float(lengths.max())
    x = np.geomspace(low, high, 60) if low < high else lengths[:1]
    y = np.array([port.latency + port.transfer(float(b)) for b in x]) * unit.scale
    _line(
        figure, panel, x, y, f"fitted link: {link_text(measured.fitted.port)}", color=VERMILLION, dash="dash"
    )
    title = "length of a message (bytes; bars: 5 to 95 %)"
    figure.update_xaxes(**panel, type="log", title_text=title, **log_ticks(low, high), tickformat="~s")
    times = np.array([direction[-1] for direction in directions]) * unit.scale
    times = times[times > 0]  # a logarithmic axis has no zero
    highest = float(times.max(initial=0.0))
    lowest = max(float(times.min(initial=highest)), highest / 1e4)
    scale = {"type": "log", **log_ticks(lowest, highest)} if highest > 0 else {"rangemode": "tozero"}
    figure.update_yaxes(**panel, title_text=f"time on the way ({unit.name})", tickformat="~g", **scale)


def by_length(recorded: Sequence[Recorded]) -> tuple[Array, Array, Array]:
    """Return message lengths (k,), and quantiles of both directions for each, (k, 5): medians over the loads."""
    lengths = sorted({each.bytes for each in recorded})
    ups, downs = (
        [
            np.median([getattr(each, direction) for each in recorded if each.bytes == b], axis=0)
            for b in lengths
        ]
        for direction in ("up", "down")
    )
    return np.array(lengths, dtype=float), np.array(ups), np.array(downs)
