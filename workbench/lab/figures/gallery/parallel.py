"""Parallel coordinates: all runs of a sweep, with an axis per setting that differs and one for the result."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from workbench.analysis.planning.quantities import number_text
from workbench.analysis.tables.table import Runs
from workbench.core.base.settings import SettingError
from workbench.core.base.text import upper
from workbench.core.base.types import Array
from workbench.lab.figures.fit import LETTER_WIDTH
from workbench.lab.figures.labels import result, with_unit
from workbench.lab.figures.style import BLUE, CLEAR, ORANGE, SKY, Theme, log_scale, new_figure, palette

_MAX_LINEAR_RATIO = 20.0
# letters of the longest tick for which there is room at least, and at most; size of their font in px
MIN_TICK_LETTERS, MAX_TICK_LETTERS, TICK_PX = 13, 28, 13
_MAX_LABELLED_VALUES = 8  # max number of values of a setting for which each has a label


def parallel(runs: Runs, of: str = "time", theme: Theme = "light") -> go.Figure:
    """Draw each run as a line over parallel axes: settings that differ, then a result, which sets its colour.

    `runs`: a table of runs, such as `wb.runs(folder)`. `of`: the result, a numeric column; if it spans more than a
    factor of twenty, its logarithm is drawn. `theme`: "light" or "dark". In a page, ranges of the axes can be
    selected.

    Raises `SettingError` if no run has the result.

    >>> import tempfile, workbench as wb
    >>> folder = tempfile.mkdtemp()
    >>> for scheme in ["UMW", "GC"]:
    ...     _ = wb.run(wb.Experiment(scheme=scheme, rounds=5)).save(f"{folder}/{scheme}")
    >>> [axis.label for axis in parallel(wb.runs(folder)).data[0].dimensions]
    ['scheme', 'time of the whole run (s)']
    """
    done = runs.done
    if of not in done or not len(done) or not pd.api.types.is_numeric_dtype(done[of]):
        raise SettingError(f"of = {of!r}: is not a column of numbers of finished runs")
    done = done[np.isfinite(done[of].to_numpy(float))]
    values = done[of].to_numpy(float)
    log = bool(log_scale(values, _MAX_LINEAR_RATIO)) if len(values) else False
    shown = np.log10(values) if log else values
    text, long = result(of)
    look, low = palette(theme), BLUE if theme == "light" else SKY
    about = "a line is a run; drag along an axis to choose"
    figure = new_figure(theme, f"{upper(text)} of {len(done)} runs", about)
    axes = [_axis(name, done[name]) for name in runs.differing if done[name].nunique(dropna=False) > 1]
    axes.append({"label": long, **_numbers(values, log)})
    figure.add_parcoords(
        dimensions=axes,
        line={"color": shown, "colorscale": [[0, low], [0.5, look.muted], [1, ORANGE]]},
        labelfont={"size": 15, "color": look.text},
        tickfont={"size": TICK_PX, "color": look.text},
        rangefont={"size": 1, "color": CLEAR},
        unselected={"line": {"color": look.grid}},
    )
    letters = max([MIN_TICK_LETTERS, *map(len, axes[0].get("ticktext", []))])
    left = TICK_PX * (1 + LETTER_WIDTH * letters)
    return figure.update_layout(height=480, margin={"t": 140, "l": left, "r": 110})


def _axis(name: str, column: pd.Series[Any]) -> dict[str, Any]:
    if pd.api.types.is_numeric_dtype(column) and column.notna().all():
        values = column.to_numpy(float)
        return {"label": with_unit(name), **_numbers(values, bool(log_scale(values, _MAX_LINEAR_RATIO)))}
    codes, texts = pd.factorize(column.astype(object).where(column.notna(), "none"), sort=False)
    ticks = {"tickvals": list(range(len(texts))), "ticktext": [_tick(str(text)) for text in texts]}
    return {"label": with_unit(name), "values": codes, **ticks}


def _tick(text: str) -> str:
    """Return a text without its middle if it is too long for a tick.

    >>> _tick("/data/of/many/experiments/features.csv")
    '/data/of/many…s/features.csv'
    """
    half = MAX_TICK_LETTERS // 2
    return text if len(text) <= MAX_TICK_LETTERS else f"{text[: half - 1]}…{text[-half:]}"


def _numbers(values: Array, log: bool) -> dict[str, Any]:
    """Return the values of an axis and its ticks: all values if they are few and far apart, else powers of ten."""
    shown, few = np.log10(values) if log else values, np.unique(values)
    places = np.log10(few) if log else few
    apart = len(few) < 2 or np.diff(places).min() * _MAX_LABELLED_VALUES * 2 >= np.ptp(places)
    if len(few) <= _MAX_LABELLED_VALUES and apart:
        return {"values": shown, "tickvals": places, "ticktext": [number_text(value, 4) for value in few]}
    if not log:
        return {"values": shown}
    low, high = int(np.floor(places.min())), int(np.ceil(places.max()))
    powers = np.arange(low, high + 1, max(1, -(-(high - low) // _MAX_LABELLED_VALUES)))
    texts = [number_text(10.0**power, 4) for power in powers]
    return {"values": shown, "tickvals": powers, "ticktext": texts}
