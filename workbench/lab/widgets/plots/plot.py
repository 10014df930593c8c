"""A plotly figure in a notebook that can be replaced as fast as a slider moves.

`plotly.graph_objects.FigureWidget` sends five megabytes of JavaScript for every widget, and traces that were added
after it was made vanish when the page is loaded anew. Here the page asks for plotly.js once, whatever the number of
plots, and every view draws the whole figure that the kernel has.
"""

import time
from collections.abc import Callable, Mapping
from html import escape
from typing import Any, cast

import anywidget
import plotly.graph_objects as go
import traitlets as t
from IPython.display import HTML, display

from workbench.lab.figures.style import Theme
from workbench.lab.widgets.assets import library, script, style

PAUSE_S = 0.001  # s: the kernel's thread that sends goes first, before the next picture is worked at
WITHOUT_KERNEL = "as it was when it was last looked at; run the cell to use it"  # where there is no kernel
Draw = Callable[[Theme], go.Figure]
Click = dict[str, Any]


class Drawn(anywidget.AnyWidget):
    """What all drawing widgets share: the page may ask for plotly.js, and says which theme it has."""

    page = t.Unicode().tag(sync=True)  # "light" or "dark", as the page says; empty: nobody looks yet
    still = t.Bool().tag(sync=True)  # does the kernel want pictures of it?

    def __init__(self, **traits: Any) -> None:
        super().__init__(**traits)
        self._still: Callable[[str], None] = lambda png: None
        self.on_msg(self._message)

    @property
    def theme(self) -> Theme:
        """The page's theme; light as long as there is no page."""
        return cast(Theme, self.page or "light")

    def _message(self, _: object, content: dict[str, Any], buffers: object) -> None:
        if content.get("kind") == "library":
            self.send({"kind": "library"}, buffers=[library()])
        elif content.get("kind") == "still":
            self._still(str(content["png"]))
        else:
            self.on_message(content)

    def keep_still(self, call: Callable[[str], None]) -> None:
        """Call back with a picture (PNG, base64) whenever the plot has been left alone for a while."""
        self._still, self.still = call, True

    def on_message(self, content: dict[str, Any]) -> None:
        """Something came from the page."""


def low(figure: go.Figure, height: int) -> go.Figure:
    """Make a figure at most so many pixels high."""
    height = min(height, figure.layout.height or height)
    return figure.update_layout(height=height, title_y=1 - 22 / height)


class Plot(Drawn):
    """A figure; `show` replaces it.

    >>> import plotly.graph_objects as go
    >>> plot = Plot(lambda theme: go.Figure(layout_title_text="a title"))
    >>> plot.label
    'a title'
    """

    _esm = t.Unicode(script("plot", "plot_main")).tag(sync=True)
    _css = t.Unicode(style()).tag(sync=True)
    figure = t.Unicode().tag(sync=True)  # JSON
    label = t.Unicode().tag(sync=True)  # what a screen reader says
    serial = t.Int().tag(sync=True)  # counts the figures

    def __init__(self, draw: Draw | None = None, **traits: Any) -> None:
        super().__init__(**traits)
        self._draw: Draw | None = None
        self._listeners: list[Callable[[Click], None]] = []
        self.observe(lambda _: self.redraw(), "page")
        if draw is not None:
            self.show(draw)

    def show(self, draw: Draw) -> None:
        """Show what `draw` makes for the page's theme; called again when the page changes its theme."""
        self._draw, self.layout.display = draw, ""
        self.redraw()

    def redraw(self) -> None:
        """Make the figure anew."""
        if self._draw is None:
            return
        figure = self._draw(self.theme)
        with self.hold_sync():
            self.label = figure.layout.title.text or ""
            self.serial += 1
            self.figure = figure.to_json()
        time.sleep(PAUSE_S)

    @property
    def drawn(self) -> bool:
        """Is there a figure?"""
        return self._draw is not None

    def current(self, theme: Theme = "light") -> go.Figure | None:
        """The figure that is shown, for keeping it; None where there is none."""
        return self._draw(theme) if self._draw else None

    def on_click(self, listener: Callable[[Click], None]) -> None:
        """Call back with x, y, z, index, about (the point's own words) and trace (its name) of what is clicked."""
        self._listeners.append(listener)

    def on_message(self, content: dict[str, Any]) -> None:
        """A click."""
        if content.get("kind") == "click":
            for listener in self._listeners:
                listener(content)


class Stills:
    """A second output of the cell: one picture a plot, made by the page whenever the plot is left alone for a while.

    The style sheet that comes with our widgets hides it, so it is seen only where there is no widget.
    """

    def __init__(self, plots: Mapping[str, Drawn]) -> None:
        self.pictures: dict[str, str] = {}
        self.handle: Any = None
        self.names = list(plots)
        for name, plot in plots.items():
            plot.keep_still(lambda png, name=name: self.take(name, png))  # type: ignore[misc]

    def show(self, bundle: Any) -> None:
        """Display what a widget's `_repr_mimebundle_` gives, and the pictures below it."""
        data = bundle[0] if isinstance(bundle, tuple) else bundle
        display({**data, "text/plain": WITHOUT_KERNEL}, raw=True)  # type: ignore[no-untyped-call]
        self.handle = display(self._html(), display_id=True)  # type: ignore[no-untyped-call]

    def take(self, name: str, png: str) -> None:
        """There is a newer picture (base64) of a plot."""
        self.pictures[name] = png
        if self.handle is not None:
            self.handle.update(self._html())

    def _html(self) -> HTML:
        return HTML(self.html)  # type: ignore[no-untyped-call]

    @property
    def html(self) -> str:
        """All pictures, in the order of the plots."""
        present = [(name, self.pictures[name]) for name in self.names if name in self.pictures]
        images = (f'<p><img alt="{escape(n)}" src="data:image/png;base64,{png}"></p>' for n, png in present)
        return f'<div class="wb-still">{"".join(images)}</div>'
