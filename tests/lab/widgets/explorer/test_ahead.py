"""Forecasts before a run, and the phase diagram."""

from __future__ import annotations

import re
from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import workbench as wb
from workbench.core.contract.scheme import ABSTRACT_NOTE
from workbench.lab.figures import phase_diagram, round_times
from workbench.lab.figures.passes import pass_times
from workbench.lab.figures.scheme_grid import SchemeGrid
from workbench.lab.figures.style import scheme_style
from workbench.lab.widgets.explorer.ahead import (
    GRID_ROUNDS,
    LATENCIES,
    alphas_of,
    forecast_grid,
    look_ahead,
    names_of,
)
from workbench.lab.widgets.explorer.tables import costs, finding, speeds
from workbench.lab.widgets.forms.setup import Entry, Setup, Shape, setup_of

LINK = {"latency": 1e-3, "bandwidth": 8e5}
CANDIDATES = wb.baselines(3, 2, 1, rounds=5, link=LINK)


def test_look_ahead_forecasts_equal_wb_forecast() -> None:
    ahead = look_ahead(CANDIDATES, rounds=30)
    assert [a.name for a in ahead] == ["UMW", "GC", "RAR", "SGD", "CR"]
    for a, e in zip(ahead, CANDIDATES, strict=True):
        assert a.forecast is not None
        np.testing.assert_array_equal(a.forecast.seconds, wb.forecast(e, rounds=30).seconds)


def test_look_ahead_ignores_deaths_and_reports_missing_data() -> None:
    dead = CANDIDATES[0].replace(faults=[{"worker": 1, "round": 0}])
    lost = wb.Experiment(scheme="UMW", problem_args={"data": "nowhere.csv"})
    found = look_ahead([dead, lost])
    assert found[0].forecast is not None and not found[0].reason  # noqa: PT018
    assert found[1].forecast is None and "nowhere.csv" in found[1].reason  # noqa: PT018


def test_names_of_distinguishes_experiments_of_one_scheme() -> None:
    twice = [wb.Experiment(scheme="GC", scheme_args={"stragglers": s}) for s in (1, 3)]
    assert names_of([*twice, wb.Experiment(scheme="UMW")]) == ["GC stragglers=1", "GC stragglers=3", "UMW"]


@pytest.mark.parametrize(("children", "count"), [(1, 1), (3, 3), (8, 8), (40, 8)])
def test_alphas_of_cover_the_range(children: int, count: int) -> None:
    found = alphas_of(Shape(children=children, layers=1, stragglers=0))
    assert len(found) == count
    assert (found[0], found[-1]) == (0, children - 1)


def test_forecast_grid_cells_are_forecasts() -> None:
    shape = Shape(children=3, layers=2, stragglers=1)
    found = forecast_grid(setup_of(CANDIDATES), shape, 12)
    assert found is not None
    assert found.seconds.shape == (3, len(LATENCIES), 5)
    for i, late in enumerate(alphas_of(shape)):
        for j in (0, 5, len(LATENCIES) - 1):
            candidates = wb.baselines(3, 2, late, rounds=5, link={**LINK, "latency": LATENCIES[j]})
            passes = pass_times({e.scheme: wb.forecast(e, rounds=GRID_ROUNDS) for e in candidates})
            expected = list(passes.values())
            np.testing.assert_allclose(found.seconds[i, j], expected, rtol=1e-12)


def test_forecast_grid_skips_schemes_without_the_setting() -> None:
    groups = Entry("GC", {"stragglers": 3, "code": "fractional"})
    setup = Setup((groups, Entry("UMW")), {"workers": 12, "rounds": 5})
    found = forecast_grid(setup, Shape(children=12, layers=1, stragglers=3), 12)
    assert found is not None
    fits = [12 % (late + 1) == 0 for late in alphas_of(Shape(children=12, layers=1, stragglers=3))]
    assert np.isfinite(found.seconds[:, 0, 0]).tolist() == fits
    assert np.isfinite(found.seconds[:, :, 1]).all()


def test_forecast_grid_is_cancelled_if_not_needed() -> None:
    calls: list[float] = []
    found = forecast_grid(
        setup_of(CANDIDATES),
        Shape(children=3, layers=2),
        12,
        lambda share: calls.append(share) or len(calls) < 4,
    )
    assert found is None
    assert len(calls) == 4


def test_look_ahead_caches_unchanged_forecasts() -> None:
    """The forecasts of UMW and RAR do not depend on the number of stragglers. Every forecast equals a new one."""
    before = look_ahead(CANDIDATES)
    moved = wb.baselines(3, 2, 0, rounds=5, link=LINK)
    after = look_ahead(moved, known=before)
    assert [a.name for a, b in zip(after, before, strict=True) if a.forecast is b.forecast] == ["UMW", "RAR"]
    for kept, fresh in zip(after, look_ahead(moved), strict=True):
        assert kept.forecast is not None
        assert fresh.forecast is not None
        np.testing.assert_array_equal(kept.forecast.seconds, fresh.forecast.seconds)


def test_look_ahead_repeats_forecasts_for_other_rounds(tmp_path: Path) -> None:
    table = tmp_path / "times.csv"
    table.write_text("worker,iteration,seconds\n1,0,1.0\n")
    e = CANDIDATES[0].replace(delays={"kind": "replay", "path": str(table), "samples": 1.0})
    before = look_ahead([e])
    table.write_text("worker,iteration,seconds\n1,0,20.0\n")
    (after,) = look_ahead([e], known=before)
    assert after.forecast is not None
    assert after.forecast.mean == wb.forecast(e, rounds=len(after.forecast.seconds)).mean
    known = look_ahead(CANDIDATES[:1], rounds=30)
    assert look_ahead(CANDIDATES[:1], rounds=20, known=known)[0].forecast is not known[0].forecast


def test_forecast_grid_compares_passes_over_the_data() -> None:
    """A round of ASGD has one answer of twelve: its cells are twelve times its mean round."""
    shape, candidates = (
        Shape(children=3, layers=2, stragglers=1),
        [CANDIDATES[0], CANDIDATES[0].replace(scheme="ASGD")],
    )
    found = forecast_grid(setup_of(candidates), shape, 12)
    assert found is not None
    asgd = candidates[1].replace(link={**LINK, "latency": LATENCIES[0]})
    assert found.seconds[0, 0, 1] == pytest.approx(12 * wb.forecast(asgd, rounds=GRID_ROUNDS).mean, rel=0.01)


def test_table_of_times_to_target_names_the_reference_and_not_a_run_of_a_similar_time() -> None:
    found = pd.DataFrame(
        {
            "scheme": ["GC", "CR"],
            "seconds": [1.0004, 1.0],
            "times_as_long": [1.0004, 1.0],
            "follows": "paper",
            "reference": "CR",
        }
    )
    assert "times as long as CR" in speeds(found, 0.1)
    assert "times as long as GC" not in speeds(found, 0.1)


def test_costs_of_a_round_are_ranked_by_passes_over_the_data_and_state_who_is_slower() -> None:
    """A round of ASGD has the gradient of one worker, and is short."""
    pair = [wb.Experiment(scheme=scheme, workers=12, link=LINK) for scheme in ("UMW", "ASGD")]
    umw, asgd = look_ahead(pair)
    assert umw.forecast is not None
    assert asgd.forecast is not None
    text = costs([umw, asgd])
    passes = {"UMW": umw.forecast.mean, "ASGD": 12 * asgd.forecast.mean}
    best, other = sorted(passes, key=lambda name: passes[name])
    found = {row[0]: row[1].split("|")[-1] for row in rows_of(text)}
    assert f"against {best}" in text
    assert found[best] == "fastest"
    ratio = re.fullmatch(r"([\d.]+)× as long", found[other])
    assert ratio is not None
    assert float(ratio[1]) == pytest.approx(passes[other] / passes[best], rel=0.02)


def rows_of(text: str) -> list[list[str]]:
    """Return the names and the numbers of the rows of a table, the numbers joined by bars."""
    rows = re.findall(r"<tr[^>]*><th scope=\"row\">(.*?)</tr>", text.partition("</tbody>")[0])
    names = [re.sub("<[^>]*>", "", row.partition("</th>")[0]) for row in rows]
    numbers = ["|".join(re.findall(r'<td class="wb-number"[^>]*>(.*?)</td>', row)) for row in rows]
    return [list(pair) for pair in zip(names, numbers, strict=True)]


def test_forecasts_phase_diagram_and_boxes_mark_schemes_that_follow_an_abstract() -> None:
    entries = [wb.Experiment(scheme="UMW", workers=6), wb.Experiment(scheme="DBW", workers=6)]
    ahead = look_ahead(entries, rounds=20)
    assert "DBW†" in costs(ahead)
    assert ABSTRACT_NOTE in finding(ahead)
    known = {a.name: a.forecast for a in ahead}
    for figure in (
        round_times(known),
        round_times([wb.run(e.replace(rounds=3)) for e in entries]),
        phase_diagram(SchemeGrid(tuple(known), (Fraction(1, 4),), (0.0,), np.array([[[2.0, 1.0]]]))),
    ):
        assert ABSTRACT_NOTE in figure.layout.title.subtitle.text.replace("<br>", " ")
        assert "DBW†" in str(figure.to_dict())
    assert scheme_style("DBW†") == scheme_style("DBW")
    assert ABSTRACT_NOTE not in finding(ahead[:1])
