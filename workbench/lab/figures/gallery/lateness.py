"""Lateness: a recording as a heat map."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go

from workbench.analysis.recordings.card import LATE_RATIO
from workbench.analysis.recordings.recording import Recording
from workbench.lab.figures.labels import ratio_text
from workbench.lab.figures.style import BLUE, VERMILLION, Theme, new_figure, palette

MAX_CELLS = 2500  # max product of workers and columns; with more steps, a column is the mean of several
MIN_COLUMNS = 25  # number of columns that are drawn for any number of workers
MAX_LOG_RATIO = 3.0  # binary logarithm of the ratio at which the colours end


def lateness(recording: Recording, theme: Theme = "light") -> go.Figure:
    """Draw each worker's time divided by the median of the step, with steps from left to right.

    `recording`: recording of one job. If single steps would be too small to see, a column shows the mean over several
    steps.

    Raises `SettingError` for several jobs at once, or an unknown theme.

    >>> import pandas as pd
    >>> rows = pd.DataFrame({"worker": [0, 1, 2], "step": [0, 0, 0], "seconds": [1.0, 1.0, 2.0]})
    >>> lateness(Recording.of_rows(rows, "three")).data[0].z.round(1).tolist()
    [[0.0], [0.0], [1.0]]
    """
    table = recording.table()
    ratio = table.to_numpy(float) / np.nanmedian(table.to_numpy(float), axis=1, keepdims=True)
    workers = ratio.shape[1]
    width = -(-len(table) // max(MIN_COLUMNS, MAX_CELLS // workers))
    starts = np.arange(0, len(table), width)
    known = np.add.reduceat(np.isfinite(ratio).astype(float), starts, axis=0)
    sums = np.add.reduceat(np.nan_to_num(ratio), starts, axis=0)
    shown = np.divide(sums, known, out=np.full_like(sums, np.nan), where=known > 0).T
    each = "" if width == 1 else f" · each column is the mean of {width} steps"
    late = float(np.mean(ratio[np.isfinite(ratio)] > LATE_RATIO))
    text = (
        f"{workers} workers, {len(table)} steps · {late:.1%} of the times over {LATE_RATIO:g} medians{each}"
    )
    height = int(np.clip(230 + 14 * workers, 330, 900))
    figure = new_figure(theme, f"Who was late when: {recording.names[0]}", text, height)
    z = np.log2(np.maximum(shown, 2**-6))
    top = float(np.clip(np.nanmax(np.abs(z)), 0.25, MAX_LOG_RATIO))
    ticks = [
        t
        for t in (-3, -2, -1, -0.5, 0, 0.5, 1, 2, MAX_LOG_RATIO)
        if abs(t) <= top and (top < 1.5 or t % 1 == 0)
    ]
    ticks = ticks if top >= 0.5 else np.log2([0.9, 1, 1.1]).tolist()
    bar = {"title": {"text": "time over the step's median", "side": "right"}, "tickvals": ticks}
    bar |= {"ticktext": [_times(t) for t in ticks]}
    scale = [[0.0, BLUE], [0.5, palette(theme).neutral], [1.0, VERMILLION]]
    steps = np.add.reduceat(table.index.to_numpy(float), starts) / np.diff([*starts, len(table)])
    place = {"x": steps, "y": [str(worker) for worker in table.columns]}
    where = "step %{x}" if width == 1 else f"{width} steps around %{{x:.0f}}"
    hover = f"worker %{{y}}<br>{where}<br>%{{customdata:.3g}} times the median<extra></extra>"
    look = {"zmin": -top, "zmax": top, "colorscale": scale, "colorbar": bar, "hovertemplate": hover}
    figure.add_heatmap(z=z, **place, customdata=shown, **look)
    figure.update_xaxes(title_text="step", showgrid=False)
    figure.update_yaxes(
        title_text="worker", type="category", autorange="reversed", showgrid=False, nticks=min(workers, 24)
    )
    return figure


def _times(log_ratio: float) -> str:
    """Return the text of a ratio, with ≥ or ≤ at the ends of the colour bar, which include all further ratios.

    >>> _times(1), _times(-0.5), _times(3), _times(-3)
    ('2×', '0.71×', '≥ 8×', '≤ 0.12×')
    """
    mark = "" if abs(log_ratio) < MAX_LOG_RATIO else "≥ " if log_ratio > 0 else "≤ "
    return f"{mark}{ratio_text(2.0**log_ratio)}"
