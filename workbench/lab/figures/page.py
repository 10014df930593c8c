"""Figures on a page: no button uploads them, and they are dark in a dark notebook."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import plotly.graph_objects as go
import plotly.io as pio

from workbench.core.base.page import CONFIG
from workbench.lab.figures.fit import FIT, fitted, page_script

# `pio.to_html` omits the address where the button is hidden, and plotly.js has a default of its own.
_NO_ADDRESS = "document.getElementById('{plot_id}')._context.plotlyServerURL = '';"
_FIT = f"{FIT}.keep(document.getElementById('{{plot_id}}'));"
NOTEBOOK_WIDTH_PX = (
    820  # beside the file browser in a window of 1280 px; the kernel cannot ask a notebook for its width
)


@dataclass(frozen=True)
class Palette:
    """Colours of a theme that do not belong to a scheme."""

    background: str
    text: str
    muted: str  # secondary text, edges of a graph
    grid: str
    neutral: str  # a value near zero on a diverging scale, visible on the background


PALETTES: dict[str, Palette] = {
    "light": Palette("#FFFFFF", "#1B1F24", "#5B636E", "#E4E7EB", "#D3D7DC"),
    "dark": Palette("#111111", "#EEF0F3", "#A9B1BC", "#2D333B", "#4A525D"),
}


class Figure(go.Figure):
    """Plotly figure that has our settings wherever it is shown.

    Plotly's own renderers are not changed, so other figures in a user's notebook are not affected.

    >>> '"showSendToCloud": false' in Figure().to_html(include_plotlyjs=False)
    True
    """

    def show(self, *args: Any, **options: Any) -> None:
        """Show it by plotly's default renderer, or by the named one: see `plotly.io.show`."""
        light = self.layout.template.layout.paper_bgcolor == PALETTES["light"].background
        renderer = options.get("renderer", args[0] if args else None) or pio.renderers.default or ""
        if light and _is_page(renderer):
            _show_style()
        pio.show(fitted_to(self, NOTEBOOK_WIDTH_PX), *args, **_told(options))

    def to_html(self, config: dict[str, Any] | None = None, *args: Any, **options: Any) -> str:
        """Return HTML: see `plotly.io.to_html`."""
        told = _told({**options, "config": config}, _NO_ADDRESS, page_script(), _FIT)
        return str(pio.to_html(self, told.pop("config"), *args, **told))

    def write_html(self, file: Any, config: dict[str, Any] | None = None, *args: Any, **options: Any) -> None:
        """Write HTML into a file: see `plotly.io.write_html`."""
        told = _told({**options, "config": config}, _NO_ADDRESS, page_script(), _FIT)
        pio.write_html(self, file, told.pop("config"), *args, **told)

    def _ipython_display_(self) -> None:
        if pio.renderers.render_on_display and pio.renderers.default:
            self.show()
        else:
            print(repr(self))

    def _repr_mimebundle_(self, *args: Any, **options: Any) -> dict[str, Any]:
        shown = fitted_to(self, NOTEBOOK_WIDTH_PX)
        bundle: dict[str, Any] = go.Figure._repr_mimebundle_(shown, *args, **_told(options))
        return bundle


def fitted_to(figure: go.Figure, width: float) -> Figure:
    """Return a copy of a figure whose titles are broken into lines for a width in px."""
    layout = fitted(figure.layout.to_plotly_json(), width)
    return Figure(data=figure.data, layout=layout, _validate=False)


def _told(options: dict[str, Any], *scripts: str) -> dict[str, Any]:
    """Add our config, and scripts that run once the figure is drawn, to options of plotly's functions."""
    told = {**options, "config": {**CONFIG, **(options.get("config") or {})}}
    if scripts:
        given = options.get("post_script") or []
        told["post_script"] = [*([given] if isinstance(given, str) else given), *scripts]
    return told


# ---------------------------------------------------------------- dark theme in a notebook


def _is_page(renderers: str) -> bool:
    # imports all renderers, most of which a kernel never uses
    from plotly.io.base_renderers import HtmlRenderer, PlotlyRenderer

    names = [name for name in renderers.split("+") if name in pio.renderers]
    return any(isinstance(pio.renderers[name], (HtmlRenderer, PlotlyRenderer)) for name in names)


def _show_style() -> None:
    from IPython import display

    shown: Any = display  # IPython has no types
    shown.display({"text/html": dark_style(), "text/plain": ""}, raw=True)


@cache
def dark_style() -> str:
    """Return the style sheet that makes a light figure dark where the page is dark.

    The page's theme is not available in the kernel, and may change: JupyterLab and VS Code set it as an attribute.

    Only figures with text in our colour are changed, and only their elements with a colour of the light palette.
    """
    page = ":is([data-jp-theme-light=false], [data-vscode-theme-kind*=dark])"
    light, dark = (PALETTES[theme] for theme in ("light", "dark"))
    ours = f"{page} .js-plotly-plot:has([style*='fill: {_as_style(light.text)}'])"
    # The number in a node is as white as the background and must stay white: only fills of the background change.
    paints = [("background", ".main-svg", "background"), ("fill", "rect.bg", "background")]
    paints += [("stroke", "", name) for name in ("background", "text", "muted", "grid", "neutral")]
    paints += [("fill", "", name) for name in ("text", "muted", "grid", "neutral")]
    rules = [
        f"{ours} {element}[style*='{paint}: {_as_style(getattr(light, name))}']"
        f" {{{paint}: {getattr(dark, name)} !important}}"
        for paint, element, name in paints
    ]
    shadows = f"{ours} .highlight-shadow {{stroke: {dark.background} !important}}"  # highlighted lines of parallel axes
    buttons = (
        f"{ours} .modebar-group {{background: none !important}}"
        f" {ours} .modebar-btn .icon path {{fill: {dark.muted} !important}}"
    )
    return f"<style class='wb-dark'>{' '.join(rules)} {shadows} {buttons} {_of_stills(page)}</style>"


def _of_stills(page: str) -> str:
    """JupyterLab keeps an image of each figure, and shows it in a reopened notebook until the mouse is moved there."""
    output = ".jp-OutputArea-child:has(style.wb-dark)"
    still = f"{page} {output} + * .plot-img {{filter: invert(0.92) hue-rotate(180deg)}}"
    return f"{output} {{display: none}} {still}"


def _as_style(color: str) -> str:
    """Return a colour as browsers write it in an element's style.

    >>> _as_style("#0072B2")
    'rgb(0, 114, 178)'
    """
    return "rgb({}, {}, {})".format(*(int(color[i : i + 2], 16) for i in (1, 3, 5)))
