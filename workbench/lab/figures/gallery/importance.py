"""Importance: the share of a result's variance that each setting of a sweep explains."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go

from workbench.analysis.tables.importance import importance as shares
from workbench.analysis.tables.importance import is_constant
from workbench.analysis.tables.table import Runs
from workbench.core.base.settings import SettingError
from workbench.core.base.text import upper
from workbench.lab.figures.labels import result, setting
from workbench.lab.figures.style import BLUE, Theme, new_figure


def importance(runs: Runs, of: str = "time", theme: Theme = "light") -> go.Figure:
    """Draw the share of a result's variance that each setting explains by itself (first-order Sobol indices).

    `runs`: a table of runs, such as `wb.runs(folder)`. `of`: the result. `theme`: "light" or "dark".

    Raises `SettingError` if no setting differs, the result is equal in all runs, or fewer than three runs have it.

    >>> import tempfile, workbench as wb
    >>> folder = tempfile.mkdtemp()
    >>> for seed, scheme in enumerate(["UMW", "GC"] * 3):
    ...     _ = wb.run(wb.Experiment(scheme=scheme, rounds=5, seed=seed // 2)).save(f"{folder}/{seed}")
    >>> importance(wb.runs(folder)).data[0].y
    ('scheme',)
    """
    table = shares(runs, of)
    values = runs.done[of].to_numpy(float)
    values = values[np.isfinite(values)]
    if is_constant(values):
        why = f"is {values[0]:.4g} in all {len(values)} runs; choose a result that varies"
        raise SettingError(f"of = {of!r}: {why}")
    table = table[table["share"].notna()]
    if not len(table):
        raise SettingError("runs: no setting but the seed differs; nothing can be compared")
    rest = max(0.0, 1 - float(table["share"].sum()))
    about = f"by itself, over {int(table['n'].iloc[0])} runs; settings together and seeds: {rest:.0%} of the variance"
    title = f"What decides the {upper(result(of)[0]).lower()}"
    figure = new_figure(theme, title, about, height=200 + 44 * len(table))
    figure.add_bar(
        x=table["share"],
        y=[setting(name) for name in table["setting"]],
        orientation="h",
        marker_color=BLUE,
        text=[f"{share:.0%}" for share in table["share"]],
        textposition="outside",
        cliponaxis=False,
        hovertemplate="%{y}: %{x:.1%} of the variance<extra></extra>",
    )
    figure.update_xaxes(title_text="share of the variance", range=[0, 1.08], tickformat=".0%")
    return figure.update_yaxes(autorange="reversed", showgrid=False)
