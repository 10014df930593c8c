"""Figures for papers: the width that was asked for, text of 8 points, no title."""

from __future__ import annotations

import re
import struct
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
import pytest
from choreographer.browsers.chromium import Chromium

from tests.support.every_figure import EVERY
from workbench.core.base.settings import SettingError
from workbench.lab.figures import save
from workbench.lab.figures.paper import TEXT_PX, for_paper, length, scaled
from workbench.lab.figures.save import PAPER_SCALE, one_browser

BROWSER = Chromium.find_browser(skip_local=False)


@pytest.mark.parametrize(
    "text", ["8.5", "8.5 furlongs", "0cm", "1cm", "99cm", "-8cm", "", "1e9cm", 8.5, None]
)
def test_a_width_is_a_length_with_its_unit(text: Any) -> None:
    with pytest.raises(SettingError, match=r"width = .*4 to 50 cm"):
        length(text)


def test_a_page_has_no_width(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"width = '8\.5cm': a page has none"):
        save(go.Figure(), tmp_path / "page.html", width="8.5cm")


@pytest.mark.parametrize("name", ["convergence", "gantt", "round_times", "bands", "stream"])
def test_text_of_a_paper_has_eight_points(name: str) -> None:
    made = for_paper(EVERY[name]("light"), length("8.5cm")).layout
    assert made.template.layout.font.size == pytest.approx(TEXT_PX)
    assert not made.title.text
    assert made.legend.y in (None, 0)
    before = EVERY[name]("light").layout
    assert made.height < before.height


def test_panels_side_by_side_need_their_width() -> None:
    with pytest.raises(SettingError, match="panels need 13 cm"):
        for_paper(EVERY["cluster"]("light"), length("8.5cm"))
    assert for_paper(EVERY["cluster"]("light"), length("17.8cm")).layout.height > 300


def test_bars_keep_the_width_that_their_axis_gives_them() -> None:
    bar = {"type": "bar", "width": 0.7, "marker": {"line": {"width": 2}}}
    made = scaled({"data": [bar], "layout": {}}, 0.5)
    assert made["data"][0]["width"] == 0.7
    assert made["data"][0]["marker"]["line"]["width"] == 1.0


@pytest.mark.browser
@pytest.mark.skipif(not BROWSER, reason="no Chrome or Chromium is installed")
def test_pictures_of_a_paper_have_its_width(tmp_path: Path) -> None:
    figure = EVERY["convergence"]("light")
    with one_browser():
        pdf = save(figure, tmp_path / "figure.pdf", width="8.5cm").read_bytes()
        png = save(figure, tmp_path / "figure.png", width="8.5cm").read_bytes()
        svg = save(figure, tmp_path / "figure.svg", width="8.5cm").read_text(encoding="utf-8")
    box = re.search(rb"/MediaBox \[0 0 ([\d.]+) ", pdf)
    assert box
    assert float(box[1]) == pytest.approx(8.5 / 2.54 * 72, abs=1)
    assert struct.unpack(">I", png[16:20])[0] == PAPER_SCALE * round(length("8.5cm"))
    sizes = {float(size) for size in re.findall(r"font-size: ([\d.]+)px", svg)}
    assert max(sizes) <= 17 * TEXT_PX / 16 + 0.1  # axis titles
    assert min(sizes) >= 14 * TEXT_PX / 16
