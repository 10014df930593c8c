"""Widgets for JupyterLab and Voila: plots that grow while runs go on, and the explorer.

They only fill an Experiment and draw a Trace; what can be chosen comes from the fields' own metadata.
"""

from collections.abc import Sequence

from workbench.live import Run
from workbench.widgets.explorer import Explorer, explore
from workbench.widgets.form import Form
from workbench.widgets.liveplot import LivePlot
from workbench.widgets.player import Player
from workbench.widgets.plot import Plot


def watch(runs: Run | Sequence[Run]) -> LivePlot:
    """Show runs while they go on, on one axis, with a Stop button.

    >>> import workbench as wb
    >>> plot = wb.watch(wb.start(wb.Experiment(scheme="UMW", workers=4, rounds=5)))
    >>> plot.wait()
    True
    """
    return LivePlot([runs] if isinstance(runs, Run) else runs)


__all__ = ["Explorer", "Form", "LivePlot", "Player", "Plot", "explore", "watch"]
