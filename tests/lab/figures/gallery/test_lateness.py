"""The figure of lateness by worker and step."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import workbench as wb
from tests.support.synthetic_recordings import healthy, recording
from workbench.analysis.recordings.card import LATE_RATIO
from workbench.core.base.settings import SettingError
from workbench.lab.figures.gallery.lateness import MAX_STEPS


def test_lateness_is_time_over_the_median_of_the_step() -> None:
    times = np.ones((30, 5))
    times[7, 3] = 4.0
    (heat,) = wb.figures.lateness(recording(times)).data
    z = np.asarray(heat.z, float)
    assert z.shape == (5, 30)
    assert z[3, 7] == 2.0  # a factor of 2^2
    assert np.delete(z.ravel(), 3 * 30 + 7).any() == 0


@pytest.mark.parametrize("latest", [1.0, 1.1, 1.3, 1.5, 3.0, 50.0])
def test_lateness_scale_has_ticks_around_one(latest: float) -> None:
    (heat,) = wb.figures.lateness(recording(np.ones((9, 4)) + (latest - 1) * np.eye(9, 4))).data
    marks = np.asarray(heat.colorbar.tickvals)
    assert 0 in marks
    assert marks[0] < 0 < marks[-1]
    assert -heat.zmax <= marks[0] <= marks[-1] <= heat.zmax


def test_lateness_shows_the_maximum_of_merged_steps() -> None:
    times = healthy(2 * MAX_STEPS + 1, 3, np.random.default_rng(0))
    times[1001, 2] = 50.0
    figure = wb.figures.lateness(recording(times))
    z = np.asarray(figure.data[0].z, float)
    assert z.shape[1] <= MAX_STEPS
    assert np.isclose(np.nanmax(z), np.log2(50 / np.median(times[1001])))
    assert "the latest of 3 steps" in figure.layout.title.subtitle.text


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_lateness_themes(theme: str) -> None:
    figure = wb.figures.lateness(recording(np.ones((4, 3))), theme)  # type: ignore[arg-type]
    assert figure.layout.template is not None
    with pytest.raises(SettingError, match="theme = 'dim'"):
        wb.figures.lateness(recording(np.ones((4, 3))), "dim")  # type: ignore[arg-type]


def test_lateness_of_missing_times() -> None:
    rows = [
        {"worker": w, "step": s, "seconds": 1.0 + (w == 0) * (s % 2)}
        for s in range(40)
        for w in range(3)
        if w < 2 or s % 2 == 0
    ]
    figure = wb.figures.lateness(wb.traces.Recording.of_rows(pd.DataFrame(rows), "holes"))
    late = sum(
        s % 2 and 1.5 * LATE_RATIO < 2.0 for s in range(40)
    )  # with one other worker, the median is between both
    assert f"{late / len(rows):.1%} of the times" in figure.layout.title.subtitle.text
