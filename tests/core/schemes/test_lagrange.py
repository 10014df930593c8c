"""Lagrange coded computing: the gradient of a linear regression from encoded data."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import workbench as wb
from tests.support.strategies import experiments
from workbench.core.engine.virtual.arithmetic import Numbers
from workbench.core.problems.linear import LeastSquares
from workbench.core.running.simulated import timeline
from workbench.core.schemes.lagrange import LCC


def run(e: wb.Experiment) -> tuple[Numbers, Any]:
    numbers = Numbers(e.plan, e.build_problem(), e.build_optimiser())
    return numbers, timeline(e, numbers, events=False)


def regression(workers: int, load: int, **fields: Any) -> wb.Experiment:
    spec: dict[str, Any] = {"problem_args": {"samples": 403, "features": 12, "l2": 0.01}, "rounds": 25}
    return wb.Experiment(
        scheme="LCC",
        scheme_args={"load": load},
        workers=workers,
        problem="least_squares",
        **{**spec, **fields},
    )


@pytest.mark.parametrize(
    ("workers", "load"), [(40, 10), (40, 4), (20, 3), (12, 12), (12, 5), (7, 2), (7, 3), (1, 1)]
)
@pytest.mark.parametrize("seed", [0, 1])
def test_lcc_gradient_is_exact(workers: int, load: int, seed: int) -> None:
    """With blocks of unequal sizes, and for any first answers, the relative error is at most 1e-8."""
    numbers, line = run(regression(workers, load, seed=seed))
    for gradient, model in zip(numbers.gradients, numbers.models[:-1], strict=True):
        exact = numbers.problem.gradient([(0, 403, 1.0)], model)
        assert np.linalg.norm(gradient - exact) <= 1e-8 * np.linalg.norm(exact)
    assert line.messages == [2 * -(-workers // load) - 1] * 25
    assert max(line.residuals) < 1e-16


def test_lcc_learns_what_uncoded_workers_learn() -> None:
    coded = wb.run(regression(12, 4, rounds=30))
    spec = coded.experiment.model_dump() | {"scheme": "UMW", "scheme_args": {}}
    uncoded = wb.run(wb.Experiment(**spec))
    np.testing.assert_allclose(coded.model, uncoded.model, rtol=1e-8)
    np.testing.assert_allclose(coded.rounds["loss"], uncoded.rounds["loss"], rtol=1e-8)


@given(experiments(["LCC"]))
def test_lcc_commits_all_ones_on_the_unit_problem(spec: dict[str, Any]) -> None:
    e = wb.Experiment(**spec)
    numbers, line = run(e)
    for gradient in numbers.gradients:
        np.testing.assert_allclose(gradient[e.plan.sizes > 0], 1.0, atol=1e-8)
    np.testing.assert_allclose(
        wb.forecast(e).seconds, np.diff(line.times, prepend=0.0), rtol=1e-9, atol=1e-12 * line.times[-1]
    )


def test_lcc_encodes_data_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    blend = LeastSquares.blend
    monkeypatch.setattr(
        LeastSquares, "blend", lambda self, slices: made.append(slices) or blend(self, slices)
    )
    constants: list[Any] = []
    constant = LeastSquares.constant
    monkeypatch.setattr(
        LeastSquares, "constant", lambda self, slices: constants.append(slices) or constant(self, slices)
    )
    run(regression(12, 4, rounds=60))
    assert len(made) == 12 * 4  # each worker has r blends of 12/r blocks
    assert all(len(slices) == 3 for slices in made)
    assert len(constants) == 1


@given(st.integers(1, 30), st.data())
def test_lcc_worker_computes_r_blocks(workers: int, data: st.DataObject) -> None:
    fits = [r for r in range(1, workers + 1) if 2 * -(-workers // r) - 1 <= workers]
    load, size = data.draw(st.sampled_from(fits)), data.draw(st.integers(1, 9))
    plan = LCC(load=load).plan(workers, workers * size)
    assert plan.loads[1:].tolist() == [load * size] * workers
    assert plan.portions.tolist() == [[size] * load] * workers
    uneven = LCC(load=load).plan(workers, workers * size + 1)
    assert uneven.loads[1:].tolist() == [load * size + 1] * workers  # a blend is as long as its longest block


def test_lcc_mean_time_equals_the_theory() -> None:
    delays = {"kind": "shifted_exponential", "shift": 0.01, "rate": 10.0}
    spec: dict[str, Any] = {"problem": "unit", "problem_args": {"samples": 40}, "delays": delays}
    for load in (4, 9, 10):
        e = wb.Experiment(scheme="LCC", scheme_args={"load": load}, workers=40, **spec)
        f = wb.forecast(e, rounds=4000)
        assert abs(f.mean - wb.theory.lcc_completion(40, load, shift=0.01, rate=10)) < 4 * f.error
        assert f.messages == wb.theory.lcc_threshold(40, load)
        assert f.load == e.load == load / 40


def test_lcc_delays_of_stored_blocks_are_independent() -> None:
    e = regression(12, 4, delays={"kind": "shifted_exponential", "per": "part", "rate": 1.0})
    _, line = run(e)
    np.testing.assert_allclose(wb.forecast(e).seconds, np.diff(line.times, prepend=0.0), rtol=1e-9)


def test_lcc_too_many_deaths_raise_quorum_lost() -> None:
    def dead(count: int) -> list[dict[str, int]]:
        return [{"worker": w, "round": 1} for w in range(1, count + 1)]

    _, line = run(regression(12, 4, rounds=3, faults=dead(7)))  # 5 of 12 workers are needed
    assert len(line.times) == 3
    with pytest.raises(wb.QuorumLost):
        run(regression(12, 4, rounds=3, faults=dead(8)))


@pytest.mark.parametrize(
    ("fields", "found_fields"),
    [
        ({"problem": "logistic"}, ["problem = 'logistic'", "linear regression", "least_squares"]),
        ({"problem": "softmax"}, ["problem = 'softmax'", "linear regression"]),
        ({"scheme_args": {"load": 1}}, ["scheme_args.load = 1", "23 results", "take 2"]),
        ({"scheme_args": {"load": 13}}, ["scheme_args.load = 13", "12"]),
        ({"scheme_args": {"load": 0}}, ["scheme_args.load = 0"]),
    ],
)
def test_lcc_refuses_wrong_settings(fields: dict[str, Any], found_fields: list[str]) -> None:
    with pytest.raises(wb.SettingError) as error:
        wb.Experiment(**{"scheme": "LCC", "workers": 12, "problem": "least_squares", **fields})
    assert all(word in str(error.value) for word in found_fields), str(error.value)
    assert "\n" not in str(error.value)
