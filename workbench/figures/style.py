"""House style: two plotly templates, one fixed look per scheme, units that fit."""

from __future__ import annotations

from hashlib import sha256
from typing import Literal, NamedTuple

import plotly.graph_objects as go
import plotly.io as pio

from workbench.base.settings import unknown_name
from workbench.figures.page import Figure
from workbench.figures.palettes import PALETTES, Palette

Theme = Literal["light", "dark"]

FONT = "Open Sans, Arial, Helvetica, DejaVu Sans, sans-serif"
CLEAR = "rgba(0,0,0,0)"

# Okabe and Ito's colours without yellow and black, which vanish on a white or a dark ground; grey instead.
BLUE, SKY, GREEN = "#0072B2", "#56B4E9", "#009E73"
ORANGE, VERMILLION, PINK, GREY = "#E69F00", "#D55E00", "#CC79A7", "#808890"
HUES = (BLUE, VERMILLION, SKY, ORANGE, GREEN, PINK, GREY)
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")


class Style(NamedTuple):
    """How a scheme is drawn, whatever the figure: line colour, line dash, marker symbol.

    `color`, `dash` and `symbol` are plotly's.

    >>> Style("#0072B2", "solid", "circle").dash
    'solid'
    """

    color: str
    dash: str
    symbol: str


# Schemes that one paper compares differ in colour; no two schemes share colour and dash, or the marker.
_KNOWN = {
    "UMW": Style(GREY, "solid", "circle"),
    "SGD": Style(ORANGE, "dot", "triangle-up"),
    "RAR": Style(SKY, "dashdot", "diamond"),
    "GC": Style(VERMILLION, "dash", "square"),
    "CR": Style(BLUE, "solid", "star"),
    "CEGC": Style(GREEN, "longdash", "triangle-down"),
    "FRC": Style(BLUE, "dashdot", "hexagon"),
    "CRC": Style(ORANGE, "longdash", "pentagon"),
    "UC-MMC": Style(SKY, "dash", "cross"),
    "GC-MMC": Style(PINK, "solid", "hexagram"),
    "LCC": Style(GREEN, "dot", "bowtie"),
    "D-SGD": Style(ORANGE, "solid", "triangle-left"),
    "D-Adam": Style(VERMILLION, "dot", "triangle-right"),
    "CADA": Style(SKY, "longdash", "diamond-tall"),
    "G-CADA": Style(BLUE, "dash", "hourglass"),
    "LAGC": Style(GREEN, "solid", "triangle-se"),
    "BGC": Style(GREEN, "dashdot", "star-triangle-up"),
    "ErasureHead": Style(PINK, "dash", "star-triangle-down"),
    "SGC": Style(SKY, "solid", "triangle-nw"),
}
_OTHER_SYMBOLS = ("octagon", "x", "star-square", "star-diamond", "triangle-ne", "triangle-sw", "diamond-wide")


def scheme_style(name: str, variant: int = 0) -> Style:
    """Look of a scheme, the same in every figure and both themes; an unknown name gets one from its hash.

    Parameters
    ----------
    name
        The scheme's name as users write it.
    variant
        Tells apart several experiments of one scheme in a figure: the colour stays, dash and marker change.

    Examples
    --------
    >>> scheme_style("CR")
    Style(color='#0072B2', dash='solid', symbol='star')
    >>> scheme_style("CR", 1)
    Style(color='#0072B2', dash='dash', symbol='star-open')
    """
    style = _KNOWN.get(name) or _from_hash(name)
    dash = DASHES[(DASHES.index(style.dash) + variant) % len(DASHES)]
    others = [symbol for symbol in _OTHER_SYMBOLS if symbol != style.symbol]
    symbol = [style.symbol, *others][variant // 2 % (1 + len(others))]
    return Style(style.color, dash, symbol + ("-open" if variant % 2 else ""))


def _from_hash(name: str) -> Style:
    # Python's own hash changes from process to process; a scheme's colour must not.
    a, b, c = sha256(name.encode()).digest()[:3]
    return Style(HUES[a % len(HUES)], DASHES[b % len(DASHES)], _OTHER_SYMBOLS[c % len(_OTHER_SYMBOLS)])


def palette(theme: str) -> Palette:
    """Colours of a theme; raises `SettingError` for another name than light and dark."""
    if theme not in PALETTES:
        raise unknown_name("theme", theme, list(PALETTES))
    return PALETTES[theme]


def new_figure(theme: str, title: str, subtitle: str = "", height: int = 640) -> go.Figure:
    """Empty figure in house style; its width follows the page."""
    colors = palette(theme)
    heading = {
        "text": title,
        "subtitle": {"text": subtitle, "font": {"size": 16, "color": colors.muted}},
        "y": 1 - 22 / height,  # the same distance from the top whatever the height
    }
    return Figure(layout={"template": f"workbench_{theme}", "title": heading, "height": height})


def fade(color: str, opacity: float) -> str:
    """Make a colour see-through.

    >>> fade("#0072B2", 0.5)
    'rgba(0,114,178,0.5)'
    """
    red, green, blue = (int(color[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},{opacity})"


def log_ticks(low: float, high: float) -> dict[str, object]:
    """Choose ticks of a logarithmic axis: 1, 2, 5, 10, ... or powers of ten; few of them on a short axis."""
    if high < 8 * low:
        return {"nticks": 10}
    return {"dtick": "D2" if high / low < 1e4 else 1}


class Unit(NamedTuple):
    """A unit of time: multiply seconds by `scale`."""

    scale: float
    name: str


def time_unit(seconds: float) -> Unit:
    """Choose s, ms or µs so that numbers of this size read well.

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
    """Make plotly know the templates workbench_light and workbench_dark; its default stays what it is."""
    for theme, colors in PALETTES.items():
        pio.templates[f"workbench_{theme}"] = _template(colors)
