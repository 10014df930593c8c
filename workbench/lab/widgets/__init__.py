"""Widgets for JupyterLab and Voila: live plots of runs, and the explorer.

Widgets fill an `Experiment` and draw a `Trace`. Their choices come from the metadata of the settings' fields.
"""

from importlib import import_module
from typing import Any

from workbench.lab.widgets.assets import send_ahead

_LATER = {
    "Explorer": "explorer.explorer",
    "explore": "explorer.explorer",
    "RunsTable": "explorer.runstable",
    "Form": "forms.form",
    "LivePlot": "plots.liveplot",
    "Player": "plots.player",
    "Plot": "plots.plot",
    "Rounds": "plots.streamplot",
    "StreamPlot": "plots.streamplot",
    "SweepPlot": "plots.sweepplot",
    "stream": "plots.streamplot",
    "watch": "plots.liveplot",
}
# widgets that need plotly.js as soon as they are shown
_DRAWING = "Explorer", "explore", "LivePlot", "Plot", "SweepPlot", "watch"


def __getattr__(name: str) -> Any:
    """Import the module of a name at first use. For names in `_DRAWING`, send plotly.js to the page first."""
    if name not in _LATER:
        raise AttributeError(f"module 'workbench.lab.widgets' has no attribute {name!r}")
    if name in _DRAWING:
        send_ahead()
    return globals().setdefault(name, getattr(import_module(f"{__name__}.{_LATER[name]}"), name))


__all__ = sorted(_LATER)


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATER})
