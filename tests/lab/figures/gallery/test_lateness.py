"""The figure of lateness by worker and step."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import workbench as wb
from tests.support.synthetic_recordings import healthy, recording
from workbench.analysis.recordings.card import LATE_RATIO
from workbench.core.base.settings import SettingError
from workbench.lab.figures.gallery.lateness import MAX_CELLS, MIN_COLUMNS


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


@pytest.mark.parametrize(("steps", "workers"), [(4001, 3), (100, 84), (60, 200)])
def test_lateness_columns_are_means_of_steps_if_single_ones_are_too_small_to_see(
    steps: int, workers: int
) -> None:
    times = healthy(steps, workers, np.random.default_rng(0))
    times[steps // 2 :, 2] *= 8.0
    figure = wb.figures.lateness(recording(times))
    columns = np.asarray(figure.data[0].customdata, float)
    width = int(figure.layout.title.subtitle.text.partition("the mean of ")[2].split()[0])
    assert columns.shape == (workers, -(-steps // width))
    assert columns.shape[1] <= max(MIN_COLUMNS, MAX_CELLS // workers)
    ratio = times / np.median(times, axis=1, keepdims=True)
    np.testing.assert_allclose(
        columns[:, -2], ratio[-(-steps // width) * width - 2 * width :][:width].mean(axis=0)
    )
    assert columns[2, -1] > 4 > columns[2, 0]


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
    # with one other worker, the median is between both
    late = sum(s % 2 and 1.5 * LATE_RATIO < 2.0 for s in range(40))
    assert f"{late / len(rows):.1%} of the times" in figure.layout.title.subtitle.text
