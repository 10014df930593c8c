"""Advice: its headline, its table, and the comparison with a real run."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

import workbench as wb
from tests.support.figure_numbers import contrast
from tests.support.plans import advise, learnt, measured
from tests.support.sampled_cases import rotated
from workbench.analysis.planning.advice import Trial, Verdict, name_of
from workbench.core.base.settings import SettingError


@rotated
def test_plan_headline_agrees_with_order_and_wins() -> None:
    """If one choice is faster on average, and another one more often, both are named."""
    once = learnt("UMW", "SGD", "D-SGD", "D-Adam")
    assert once.headline == f"Quickest: {once.best.name}"
    first, second, *others = once.choices
    split = replace(once, choices=(replace(first, sure=0.42), replace(second, sure=0.58), *others))
    assert split.headline == f"Quickest on average: {first.name}"
    assert "the fastest in 42%" in split.why
    assert f"{second.name} is the fastest in 58%" in split.why
    assert split.why.startswith(split.headline)


def test_plan_table_of_predicted_and_measured() -> None:
    advice = advise(measured(6, "straggle", 1e-3, 4e5), schemes=["UMW", "CR"])
    traces = wb.compare([choice.experiment.replace(rounds=60) for choice in advice.schemes], events=False)
    table = advice.beside(traces)
    assert table["name"].tolist() == [choice.name for choice in advice.schemes]
    np.testing.assert_allclose(table["ratio"], 1.0, atol=0.15)
    with pytest.raises(SettingError, match=r"^traces = 'GC stragglers 2'"):
        advice.beside(
            [wb.run(wb.Experiment(scheme="GC", scheme_args={"stragglers": 2}, workers=6, rounds=2))]
        )


def shown(verdict: Verdict) -> tuple[str, tuple[str, str]]:
    """Return the coloured words of a verdict, and their colours among black and among white text."""
    look = r'<p><b style="color: color-mix\(in srgb, #(\w{6}) (\d+)%, currentColor\)">(.+?)</b>'
    (colour, share, words), *_ = re.findall(look, verdict._repr_html_())
    parts = np.array([*bytes.fromhex(colour)]) * int(share) / 100
    rest = 255 - 2.55 * int(share)
    on_light, on_dark = ("#" + bytes((parts + text).round().astype(np.uint8)).hex() for text in (0, rest))
    return words, (on_light, on_dark)


def test_plan_verdict_of_runs_beside_their_forecasts() -> None:
    advice = advise(measured(6, "straggle", 1e-3, 4e5), schemes=["UMW", "CR"])
    traces = wb.compare([choice.experiment.replace(rounds=60) for choice in advice.schemes], events=False)
    right = advice.verdict(traces)
    assert (right.right, right.why) == (True, "")
    assert "the order of their rounds is as forecast" in right.text
    columns = {**traces[0].columns, "time": 7.7 * traces[0].columns["time"]}
    slow = replace(traces[0], columns=columns, info={**traces[0].info, "overrun_share": 0.4})
    wrong = advice.verdict([slow, traces[1]])
    assert not wrong.right
    assert "not as forecast" in wrong.text
    assert "40%" in wrong.why
    assert "too few cores" in wrong.why
    assert "Not right:" in wrong._repr_html_()
    unknown = advice.verdict([replace(slow, info={})])
    assert "measure again just before" in unknown.why
    assert str(right).startswith("Right: ")
    words, colours = zip(*map(shown, (right, wrong)), strict=True)
    assert words == ("Right:", "Not right:")
    assert not set(colours[0]) & set(colours[1])
    for on_light, on_dark in colours:
        assert min(contrast(on_light, "#ffffff"), contrast(on_dark, "#111111")) >= 4.5


def test_plan_verdict_without_measured_rounds_is_neither_right_nor_wrong() -> None:
    advice = advise(measured(6, "straggle", 1e-3, 4e5), schemes=["UMW", "CR"])
    trace = wb.run(advice.best.experiment.replace(rounds=9), events=False)
    short = replace(trace, columns={name: values[:1] for name, values in trace.columns.items()})
    none, one = replace(trace, columns={name: values[:0] for name, values in trace.columns.items()}), [short]
    for traces in ([], [none], one, [none, *one]):
        verdict = advice.verdict(traces)
        assert verdict.right is None
        assert str(verdict).startswith("Not measured: ")
        assert '<b style="color: color-mix(in srgb, currentColor' in verdict._repr_html_()
        assert not advice.beside(traces)["ratio"].notna().any()
    assert advice.verdict([trace, short]).right is not None


@rotated
def test_plan_table_and_text() -> None:
    advice = advise(measured(6, "straggle", 1e-3, 4e5), schemes=["UMW", "GC", "CR"])
    table = advice.table
    assert list(table["scheme"].unique()) == [c.scheme for c in advice.schemes]
    assert (table["low"] <= table["seconds"]).all()
    assert name_of(advice.best.experiment) in advice.why
    assert "times as long" in advice.why or "is as good" in advice.why
    assert "resampled predictions" in advice.why
    assert isinstance(advice.best.experiment, wb.Experiment)


def test_plan_marks_inexact_schemes() -> None:
    advice = learnt("UMW", "SGD", "D-SGD", "D-Adam")
    assert {c.marked[0] for c in advice.choices if not c.exact} == {"≈"}
    assert all(c.marked == c.name for c in advice.choices if c.exact)
    assert set(advice.table.loc[~advice.table["exact"], "scheme"]) == {"SGD", "D-SGD", "D-Adam"}


def test_trial_verdict_is_a_sentence() -> None:
    """The forecast counts as confirmed within a factor of 1.5. Otherwise the headline begins with "Not confirmed"."""
    advice = learnt("UMW", "SGD", "D-SGD", "D-Adam")
    predicted = advice.best.per_round
    for ratio, holds in ((1.4, True), (0.7, True), (1.6, False), (0.6, False), (7.7, False)):
        trial = Trial(ratio * predicted, predicted, 17)
        tried = replace(advice, trial=trial)
        assert trial.holds == holds
        assert tried.headline.startswith("Quickest: " if holds else "Not confirmed: ")
        assert str(trial) in tried.headline
        assert holds == ("none of which this run confirms" not in str(tried))
    assert str(Trial(7.7e-3, 1e-3, 17)).startswith(
        "measured 7.7 ms a round over 17 rounds, forecast 1 ms: 7.7 times"
    )


@pytest.mark.slow
def test_tried_runs_the_first_choice_on_real_processes() -> None:
    advice = advise(measured(2, "steady", 1e-4, 1e8), schemes=["UMW"], workers=2)
    tried = advice.tried(rounds=8)
    assert tried.trial.rounds == 5
    assert tried.trial.measured > 0
    assert tried.trial.predicted == advice.best.per_round
    assert str(tried.trial) in str(tried)
    with pytest.raises(SettingError, match=r"^rounds = 3: take 4 or more"):
        advice.tried(rounds=3)
