"""Phase diagram: the fastest scheme by straggler fraction and latency."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from workbench.analysis.planning.quantities import quantity, quantity_of
from workbench.core.base.settings import SettingError
from workbench.core.contract.scheme import mark_note
from workbench.lab.figures.labels import ratio_text
from workbench.lab.figures.scheme_grid import SchemeGrid
from workbench.lab.figures.style import PALE, Theme, legend_square, marks, new_figure, palette, scheme_style

Words = NDArray[np.object_]
TIE = "tie"


def phase_diagram(
    grid: SchemeGrid, alpha: Fraction | None = None, latency: float | None = None, theme: Theme = "light"
) -> go.Figure:
    """Draw the fastest scheme in each cell of the grid, and by which factor the second one is slower.

    A ring marks the current setting.

    On narrow pages, a legend replaces names that are wider than their cells. Hover text has all times.

    `alpha` and `latency` (s): coordinates of the ring.

    Raises `SettingError` for an unknown theme or an empty grid.

    >>> grid = SchemeGrid(("UMW", "CR"), (Fraction(1, 4),), (0.0, 1.0), np.array([[[1.0, 2.0], [3.0, 1.5]]]))
    >>> phase_diagram(grid).data[0].text.tolist()
    [['UMW<br>2×', 'CR<br>2×']]
    """
    if not grid.names or not grid.seconds.size:
        raise SettingError("grid: is empty; give at least one scheme, one alpha and one latency")
    rows, columns = grid.fastest.shape
    about = "scheme with the shortest time per pass over the data, and the second best's time divided by it"
    about = " · ".join(filter(None, [about, mark_note(grid.names)]))
    figure = new_figure(theme, "Fastest scheme", about, height=220 + 66 * rows)
    figure.add_trace(_cells(grid, theme))
    for name, color in _colors(grid, theme).items():
        figure.add_trace(legend_square(name, color))  # the legend is shown only on narrow pages
    if alpha is not None and latency is not None:
        figure.add_trace(_ring(grid, alpha, latency, theme))
    across, down = list(map(quantity_of, grid.latencies)), list(map(str, grid.alphas))
    figure.update_xaxes(title_text="link latency", tickvals=list(range(columns)), ticktext=across)
    figure.update_yaxes(title_text="straggler fraction α", tickvals=list(range(rows)), ticktext=down)
    return figure.update_xaxes(showgrid=False).update_yaxes(showgrid=False).update_layout(showlegend=False)


def mixed(color: str, ground: str, share: float) -> str:
    """Mix a colour with a background.

    >>> mixed("#0000FF", "#FFFFFF", 0.5)
    '#8080ff'
    """
    pairs = ((int(color[i : i + 2], 16), int(ground[i : i + 2], 16)) for i in (1, 3, 5))
    return "#" + "".join(f"{round(share * a + (1 - share) * b):02x}" for a, b in pairs)


def _cells(grid: SchemeGrid, theme: Theme) -> go.Heatmap:
    colors = _colors(grid, theme)
    count = len(colors)
    steps = [[(i + side) / count, color] for i, color in enumerate(colors.values()) for side in (0, 1)]
    look: dict[str, Any] = {"zmin": -0.5, "zmax": count - 0.5, "colorscale": steps, "showscale": False}
    look |= {
        "text": _texts(grid),
        "texttemplate": "%{text}",
        "textfont": {"size": 13, "color": palette(theme).text},
    }
    look |= {"customdata": _hovers(grid), "hovertemplate": "%{customdata}<extra></extra>"}
    tied = grid.equal.sum(axis=2) > 1
    return go.Heatmap(z=np.where(tied, count - 1.0, grid.fastest), name="fastest", xgap=2, ygap=2, **look)


def _colors(grid: SchemeGrid, theme: Theme) -> dict[str, str]:
    """Return the colour of the cells of each name. The last one is the colour of ties."""
    ground = palette(theme).background
    names = {name: mixed(scheme_style(name.split(" ")[0]).color, ground, PALE) for name in grid.names}
    return {**names, TIE: palette(theme).grid}


def _texts(grid: SchemeGrid) -> Words:
    texts: Words = np.full(grid.fastest.shape, "", dtype=object)
    for place, fastest in np.ndenumerate(grid.fastest):
        if (equal := int(grid.equal[place].sum())) > 1:
            texts[place] = f"{TIE}<br>of {equal}"
        elif fastest == fastest:
            lead = float(grid.lead[place])
            # a third digit if two would look like a tie
            text = f"<br>{ratio_text(lead, 3 if lead < 1.095 else 2)}" if np.isfinite(lead) else ""
            texts[place] = grid.names[int(fastest)] + text
    return texts


def _hovers(grid: SchemeGrid) -> Words:
    texts: Words = np.full(grid.fastest.shape, "", dtype=object)
    for i, alpha in enumerate(grid.alphas):
        for j, latency in enumerate(grid.latencies):
            order = np.argsort(grid.seconds[i, j])  # NaN is sorted last
            times = [f"{grid.names[k]}: {_time(grid.seconds[i, j, k])}" for k in order]
            texts[i, j] = "<br>".join([f"α = {alpha}, latency {quantity_of(latency)}", *times])
    return texts


def _time(seconds: float) -> str:
    return "no such setting" if seconds != seconds else f"{quantity(seconds, 'time')} a pass"


def _ring(grid: SchemeGrid, alpha: Fraction, latency: float, theme: Theme) -> go.Scatter:
    x = _between(grid.latencies, latency)
    y = float(np.interp(float(alpha), [float(a) for a in grid.alphas], range(len(grid.alphas))))
    ink = palette(theme).text
    marker = {"symbol": "square-open", "size": 46, "color": ink, "line": {"width": 3, "color": ink}}
    return marks([x], [y], "now", marker)


def _between(latencies: tuple[float, ...], latency: float) -> float:
    """Return the position of a latency on the axis of columns. The axis is logarithmic, except for a leading 0."""
    low = min((value for value in latencies if value > 0), default=1.0)
    floor = low / 10
    logs = np.log10([max(value, floor) for value in latencies])
    return float(np.interp(np.log10(max(latency, floor)), logs, range(len(latencies))))
