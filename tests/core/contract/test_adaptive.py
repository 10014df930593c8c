"""Adaptive scheme selection: the same models, no change without a gain, and the time for moving samples."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import workbench as wb
from workbench.core.contract.adaptive import HORIZON_ROUNDS
from workbench.core.contract.configurations import Configuration, StoredParts
from workbench.core.engine.virtual.arithmetic import Coefficients
from workbench.core.running.simulated import timeline

FAST = {"kind": "shifted_exponential", "shift": 1e-4, "rate": 5e4}
SLOW = {
    "kind": "changing",
    "before": FAST,
    "after": {"kind": "constant", "shift": 1e-3},
    "at": 80,
    "worker": 2,
}
CODED: dict[str, Any] = {"scheme": "GC", "scheme_args": {"stragglers": 1}}


def experiment(**fields: Any) -> wb.Experiment:
    spec = {"workers": 6, "rounds": 160, "problem": "least_squares", "problem_args": {"samples": 120}}
    return wb.Experiment(**{**spec, "delays": SLOW, **fields})


@pytest.fixture(scope="module")
def adapted() -> wb.Trace:
    return wb.run(experiment(**CODED, adaptive=True))


def test_adaptive_is_off_by_default() -> None:
    assert not wb.Experiment().adaptive
    assert wb.run(experiment(scheme="UMW", rounds=5)).changes == []


def test_adaptive_run_is_faster_than_each_candidate(adapted: wb.Trace) -> None:
    assert adapted.changes[0].after == "UMW"
    assert any(80 < change.round < 100 for change in adapted.changes)
    for way in adapted.experiment.adaptive_controller().configurations:
        fixed = experiment(scheme=way.name, scheme_args=way.parameters)
        assert adapted.columns["time"][-1] < wb.forecast(fixed).seconds.sum()


def test_adaptive_run_has_the_models_of_a_fixed_run(adapted: wb.Trace) -> None:
    stays = wb.run(experiment(scheme="UMW"))
    assert np.array_equal(adapted.model, stays.model)
    assert np.array_equal(adapted.columns["loss"], stays.columns["loss"])
    numbers = wb.run(adapted.experiment, numeric=True)
    assert numbers.changes == adapted.changes
    np.testing.assert_allclose(numbers.columns["loss"], stays.columns["loss"], rtol=1e-10)


def test_adaptive_changes_are_in_the_trace(adapted: wb.Trace, tmp_path: Any) -> None:
    for before, after in zip(adapted.changes, adapted.changes[1:], strict=False):
        assert before.after == after.before
        assert before.round < after.round
    assert all("would save" in change.reason for change in adapted.changes)
    assert all(adapted.columns["time"][c.round - 1] == c.time for c in adapted.changes)
    kept = wb.Trace.load(adapted.save(tmp_path / "run"))
    assert kept.changes == adapted.changes
    assert kept.replay().same(adapted)


def test_adaptive_configuration_ends_between_rounds() -> None:
    """With constant times, which need no estimate, each round takes the time of its configuration."""
    delay_model = {"kind": "constant", "shift": 1e-3}
    e = experiment(**CODED, delays=delay_model, rounds=20, adaptive=True)
    simulated = timeline(e, Coefficients(e.plan), events=False)
    (change,) = simulated.changes
    took = np.diff(simulated.times, prepend=0.0)
    np.testing.assert_allclose(took, np.where(np.arange(20) < change.round, 0.04, 0.02))


@pytest.mark.parametrize("bandwidth", [1e4, 1e6])
def test_adaptive_change_includes_the_transfer_of_missing_parts(bandwidth: float) -> None:
    e = experiment(scheme="UMW", link={"bandwidth": bandwidth, "latency": 1e-4}, adaptive=True)
    simulated = timeline(e, Coefficients(e.plan), events=True)
    held = StoredParts(e.plan)
    row = e.line.width * (e.problem_spec.known()[1] + 1)  # type: ignore[attr-defined]
    for change in simulated.changes:
        missing = held.missing((way := Configuration(change.scheme, change.scheme_args, 6, 120)).plan)
        assert change.bytes == missing.sum() * row
        moving = missing.max() * row / bandwidth + 1e-4 if missing.any() else 0.0
        assert change.seconds == pytest.approx(moving)
        begun = min(
            start
            for round, _, kind, start, *_ in simulated.events
            if kind == "compute" and round == change.round
        )
        assert begun >= change.time + change.seconds
        held.add(way.plan)


@given(st.data())
def test_adaptive_makes_no_change_that_does_not_pay(data: st.DataObject) -> None:
    controller = experiment(**CODED, adaptive=True).adaptive_controller()
    count, seconds = len(controller.configurations), st.floats(1e-3, 10.0)
    costs, moves = (np.array(data.draw(st.lists(seconds, min_size=count, max_size=count))) for _ in range(2))
    left = data.draw(st.integers(1, 50))
    controller.times.rounds = 1
    controller._costs, controller.moves = (lambda: costs), np.where(np.arange(count), moves, 0.0)  # type: ignore[method-assign]
    to = controller._better(left)
    saved = (costs[0] - costs) * min(left, HORIZON_ROUNDS) - controller.moves
    worth = (saved > 0) & (costs < 0.98 * costs[0])
    assert (to is None) == (not worth.any())
    assert to is None or (worth[to] and saved[to] == saved[worth].max())


def test_adaptive_draws_depend_on_the_seed() -> None:
    costs = []
    for seed in (7, 8, 7):
        controller = experiment(**CODED, seed=seed, adaptive=True).adaptive_controller()
        for rank in range(1, 7):
            controller.took(0, rank, 0.01 * rank, 40)
        controller.committed(0, 0.06, left=0)
        costs.append(controller._costs())
    assert np.array_equal(costs[0], costs[2])
    assert not np.array_equal(costs[0], costs[1])


def healthy(seed: int) -> int:
    e = experiment(scheme="UMW", delays=FAST, rounds=60, seed=seed, adaptive=True)
    return len(timeline(e, Coefficients(e.plan), events=False).changes)


def test_adaptive_makes_no_change_in_a_stationary_run() -> None:
    assert sum(healthy(seed) for seed in range(4)) == 0


@pytest.mark.slow
def test_adaptive_false_changes_are_rare() -> None:
    assert sum(healthy(seed) > 0 for seed in range(100)) <= 5


def test_adaptive_learns_times_that_do_not_follow_the_load() -> None:
    """The controller first assumes that half the samples take half the time.

    The controller then observes other times, and changes back.
    """
    delay_model = {"kind": "exponential", "mean": 0.01}
    e = experiment(**CODED, delays=delay_model, rounds=300, adaptive=True)
    simulated = timeline(e, Coefficients(e.plan), events=False)
    best = min(
        wb.forecast(
            experiment(scheme=way.name, scheme_args=way.parameters, delays=delay_model, rounds=300)
        ).seconds.sum()
        for way in e.adaptive_controller().configurations
    )
    assert simulated.times[-1] < 1.5 * best


def regret(e: wb.Experiment) -> float:
    """Return how much longer a run takes than the fastest candidate, as a share of the latter's time."""
    fixed = [
        e.replace(scheme=way.name, scheme_args=way.parameters, adaptive=False)
        for way in e.adaptive_controller().configurations
    ]
    best = min(wb.forecast(each).seconds.sum() for each in fixed)
    return float(timeline(e, Coefficients(e.plan), events=False).times[-1] / best - 1)


def test_adaptive_run_is_nearly_as_fast_as_the_best_fixed_one_if_nothing_changes() -> None:
    """The first round is lost, and few others, also with heavy tails and with slow workers."""
    models = [FAST, {"kind": "pareto"}, {"kind": "heterogeneous"}, {"kind": "exponential", "mean": 0.01}]
    lost = [
        regret(experiment(**CODED, delays=each, rounds=300, seed=seed, adaptive=True))
        for each in models
        for seed in (100, 101)  # the rule was chosen on seeds 0 to 3
    ]
    assert np.mean(lost) < 0.04
    assert max(lost) < 0.12


def test_adaptive_run_includes_the_delays_of_models() -> None:
    """Models arrive late at random workers, which computing times do not show."""
    link = {"downloads": True, "download_delays": {"kind": "pareto", "shift": 2e-3, "shape": 1.2}}
    e = experiment(scheme="UMW", delays={"kind": "constant", "shift": 1e-5}, link=link, adaptive=True)
    assert np.mean([regret(e.replace(seed=seed)) for seed in range(3)]) < 0.15


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"scheme": "ASGD"}, "rounds overlap"),
        ({"scheme": "RAR"}, "has no master"),
        ({"scheme": "CADA"}, "values of earlier rounds"),
        ({"scheme": "UMW", "faults": [{"worker": 1, "round": 2}]}, "faults"),
        ({"scheme": "UMW", "problem": "unit", "problem_args": {}}, "unit"),
    ],
)
def test_adaptive_refuses_incompatible_settings(fields: dict[str, Any], why: str) -> None:
    with pytest.raises(wb.SettingError, match=why):
        experiment(adaptive=True, **fields)
