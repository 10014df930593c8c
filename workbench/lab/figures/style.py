"""Common style: two plotly templates, one fixed style per scheme, suitable units."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from hashlib import sha256
from math import ceil, log10
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import plotly.graph_objects as go
import plotly.io as pio

from workbench.core.base.arguments import kinds_checked
from workbench.core.base.settings import unknown_name
from workbench.core.base.text import read_yaml
from workbench.core.base.types import Array
from workbench.core.contract.scheme import ABSTRACT_MARK
from workbench.lab.figures.page import PALETTES, Figure, Palette

Theme = Literal["light", "dark"]

FONT = "Open Sans, Arial, Helvetica, DejaVu Sans, sans-serif"
CLEAR = "rgba(0,0,0,0)"

# Colours of Okabe and Ito. Grey replaces yellow and black, which are invisible on one of the backgrounds.
BLUE, SKY, GREEN = "#0072B2", "#56B4E9", "#009E73"
ORANGE, VERMILLION, PINK, GREY = "#E69F00", "#D55E00", "#CC79A7", "#808890"
PURPLE = "#5D3A9B"  # not of a scheme; its pale shades differ from those of all other colours
# colours of the activities of workers, which differ from those of schemes and are visible on both backgrounds
COMPUTING, SENDING, RECEIVING = "#7B6FE3", "#A8912E", "#6B5A14"
QUEUED, QUEUED_DARK = "#D9CE9C", "#6B6238"  # of the light and of the dark theme
TOO_LATE, REFUSED, DOWNLOADING, DECODING = "#D42A55", "#8C3350", "#BBB4F5", "#4A3FA8"
COLORS = {
    "blue": BLUE, "vermillion": VERMILLION, "sky": SKY, "orange": ORANGE, "green": GREEN, "pink": PINK, "grey": GREY
}  # fmt: skip
HUES = tuple(COLORS.values())
PALE = 0.5  # opacity of colours behind text, with which its contrast is at least 4.5 in both themes
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")


class Style(NamedTuple):
    """Style of a scheme in all figures: line colour, line dash, marker symbol.

    `color`, `dash` and `symbol` have plotly's values.

    >>> Style("#0072B2", "solid", "circle").dash
    'solid'
    """

    color: str
    dash: str
    symbol: str


_STYLES = Path(__file__).with_name("styles.yaml")
_KNOWN = {
    name: Style(COLORS[color], dash, symbol)
    for name, (color, dash, symbol) in read_yaml(_STYLES, "CR: [blue, solid, star]").items()
}
_OTHER_SYMBOLS = ("octagon", "x", "star-square", "star-diamond", "triangle-ne", "triangle-sw", "diamond-wide")


@kinds_checked
def scheme_style(name: str, variant: int = 0) -> Style:
    """Return the style of a scheme, the same in all figures and themes. Unknown names get a style by their hash.

    `name`: the scheme's name as users write it, with or without the mark of schemes that follow an abstract.
    `variant`: number of the experiment among those of one scheme in a figure. Variants have the same colour, and
    different dashes and markers.

    >>> scheme_style("CR")
    Style(color='#0072B2', dash='solid', symbol='star')
    >>> scheme_style("CR", 1)
    Style(color='#0072B2', dash='dash', symbol='star-open')
    """
    name = name.removesuffix(ABSTRACT_MARK)
    style = _KNOWN.get(name) or _from_hash(name)
    dash = DASHES[(DASHES.index(style.dash) + variant) % len(DASHES)]
    others = [symbol for symbol in _OTHER_SYMBOLS if symbol != style.symbol]
    symbol = [style.symbol, *others][variant // 2 % (1 + len(others))]
    return Style(style.color, dash, symbol + ("-open" if variant % 2 else ""))


def styles(schemes: Iterable[str]) -> list[Style]:
    """Return the styles of experiments in one figure. Those of one scheme differ in dash and marker."""
    seen: Counter[str] = Counter()
    found = []
    for scheme in schemes:
        found.append(scheme_style(scheme, seen[scheme]))
        seen[scheme] += 1
    return found


def _from_hash(name: str) -> Style:
    # Python's hash changes between processes, but a scheme's colour must not.
    a, b, c = sha256(name.encode(errors="surrogatepass")).digest()[:3]
    return Style(HUES[a % len(HUES)], DASHES[b % len(DASHES)], _OTHER_SYMBOLS[c % len(_OTHER_SYMBOLS)])


def palette(theme: str) -> Palette:
    """Return the colours of a theme. Raises `SettingError` unless it is "light" or "dark"."""
    if not isinstance(theme, str) or theme not in PALETTES:
        raise unknown_name("theme", theme, list(PALETTES))
    return PALETTES[theme]


def new_figure(theme: str, title: str, subtitle: str = "", height: int = 640) -> go.Figure:
    """Return an empty figure in the common style, whose width follows the page."""
    colors = palette(theme)
    heading = {
        "text": title,
        "subtitle": {"text": subtitle, "font": {"size": 16, "color": colors.muted}},
        "y": 1 - 22 / height,  # the same distance from the top for any height
    }
    template = pio.templates[f"workbench_{theme}"].to_plotly_json()
    figure = Figure(layout={"template": template, "title": heading, "height": height}, _validate=False)
    # Plotly would take ten times as long to validate these constants. Later additions are validated.
    figure._validate = figure._layout_obj._validate = True
    return figure


def assembled(figure: go.Figure, traces: Iterable[dict[str, Any]], **layout: Any) -> go.Figure:
    """Return a figure in the common style from valid traces and layout. None values are left out.

    Plotly's validation is skipped, because it would take most of the time in figures that follow a slider.

    >>> assembled(new_figure("light", "one"), [{"type": "bar", "x": [1], "text": None}]).data[0].x
    (1,)
    """
    plain = [{name: value for name, value in trace.items() if value is not None} for trace in traces]
    return Figure(data=plain, layout={**figure.layout.to_plotly_json(), **layout}, _validate=False)


def marks(x: Any, y: Any, name: str, marker: dict[str, Any], hover: str = "", **more: Any) -> go.Scatter:
    """Return markers without a line. `hover`: the hover text, "" for none."""
    hover_options = {"hovertemplate": f"{hover}<extra></extra>"} if hover else {"hoverinfo": "skip"}
    return go.Scatter(x=x, y=y, name=name, mode="markers", marker=marker, **hover_options, **more)


def legend_square(name: str, color: str) -> go.Scatter:
    """Return an entry of the legend without data: a coloured square."""
    marker = {"color": color, "symbol": "square", "size": 13}
    return go.Scatter(x=[None], y=[None], mode="markers", name=name, marker=marker)


def fade(color: str, opacity: float) -> str:
    """Make a colour transparent.

    >>> fade("#0072B2", 0.5)
    'rgba(0,114,178,0.5)'
    """
    red, green, blue = (int(color[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},{opacity})"


TRAVELLING = fade(SENDING, 0.45)  # a message before the receiver's port takes it


def log_ticks(low: float, high: float) -> dict[str, object]:
    """Return ticks of a logarithmic axis: 1, 2, 5, 10, ... or powers of ten, and 1, 2, 3, 4, ... on a short axis."""
    if high < 3 * low:
        return {"nticks": 10}
    few = "D1" if high < 8 * low else "D2"
    return {"dtick": few if high / low < 1e4 else max(1, ceil(log10(high / low) / 10))}


def log_scale(values: Array, ratio: float) -> dict[str, object]:
    """Return a logarithmic axis if ratios matter more than differences, else plotly's default."""
    values = values[np.isfinite(values)]
    if not len(values) or values.min() <= 0 or values.max() <= ratio * values.min():
        return {}
    low, high = float(values.min()), float(values.max())
    numbers = {"exponentformat": "power"} if high > 1e4 * low else {"tickformat": "~g"}
    return {"type": "log", **numbers, **log_ticks(low, high)}


def error_bars(low: Any, middle: Any, high: Any, **look: object) -> dict[str, object]:
    """Return plotly's error bars from quantiles (arrays, or a number for each)."""
    low, middle, high = map(np.atleast_1d, (low, middle, high))
    return {"type": "data", "array": high - middle, "arrayminus": middle - low, **look}


class Unit(NamedTuple):
    """Unit of time. Seconds are multiplied by `scale`."""

    scale: float
    name: str


def time_unit(seconds: float) -> Unit:
    """Return the unit, s, ms or µs, that suits numbers of this size.

    >>> time_unit(0.02)
    Unit(scale=1000.0, name='ms')
    """
    if seconds >= 1.0 or seconds <= 0.0:
        return Unit(1.0, "s")
    return Unit(1e3, "ms") if seconds >= 1e-3 else Unit(1e6, "µs")


def _axis(colors: Palette) -> dict[str, object]:
    return {
        "gridcolor": colors.grid,
        "zeroline": False,
        "linecolor": colors.muted,
        "showline": True,
        "ticks": "outside",
        "tickcolor": colors.muted,
        "tickfont": {"size": 15},
        "title": {"font": {"size": 17}, "standoff": 10},
        "automargin": True,
        # margins grow with the labels; otherwise each label would be measured at each drawing
        "ticklabeloverflow": "allow",
    }


def _template(colors: Palette) -> go.layout.Template:
    layout = {
        "font": {"family": FONT, "size": 16, "color": colors.text},
        "title": {"font": {"size": 22}, "x": 0.0, "xref": "paper", "xanchor": "left", "yanchor": "top"},
        "paper_bgcolor": colors.background,
        "plot_bgcolor": colors.background,
        "colorway": list(HUES),
        "margin": {"l": 70, "r": 30, "t": 96, "b": 64},
        "xaxis": _axis(colors),
        "yaxis": _axis(colors),
        "legend": {"font": {"size": 15}, "title": {"font": {"size": 15}}, "bgcolor": CLEAR},
        "hoverlabel": {"font": {"size": 15, "family": FONT}},
        "coloraxis": {"colorbar": {"outlinewidth": 0, "thickness": 16, "tickfont": {"size": 14}}},
    }
    return go.layout.Template(layout=layout)


def register() -> None:
    """Register the templates workbench_light and workbench_dark with plotly. The default template is not changed."""
    for theme, colors in PALETTES.items():
        pio.templates[f"workbench_{theme}"] = _template(colors)
