"""Plotly figure in a notebook that can be replaced as fast as a slider moves.

`plotly.graph_objects.FigureWidget` sends 5 MB of JavaScript for every widget, and traces that were added later are lost
when the page is reloaded. Here the page loads plotly.js once for all plots, and every view draws the whole figure of
the kernel.
"""

import time
from collections.abc import Callable, Mapping
from html import escape
from threading import Thread
from typing import Any, cast

import anywidget
import plotly.graph_objects as go
import traitlets as t
from IPython.display import HTML, display

from workbench.lab.figures.design import style_sheet
from workbench.lab.figures.style import Theme
from workbench.lab.widgets.assets import library, script

PAUSE_S = 0.001  # pause after a figure, in which the kernel's sending thread can run, s
# text in place of the widget, for readers without a kernel
WITHOUT_KERNEL = "as it was when last shown; run the cell to use it"
Draw = Callable[[Theme], go.Figure]
Click = dict[str, Any]


class Drawn(anywidget.AnyWidget):
    """Base of all drawing widgets. The page may request plotly.js, and reports its theme."""

    _css = t.Unicode(style_sheet()).tag(sync=True)
    # theme, "light" or "dark", set by the page; "" as long as no page shows the widget
    page = t.Unicode().tag(sync=True)
    still = t.Bool().tag(sync=True)  # whether the page sends images of the plot to the kernel

    def __init__(self, **traits: Any) -> None:
        super().__init__(**traits)
        self._still: Callable[[str], None] = lambda png: None
        self.on_msg(self._message)

    @property
    def theme(self) -> Theme:
        """Theme of the page, or "light" without a page."""
        return cast(Theme, self.page or "light")

    def _message(self, _: object, content: dict[str, Any], buffers: object) -> None:
        if content.get("kind") == "library":
            self.send({"kind": "library"}, buffers=[library()])
        elif content.get("kind") == "still":
            self._still(str(content["png"]))
        else:
            self.on_message(content)

    def keep_still(self, call: Callable[[str], None]) -> None:
        """Call `call` with an image (PNG, base64) each time that the plot has not changed for a while."""
        self._still, self.still = call, True

    def on_message(self, content: dict[str, Any]) -> None:
        """Handle a message of the page."""


def low(figure: go.Figure, height: int) -> go.Figure:
    """Limit a figure's height, in pixels."""
    height = min(height, figure.layout.height or height)
    return figure.update_layout(height=height, title_y=1 - 22 / height)


class Followed(Drawn):
    """Base of widgets that follow runs in a thread."""

    edition = t.Int().tag(sync=True)  # number that increases when other runs are shown
    active = t.Bool().tag(sync=True)  # whether there are runs to stop
    _thread: Thread | None = None

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until all runs are over and completely shown. Return whether they are."""
        if (thread := self._thread) is not None:
            thread.join(timeout)
        return not self.active


class Picture(Drawn):
    """Base of widgets that show one figure, or its data."""

    label = t.Unicode().tag(sync=True)  # label for screen readers
    serial = t.Int().tag(sync=True)  # number that increases with each figure
    _draw: Draw | None = None

    @property
    def drawn(self) -> bool:
        """Whether there is a figure."""
        return self._draw is not None

    def current(self, theme: Theme = "light") -> go.Figure | None:
        """Return the shown figure, or None."""
        return self._draw(theme) if self._draw else None


class Plot(Picture):
    """Widget of a figure, which `show` replaces.

    >>> import plotly.graph_objects as go
    >>> plot = Plot(lambda theme: go.Figure(layout_title_text="a title"))
    >>> plot.label
    'a title'
    """

    _esm = t.Unicode(script("plot", "plot_main")).tag(sync=True)
    figure = t.Unicode().tag(sync=True)  # JSON

    def __init__(self, draw: Draw | None = None, **traits: Any) -> None:
        super().__init__(**traits)
        self._listeners: list[Callable[[Click], None]] = []
        self.observe(lambda _: self.redraw(), "page")
        if draw is not None:
            self.show(draw)

    def show(self, draw: Draw) -> None:
        """Show the result of `draw`, which is called with the theme of the page, and again when the theme changes."""
        self._draw, self.layout.display = draw, ""
        self.redraw()

    def redraw(self) -> None:
        """Call `draw` again, and show the result."""
        if self._draw is None:
            return
        figure = self._draw(self.theme)
        with self.hold_sync():
            self.label = figure.layout.title.text or ""
            self.serial += 1
            self.figure = figure.to_json()
        time.sleep(PAUSE_S)

    def on_click(self, listener: Callable[[Click], None]) -> None:
        """Call `listener` with the x, y, z, index, about (data) and trace (name of the trace) of a clicked point."""
        self._listeners.append(listener)

    def on_message(self, content: dict[str, Any]) -> None:
        """Handle a click."""
        if content.get("kind") == "click":
            for listener in self._listeners:
                listener(content)


class Stills:
    """Second output of a cell, with a static image per plot.

    The page makes an image when a plot has not changed for a while. The style sheet of the package hides this output,
    so only readers without widgets see it.
    """

    def __init__(self, plots: Mapping[str, Drawn]) -> None:
        self.pictures: dict[str, str] = {}
        self.handle: Any = None
        self.names = list(plots)
        for name, plot in plots.items():
            plot.keep_still(lambda png, name=name: self.take(name, png))  # type: ignore[misc]

    def show(self, bundle: Any) -> None:
        """Display the result of a widget's `_repr_mimebundle_`, with the images below it."""
        data = bundle[0] if isinstance(bundle, tuple) else bundle
        display({**data, "text/plain": WITHOUT_KERNEL}, raw=True)  # type: ignore[no-untyped-call]
        self.handle = display(self._html(), display_id=True)  # type: ignore[no-untyped-call]

    def take(self, name: str, png: str) -> None:
        """Store a newer image (base64) of a plot."""
        self.pictures[name] = png
        if self.handle is not None:
            self.handle.update(self._html())

    def _html(self) -> HTML:
        return HTML(self.html)  # type: ignore[no-untyped-call]

    @property
    def html(self) -> str:
        """HTML of all images, in the order of the plots."""
        present = [(name, self.pictures[name]) for name in self.names if name in self.pictures]
        images = (f'<p><img alt="{escape(n)}" src="data:image/png;base64,{png}"></p>' for n, png in present)
        return f'<div class="wb-still">{"".join(images)}</div>'
