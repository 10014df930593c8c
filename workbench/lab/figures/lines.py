"""Lines with their confidence bands."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import plotly.graph_objects as go

from workbench.core.base.intervals import Band
from workbench.core.base.type_checks import span
from workbench.lab.figures.style import Style, error_bars, fade, log_scale


class Line(NamedTuple):
    """Means along x with their intervals, each over n runs, and the look of the line."""

    label: str
    style: Style
    x: Any  # numbers, or texts on a categorical axis
    band: Band
    n: int


def draw(
    figure: go.Figure,
    lines: Sequence[Line],
    joined: bool,
    scale: Mapping[str, object],
    markers: bool = True,
) -> None:
    """Bands first, so that no line lies under another's band. `scale`: of the vertical axis, as `scale_y` has it."""
    figure.update_yaxes(**scale)
    if joined:
        log = scale.get("type") == "log"
        figure.add_traces([_area(line, log) for line in lines if line.n > 1])
    for line in lines:
        look = "lines+markers" if joined and markers else "lines" if joined else "markers"
        ends = "<br>%{customdata[0]:.5g} to %{customdata[1]:.5g}" if line.n > 1 else ""
        bars = error_bars(line.band.low, line.band.mean, line.band.high, thickness=2.5, width=8)
        hover = f"<b>{line.label}</b><br>%{{x}}<br>mean %{{y:.5g}}{ends}<extra></extra>"
        told = {"name": line.label, "legendgroup": line.label, "showlegend": True, "hovertemplate": hover}
        figure.add_scatter(
            x=line.x,
            y=line.band.mean,
            error_y=None if joined or line.n < 2 else bars,
            mode=look,
            line={"color": line.style.color, "dash": line.style.dash, "width": 3},
            marker={"color": line.style.color, "symbol": line.style.symbol, "size": 11},
            customdata=np.stack([line.band.low, line.band.high], axis=-1),
            **told,
        )


def _area(line: Line, log: bool) -> go.Scatter:
    """The band, as one closed curve; on a logarithmic axis it ends where numbers are no longer positive."""
    known = np.isfinite(line.band.low)
    x = np.asarray(line.x)[known]
    low, high = line.band.low[known], line.band.high[known]
    if log and line.band.mean.min() > 0:
        low = np.maximum(low, line.band.mean.min() / 10)
    look = {"fill": "toself", "fillcolor": fade(line.style.color, 0.2), "line": {"width": 0}, "mode": "lines"}
    told = {"name": f"{line.label} band", "legendgroup": line.label, "showlegend": False, "hoverinfo": "skip"}
    return go.Scatter(x=np.concatenate([x, x[::-1]]), y=np.concatenate([high, low[::-1]]), **look, **told)


def about(lines: Sequence[Line], level: float) -> str:
    """Say what the bands are."""
    counts = {line.n for line in lines}
    if counts == {1}:
        return "single runs: no band"
    return (
        f"band: {100 * level:g} % confidence interval of the mean over {span(min(counts), max(counts))} runs"
    )


def scale_y(lines: Sequence[Line], ratio: float) -> dict[str, object]:
    """Logarithmic where ratios say more than differences."""
    return log_scale(np.concatenate([line.band.mean for line in lines]), ratio)
