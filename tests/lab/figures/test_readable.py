"""Figures show no rounding errors as data, and numbers in cells of heat maps are readable."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import numpy as np
import plotly.graph_objects as go
import pytest
from workbench_book import drawing

import workbench as wb
from tests.support.every_figure import EVERY
from tests.support.figure_numbers import contrast, over, rounding_errors
from tests.support.lecture_settings import SCRIPTS, at_end
from workbench.core.base.intervals import band
from workbench.lab.figures.page import PALETTES

CODE = wb.Experiment(scheme="GC", workers=6, scheme_args={"stragglers": 2})


def drawn(theme: Literal["light", "dark"]) -> Iterator[tuple[str, go.Figure]]:
    yield from ((name, draw(theme)) for name, draw in EVERY.items())
    yield "code of GC", wb.figures.code(CODE, theme=theme)
    for name, script in SCRIPTS.items():
        for part, each in script.figures.items():
            yield f"{name} {part}", each.draw(at_end(script, True), theme)


@pytest.mark.parametrize("name", list(EVERY))
def test_figure_shows_no_rounding_errors(name: str) -> None:
    assert rounding_errors(EVERY[name]("light")) == []


def test_figures_of_constant_delays_show_no_rounding_errors() -> None:
    """All rounds take the same time, up to rounding."""
    delays = {"kind": "constant", "shift": 0.1 / 3}
    runs = wb.compare(wb.baselines(3, 2, 1, rounds=30, delays=delays, link={"latency": 0.1 / 7}))
    for figure in (wb.figures.round_times(runs), wb.figures.gantt(runs[0], 2), wb.figures.stream(runs[0])):
        assert rounding_errors(figure) == []


def test_band_of_equal_repetitions_has_no_width() -> None:
    found = band(np.full((3, 1), 0.1) + 1e-17)
    third = band([[0.1 + 0.2], [0.3], [0.3]])
    assert (found.low, found.high) == (found.mean, found.mean)
    assert (third.low, third.high) == (third.mean, third.mean)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_texts_in_cells_have_contrast_for_every_colour_of_the_scale(theme: Literal["light", "dark"]) -> None:
    """Plotly would choose the colour of a text by its cell, with a contrast down to 3.5."""
    ground, count = PALETTES[theme].background, 0
    for name, figure in drawn(theme):
        for trace in figure.data:
            if trace.type != "heatmap" or not trace.texttemplate:
                continue
            count += 1
            scale = trace.colorscale or figure.layout.coloraxis.colorscale
            assert trace.textfont.color, name
            for _, color in scale:
                assert contrast(trace.textfont.color, over(color, ground)) >= 4.5, (name, color)
    assert count >= 5


def test_tables_of_the_book_are_readable_and_without_rounding_errors() -> None:
    table = np.array([[1.0, 0.1 + 0.2 - 0.3], [1e5, np.nan]])
    shown = drawing.heat(table, ["a", "b"], ["c", "d"], "", ("", ""), "")
    for data, theme in ((shown.data, "light"), (shown.dark_data, "dark")):
        assert data is not None
        (cells,) = data
        assert cells["text"] == [["1", "0"], ["1e5", ""]]
        for _, color in cells["colorscale"]:
            assert contrast(cells["textfont"]["color"], over(color, PALETTES[theme].background)) >= 4.5
