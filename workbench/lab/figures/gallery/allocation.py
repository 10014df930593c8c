"""Allocation: the samples of one worker."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import plotly.graph_objects as go

from workbench.core.base.settings import SettingError, short
from workbench.core.base.type_checks import there_are
from workbench.core.experiment import Experiment
from workbench.lab.figures.gallery.tree import strips_of
from workbench.lab.figures.gallery.weights import HEIGHT_PX, numbered
from workbench.lab.figures.inputs import runs
from workbench.lab.figures.style import BLUE, Theme, new_figure, palette


def allocation(experiment: Experiment, rank: int, round: int = 0, theme: Theme = "light") -> go.Figure:
    """Draw which samples a worker processes in a round, with which coefficients.

    `experiment`: settings of the run; `rank`: rank of the worker, from 1; `round`: number of the round, from 0.

    Raises `SettingError` if the worker or the round does not exist, or for an unknown theme.

    >>> import workbench as wb
    >>> e = wb.Experiment(scheme="GC", scheme_args={"stragglers": 2}, workers=12)
    >>> allocation(e, 3).data[0].y.tolist()
    [1.0]
    """
    if not 0 <= round < experiment.rounds:
        raise SettingError(f"round = {short(round)}: the run has rounds 0 to {experiment.rounds - 1}")
    plan = experiment.built_scheme.round_plan(experiment.plan, round)
    if not 1 <= rank <= plan.workers:
        raise SettingError(f"rank = {short(rank)}: {there_are('worker', 1, plan.workers)}")
    mine = slice(plan.indptr[rank], plan.indptr[rank + 1])
    indices, coefficients = plan.indices[mine], plan.coefficients[mine]
    only = replace(plan, indptr=np.array([0, len(indices)]), indices=indices, coefficients=coefficients)
    _, start, stop, coefficient = strips_of(only, 1)
    width = stop - start
    noun = "part" if len(indices) == 1 else "parts"
    text = f"{noun} {runs(sorted(indices.tolist()))} of {plan.parts} · {plan.loads[rank]} of {plan.samples} samples"
    figure = new_figure(theme, f"{experiment.scheme}: what rank {rank} computes", text, height=HEIGHT_PX)
    look = {"name": "held", "width": width, "marker": {"color": BLUE, "line": {"width": 0}}}
    hover = "samples %{customdata[0]} to %{customdata[1]}<br>coefficient %{y:.5g}<extra></extra>"
    ends = np.stack([start, start + width - 1], axis=1)
    look |= {"customdata": ends, "hovertemplate": hover}
    figure.add_trace(numbered(start + width / 2, coefficient, True, **look))
    figure.update_xaxes(title_text="sample", range=[0, plan.samples], showgrid=False)
    figure.update_yaxes(title_text="coefficient", zeroline=True, zerolinecolor=palette(theme).muted)
    return figure
