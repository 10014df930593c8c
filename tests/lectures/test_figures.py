"""Figures of lectures: drawn for any sliders, in both themes. Each slider changes its figure."""

from __future__ import annotations

import json
import warnings
from itertools import combinations
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from workbench_lectures import approximate, asking_less, bandwidth, by_hand, communication, stragglers
from workbench_lectures.knobs import Knobs

from tests.support.figure_numbers import rounding_errors
from tests.support.lecture_settings import FEW_EXAMPLES, SCRIPTS, at_end, settings_of
from workbench.core import theory
from workbench.core.base.errors import PrecisionWarning
from workbench.lab.figures import scheme_style

PARTS = [pytest.param(name, part, id=f"{name}-{part}") for name in SCRIPTS for part in SCRIPTS[name].figures]
MOVES = [
    pytest.param(name, part, knob, id=f"{name}-{part}-{knob}")
    for name in SCRIPTS
    for part in SCRIPTS[name].figures
    for knob in SCRIPTS[name].figures[part].names
]


def ends(knobs: Knobs, name: str) -> list[Any]:
    """Return the ends of a slider, or all choices of a menu."""
    line = next(line for line in knobs.entries() if line.name == name)
    if line.kind == "choice":
        return list(line.choices)
    assert line.low is not None
    assert line.high is not None
    kind = int if line.kind == "whole" else float
    return [kind(line.low), kind(line.high)]


@pytest.mark.parametrize(("name", "part"), PARTS)
@FEW_EXAMPLES
@given(st.data())
def test_figures_are_drawn_for_any_sliders(name: str, part: str, data: st.DataObject) -> None:
    script = SCRIPTS[name]
    figure = script.figures[part].draw(data.draw(settings_of(script)), "light")
    assert figure.layout.title.text
    assert figure.layout.height <= 640  # sliders and figure fit into one window
    layout = figure.to_dict()["layout"]
    assert any(layout[axis].get("title") for axis in layout if axis.startswith(("xaxis", "yaxis")))
    for trace in figure.data:
        for values in (trace.x, trace.y):
            numbers = np.asarray(values if values is not None else [])
            assert numbers.dtype.kind not in "f" or trace.name == "edges" or np.isfinite(numbers).all()


@pytest.mark.parametrize(("name", "part"), PARTS)
def test_figures_show_no_rounding_errors(name: str, part: str) -> None:
    """The sliders are at their ends, and the menus at each of their choices."""
    script = SCRIPTS[name]
    for knobs in (at_end(script, False), at_end(script, True)):
        menus = [line for line in knobs.entries() if line.kind == "choice"]
        moved = [{line.name: choice} for line in menus for choice in line.choices] or [{}]
        for each in moved:
            assert rounding_errors(script.figures[part].draw(knobs.replace(**each).fit(), "light")) == []


def test_lecture_of_codes_by_hand_has_no_rounding_errors_in_its_texts() -> None:
    for g1, g2 in ((0.1, 0.2), (3.0, 3.0)):
        for late in by_hand.LATE:
            knobs = by_hand.ByHand(g1=g1, g2=g2, g3=-(g1 + g2) if g1 < 1 else 0.0, late=late)
            assert rounding_errors(by_hand.decoding(knobs, "light")) == []


@pytest.mark.parametrize(("name", "part"), PARTS)
def test_figures_have_both_themes(name: str, part: str) -> None:
    script = SCRIPTS[name]
    draw, knobs = script.figures[part].draw, script.knobs().fit()
    grounds = [draw(knobs, theme).layout.template.layout.paper_bgcolor for theme in ("light", "dark")]
    assert grounds == ["#FFFFFF", "#111111"]


@pytest.mark.parametrize(("name", "part", "knob"), MOVES)
def test_figure_changes_with_every_slider(name: str, part: str, knob: str) -> None:
    script = SCRIPTS[name]
    draw, first = script.figures[part].draw, script.knobs().fit()
    scheme = {"scheme": "G-CADA"} if knob == "groups" and "scheme" in script.figures[part].names else {}
    drawn = {
        json.dumps(json.loads(draw(first.replace(**scheme, **{knob: value}).fit(), "light").to_json()))
        for value in ends(first, knob)
    }
    assert len(drawn) > 1


@pytest.mark.parametrize("name", SCRIPTS)
def test_sliders_of_the_run_change_the_experiment(name: str) -> None:
    script = SCRIPTS[name]
    first = script.knobs().fit()
    for knob in script.race_names:
        runs = [script.entries(first.replace(**{knob: value}).fit()) for value in ends(first, knob)]
        assert runs[0] != runs[-1], knob


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_scheme_has_its_colour_and_dash_in_every_figure(name: str) -> None:
    script = SCRIPTS[name]
    schemes = {e.scheme for e in script.entries(script.knobs().fit())}
    seen = 0
    for part in script.figures.values():
        for trace in part.draw(script.knobs().fit(), "light").data:
            scheme = str(trace.name or "").split(",")[0].split(":")[0]
            if scheme in schemes and trace.type == "scatter" and trace.mode == "lines":
                style = scheme_style(scheme)
                assert (trace.line.color, trace.line.dash) == (style.color, style.dash)
                seen += 1
    assert seen or name in (
        "4-communication",
        "5-not-waiting",
        "6-asking-less",
        "7-coding-or-not",
        "8-who-is-late",
    )  # bars and heat maps have no dashes


# ---------------------------------------------------------------- values in the figures


def test_figure_tail_is_the_order_statistic() -> None:
    knobs = stragglers.Stragglers(workers=10, stragglers=3, tail=2.0)
    figure = stragglers.tail(knobs, "light")
    alone, all_of_them, first = (trace for trace in figure.data if trace.mode == "lines")
    t = 6e-3
    # before the minimum time
    assert np.interp(1e3 * t, alone.x, alone.y) == pytest.approx(np.exp(0.0), abs=1e-9)
    t = 3e-2
    p = float(np.exp(-(t - 6e-3) / 12e-3))
    assert np.interp(1e3 * t, alone.x, alone.y) == pytest.approx(p, rel=2e-2)
    assert np.interp(1e3 * t, all_of_them.x, all_of_them.y) == pytest.approx(1 - (1 - p) ** 10, rel=2e-2)
    assert (first.y <= all_of_them.y).all()
    mean = theory.exponential_order_mean(7, 10, 12e-3, 6e-3)
    assert f"{1e3 * mean:.3g} ms" in first.name


@given(tail=st.floats(0.1, 3.0), n=st.integers(2, 128), share=st.floats(0.0, 1.0))
def test_figure_means_of_heavy_tails_are_those_of_the_curves(tail: float, n: int, share: float) -> None:
    heavy, k = stragglers.Stragglers(tail=tail, distribution="pareto"), max(1, round(share * n))
    mean = theory.order_statistic_mean(lambda t: heavy.late(t, n), k, n)
    assert heavy.mean(k, n) == pytest.approx(mean, rel=1e-11)


def test_figure_tails_have_equal_means_for_one_worker() -> None:
    rng = np.random.default_rng(0)
    for tail in (0.3, 0.5):  # finite variance, so that a sample mean is meaningful
        light = stragglers.Stragglers(tail=tail)
        heavy = light.replace(distribution="pareto")
        least = stragglers.MIN_S_PER_SAMPLE * stragglers.SAMPLES
        u = rng.random(400_000)
        assert (least * u ** (-1 / (1 + 1 / tail))).mean() == pytest.approx(least * (1 + tail), rel=0.02)
        assert heavy.mean(5, 5) > light.mean(5, 5)


def test_figure_decoding_bars_sum_to_one() -> None:
    for late in ("nobody", "1", "2", "3"):
        for draw in (0, 4):
            figure = by_hand.decoding(by_hand.ByHand(late=late, draw=draw), "light")
            assert np.sum([bar.y for bar in figure.data], axis=0) == pytest.approx(1.0)
    two = by_hand.decoding(by_hand.ByHand(late="2 and 3"), "light")
    assert np.sum([bar.y for bar in two.data], axis=0) != pytest.approx(1.0)
    assert "would be" in two.layout.title.subtitle.text


def test_figure_of_message_times_ends_at_the_crossing() -> None:
    found = bandwidth.means(4, 3, 1, 0.0)
    assert (found["RAR"] < found["UMW"]).all()
    assert (np.diff(found["UMW"]) > 0).all()
    slow = bandwidth.means(4, 3, 1, 5.0)
    assert slow["CR"][2] < slow["RAR"][2]


def test_figure_table_is_table_3() -> None:
    figure = communication.table(communication.Communication(), "light")
    heat = figure.data[0]
    assert heat.z[2][3] == pytest.approx(21.3697, abs=1e-4)
    assert heat.z[0][0] == pytest.approx(36.1138, abs=1e-4)
    best, sliders = figure.layout.shapes
    assert (best.x0, best.x1, best.y0, best.y1) == (3.5, 4.5, 2.5, 3.5)
    assert (best.line.dash, sliders.line.dash) == ("solid", "dot")
    assert len(figure.data) == 1  # no marker covers a number


@pytest.mark.parametrize("code", ["FRC", "CRC"])
def test_figure_of_shuffling_spreads_the_same_error(code: Literal["FRC", "CRC"]) -> None:
    for draw in range(6):
        knobs = approximate.Approximate(draw=draw, code=code)
        fixed, shuffled = approximate.missed(knobs)
        held = approximate.holders(knobs)
        assert (held.sum(axis=0) == knobs.copies).all()
        chance = np.where(knobs.slow_ones, 0.8, 0.01)
        np.testing.assert_allclose(fixed, [np.prod(chance[column]) for column in held.T])
        places = combinations(range(8), int(knobs.slow_ones.sum()))
        chances = [np.where(np.isin(np.arange(8), slow), 0.8, 0.01) for slow in places]
        mean = np.mean([np.prod(c[column]) for c in chances for column in held.T])
        assert shuffled == pytest.approx(mean)  # on average over the slow workers


def test_figure_slow_workers_are_those_of_the_run() -> None:
    import workbench as wb

    knobs = approximate.Approximate(draw=3, slow_straggles=1.0, active_straggles=0.0)
    trace = wb.run(knobs.run("UMW", rounds=3))
    seconds = trace.events[trace.events["kind"] == "compute"].groupby("rank")[["start", "end"]].first()
    took = (seconds["end"] - seconds["start"]).to_numpy()
    assert (took > 5 * took.min()).tolist() == knobs.slow_ones.tolist()


def test_figure_of_selected_workers_counts_downloads() -> None:
    knobs = asking_less.AskingLess(c=2.0)
    for scheme in asking_less.SCHEMES:
        trace = asking_less.trace(knobs, scheme)
        table = asking_less.asked_of(trace)
        np.testing.assert_array_equal(table.sum(axis=0), trace.rounds["downloads"])
    lazy, all_ = (asking_less.costs(k)["CADA"] for k in (knobs, knobs.replace(c=0.1)))
    assert (lazy < all_).all()


def test_figure_of_a_code_for_many_stragglers_loses_few_digits() -> None:
    """The code of version 1.0 lost 15 of 16 digits for 12 stragglers of 30 workers."""
    knobs = bandwidth.Bandwidth(children=5, layers=2, stragglers=2, scheme="GC")
    with warnings.catch_warnings():
        warnings.simplefilter("error", PrecisionWarning)
        assert bandwidth.one_round(knobs, "light").layout.title.text == "GC, 30 workers: round 0"
