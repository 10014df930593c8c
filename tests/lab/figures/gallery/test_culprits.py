"""The figure of culprits: the workers that make steps long."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from choreographer.browsers.chromium import Chromium

import workbench as wb
from tests.support.synthetic_recordings import healthy, recording
from workbench.analysis.recordings.verdict import Diagnosis
from workbench.lab.figures.gallery.culprits import MAX_BARS
from workbench.lab.figures.save import one_browser
from workbench.lab.figures.style import GREY, VERMILLION


def test_culprits_figure_highlights_them_first() -> None:
    times = healthy(60, 8, np.random.default_rng(0))
    times[:, 5] *= 2.0
    found = wb.diagnose(recording(times))
    (bars,) = wb.figures.culprits(found).data
    assert bars.y[0] == "worker 5"
    assert list(bars.marker.color) == [VERMILLION] + [GREY] * 7
    np.testing.assert_allclose(bars.x, sorted(found.costs.values(), reverse=True))
    one = found.culprits[0]
    np.testing.assert_allclose(bars.x[0] + bars.error_x.array[0], one.high)
    np.testing.assert_allclose(bars.x[0] - bars.error_x.arrayminus[0], one.low)


def test_culprits_figure_shows_the_most_expensive() -> None:
    figure = wb.figures.culprits(wb.diagnose(recording(healthy(30, 40, np.random.default_rng(1)))))
    assert len(figure.data[0].y) == MAX_BARS
    assert "16 that cost less are not shown" in figure.layout.title.subtitle.text


def test_culprits_figure_without_a_culprit() -> None:
    figure = wb.figures.culprits(Diagnosis("even", 1.0, (), {}, "links"))
    assert figure.layout.title.subtitle.text.endswith(" · nobody stands out")
    assert not figure.layout.yaxis.showticklabels
    assert figure.layout.xaxis.range == (0, 1)


@pytest.mark.browser
@pytest.mark.skipif(not Chromium.find_browser(skip_local=False), reason="no Chrome or Chromium is installed")
def test_culprits_ticks_differ_for_small_and_large_costs(tmp_path: Path) -> None:
    with one_browser():
        for cost in (2e-6, 2e-4, 5e-3, 0.4, 0.95):
            figure = wb.figures.culprits(Diagnosis("one", 1.0, (), {"worker 0": cost}, "links"))
            page = wb.figures.save(figure, tmp_path / "one.svg").read_text(encoding="utf-8")
            ticks = re.findall(r'class="xtick"><text[^>]*>([^<]*)<', page)
            assert len(ticks) > 2
            assert len(set(ticks)) == len(ticks), (cost, ticks)
