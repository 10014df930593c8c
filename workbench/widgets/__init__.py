"""Widgets for JupyterLab and Voila: plots that grow while runs go on, and the explorer.

They only fill an Experiment and draw a Trace; what can be chosen comes from the fields' own metadata.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import workbench as wb
from workbench.widgets.assets import send_ahead

if TYPE_CHECKING:
    from workbench.batch.background import SweepRun
    from workbench.running.run import Run
    from workbench.trace.trace import Trace
    from workbench.widgets.plots.liveplot import LivePlot
    from workbench.widgets.plots.streamplot import Rounds
    from workbench.widgets.plots.sweepplot import SweepPlot

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
}
_DRAWING = ("Explorer", "explore", "LivePlot", "Plot", "SweepPlot")  # by plotly.js, as soon as they are shown


def __getattr__(name: str) -> Any:
    """What is loaded when first asked for: who watches a run needs neither the explorer nor the table of runs."""
    if name not in _LATER:
        raise AttributeError(f"module 'workbench.widgets' has no attribute {name!r}")
    if name in _DRAWING:
        send_ahead()
    return globals().setdefault(name, getattr(import_module(f"{__name__}.{_LATER[name]}"), name))


def watch(runs: Run | Sequence[Run] | SweepRun) -> LivePlot | SweepPlot:
    """Show runs while they go on, on one axis, with a Stop button; or a sweep, with what came of it so far.

    `runs`: what `wb.start` and `wb.attach` return, a list of such, or what `wb.batch.start` and `wb.batch.attach` do.

    >>> import workbench as wb
    >>> plot = wb.watch(wb.start(wb.Experiment(scheme="UMW", workers=4, rounds=5)))
    >>> plot.wait()
    True
    """
    send_ahead()
    from workbench.base.settings import SettingError
    from workbench.running.run import Run
    from workbench.widgets.plots.liveplot import LivePlot

    shown = [runs] if isinstance(runs, Run) else runs
    if not isinstance(shown, Sequence) and isinstance(shown, wb.batch.SweepRun):
        return __getattr__("SweepPlot")(shown)
    if not isinstance(shown, Sequence) or not all(isinstance(run, Run) for run in shown):
        raise SettingError(f"runs = {runs!r:.60}: give what wb.start returns, or a list of such")
    return LivePlot(shown)


def stream(run: Run | Trace | str | Path) -> Rounds:
    """Show what every worker does, round by round, while the run goes on or after it; a click opens a round.

    `run`: what `wb.start`, `wb.attach` or `wb.run` return, or a run folder, of a run that is over or under way.

    Raises `SettingError`: this is no run, or no folder of one.

    >>> import workbench as wb
    >>> rounds = stream(wb.run(wb.Experiment(scheme="UMW", workers=4, rounds=5)))
    >>> len(rounds.stream.stream)
    5
    """
    from workbench.base.settings import SettingError, path_of
    from workbench.running.run import Run
    from workbench.trace.layout import RUN
    from workbench.trace.trace import Trace

    if isinstance(run, str | Path):
        folder = path_of(run, "folder")
        return __getattr__("Rounds")(Trace.load(folder) if (folder / RUN).is_file() else wb.attach(folder))
    if not isinstance(run, Run | Trace):
        raise SettingError(f"run = {run!r:.60}: give what wb.start or wb.run returns, or a run folder")
    return __getattr__("Rounds")(run)


__all__ = ["stream", "watch"]
__all__ += sorted(_LATER)


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATER})
