"""Tree: which node sends to which, and which samples each worker stores."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from workbench.core.base.type_checks import span
from workbench.core.base.types import Array
from workbench.core.contract.plan import MASTER, Plan
from workbench.core.experiment import Experiment
from workbench.lab.figures.gallery.code import coefficient_scale, equal_coefficients
from workbench.lab.figures.inputs import plan_of, plural, runs
from workbench.lab.figures.layout import MAX_LAYERED_WORKERS, REST_NODE, Layout, place
from workbench.lab.figures.style import BLUE, Theme, assembled, fade, new_figure, palette

MAX_RANKS, MAX_STRIPS = 400, 8_000


class Strips(NamedTuple):
    """Consecutive samples that a rank stores with one coefficient."""

    rank: NDArray[np.int64]
    start: NDArray[np.int64]
    stop: NDArray[np.int64]
    coefficient: Array


def tree(source: Plan | Experiment, theme: Theme = "light") -> go.Figure:
    """Draw which node sends to which, and beside it the samples of the data set that each worker stores.

    `source`: a plan, or an experiment. `theme`: "light" or "dark".

    The area of a node is its load. Few workers are drawn in layers from the top, many workers around the master, and
    rings as a circle. Of plans with more than 400 ranks, one branch is drawn, with the number of workers in each layer.
    Of a large ring, some workers are drawn. The subtitle mentions both.

    Raises `SettingError` if `source` is neither a plan nor an experiment, or the theme is unknown.

    >>> import workbench as wb
    >>> e = wb.Experiment(scheme="CR", scheme_args={"children": 3, "layers": 2, "stragglers": 1}, workers=12)
    >>> [panel.name for panel in tree(e).data]
    ['edges', 'nodes', 'data held']
    """
    plan, name = plan_of(source)
    layout = place(plan, MAX_RANKS)
    strips = strips_of(plan, min(plan.ranks, MAX_RANKS))
    height = int(np.clip(190 + 26 * len(layout.x), 480, 860))
    figure = new_figure(theme, name or "Plan", _subtitle(plan, layout, strips), height)
    scale = coefficient_scale(strips.coefficient, theme)
    look = {"coloraxis": scale, "showlegend": False, "margin": {"l": 40}, "meta": {"stacks": True}}
    traces = [_edges(plan, layout, theme), _nodes(plan, layout, theme), _held(strips)]
    arrows = _arrows(layout, theme) if layout.ring else []
    return assembled(figure, traces, annotations=arrows, **look, **_axes(plan, layout, strips))


def _subtitle(plan: Plan, layout: Layout, strips: Strips) -> str:
    loads, shown = plan.loads[1:], int(strips.rank.max(initial=0))
    low, high = int(loads.min()), int(loads.max())
    share = f"{high / plan.samples:.3g} of all"
    texts = [
        plural(plan.workers, "worker"),
        f"{span(low, high)} of {plan.samples} samples a worker ({share})",
    ]
    if len(layout.rank) < plan.ranks:
        drawn = f"{int(np.sum(layout.rank > 0))} of the ring’s workers drawn"
        texts.append(drawn if layout.ring else "one branch drawn")
    if shown < plan.workers:
        texts.append(f"data of workers 1 to {shown}")
    return " · ".join([*texts, *equal_coefficients(strips.coefficient)])


# ---------------------------------------------------------------- the graph


def _edges(plan: Plan, layout: Layout, theme: str) -> dict[str, Any]:
    gap = np.full(len(layout.edges), np.nan)
    ends = layout.edges.T
    xs, ys = (np.stack([side[ends[0]], side[ends[1]], gap], axis=1).ravel() for side in (layout.x, layout.y))
    xs, ys = (np.concatenate(pair) for pair in zip((xs, ys), _stubs(plan, layout), strict=True))
    opacity, width = (
        (1.0, 1.5) if len(layout.x) - 1 <= MAX_LAYERED_WORKERS else (min(0.6, 60 / len(layout.x)), 1)
    )
    look = {"mode": "lines", "line": {"color": fade(palette(theme).muted, opacity), "width": width}}
    return {"type": "scatter", "name": "edges", "x": xs, "y": ys, "hoverinfo": "skip", **look}


def _stubs(plan: Plan, layout: Layout) -> tuple[Array, Array]:
    """Draw three short lines below each node whose children are not drawn."""
    if layout.radial:
        return np.zeros(0), np.zeros(0)
    # a node that represents other siblings looks like them
    alike = np.where(layout.rank == REST_NODE, np.roll(layout.rank, 1), layout.rank)
    children, inner = plan.children, set(layout.edges[:, 0].tolist())
    tops = [place for place, rank in enumerate(alike.tolist()) if children[rank] and place not in inner]
    x, y = layout.x[tops, None], layout.y[tops, None]
    aside, down, gap = np.array([-0.3, 0.0, 0.3]), np.full(3, 0.3), np.full((len(tops), 3), np.nan)
    xs, ys = (
        np.stack(np.broadcast_arrays(a, b, gap), axis=2).ravel() for a, b in ((x, x + aside), (y, y - down))
    )
    return xs, ys


def _nodes(plan: Plan, layout: Layout, theme: str) -> dict[str, Any]:
    colors, ranks = palette(theme), layout.rank
    few = not layout.radial
    master, rest = ranks == MASTER, ranks == REST_NODE
    loads = plan.loads[np.where(rest, ranks.max(), ranks)]
    size = np.where((ranks < 1000) & (layout.number < 100), 14, 11)
    numbers = [_number(r, count) for r, count in zip(ranks, layout.number, strict=True)] if few else None
    marker = {
        "size": np.where(master, 22, _sizes(loads, len(ranks))),
        "symbol": np.where(master, "square", "circle"),
        "color": np.where(master, colors.text, np.where(rest, colors.neutral, BLUE)),
        "line": {"color": colors.background, "width": 1.5 if len(ranks) < 200 else 0.0},
        "opacity": 1.0,
    }
    look = {"mode": "markers+text" if few else "markers", "marker": marker, "text": numbers}
    look |= {"textfont": {"size": size, "color": np.where(rest, colors.text, palette("light").background)}}
    labels = [_labels(plan, layout, place) for place in range(len(ranks))]
    hover = {"customdata": ranks, "hovertext": labels, "hovertemplate": "%{hovertext}<extra></extra>"}
    return {"type": "scatter", "name": "nodes", "x": layout.x, "y": layout.y, **look, **hover}


def _number(rank: int, count: int) -> str:
    return f"+{count}" if rank == REST_NODE else "" if rank == MASTER else str(rank)


def _sizes(loads: NDArray[np.int64], ranks: int) -> Array:
    """Return marker sizes whose area is proportional to the load."""
    largest = float(np.clip(1500 / ranks, 5, 30))
    return np.maximum(4.0, largest * np.sqrt(loads / max(1, loads.max())))


def _labels(plan: Plan, layout: Layout, place: int) -> str:
    rank = int(layout.rank[place])
    if rank == REST_NODE:
        return f"{layout.number[place]} more of layer {layout.layer[place]}, not drawn"
    if rank == MASTER:
        children = f"<br>{len(plan.children[0])} children"
        return f"<b>master</b>{', outside the ring' if layout.ring else children}"
    stored = plan.indices[plan.indptr[rank] : plan.indptr[rank + 1]]
    where = "in the ring" if layout.ring else f"layer {layout.layer[place]}"
    return (
        f"<b>rank {rank}</b>, {where}<br>{plan.loads[rank]} samples<br>parts {runs(sorted(stored.tolist()))}"
    )


def _arrows(layout: Layout, theme: str) -> list[dict[str, Any]]:
    """Draw arrowheads in the middle of a ring's edges, if they fit."""
    look = {"text": "", "showarrow": True, "arrowhead": 2, "arrowsize": 1.6}
    look |= {"arrowcolor": palette(theme).muted, "xref": "x", "yref": "y", "axref": "x", "ayref": "y"}
    found = []
    for a, b in layout.edges if len(layout.edges) <= 60 else []:
        x, y = (layout.x[a] + layout.x[b]) / 2, (layout.y[a] + layout.y[b]) / 2
        dx, dy = layout.x[b] - layout.x[a], layout.y[b] - layout.y[a]
        found.append({"x": x, "y": y, "ax": x - 0.1 * dx, "ay": y - 0.1 * dy, **look})
    return found


# ---------------------------------------------------------------- the data


def strips_of(plan: Plan, ranks: int) -> Strips:
    """Join parts with one coefficient into ranges of samples, for as many ranks as can be drawn."""
    counts = np.diff(plan.indptr[: ranks + 1])
    rank = np.repeat(np.arange(ranks), counts)
    part, coefficient = plan.indices[: len(rank)], plan.coefficients[: len(rank)]
    order = np.lexsort((part, rank))
    rank, part, coefficient = rank[order], part[order], coefficient[order]
    alike = np.isclose(coefficient[1:], coefficient[:-1], rtol=1e-9)
    same = (np.diff(rank) == 0) & (np.diff(part) == 1) & alike
    first = np.flatnonzero(np.concatenate([[True], ~same])) if len(rank) else np.zeros(0, dtype=np.int64)
    last = np.append(first[1:] - 1, len(rank) - 1)[: len(first)]
    strips = Strips(rank[first], plan.bounds[part[first]], plan.bounds[part[last] + 1], coefficient[first])
    if len(first) <= MAX_STRIPS:
        return strips
    whole = strips.rank < strips.rank[MAX_STRIPS]  # of each rank, all data or none are drawn
    return Strips(*(column[whole] for column in strips))


def _held(strips: Strips) -> dict[str, Any]:
    place = {"y": strips.rank, "base": strips.start, "x": strips.stop - strips.start, "width": 0.8}
    marker = {"color": strips.coefficient, "coloraxis": "coloraxis", "line": {"width": 0}}
    text = "<b>rank %{y}</b><br>samples %{customdata[0]} to %{customdata[1]}"
    text += "<br>coefficient %{customdata[2]:.5g}<extra></extra>"
    ranges = np.stack([strips.start, strips.stop - 1, strips.coefficient], axis=1)
    look = {"marker": marker, "customdata": ranges, "hovertemplate": text, "xaxis": "x2", "yaxis": "y2"}
    return {"type": "bar", "name": "data held", "orientation": "h", **place, **look}


def _axes(plan: Plan, layout: Layout, strips: Strips) -> dict[str, dict[str, Any]]:
    shown = int(strips.rank.max(initial=0))
    whole = len(layout.rank) == plan.ranks or layout.ring
    bare = {"visible": False, **({"scaleanchor": "x"} if layout.radial else {})}
    rows = {"anchor": "x2", "title": {"text": "worker"}, "range": [shown + 0.6, 0.4], "showgrid": False}
    samples = {"anchor": "y2", "title": {"text": "sample"}, "range": [0, plan.samples], "domain": [0.55, 1.0]}
    return {
        "xaxis": {"visible": False, "domain": [0.0 if whole else 0.12, 0.44]},
        "yaxis": bare if whole else _layer_axis(plan),
        "xaxis2": samples,
        "yaxis2": {**rows, **({"dtick": 1} if shown <= MAX_LAYERED_WORKERS else {})},
    }


def _layer_axis(plan: Plan) -> dict[str, object]:
    """Label the axis with the number of workers per layer, if not all are drawn."""
    counts = np.bincount(plan.depth)
    texts = [f"layer {depth}:<br>{plural(n, 'worker')}" for depth, n in enumerate(counts.tolist())]
    bare = {"showgrid": False, "showline": False, "ticks": "", "title": {"text": ""}}
    return {**bare, "tickvals": -np.arange(len(counts)), "ticktext": ["master", *texts[1:]]}
