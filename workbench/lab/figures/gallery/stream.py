"""Stream of rounds: the state of every worker in every round, with its utilisation and lateness."""

from __future__ import annotations

from itertools import starmap
from typing import Any

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from workbench.core.base.settings import SettingError, short
from workbench.core.base.type_checks import span
from workbench.core.base.types import Array
from workbench.core.trace.stream import COMPUTES, STATES, Stream
from workbench.core.trace.trace import Trace
from workbench.lab.figures.gallery.phase_diagram import mixed
from workbench.lab.figures.inputs import check_traces, plural, runs
from workbench.lab.figures.style import (
    COMPUTING,
    QUEUED,
    QUEUED_DARK,
    REFUSED,
    SENDING,
    TOO_LATE,
    Theme,
    legend_square,
    new_figure,
    palette,
)

MAX_ROUNDS = 400  # max number of drawn rounds; of more rounds, the newest are drawn
MAX_NUMBERED_ROWS = 12  # max number of rows, or of rounds, up to which each one has a number
MAX_CELLS = 2500  # max product of workers and rounds up to which single rounds are drawn
# max number of drawn blocks of rounds, if single rounds are not drawn; min rounds of a block, so that shares are stable
MAX_BLOCKS, MIN_BLOCK_ROUNDS = 25, 20
MAX_NAMED = 5  # max number of workers that the finding names
STANDS_OUT_SIGMAS = 4.0  # standard deviations by which a worker's late rounds exceed those of equal workers
MIN_SHARE = 0.01  # min share that is written at the end of an axis


def colors(theme: str) -> dict[str, str]:
    """Return the colours of the worker states, and those of text, secondary text and background.

    >>> list(colors("light"))[:3]
    ['waits', 'computes', 'queues']
    """
    p = palette(theme)
    queued = QUEUED if theme == "light" else QUEUED_DARK
    states = [p.neutral, COMPUTING, queued, SENDING, TOO_LATE, REFUSED, p.text]
    return {**dict(zip(STATES, states, strict=True)), "ink": p.text, "soft": p.muted, "ground": p.background}


def stream(
    trace: Trace, first: int | None = None, rounds: int = MAX_ROUNDS, theme: Theme = "light"
) -> go.Figure:
    """Draw a row per worker over the rounds: computing, waiting, sending, late, dropped or dead.

    `trace`: a run with events. `first`: first drawn round. By default, the last rounds are drawn. `rounds`: max number
    of rounds. All rounds have the same width, whatever their time. Beside the rows are the share of the time in which a
    worker computed, and the share of rounds that ended without its answer.

    If single rounds would be too small to see, the rows show the share of late answers over blocks of rounds. The
    workers that were late most often are on top, and the title is the finding. If none was late, the rows show the
    share of computing.

    `theme`: "light" or "dark".

    Raises `SettingError` if the events of the trace were not kept, or the trace does not have the round.

    >>> import workbench as wb
    >>> trace = wb.run(wb.Experiment(scheme="GC", scheme_args={"stragglers": 2}, workers=6, rounds=3))
    >>> stream(trace).data[0].z.shape
    (6, 24)
    """
    check_traces([trace])
    table = Stream.of(trace)
    if not len(table):
        raise SettingError("trace: kept no events; run with events=True")
    begin = _begin(table, first, rounds)
    shown = table.grid[begin : begin + rounds]
    workers = np.arange(1, table.workers + 1)
    blocks = len(shown) * table.workers > MAX_CELLS
    order = order_of(table) if blocks else workers - 1
    found = finding(table) if blocks else "what they did, round by round"
    title = f"{trace.label}, {plural(table.workers, 'worker')}: {found}"
    there = slice(begin, begin + rounds)
    share = table.late[there].sum() / max(table.asked[there].sum(), 1)
    start, many = table.first + begin, "s" * (len(shown) > 1)
    about = f"round{many} {span(start, start + len(shown) - 1)} · {share:.1%} of the answers"
    figure = new_figure(theme, title, f"{about} late", int(np.clip(260 + 8 * table.workers, 410, 930)))
    figure.set_subplots(
        rows=1, cols=3, shared_yaxes=True, column_widths=[0.72, 0.16, 0.12], horizontal_spacing=0.035
    )
    figure.add_traces(
        _shares(table, there, order, theme) if blocks else _states(table, shown, begin, theme), rows=1, cols=1
    )
    _add_sides(figure, table, order)
    dtick = 1 if table.workers <= MAX_NUMBERED_ROWS else None
    figure.update_yaxes(range=[table.workers + 0.5, 0.5], showgrid=False, dtick=dtick)
    every = 1 if len(shown) <= MAX_NUMBERED_ROWS else None
    figure.update_xaxes(title_text="round", showgrid=False, dtick=every, row=1, col=1)
    if blocks:
        rows = slice(None, None, -(-table.workers // MAX_NUMBERED_ROWS))
        figure.update_yaxes(tickvals=workers[rows], ticktext=[f"{worker + 1}" for worker in order[rows]])
    top = f", {'most often late' if table.late.any() else 'least busy'} on top" if blocks else ""
    figure.update_yaxes(title_text=f"worker{top}", row=1, col=1)
    figure.update_layout(legend={"orientation": "h", "y": 1, "yanchor": "bottom", "x": 0}, bargap=0.15)
    return figure.update_layout(margin={"t": 126})  # space for the subtitle


def _begin(table: Stream, first: int | None, rounds: int) -> int:
    """Return the index of the first drawn round."""
    if rounds < 1:
        raise SettingError(f"rounds = {rounds}: take 1 or more")
    begin = max(len(table) - rounds, 0) if first is None else first - table.first
    if not 0 <= begin < len(table):
        there = span(table.first, table.first + len(table) - 1)
        raise SettingError(f"first = {short(first)}: the trace has events of rounds {there}")
    return begin


def _add_sides(figure: go.Figure, table: Stream, order: NDArray[np.int64]) -> None:
    """Draw the utilisation and the lateness of every worker beside its row."""
    sides = (("computing", table.utilisation(), COMPUTING), ("late", table.lateness(), TOO_LATE))
    for column, (name, values, color) in enumerate(sides, 2):
        bar = {"orientation": "h", "marker_color": color, "showlegend": False, "name": name}
        figure.add_bar(x=values[order], y=np.arange(1, table.workers + 1), **bar, row=1, col=column)
        most = float(max(values.max(initial=0.0), MIN_SHARE))
        axis = {"title": {"text": name, "font": {"size": 14}}, "range": [0, 1.04 * most], "tickvals": [most]}
        figure.update_xaxes(**axis, ticktext=[f"{most:.0%}"], row=1, col=column)


def _states(table: Stream, shown: NDArray[np.uint8], begin: int, theme: Theme) -> list[Any]:
    """Return a heat map of every worker's states in slices of the rounds, and its legend."""
    look, z = colors(theme), shown.transpose(1, 0, 2).reshape(table.workers, -1)
    x = table.first + begin + (np.arange(z.shape[1]) + 0.5) / table.slices
    scale = [[(i + d) / len(STATES), look[name]] for i, name in enumerate(STATES) for d in (0, 1)]
    cells = go.Heatmap(
        z=z, x=x, y=np.arange(1, table.workers + 1), zmin=-0.5, zmax=len(STATES) - 0.5, colorscale=scale,
        customdata=np.array(STATES)[z], showscale=False,
        hovertemplate="worker %{y}, round %{x:.0f}: %{customdata}<extra></extra>",
    )  # fmt: skip
    return [cells, *(legend_square(name, look[name]) for name in STATES)]


def order_of(table: Stream) -> NDArray[np.int64]:
    """Return the workers, from 0, most often late first. If none was late, those that computed least are first."""
    late = table.lateness()
    return np.argsort(-late if late.any() else table.utilisation(), kind="stable")


def finding(table: Stream) -> str:
    """Return which workers were late more often than equal workers would be by chance, or that nobody stands out."""
    late, shares = table.lateness(), table.utilisation()
    if not late.any():
        return f"nobody was late, and workers computed {_range(shares)} of the time"
    asked, share = table.asked.sum(axis=0), table.late.sum() / table.asked.sum()
    chance = np.sqrt(share * (1 - share) / np.maximum(asked, 1))
    ahead = late > share + STANDS_OUT_SIGMAS * chance
    if not ahead.any():
        return f"nobody stands out, each was late in {_range(late)} of the rounds"
    named = plural(int(ahead.sum()), "worker")
    if ahead.sum() <= MAX_NAMED:
        named = f"worker{'s' * int(ahead.sum() != 1)} {runs((np.flatnonzero(ahead) + 1).tolist())}"
    rest = f", others in {_range(late[~ahead])}" if not ahead.all() else ""
    return f"{named} late in {_range(late[ahead])} of the rounds{rest}"


def _range(shares: Array) -> str:
    return f"{span(round(100 * float(shares.min())), round(100 * float(shares.max())))} %"


def _shares(table: Stream, there: slice, order: NDArray[np.int64], theme: Theme) -> list[Any]:
    """Return a heat map of shares over blocks of rounds, for runs with too many rounds to show their states."""
    late, grid = table.late[there][:, order], table.grid[there][:, order]
    some = bool(late.any())
    values = late if some else (grid == COMPUTES).mean(axis=2)
    width = max(-(-len(values) // MAX_BLOCKS), MIN_BLOCK_ROUNDS)
    starts = np.arange(0, len(values), width)
    counts = np.diff([*starts, len(values)])
    z = (np.add.reduceat(values.astype(float), starts, axis=0) / counts[:, None]).T
    text = "of rounds late" if some else "of a round computing"
    ends = [palette(theme).neutral, TOO_LATE if some else COMPUTING]
    cells = go.Heatmap(
        z=z, x=table.first + there.start + starts + counts / 2, y=np.arange(1, table.workers + 1), zmin=0, zmax=1,
        colorscale=[*enumerate(ends)], showscale=False,
        customdata=np.stack(np.broadcast_arrays(order[:, None] + 1, counts), axis=-1),
        hovertemplate="worker %{customdata[0]}, %{customdata[1]} rounds around %{x:.0f}: %{z:.0%} "
        + f"{text}<extra></extra>",
    )  # fmt: skip
    looks = {f"{share:.0%} {text}": mixed(ends[1], ends[0], share) for share in (0.0, 0.5, 1.0)}
    return [cells, *starmap(legend_square, looks.items())]
