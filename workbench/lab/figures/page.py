"""Figures on a page: no button sends them anywhere, and on a dark page of a notebook they are dark."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import plotly.graph_objects as go
import plotly.io as pio

from workbench.core.base.page import CONFIG

# `pio.to_html` leaves the address out where the button is not shown, and plotly.js has one of its own.
_NO_ADDRESS = "document.getElementById('{plot_id}')._context.plotlyServerURL = '';"


@dataclass(frozen=True)
class Palette:
    """Colours of a theme that are no scheme's."""

    background: str
    text: str
    muted: str  # secondary text, edges of a graph
    grid: str
    neutral: str  # a value near zero on a diverging scale; stands out from the background


PALETTES: dict[str, Palette] = {
    "light": Palette("#FFFFFF", "#1B1F24", "#5B636E", "#E4E7EB", "#D3D7DC"),
    "dark": Palette("#14171C", "#EEF0F3", "#A9B1BC", "#2D333B", "#4A525D"),
}


class Figure(go.Figure):
    """A plotly figure that gets our settings wherever it is shown.

    Plotly's own renderers stay as they are, so other figures in a user's notebook are none of our business.

    >>> '"showSendToCloud": false' in Figure().to_html(include_plotlyjs=False)
    True
    """

    def show(self, *args: Any, **options: Any) -> None:
        """Show it by plotly's default renderer, or by the one that is named: see `plotly.io.show`."""
        light = self.layout.template.layout.paper_bgcolor == PALETTES["light"].background
        renderer = options.get("renderer", args[0] if args else None) or pio.renderers.default or ""
        if light and _is_page(renderer):
            _show_style()
        pio.show(self, *args, **_told(options))

    def to_html(self, config: dict[str, Any] | None = None, *args: Any, **options: Any) -> str:
        """HTML: see `plotly.io.to_html`."""
        told = _told({**options, "config": config}, _NO_ADDRESS)
        return str(pio.to_html(self, told.pop("config"), *args, **told))

    def write_html(self, file: Any, config: dict[str, Any] | None = None, *args: Any, **options: Any) -> None:
        """HTML into a file: see `plotly.io.write_html`."""
        told = _told({**options, "config": config}, _NO_ADDRESS)
        pio.write_html(self, file, told.pop("config"), *args, **told)

    def _ipython_display_(self) -> None:
        if pio.renderers.render_on_display and pio.renderers.default:
            self.show()
        else:
            print(repr(self))

    def _repr_mimebundle_(self, *args: Any, **options: Any) -> dict[str, Any]:
        bundle: dict[str, Any] = super()._repr_mimebundle_(*args, **_told(options))
        return bundle


def _told(options: dict[str, Any], *scripts: str) -> dict[str, Any]:
    """Options of plotly's functions with our config, and with scripts that run once the figure is drawn."""
    told = {**options, "config": {**CONFIG, **(options.get("config") or {})}}
    if scripts:
        given = options.get("post_script") or []
        told["post_script"] = [*([given] if isinstance(given, str) else given), *scripts]
    return told


# ---------------------------------------------------------------- a notebook's dark page


def _is_page(renderers: str) -> bool:
    from plotly.io.base_renderers import (
        HtmlRenderer,
        PlotlyRenderer,
    )  # all of them, which most kernels never show by

    names = [name for name in renderers.split("+") if name in pio.renderers]
    return any(isinstance(pio.renderers[name], (HtmlRenderer, PlotlyRenderer)) for name in names)


def _show_style() -> None:
    from IPython import display

    shown: Any = display  # IPython has no types
    shown.display({"text/html": dark_style(), "text/plain": ""}, raw=True)


@cache
def dark_style() -> str:
    """Style sheet that goes with a figure, so that a light one is dark where the page is.

    The kernel does not know the page's theme, which may change; JupyterLab and VS Code say it in an attribute.
    Only figures with text in our colour are changed, and in them only what has a colour of the light palette.
    """
    page = ":is([data-jp-theme-light=false], [data-vscode-theme-kind*=dark])"
    light, dark = (PALETTES[theme] for theme in ("light", "dark"))
    ours = f"{page} .js-plotly-plot:has([style*='fill: {_as_style(light.text)}'])"
    # A node's number is as white as the ground, and stays so: of fills only the ground's.
    paints = [("background", ".main-svg", "background"), ("fill", "rect.bg", "background")]
    paints += [("stroke", "", name) for name in ("background", "text", "muted", "grid", "neutral")]
    paints += [("fill", "", name) for name in ("text", "muted", "grid", "neutral")]
    rules = [
        f"{ours} {element}[style*='{paint}: {_as_style(getattr(light, name))}']"
        f" {{{paint}: {getattr(dark, name)} !important}}"
        for paint, element, name in paints
    ]
    shadows = f"{ours} .highlight-shadow {{stroke: {dark.background} !important}}"  # of parallel axes
    buttons = (
        f"{ours} .modebar-group {{background: none !important}}"
        f" {ours} .modebar-btn .icon path {{fill: {dark.muted} !important}}"
    )
    return f"<style class='wb-dark'>{' '.join(rules)} {shadows} {buttons} {_of_stills(page)}</style>"


def _of_stills(page: str) -> str:
    """JupyterLab keeps a still of each figure, and shows it in a notebook opened anew until the mouse comes."""
    output = ".jp-OutputArea-child:has(style.wb-dark)"
    still = f"{page} {output} + * .plot-img {{filter: invert(0.92) hue-rotate(180deg)}}"
    return f"{output} {{display: none}} {still}"


def _as_style(color: str) -> str:
    """A colour as browsers write it in an element's style.

    >>> _as_style("#0072B2")
    'rgb(0, 114, 178)'
    """
    return "rgb({}, {}, {})".format(*(int(color[i : i + 2], 16) for i in (1, 3, 5)))
