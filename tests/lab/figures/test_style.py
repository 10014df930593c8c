"""The style of each scheme, equal in every figure and both themes."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import Any

import numpy as np
import plotly.io as pio
import pytest
from hypothesis import given
from hypothesis import strategies as st

import workbench as wb
from workbench.core.base.settings import SettingError
from workbench.lab.figures import scheme_style, style
from workbench.lab.figures.design import style_sheet
from workbench.lab.figures.page import PALETTES, Palette

PUBLISHED = ["UMW", "SGD", "RAR", "GC", "CR", "CEGC", "FRC", "CRC", "UC-MMC", "GC-MMC", "LCC"]
PUBLISHED += ["D-SGD", "D-Adam", "CADA", "G-CADA", "LAGC", "BGC", "ErasureHead", "SGC"]
COMPARED = [  # sets of schemes in one figure of a paper
    ["UMW", "SGD", "RAR", "GC", "CR"],
    ["UMW", "GC", "CEGC"],
    ["FRC", "CRC", "BGC", "ErasureHead", "SGC", "GC", "UMW"],
    ["UMW", "GC", "UC-MMC", "GC-MMC", "LCC"],
    ["D-SGD", "D-Adam", "CADA", "G-CADA", "LAGC"],
]


def luminance(color: str) -> float:
    """Return the relative luminance of WCAG 2."""
    c = np.array([int(color[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    linear = np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


def contrast(a: str, b: str) -> float:
    low, high = sorted([luminance(a), luminance(b)])
    return (high + 0.05) / (low + 0.05)


def test_scheme_style_of_published_schemes_is_distinct() -> None:
    styles = [scheme_style(name) for name in PUBLISHED]
    assert len({(s.color, s.dash) for s in styles}) == len(styles)
    assert len({s.symbol for s in styles}) == len(styles)


@pytest.mark.parametrize("names", COMPARED)
def test_scheme_style_of_schemes_in_a_paper_has_distinct_colours(names: list[str]) -> None:
    assert len({scheme_style(name).color for name in names}) == len(names)


MIN_DISTANCE = 20.0  # of two colours in CIE L*a*b*, of which 2.3 is just visible


def lab(color: str) -> Any:
    """Return the coordinates of a colour in CIE L*a*b* (white: D65), shape (3,)."""
    c = np.array([int(color[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    linear = np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4)
    to_xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    x, y, z = np.cbrt(to_xyz @ linear / [0.9505, 1, 1.089])
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("name", ["accent", "good", "bad"])
def test_colours_of_states_and_buttons_are_not_those_of_schemes(name: str) -> None:
    sheet = style_sheet()
    ((light, dark),) = re.findall(rf"--wb-{name}: light-dark\((#\w{{6}}), (#\w{{6}})\)", sheet)
    schemes = {scheme_style(scheme).color for scheme in [*style._KNOWN, "a scheme of tomorrow"]} | {
        *style.HUES
    }
    assert light != dark
    for color in (light, dark):
        distances = {scheme: np.linalg.norm(lab(color) - lab(scheme)) for scheme in schemes}
        assert min(distances.values()) >= MIN_DISTANCE, (color, distances)


NAMES = st.text("ABCxyz-1", min_size=1)


@given(NAMES, st.integers(0, 3), st.integers(0, 3))
def test_scheme_style_of_variants_keeps_the_colour(name: str, a: int, b: int) -> None:
    first, second = scheme_style(name, a), scheme_style(name, b)
    assert first.color == second.color
    assert (first.dash == second.dash) == (first.symbol == second.symbol) == (a == b)


def test_scheme_style_of_an_unknown_scheme_is_deterministic() -> None:
    name = "a scheme of tomorrow"
    program = f"from workbench.lab.figures import scheme_style; print(tuple(scheme_style({name!r})))"
    out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert out.strip() == str(tuple(scheme_style(name)))
    assert scheme_style("\ud800") == scheme_style("\ud800")  # half of a surrogate pair has no encoding


@pytest.mark.parametrize("colors", PALETTES.values(), ids=list(PALETTES))
def test_palette_colours_contrast_with_the_background(colors: Palette) -> None:
    assert contrast(colors.text, colors.background) >= 7
    assert contrast(colors.muted, colors.background) >= 4.5
    assert min(contrast(hue, colors.background) for hue in style.HUES) >= 2.2


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_style_font_is_readable_on_a_projector(theme: str) -> None:
    layout = pio.templates[f"workbench_{theme}"].layout
    fonts = [layout.font, layout.title.font, layout.legend.font, layout.hoverlabel.font]
    fonts += [axis.tickfont for axis in (layout.xaxis, layout.yaxis)]
    fonts += [axis.title.font for axis in (layout.xaxis, layout.yaxis)]
    assert min(font.size for font in fonts) >= 14


def test_style_keeps_plotlys_default_template() -> None:
    assert pio.templates.default == "plotly"


def test_style_refuses_an_unknown_theme(traces: list[wb.Trace]) -> None:
    theme: Any = "sepia"
    with pytest.raises(SettingError, match=r"^theme = 'sepia': no such name; .*light, dark$"):
        wb.figures.convergence(traces, theme=theme)


def test_import_workbench_does_not_import_plotly() -> None:
    program = "import sys, workbench; sys.exit('plotly' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
