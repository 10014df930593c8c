"""The figure of a code: a heat map of the encoding matrix."""

from __future__ import annotations

from typing import Any

import numpy as np
import plotly.graph_objects as go
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import workbench as wb
from tests.support.figure_runs import experiment
from tests.support.strategies import CASES, experiments
from workbench.core.base.settings import SettingError
from workbench.core.contract.plan import Plan, star_plan
from workbench.lab.figures import code, tree
from workbench.lab.figures.gallery.code import MAX_COLUMNS, MAX_WORKERS, cells_of, coefficient_scale
from workbench.lab.figures.page import PALETTES


@settings(max_examples=30)
@given(experiments(list(CASES)))
def test_code_figure_is_the_matrix(spec: dict[str, Any]) -> None:
    e = wb.Experiment(**spec)
    heat = code(e).data[0]
    if e.plan.parts <= MAX_COLUMNS:
        np.testing.assert_array_equal(np.nan_to_num(heat.z), e.plan.matrix()[1:])
        np.testing.assert_array_equal(heat.x, np.arange(e.plan.parts))
    assert not np.any(np.asarray(heat.z) == 0.0)  # zeros have the background colour
    np.testing.assert_array_equal(heat.y, np.arange(1, e.workers + 1))


@given(st.lists(st.sampled_from([-3.0, -0.5, 0.0, 0.25, 1.0, 40.0]), min_size=1, max_size=30))
def test_coefficient_scale_covers_the_signs(values: list[float]) -> None:
    scale: Any = coefficient_scale(np.array(values), "light")
    held = [value for value in values if value] or [-1.0, 1.0]
    low, high = min(held), max(held)
    assert (scale["cmin"] < 0, scale["cmax"] > 0) == (low < 0, high > 0)
    if low < 0 < high:
        assert scale["cmin"] == -scale["cmax"]
    assert scale["showscale"] == (len(set(held)) > 1 or not any(values))
    text = scale["colorbar"]["ticktext"]
    assert text[-1].startswith("≥") == (0 < scale["cmax"] < max(map(abs, held)))
    assert text[0].startswith("≤") == (0 < -scale["cmin"] < max(map(abs, held)))
    grey = next(place for place, color in scale["colorscale"] if color == PALETTES["light"].neutral)
    assert scale["cmin"] + grey * (scale["cmax"] - scale["cmin"]) == pytest.approx(0.0)
    go.Figure(go.Bar(y=[1]), {"coloraxis": scale})  # a valid colour axis


def test_code_of_ones_has_no_negative_scale() -> None:
    for e in (experiment("UMW"), experiment("GC", {"stragglers": 2, "code": "fractional"})):
        for figure in (code(e), tree(e)):
            assert figure.layout.coloraxis.showscale is False
            assert "every coefficient is 1" in figure.layout.title.subtitle.text


def test_code_shows_numbers_of_small_matrices() -> None:
    assert code(experiment("UMW")).data[0].texttemplate
    assert code(experiment("UMW", workers=40)).data[0].texttemplate is None


def test_code_of_large_plans_shows_the_first_workers() -> None:
    workers = MAX_WORKERS + 100
    plan = experiment("UMW", workers=workers, problem_args={"samples": workers, "features": 2}).plan
    figure = code(plan)
    np.testing.assert_array_equal(
        np.nan_to_num(figure.data[0].z), plan.matrix()[1 : MAX_WORKERS + 1, :MAX_WORKERS]
    )
    assert f"workers 1 to {MAX_WORKERS} and their parts shown" in figure.layout.title.subtitle.text


def test_code_merges_columns_of_many_parts() -> None:
    matrix = np.zeros((3, 2 * MAX_COLUMNS + 1))
    matrix[0, 0], matrix[1, [4, 5]], matrix[2, -1] = 1.0, [0.5, -2.0], 3.0
    plan = star_plan(matrix, matrix.shape[1])
    cells = cells_of(plan)
    assert cells.width == 3
    np.testing.assert_array_equal(cells.first[:3], [0, 3, 6])
    assert [cells.values[0, 0], cells.values[1, 1], cells.values[2, -1]] == [1.0, -2.0, 3.0]
    assert np.count_nonzero(cells.values) == 3
    assert "a column is 3 parts" in code(plan).layout.title.subtitle.text


def test_code_of_a_plan_without_work() -> None:
    empty: Plan = star_plan(np.zeros((2, 3)), 3)
    assert np.all(np.isnan(code(empty).data[0].z))


def test_code_refuses_wrong_input(traces: list[wb.Trace]) -> None:
    wrong: Any = traces[0]
    with pytest.raises(SettingError, match=r"^plan = Trace: cannot be drawn; give a Plan or an Experiment"):
        code(wrong)
