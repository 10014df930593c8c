"""Encoding matrix as a heat map."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import plotly.graph_objects as go

from workbench.core.base.type_checks import span
from workbench.core.base.types import Array
from workbench.core.contract.plan import Plan
from workbench.core.experiment import Experiment
from workbench.lab.figures.inputs import plan_of, plural, signed
from workbench.lab.figures.style import BLUE, PALE, VERMILLION, Theme, fade, new_figure, palette

MAX_WORKERS, MAX_COLUMNS = 400, 1024
_MAX_PRINTED_CELLS = 16  # max number of workers and of parts for which coefficients are printed
_MAX_LABELLED_ROWS = 40  # max number of rows for which cells have gaps and every row has a label


class Cells(NamedTuple):
    """Coefficients in the heat map. Row i is worker i + 1, and column j begins with part `first[j]`."""

    values: Array  # (workers, columns)
    first: Array  # (columns,)
    width: int  # parts in a column


def code(source: Plan | Experiment, theme: Theme = "light") -> go.Figure:
    """Draw the encoding matrix: which worker stores which parts with which coefficients.

    `source`: a plan, or an experiment. `theme`: "light" or "dark".

    Of large plans, only the first workers are drawn. Neighbouring parts share a column, which then shows the
    coefficient with the largest absolute value. The subtitle mentions both.

    Raises `SettingError` if `source` is neither a plan nor an experiment, or the theme is unknown.

    >>> import workbench as wb
    >>> figure = code(wb.Experiment(scheme="GC", scheme_args={"stragglers": 2}, workers=12))
    >>> figure.data[0].z.shape
    (12, 12)
    """
    plan, name = plan_of(source)
    cells = cells_of(plan)
    rows, columns = cells.values.shape
    title = f"Encoding matrix of {name}" if name else "Encoding matrix"
    figure = new_figure(theme, title, _subtitle(plan, cells), height=int(210 + np.clip(rows * 34, 240, 620)))
    figure.add_trace(_heat_map(cells, theme))
    scale = coefficient_scale(cells.values, theme)
    if figure.data[0].texttemplate:
        scale["colorscale"] = [[at, fade(color, PALE)] for at, color in scale["colorscale"]]
    figure.update_layout(coloraxis=scale)
    figure.update_xaxes(title_text="part", dtick=1 if columns <= _MAX_LABELLED_ROWS else None)
    figure.update_yaxes(
        title_text="worker", dtick=1 if rows <= _MAX_LABELLED_ROWS else None, range=[rows + 0.5, 0.5]
    )
    bare = {"showgrid": False, "showline": False}
    return figure.update_xaxes(**bare).update_yaxes(**bare)


def cells_of(plan: Plan) -> Cells:
    """Return the coefficients of the drawn workers, without making the whole matrix."""
    workers = min(plan.workers, MAX_WORKERS)
    a, b = int(plan.indptr[1]), int(plan.indptr[workers + 1])
    parts, coefficients = plan.indices[a:b], plan.coefficients[a:b]
    rows = np.repeat(np.arange(workers), np.diff(plan.indptr[1 : workers + 2]))
    whole = workers == plan.workers or not len(parts)
    low, high = (0, plan.parts) if whole else (parts.min(), parts.max() + 1)
    width = -(-(high - low) // MAX_COLUMNS)
    values = np.zeros((workers, -(-(high - low) // width)))
    order = np.argsort(np.abs(coefficients), kind="stable")  # the largest is written last, over smaller ones
    values[rows[order], (parts[order] - low) // width] = coefficients[order]
    return Cells(values, low + width * np.arange(values.shape[1]), int(width))


def _heat_map(cells: Cells, theme: Theme) -> go.Heatmap:
    rows, columns = cells.values.shape
    small = max(rows, columns) <= _MAX_PRINTED_CELLS
    gap = 1 if max(rows, columns) <= _MAX_LABELLED_ROWS else 0
    noun = "part" if cells.width == 1 else f"{cells.width} parts from"
    return go.Heatmap(
        z=np.where(cells.values == 0.0, np.nan, cells.values),
        x=cells.first + (cells.width - 1) / 2,
        y=np.arange(1, rows + 1),
        customdata=np.broadcast_to(cells.first, cells.values.shape) if cells.width > 1 else None,
        coloraxis="coloraxis",
        xgap=gap,
        ygap=gap,
        hoverongaps=False,
        texttemplate="%{z:.2~g}" if small else None,
        textfont={"size": 14, "color": palette(theme).text},
        hovertemplate=f"worker %{{y}}<br>{noun} %{{{'customdata' if cells.width > 1 else 'x'}}}"
        "<br>coefficient %{z:.5g}<extra></extra>",
    )


def only_coefficient(coefficients: Array) -> float | None:
    """Return the common value of all nonzero coefficients, or None if they differ.

    >>> only_coefficient(np.array([1.0, 0.0, 1.0])), only_coefficient(np.array([1.0, -1.0]))
    (1.0, None)
    """
    nonzero = coefficients[coefficients != 0.0]
    return (
        float(nonzero[0]) if len(nonzero) and np.allclose(nonzero, nonzero[0], rtol=1e-9, atol=0.0) else None
    )


def coefficient_scale(coefficients: Array, theme: str) -> dict[str, Any]:
    """Return a diverging colour scale around zero, or one half of it for coefficients of one sign.

    A code may have a few huge coefficients, beside which all others would look like zero. The scale then ends below
    them, as its label mentions. If all coefficients are equal, there is no colour bar, and the subtitle has the value.
    """
    sizes = np.abs(coefficients[coefficients != 0.0])
    most = float(sizes.max()) if len(sizes) else 1.0
    limit = min(most, 2.5 * float(np.median(sizes))) if len(sizes) else 1.0
    low, high = (limit * (np.any(sign * coefficients > 0) or not len(sizes)) for sign in (-1, 1))
    ticks = np.linspace(-low, high, 5)
    text = [signed(tick) for tick in ticks]
    if limit < most:
        text[0] = f"≤ {text[0]}" if low else text[0]
        text[-1] = f"≥ {text[-1]}" if high else text[-1]
    title = {"text": "coefficient", "side": "right", "font": {"size": 15}}
    bar = {"title": title, "tickvals": ticks, "ticktext": text}
    neutral, share = palette(theme).neutral, low / (low + high)
    ends = [*([[0.0, BLUE]] if low else []), [share, neutral], *([[1.0, VERMILLION]] if high else [])]
    shown = only_coefficient(coefficients) is None
    return {"colorscale": ends, "cmin": -low, "cmax": high, "colorbar": bar, "showscale": shown}


def equal_coefficients(coefficients: Array) -> list[str]:
    """Return a subtitle's text for equal coefficients, in a list that is empty if they differ."""
    only = only_coefficient(coefficients)
    return [] if only is None else [f"every coefficient is {signed(only, 4)}"]


def _subtitle(plan: Plan, cells: Cells) -> str:
    loads = np.diff(plan.indptr)[1:]
    few, most = int(loads.min()), int(loads.max())
    texts = [
        f"{plural(plan.workers, 'worker')} × {plural(plan.parts, 'part')}, {span(few, most)} a worker",
        *equal_coefficients(cells.values),
    ]
    if len(cells.values) < plan.workers:
        texts.append(f"workers 1 to {len(cells.values)} and their parts shown")
    if cells.width > 1:
        texts.append(f"a column is {cells.width} parts, largest coefficient shown")
    return " · ".join(texts)
