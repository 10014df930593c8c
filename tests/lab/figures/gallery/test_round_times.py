"""The figure of round times: boxes show quantiles and mean."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import plotly.graph_objects as go
import pytest

import workbench as wb
from tests.support.figure_runs import experiment
from workbench.core.base.settings import SettingError
from workbench.lab.figures import round_times, scheme_style


def numbers(figure: go.Figure, label: str) -> list[float]:
    """Return five quantiles and the mean, in the figure's unit."""
    box = next(b for b in figure.data if b.type == "box" and b.name == label)
    mean = next(m for m in figure.data if m.name == f"{label} mean")
    return [float(v[0]) for v in (box.lowerfence, box.q1, box.median, box.q3, box.upperfence, mean.x)]


def test_round_times_are_those_of_traces_and_forecasts(traces: list[wb.Trace]) -> None:
    forecast = wb.forecast(traces[0].experiment, rounds=200)
    figure = round_times({"UMW": traces[0], "UMW forecast": forecast})
    assert figure.layout.xaxis.title.text == "time per round (ms)"
    assert figure.layout.xaxis.type == "log"
    trace_seconds = np.diff(traces[0].columns["time"], prepend=0.0)
    for label, seconds in {"UMW": trace_seconds, "UMW forecast": forecast.seconds}.items():
        expected = [*np.quantile(seconds, (0.05, 0.25, 0.5, 0.75, 0.95)), seconds.mean()]
        np.testing.assert_allclose(numbers(figure, label), np.array(expected) * 1e3)
    boxes = [box for box in figure.data if box.type == "box"]
    assert {box.line.color for box in boxes} == {scheme_style("UMW").color}


def test_round_times_skip_the_first_rounds(traces: list[wb.Trace]) -> None:
    """The planner's table omits the first round as well."""
    forecast = wb.forecast(traces[0].experiment, rounds=50)
    figure = round_times({"UMW": traces[0], "UMW predicted": forecast}, skip=1)
    assert numbers(figure, "UMW")[-1] == pytest.approx(1e3 * np.diff(traces[0].columns["time"]).mean())
    assert numbers(figure, "UMW predicted")[-1] == pytest.approx(1e3 * forecast.seconds.mean())
    assert "without their first round" in figure.layout.title.subtitle.text
    for skip in (-1, 15):
        with pytest.raises(SettingError, match=rf"^skip = {skip}: UMW has 15 rounds; take 0 to 14$"):
            round_times(traces, skip=skip)


def test_round_times_rows_are_in_the_given_order(traces: list[wb.Trace]) -> None:
    figure = round_times(traces)
    assert list(figure.layout.yaxis.categoryarray) == [t.label for t in reversed(traces)]
    texts = [note.text.split("<br>")[0] for note in figure.layout.annotations]
    seconds = [np.diff(t.columns["time"], prepend=0.0).mean() for t in traces]
    assert texts == [f"mean {s * 1e3:.3g} ms" for s in seconds]


def test_round_times_without_duration_need_a_linear_axis(traces: list[wb.Trace]) -> None:
    lazy = replace(traces[0], columns={**traces[0].columns, "time": np.repeat([0.1, 0.2, 0.3], 5)})
    assert round_times([lazy, traces[1]]).layout.xaxis.type == "linear"
    assert round_times(traces).layout.xaxis.type == "log"


def test_round_times_of_long_rounds_are_in_seconds() -> None:
    slow = wb.forecast(experiment("UMW", delays={"kind": "constant", "shift": 1.0}), rounds=5)
    figure = round_times([slow])
    assert figure.layout.xaxis.title.text == "time per round (s)"
    assert len(set(numbers(figure, "forecast 1"))) == 1


def test_round_times_refuse_wrong_input() -> None:
    with pytest.raises(SettingError, match=r"^runs = \[\]: is empty; give at least one Trace or Forecast"):
        round_times([])
    wrong: Any = [1.5]
    with pytest.raises(SettingError, match=r"^runs: a float has no round times"):
        round_times(wrong)


def test_round_times_of_equal_rounds_have_an_axis_around_them() -> None:
    """The rounding of a mean does not determine the axis."""
    e = wb.Experiment(scheme="UMW", workers=3, rounds=20, delays={"kind": "constant", "shift": 1e-3})
    for figure in (round_times([wb.run(e)]), round_times([wb.forecast(e)])):
        (box,) = (trace for trace in figure.data if trace.type == "box")
        low, high = figure.layout.xaxis.range
        assert 10**low < 0.7 * box.median[0] < 1.4 * box.median[0] < 10**high
        assert high - low < 0.4


def test_round_times_mark_rounds_that_use_a_part_of_the_data() -> None:
    whole, part = (wb.Experiment(scheme=name, workers=10, rounds=20) for name in ("UMW", "ASGD"))
    figure = round_times({"UMW": wb.run(whole), "ASGD": wb.run(part), "ASGD forecast": wb.forecast(part)})
    texts = {note.y: note.text for note in figure.layout.annotations}
    assert "of the data" not in texts["UMW"]
    assert texts["ASGD"].endswith("<br>10 % of the data")
    assert texts["ASGD forecast"].endswith("<br>10 % of the data")
