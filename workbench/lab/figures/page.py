"""Figures on pages: no button uploads them, and they are dark in a dark notebook."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import plotly.graph_objects as go
import plotly.io as pio

from workbench.core.base.page import CONFIG
from workbench.lab.figures.fit import FIT, fitted, page_script

# if the button is hidden, `pio.to_html` omits the address of the upload, and plotly.js would use its default
_NO_ADDRESS = "document.getElementById('{plot_id}')._context.plotlyServerURL = '';"
_FIT = f"{FIT}.keep(document.getElementById('{{plot_id}}'));"
# buttons below the axis, not over a title
_BELOW = "top: auto !important; bottom: 0; height: 32px !important"
# width of a notebook beside the file browser in a window of 1280 px; the kernel cannot ask a notebook for its width
NOTEBOOK_WIDTH_PX = 820


@dataclass(frozen=True)
class Palette:
    """Colours of a theme, except those of schemes."""

    background: str
    text: str
    muted: str  # secondary text, and edges of graphs
    grid: str
    neutral: str  # values near zero on a diverging scale, visible on the background


PALETTES: dict[str, Palette] = {
    "light": Palette("#FFFFFF", "#1B1F24", "#5B636E", "#E4E7EB", "#D3D7DC"),
    "dark": Palette("#111111", "#EEF0F3", "#A9B1BC", "#2D333B", "#4A525D"),
}


class Figure(go.Figure):
    """Plotly figure with the workbench's settings on every kind of page.

    Plotly's own renderers are not changed, so other figures in a user's notebook are not affected.

    >>> '"showSendToCloud": false' in Figure().to_html(include_plotlyjs=False)
    True
    """

    def show(self, *args: Any, **options: Any) -> None:
        """Show the figure by plotly's default renderer, or by a named one (see `plotly.io.show`)."""
        light = self.layout.template.layout.paper_bgcolor == PALETTES["light"].background
        renderer = options.get("renderer", args[0] if args else None) or pio.renderers.default or ""
        if light and _is_page(renderer):
            _show_style()
        pio.show(fitted_to(self, NOTEBOOK_WIDTH_PX), *args, **_with_config(options))

    def to_html(self, config: dict[str, Any] | None = None, *args: Any, **options: Any) -> str:
        """Return the figure as HTML (see `plotly.io.to_html`)."""
        found = _with_config({**options, "config": config}, _NO_ADDRESS, page_script(), _FIT)
        return str(pio.to_html(self, found.pop("config"), *args, **found))

    def write_html(self, file: Any, config: dict[str, Any] | None = None, *args: Any, **options: Any) -> None:
        """Write the figure as HTML into a file (see `plotly.io.write_html`)."""
        found = _with_config({**options, "config": config}, _NO_ADDRESS, page_script(), _FIT)
        pio.write_html(self, file, found.pop("config"), *args, **found)

    def _ipython_display_(self) -> None:
        if pio.renderers.render_on_display and pio.renderers.default:
            self.show()
        else:
            print(repr(self))

    def _repr_mimebundle_(self, *args: Any, **options: Any) -> dict[str, Any]:
        shown = fitted_to(self, NOTEBOOK_WIDTH_PX)
        bundle: dict[str, Any] = go.Figure._repr_mimebundle_(shown, *args, **_with_config(options))
        return bundle


def fitted_to(figure: go.Figure, width: float) -> Figure:
    """Return a copy of a figure whose titles are broken into lines for a width in px."""
    layout = fitted(figure.layout.to_plotly_json(), width)
    return Figure(data=figure.data, layout=layout, _validate=False)


def _with_config(options: dict[str, Any], *scripts: str) -> dict[str, Any]:
    """Add the workbench's config, and scripts to run once the figure is drawn, to options of plotly's functions."""
    found = {**options, "config": {**CONFIG, **(options.get("config") or {})}}
    if scripts:
        given = options.get("post_script") or []
        found["post_script"] = [*([given] if isinstance(given, str) else given), *scripts]
    return found


# ---------------------------------------------------------------- dark theme in a notebook


def _is_page(renderers: str) -> bool:
    # importing these imports all renderers, most of which a kernel never uses
    from plotly.io.base_renderers import HtmlRenderer, PlotlyRenderer

    names = [name for name in renderers.split("+") if name in pio.renderers]
    return any(isinstance(pio.renderers[name], (HtmlRenderer, PlotlyRenderer)) for name in names)


def _show_style() -> None:
    from IPython import display

    shown: Any = display  # IPython has no types
    shown.display({"text/html": dark_style(), "text/plain": ""}, raw=True)


@cache
def dark_style() -> str:
    """Return the style sheet that makes a light figure dark on a dark page.

    The kernel does not have the theme of the page, which may also change. JupyterLab and VS Code set it as an
    attribute of the page. Only figures with text in the workbench's colour are changed, and in them only elements
    with a colour of the light palette.
    """
    page = ":is([data-jp-theme-light=false], [data-vscode-theme-kind*=dark])"
    light, dark = (PALETTES[theme] for theme in ("light", "dark"))
    ours = f"{page} .js-plotly-plot:has([style*='fill: {_as_style(light.text)}'])"
    # only the white background becomes dark; other white fills, such as numbers in nodes, stay white
    paints = [("background", ".main-svg", "background"), ("fill", "rect.bg", "background")]
    paints += [("stroke", "", name) for name in ("background", "text", "muted", "grid", "neutral")]
    paints += [("fill", "", name) for name in ("text", "muted", "grid", "neutral")]
    rules = [
        f"{ours} {element}[style*='{paint}: {_as_style(getattr(light, name))}']"
        f" {{{paint}: {getattr(dark, name)} !important}}"
        for paint, element, name in paints
    ]
    # highlighted lines of parallel coordinates
    shadows = f"{ours} .highlight-shadow {{stroke: {dark.background} !important}}"
    buttons = (
        f"{ours} .modebar-group {{background: none !important}}"
        f" {ours} .modebar-btn .icon path {{fill: {dark.muted} !important}}"
    )
    below = f"{ours.removeprefix(f'{page} ')} .modebar-container {{{_BELOW}}}"
    return f"<style class='wb-dark'>{' '.join(rules)} {shadows} {buttons} {below} {_of_stills(page)}</style>"


def _of_stills(page: str) -> str:
    """Return the rule for static images.

    JupyterLab keeps an image of each figure. In a reopened notebook it shows the image until the mouse is over it.
    """
    output = ".jp-OutputArea-child:has(style.wb-dark)"
    still = f"{page} {output} + * .plot-img {{filter: invert(0.92) hue-rotate(180deg)}}"
    return f"{output} {{display: none}} {still}"


def _as_style(color: str) -> str:
    """Return a colour as browsers write it in an element's style.

    >>> _as_style("#0072B2")
    'rgb(0, 114, 178)'
    """
    return "rgb({}, {}, {})".format(*(int(color[i : i + 2], 16) for i in (1, 3, 5)))
