"""The figure of mean learning curves with confidence bands."""

from __future__ import annotations

import numpy as np
import pytest

import workbench as wb
from workbench.core.base.intervals import band
from workbench.core.base.settings import SettingError
from workbench.lab.figures import convergence_bands


def test_convergence_bands_are_means_over_seeds(many: list[wb.Trace]) -> None:
    group = [
        trace for trace in many if trace.experiment == many[0].experiment.replace(seed=trace.experiment.seed)
    ]
    assert len(group) == 4
    (line,) = convergence_bands(group, x="round").data  # after a round, all runs have the same loss
    assert np.allclose(line.y, band([trace.columns["loss"] for trace in group]).mean)
    late = many[-4:]
    area, line = convergence_bands(late, x="round").data
    known = band([trace.columns["loss"] for trace in late])
    assert np.allclose(line.y, known.mean)
    assert np.allclose(area.y[: len(known.high)], known.high)
    area, line = convergence_bands(group).data
    assert line.x[0] == 0.0
    assert line.y[0] == pytest.approx(np.mean([trace.initial["loss"] for trace in group]))
    assert line.x[-1] == min(trace.columns["time"][-1] for trace in group)
    at = float(line.x[200])
    values = [np.interp(at, [0, *t.columns["time"]], [t.initial["loss"], *t.columns["loss"]]) for t in group]
    assert line.y[200] == pytest.approx(np.mean(values))


def test_convergence_bands_group_by_setting(many: list[wb.Trace]) -> None:
    figure = convergence_bands(many)
    names = [trace.name for trace in figure.data if trace.showlegend]
    assert len(names) == len(set(names)) == 6
    assert all("(4 runs)" in name for name in names)
    with pytest.raises(SettingError, match="x = 'bytes'"):
        convergence_bands(many, x="bytes")
    with pytest.raises(SettingError, match="empty"):
        convergence_bands([])
    with pytest.raises(SettingError, match="lss"):
        convergence_bands(many, metric="lss")


@pytest.mark.parametrize("x", ["round", "time"])
def test_convergence_bands_of_one_round_are_visible(x: str) -> None:
    traces = wb.compare([wb.Experiment(scheme="UMW", rounds=1, seed=seed) for seed in range(3)])
    *_, line = convergence_bands(traces, "relative_error", x).data
    assert len(line.x) > 1 or (line.mode == "markers" and line.error_y.array is not None)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("x", ["time", "round"])
def test_convergence_bands_of_equal_runs_have_no_band(x: str) -> None:
    common = {"workers": 4, "rounds": 5, "problem_args": {"samples": 60, "features": 3}}
    runs = [
        wb.Experiment(**common, scheme=scheme, seed=seed, delays={"kind": "constant", "shift": 1e-3})
        for scheme in ("UMW", "GC")
        for seed in range(3)
    ]
    figure = convergence_bands(wb.compare(runs), x=x)
    assert [line.name for line in figure.data] == ["UMW (3 runs)", "GC (3 runs)"]
    assert all(np.isfinite(line.y).all() for line in figure.data)
    assert figure.layout.title.subtitle.text.endswith("the runs of a mean are equal: no band")
