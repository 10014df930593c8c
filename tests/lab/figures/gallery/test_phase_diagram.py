"""The phase diagram of the fastest scheme."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from workbench.core import schemes
from workbench.core.base.settings import SettingError
from workbench.lab.figures import SchemeGrid, phase_diagram, scheme_style
from workbench.lab.figures.gallery.phase_diagram import mixed
from workbench.lab.figures.style import palette

NAN = float("nan")
SECONDS = np.array([[[1.0, 2.0, NAN], [3.0, 1.5, 9.0]], [[NAN, NAN, NAN], [NAN, 4.0, NAN]]])
GRID = SchemeGrid(("UMW", "CR", "GC stragglers=2"), (Fraction(0), Fraction(1, 4)), (0.0, 1e-3), SECONDS)


def test_phase_diagram_winner_and_lead() -> None:
    np.testing.assert_array_equal(GRID.fastest, [[0, 1], [NAN, 1]])
    np.testing.assert_array_equal(GRID.lead[0], [2.0, 2.0])
    assert np.isinf(GRID.lead[1, 1])


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_phase_diagram_cells_have_the_fastest_schemes_name_and_colour(theme: str) -> None:
    figure = phase_diagram(GRID, Fraction(1, 8), 1e-3, theme=theme)  # type: ignore[arg-type]
    cells, *legend, here = figure.data
    assert [(entry.name, entry.marker.color) for entry in legend] == list(
        zip([*GRID.names, "tie"], [color for _, color in cells.colorscale][::2], strict=True)
    )
    assert cells.text.tolist() == [["UMW<br>2×", "CR<br>2×"], ["", "CR"]]
    colors = [color for _, color in cells.colorscale][::2]
    ground = palette(theme).background
    assert colors[:-1] == [mixed(scheme_style(name.split(" ")[0]).color, ground, 0.5) for name in GRID.names]
    assert (here.x, here.y) == ((1.0,), (0.5,))


def test_phase_diagram_hover_lists_all_schemes_in_order() -> None:
    lines = phase_diagram(GRID).data[0].customdata[0][1].split("<br>")
    assert lines[0] == "α = 0, latency 1 ms"
    assert [line.split(":")[0] for line in lines[1:]] == ["CR", "UMW", "GC stragglers=2"]
    assert "no such setting" in phase_diagram(GRID).data[0].customdata[0][0]


def test_phase_diagram_of_one_scheme() -> None:
    alone = SchemeGrid(("CR",), (Fraction(1, 4),), (0.0, 0.1), np.ones((1, 2, 1)))
    assert phase_diagram(alone).data[0].text.tolist() == [["CR", "CR"]]


def test_phase_diagram_refuses_an_empty_grid() -> None:
    with pytest.raises(SettingError, match="grid: is empty"):
        phase_diagram(SchemeGrid((), (), (), np.zeros((0, 0, 0))))


def test_phase_diagram_ties_are_nobodys() -> None:
    seconds = np.array([[[1.0, 1.005, 2.0], [1.0, 1.0, 1.0]]])
    tied = SchemeGrid(("UMW", "CR", "GC"), (Fraction(0),), (0.0, 1e-3), seconds)
    cells = phase_diagram(tied).data[0]
    assert cells.text.tolist() == [["tie<br>of 2", "tie<br>of 3"]]
    np.testing.assert_array_equal(cells.z, [[3, 3]])  # a colour that no scheme has
    assert cells.colorscale[-1][1] == palette("light").grid


def test_phase_diagram_writes_large_ratios_without_an_exponent() -> None:
    grid = SchemeGrid(("UMW", "CR"), (Fraction(0),), (0.0,), np.array([[[218.4, 1.0]]]))
    assert phase_diagram(grid).data[0].text.tolist() == [["CR<br>220×"]]


def _luminance(color: str) -> float:
    """Return the relative luminance of a colour, as in WCAG 2."""
    parts = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return float(np.dot(linear, [0.2126, 0.7152, 0.0722]))


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_phase_diagram_texts_have_contrast_in_cells_of_every_scheme(theme: Any) -> None:
    names = tuple(schemes.names())
    grid = SchemeGrid(names, (Fraction(0),), (0.0,), np.ones((1, 1, len(names))))
    cells = phase_diagram(grid, theme=theme).data[0]
    text = _luminance(cells.textfont.color)
    for _, color in cells.colorscale:
        high, low = sorted((text, _luminance(color)), reverse=True)
        assert (high + 0.05) / (low + 0.05) >= 4.5, color
