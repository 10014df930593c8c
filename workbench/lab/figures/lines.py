"""Lines with confidence bands."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import plotly.graph_objects as go

from workbench.core.base.intervals import Band
from workbench.core.base.type_checks import span
from workbench.lab.figures.style import Style, error_bars, fade, log_scale


class Curve(NamedTuple):
    """Means along x with confidence intervals, each over n runs, and the style of their line."""

    label: str
    style: Style
    x: Any  # numbers, or texts on a categorical axis
    band: Band
    n: int

    @property
    def banded(self) -> bool:
        """Whether the band has a width, which bands of single runs and of equal runs do not have."""
        return self.n > 1 and not np.array_equal(self.band.low, self.band.high)


def draw(
    figure: go.Figure,
    curves: Sequence[Curve],
    joined: bool,
    scale: Mapping[str, object],
    markers: bool = True,
) -> None:
    """Draw all bands below all lines. `scale`: type of the vertical axis, see `scale_y`."""
    figure.update_yaxes(**scale)
    if joined:
        log = scale.get("type") == "log"
        figure.add_traces([_area(curve, log) for curve in curves if curve.banded])
    for curve in curves:
        look = "lines+markers" if joined and markers else "lines" if joined else "markers"
        ends = "<br>%{customdata[0]:.5g} to %{customdata[1]:.5g}" if curve.banded else ""
        bars = error_bars(curve.band.low, curve.band.mean, curve.band.high, thickness=2.5, width=8)
        hover = f"<b>{curve.label}</b><br>%{{x}}<br>mean %{{y:.5g}}{ends}<extra></extra>"
        figure.add_scatter(
            name=curve.label,
            legendgroup=curve.label,
            showlegend=True,
            hovertemplate=hover,
            x=curve.x,
            y=curve.band.mean,
            error_y=bars if curve.banded and not joined else None,
            mode=look,
            line={"color": curve.style.color, "dash": curve.style.dash, "width": 3},
            marker={"color": curve.style.color, "symbol": curve.style.symbol, "size": 11},
            customdata=np.stack([curve.band.low, curve.band.high], axis=-1),
        )


def _area(curve: Curve, log: bool) -> go.Scatter:
    """Return a band as a closed curve. On a logarithmic axis, its lower edge is at least a tenth of the least mean."""
    known = np.isfinite(curve.band.low)
    x = np.asarray(curve.x)[known]
    low, high = curve.band.low[known], curve.band.high[known]
    if log and curve.band.mean.min() > 0:
        low = np.maximum(low, curve.band.mean.min() / 10)
    return go.Scatter(
        x=np.concatenate([x, x[::-1]]),
        y=np.concatenate([high, low[::-1]]),
        fill="toself",
        fillcolor=fade(curve.style.color, 0.2),
        line={"width": 0},
        mode="lines",
        name=f"{curve.label} band",
        legendgroup=curve.label,
        showlegend=False,
        hoverinfo="skip",
    )


def about(curves: Sequence[Curve], level: float) -> str:
    """Return a sentence that explains the bands."""
    counts = {curve.n for curve in curves}
    if not any(curve.banded for curve in curves):
        return "single runs: no band" if counts == {1} else "the runs of a mean are equal: no band"
    return (
        f"band: {100 * level:g} % confidence interval of the mean over {span(min(counts), max(counts))} runs"
    )


def scale_y(curves: Sequence[Curve], ratio: float) -> dict[str, object]:
    """Return a logarithmic axis if the largest mean is above `ratio` times the least, else plotly's default."""
    return log_scale(np.concatenate([curve.band.mean for curve in curves]), ratio)
