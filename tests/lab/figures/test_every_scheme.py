"""Every figure of every scheme, in both themes, with the style of the scheme."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import product
from typing import Any

import plotly.graph_objects as go
import pytest

import workbench as wb
from tests.support.figure_runs import SPEC
from workbench.core.base.settings import SettingError


def default(name: str) -> wb.Experiment | None:
    """Return an experiment with a scheme's default parameters, and a valid number of workers."""
    for workers, problem in product((12, *range(2, 41)), ("logistic", "least_squares")):
        spec = {**SPEC, "scheme": name, "workers": workers, "problem": problem, "rounds": 3}
        try:
            return wb.Experiment(**spec)
        except SettingError:
            continue
    return None


@pytest.fixture(scope="module", params=wb.schemes.names())
def trace(request: pytest.FixtureRequest) -> wb.Trace:
    experiment = default(request.param)
    if experiment is None:
        pytest.skip(f"{request.param}: its default numbers fit no cluster of 2 to 40 workers")
    return wb.run(experiment)


def figures(trace: wb.Trace, theme: Any) -> Iterator[go.Figure]:
    draw = wb.figures
    yield draw.convergence([trace], target=float(trace.columns["loss"][-1]), theme=theme)
    yield draw.round_times([trace], theme=theme)
    yield draw.gantt(trace, 1, theme=theme)
    yield draw.code(trace.experiment, theme=theme)
    yield draw.tree(trace.experiment, theme=theme)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_figures_of_every_scheme_can_be_drawn(trace: wb.Trace, theme: str) -> None:
    background = {"light": "#FFFFFF", "dark": "#111111"}[theme]
    for figure in figures(trace, theme):
        spec = json.loads(figure.to_json())  # raises for values that plotly.js cannot read
        assert spec["layout"]["template"]["layout"]["paper_bgcolor"] == background
        assert spec["layout"]["title"]["text"]
        assert 300 <= spec["layout"]["height"] <= 1500
        assert spec["data"]


def test_scheme_style_is_equal_in_all_figures(trace: wb.Trace) -> None:
    color = wb.figures.scheme_style(trace.experiment.scheme).color
    curve = wb.figures.convergence([trace]).data[0]
    box = wb.figures.round_times([trace], theme="dark").data[0]
    assert curve.line.color == box.line.color == color
    assert set(curve.marker.color) - {"rgba(0,0,0,0)"} == {color}
