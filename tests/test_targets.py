"""Rounds to a loss: of exact schemes, and of those that are simulated."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import workbench as wb
from workbench.settings import SettingError
from workbench.targets import EFFORT, LONGER, cost, needs, reference, shortened

SPEC: dict[str, Any] = {
    "workers": 6,
    "problem": "logistic",
    "problem_args": {"samples": 240, "features": 20},
    "link": {"latency": 1e-3, "bandwidth": 1e6},
}


def experiment(scheme: str = "UMW", args: dict[str, Any] | None = None, **changes: Any) -> wb.Experiment:
    return wb.Experiment(**{**SPEC, "scheme": scheme, "scheme_args": args or {}, **changes})


def test_the_target_is_what_an_exact_scheme_has_within_the_tolerance() -> None:
    loss = wb.run(experiment(rounds=30), events=False)
    strict = reference(experiment(), 30, None, 0.0, EFFORT)
    assert (strict.rounds, strict.loss) == (30, pytest.approx(loss.columns["loss"][-1]))
    loose = reference(experiment(), 30, None, 0.1, EFFORT)
    way = loss.initial["loss"] - loss.columns["loss"][-1]
    assert loose.loss == pytest.approx(loss.columns["loss"][-1] + 0.1 * way)
    assert loose.rounds == int(np.argmax(loss.columns["loss"] <= loose.loss)) + 1 < 30


def test_an_exact_scheme_needs_as_many_rounds_and_its_forecast_is_right() -> None:
    target = reference(experiment(), 30, None, 0.05, EFFORT)
    (need,) = needs([experiment("GC", {"stragglers": 2})], target)
    assert need.rounds == target.rounds
    assert need.pace == pytest.approx(1.0)


def test_a_scheme_that_leaves_most_out_does_not_come_there() -> None:
    target = reference(experiment(), 30, None, 0.0, EFFORT)
    (need,) = needs([experiment("SGD", {"stragglers": 5})], target)
    assert np.isnan(need.rounds)


def test_lazy_schemes_have_shorter_rounds_than_their_forecast() -> None:
    target = reference(experiment(), 30, None, 0.05, EFFORT)
    (need,) = needs([experiment("CADA", {"c": 2.0})], target)
    assert need.pace < 1.0
    assert need.rounds <= LONGER * target.rounds


def test_fewer_samples_where_there_are_many() -> None:
    e = experiment(problem_args={"samples": 10_000, "features": 100})
    few = shortened(e, rounds=100, effort=1e7)
    assert few.shape() == (1000, 100)
    assert shortened(e, rounds=100, effort=1.0).shape()[0] == 4 * 6
    assert shortened(e, rounds=1, effort=1e12) is e
    assert cost(e, 1000, 10) == pytest.approx(1000 * 100 * 10)
    assert cost(experiment("CADA"), 240, 1) > cost(experiment("SGD"), 240, 1)


def test_a_step_that_is_too_large_is_named() -> None:
    wild = experiment(problem="least_squares", optimiser_args={"step": 1e9})
    with pytest.warns(RuntimeWarning), pytest.raises(SettingError, match=r"^optimiser_args = .*smaller"):
        reference(wild, 200, None, 0.0, EFFORT)
