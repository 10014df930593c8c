"""The figure of the planner's ranking."""

from __future__ import annotations

from dataclasses import replace

import pytest

import workbench as wb
from workbench.analysis.planning.advice import Advice
from workbench.analysis.planning.measuring import simulated
from workbench.analysis.planning.planner import plan
from workbench.analysis.planning.profile import ClusterProfile
from workbench.core.base.settings import SettingError
from workbench.lab.figures import ranking
from workbench.lab.figures.gallery.ranking import picked

SCHEMES = ["UMW", "GC", "CR", "RAR", "SGD", "FRC", "CEGC", "LCC", "DSAG"]


@pytest.fixture(scope="module")
def measured() -> ClusterProfile:
    delays = {"kind": "heterogeneous", "slow": 0.3, "slow_straggles": 0.9}
    truth = wb.Experiment(
        scheme="UMW", workers=6, delays=delays, link={"latency": 1e-3, "bandwidth": 1e6}, seed=4
    )
    return simulated(truth, rounds=20, resamples=3)


@pytest.fixture(scope="module")
def advice(measured: ClusterProfile) -> Advice:
    small = {"samples": 120, "features": 50}
    return plan(measured, problem_args=small, schemes=SCHEMES, rounds=10, effort=0)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_ranking_is_in_order_with_its_spread(advice: Advice, theme: str) -> None:
    figure = ranking(advice, theme=theme)  # type: ignore[arg-type]
    shown = picked(advice)
    dots = [trace for trace in figure.data if trace.type == "scatter"]
    assert [dot.y[0] for dot in dots] == [choice.marked for choice in shown]
    assert list(figure.layout.yaxis.categoryarray) == [choice.marked for choice in reversed(shown)]
    assert advice.headline in figure.layout.title.text
    assert all(choice.step in dot.hovertemplate for choice, dot in zip(shown, dots, strict=True))
    assert {bar.name for bar in figure.data if bar.type == "bar"} == {
        "computing",
        "stragglers",
        "latency",
        "transfers",
    }
    for choice, dot in zip(shown, dots, strict=True):
        assert dot.error_x.array[0] == pytest.approx(
            (choice.high - choice.seconds) * dot.x[0] / choice.seconds
        )


def test_the_ranking_marks_inexact_schemes(advice: Advice) -> None:
    best, *others = advice.choices
    assert ranking(advice).layout.yaxis.title.text is None
    figure = ranking(replace(advice, choices=(replace(best, exact=False), *others)))
    assert figure.data[0].y[0] == f"≈ {best.name}"
    assert figure.layout.yaxis.title.text == "≈: inexact, rounds simulated"


def test_the_ranking_names_the_scheme_that_wins_more_often(advice: Advice) -> None:
    first, second, *others = advice.choices
    others = [replace(c, sure=0.0) for c in others]
    split = replace(advice, choices=(replace(first, sure=0.4), replace(second, sure=0.6), *others))
    title = ranking(split).layout.title
    assert f"Quickest on average: {first.name}" in title.text
    assert f"most often: {second.name}" in title.text + (title.subtitle.text or "")


def test_ranking_shows_the_best_of_every_scheme_first(advice: Advice) -> None:
    few = picked(advice, len(advice.schemes))
    assert few == list(advice.schemes)
    assert len(picked(advice, 3)) == 3
    with pytest.raises(SettingError, match=r"^most = 0: "):
        ranking(advice, most=0)


def test_ranking_of_equally_fast_schemes_names_no_winner_among_them() -> None:
    """Without stragglers and over free links, UMW, RAR and SGD that waits for all take the same time."""
    truth = wb.Experiment(scheme="UMW", workers=6, delays={"kind": "constant", "shift": 0.01})
    advice = plan(simulated(truth, rounds=8, resamples=2), schemes=["UMW", "RAR"], rounds=10, effort=0)
    one, other = sorted(choice.marked for choice in advice.choices)
    texts = sorted(ranking(advice).layout.yaxis.ticktext, key=len)
    assert any("with its equals fastest in 100%" in text for text in texts), texts
    assert any(f"as fast as {one}" in text or f"as fast as {other}" in text for text in texts), texts
