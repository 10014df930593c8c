"""Searches: repeatable runs, coverage of brackets, and budgets."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.core.base.settings import SettingError
from workbench.lab.batch.searches import Crossing, Optimum, Search, Step, searched

SIDES = [{"scheme": "GC"}, {"scheme": "CR"}]
Run = dict[str, Any]


def crossing(**more: Any) -> Crossing:
    return Crossing(**{"field": "x", "span": {"low": 0.0, "high": 1.0}, "sides": SIDES, **more})


def noisy(at: float, noise: float, number: int = 0) -> Callable[[Run], float]:
    """Return a cost in which CR is better from x = `at` on. Equal seeds share a part of the noise, like stragglers."""

    def cost(run: Run) -> float:
        second = run["scheme"] == "CR"
        both = np.random.default_rng([number, run["seed"]]).normal()
        own = np.random.default_rng([number, run["seed"], second, round(run["x"] * 1e6)]).normal()
        return 5 + both + noise * own + (at - run["x"] if second else 0.0)

    return cost


def run_search(search: Search, cost: Callable[[Run], float]) -> tuple[Step, int]:
    """Run all requested runs until there are no more, like a sweep. Return the last step and the number of requests."""
    known: dict[str, float] = {}

    def value(run: Run) -> float | None:
        cost(run)  # raises for invalid settings, as an experiment does
        return known.get(repr(run))

    for asked in range(1, 500):
        step = search.step(value)
        new = [run for run in step.runs if repr(run) not in known]
        if step.over or not new:
            return step, asked
        known |= {repr(run): cost(run) for run in new}
    raise AssertionError("it never ends")


@settings(max_examples=20)
@given(at=st.floats(0.05, 0.95), tolerance=st.sampled_from([0.02, 0.1, 0.3]), whole=st.booleans())
def test_crossing_bracket_without_noise_is_as_narrow_as_requested(
    at: float, tolerance: float, whole: bool
) -> None:
    span = {"low": 0, "high": 100, "whole": True} if whole else {"low": 0.0, "high": 1.0}
    unit = 100 if whole else 1
    cost = noisy(at, 0.0)
    search = crossing(span=span, tolerance=tolerance)
    step, _ = run_search(search, lambda run: cost({**run, "x": run["x"] / unit}))
    assert step.over
    low, high = step.numbers["low"] / unit, step.numbers["high"] / unit
    if low < at < high:  # a point may lie on the crossing, where neither scheme is better
        assert high - low <= max(tolerance, 0.01) * 2 + 1e-9
    assert low <= at <= high
    assert (step.numbers["lower_first"], step.numbers["lower_then"]) == ("GC", "CR")


@settings(max_examples=8)  # each example repeats the search for every step
@given(st.floats(0.1, 0.9), st.floats(0.01, 1.0), st.integers(0, 10**6))
def test_crossing_stepwise_equals_at_once(at: float, noise: float, number: int) -> None:
    search, cost = crossing(budget=10_000), noisy(at, noise, number)
    step, asked = run_search(search, cost)
    again = search.step(cost)
    assert (step.text, step.numbers, step.runs) == (again.text, again.numbers, again.runs)
    assert asked > 1


@pytest.mark.parametrize("many", [40, pytest.param(400, marks=pytest.mark.slow)])
def test_crossing_bracket_has_the_stated_coverage(many: int) -> None:
    wrong = 0
    for number in range(many):
        numbers = crossing(confidence=0.9).step(noisy(0.37, 0.3, number)).numbers
        wrong += "low" in numbers and not numbers["low"] <= 0.37 <= numbers["high"]
    assert wrong <= 0.1 * many


@settings(max_examples=10)
@given(st.integers(4, 60))
def test_crossing_stays_within_the_budget(budget: int) -> None:
    step, _ = run_search(crossing(budget=budget), noisy(0.4, 0.5))
    assert len(step.runs) <= budget
    assert f"the budget of {budget} runs is spent" in step.text or len(step.runs) < budget


def test_crossing_reports_ends_that_agree_or_are_open() -> None:
    assert "CR has the lower time at both ends" in crossing().step(noisy(-1.0, 0.1)).text
    assert "stays open after 8 seeds" in crossing(most=8).step(noisy(0.0, 50.0)).text


def test_crossing_ends_if_runs_never_reach_the_target() -> None:
    search = crossing(of="time_to", target=0.1)
    text = search.step(lambda run: math.nan if run["scheme"] == "CR" else 1.0).text
    assert "search.target = 0.1: at x = 0 4 of 8 runs never get there" in text
    with pytest.raises(SettingError, match="target: is missing; of = 'time_to' needs one"):
        crossing(of="time_to")


def test_crossing_halves_a_logarithmic_range_by_ratios() -> None:
    search = crossing(span={"low": 1e-4, "high": 1.0, "scale": "log"}, tolerance=0.25)
    step = search.step(lambda run: run["x"] if run["scheme"] == "CR" else 1e-3)
    xs = {run["x"] for run in step.runs}
    assert any(math.isclose(x, 1e-2) for x in xs)
    assert step.numbers["low"] <= 1e-3 <= step.numbers["high"]


def test_searched_chooses_by_kind() -> None:
    assert isinstance(
        searched({"kind": "crossing", "field": "x", "span": {"low": 0, "high": 1}, "sides": SIDES}), Crossing
    )
    with pytest.raises(SettingError, match=r"kind = 'best': choose one of crossing, optimum"):
        searched({"kind": "best"})


def bowl(run: Run) -> float:
    if run["k"] == 3:
        raise SettingError("k = 3: does not divide the workers")
    return (run["x"] - 2.2) ** 2 + (run["k"] - 2) ** 2 + 0.01 * run["seed"]


def test_optimum_finds_the_best_parameters_within_the_budget() -> None:
    search = Optimum(fields={"x": {"low": 0.0, "high": 4.0}, "k": [1, 2, 3]}, budget=60, seeds=2)
    step, _ = run_search(search, bowl)
    assert step.over
    assert len(step.runs) <= 60
    assert all(run["k"] != 3 for run in step.runs)  # invalid settings are skipped
    assert step.numbers["best"]["k"] == 2
    assert abs(step.numbers["best"]["x"] - 2.2) < 0.5
    assert step == search.step(bowl)


def test_optimum_without_optuna_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(SettingError, match=r"needs the package optuna.*straggler-workbench\[search\]"):
        Optimum(fields={"x": [1, 2]}).step(lambda run: 1.0)


def test_crossing_of_an_accuracy_is_ahead_where_it_is_higher() -> None:
    cost = noisy(0.4, 0.0)
    falling = run_search(crossing(tolerance=0.1), cost)[0]
    rising = run_search(crossing(tolerance=0.1, of="test_accuracy"), lambda run: -cost(run))[0]
    assert rising.text == falling.text.replace("lower time", "higher test_accuracy")
    assert rising.numbers == falling.numbers


@pytest.mark.parametrize(("of", "given", "rising"), [("loss", None, False), ("test_auc", None, True)])
def test_optimum_looks_where_more_is_better_for_the_greatest(
    of: str, given: bool | None, rising: bool
) -> None:
    fields = {"workers": [4, 6]}
    assert Optimum(fields=fields, of=of, greatest=given).rising is rising
    assert Optimum(fields=fields, of=of, greatest=not rising).rising is not rising
