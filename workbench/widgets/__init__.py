"""Widgets for JupyterLab and Voila: plots that grow while runs go on, and the explorer.

They only fill an Experiment and draw a Trace; what can be chosen comes from the fields' own metadata.
"""

from collections.abc import Sequence

from workbench.base.settings import SettingError
from workbench.running.run import Run
from workbench.widgets.explorer.explorer import Explorer, explore
from workbench.widgets.explorer.runstable import RunsTable
from workbench.widgets.forms.form import Form
from workbench.widgets.plots.liveplot import LivePlot
from workbench.widgets.plots.player import Player
from workbench.widgets.plots.plot import Plot


def watch(runs: Run | Sequence[Run]) -> LivePlot:
    """Show runs while they go on, on one axis, with a Stop button.

    >>> import workbench as wb
    >>> plot = wb.watch(wb.start(wb.Experiment(scheme="UMW", workers=4, rounds=5)))
    >>> plot.wait()
    True
    """
    shown = [runs] if isinstance(runs, Run) else runs
    if not isinstance(shown, Sequence) or not all(isinstance(run, Run) for run in shown):
        raise SettingError(f"runs = {runs!r:.60}: give what wb.start returns, or a list of such")
    return LivePlot(shown)


__all__ = ["Explorer", "Form", "LivePlot", "Player", "Plot", "RunsTable", "explore", "watch"]
