"""Pictures of what widgets show, kept in the notebook: seen by readers without a kernel, and by nobody else."""

from collections.abc import Mapping
from html import escape
from typing import Any

from IPython.display import HTML, display

from workbench.widgets.plots.plot import Drawn


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
        display(bundle[0] if isinstance(bundle, tuple) else bundle, raw=True)  # type: ignore[no-untyped-call]
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
        kept = [(name, self.pictures[name]) for name in self.names if name in self.pictures]
        images = (f'<p><img alt="{escape(n)}" src="data:image/png;base64,{png}"></p>' for n, png in kept)
        return f'<div class="wb-still">{"".join(images)}</div>'
