"""Laws that every scheme keeps, whatever the delays, links and shapes."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given

import workbench as wb
from tests.cases import CASES, experiments
from workbench.engines.virtual.arithmetic import Coefficients, Numbers
from workbench.running.simulated import timeline

CHEAP = [name for name in CASES if not wb.schemes.get(name).numeric]
EXACT = [name for name in CHEAP if wb.schemes.get(name).exact]
APPROXIMATE = [name for name in CHEAP if not wb.schemes.get(name).exact]


def test_every_scheme_has_a_case() -> None:
    assert sorted(CASES) == wb.schemes.names()


@given(experiments(EXACT))
def test_exact_schemes_commit_all_ones(spec: dict[str, Any]) -> None:
    e = wb.Experiment(**spec)
    coefficients = Coefficients(e.plan)
    line = timeline(e, coefficients, events=False)
    assert len(line.times) == e.rounds
    assert coefficients.weights == [None] * e.rounds  # within 1e-8 of all ones
    assert max(line.residuals) <= 1e-14


@given(experiments(EXACT))
def test_exact_schemes_commit_all_ones_with_real_vectors(spec: dict[str, Any]) -> None:
    e = wb.Experiment(**spec)
    numbers = Numbers(e.plan, e.build_problem(), e.build_optimiser())
    timeline(e, numbers, events=False)
    held = e.plan.sizes > 0
    for gradient in numbers.gradients:
        np.testing.assert_allclose(gradient[held], 1.0, atol=1e-8)


@given(experiments(APPROXIMATE))
def test_approximate_schemes_commit_the_least_squares_decoding_vector(spec: dict[str, Any]) -> None:
    e = wb.Experiment(**spec)
    coefficients = Coefficients(e.plan)
    line = timeline(e, coefficients, events=True)
    for r, committed in enumerate(coefficients.weights):
        matrix = e.built_scheme.encoding(e.plan, r)
        came = sorted({row[1] for row in line.events if row[0] == r and row[2] == "send" and row[6] == 0})
        best = np.linalg.lstsq(matrix[came].T, np.ones(e.plan.parts), rcond=None)[0] @ matrix[came]
        np.testing.assert_allclose(np.ones(e.plan.parts) if committed is None else committed, best, atol=1e-8)
        assert line.residuals[r] == pytest.approx(float(((best - 1) ** 2).sum()), abs=1e-12)


@given(experiments(sorted(CASES)))
def test_plans_hold_every_part_and_count_their_loads(spec: dict[str, Any]) -> None:
    e = wb.Experiment(**spec)
    plan, samples = e.plan, e.problem_spec.count()
    assert plan.samples == samples
    np.testing.assert_array_equal(plan.loads[1:], e.built_scheme.loads(e.workers, samples))
    assert set(plan.indices[plan.sizes[plan.indices] > 0]) == set(np.flatnonzero(plan.sizes))
    assert plan.work[0].samples == 0


@given(experiments(CHEAP))
def test_forecast_gives_the_event_engines_very_rounds(spec: dict[str, Any]) -> None:
    e = wb.Experiment(**spec)
    line = timeline(e, Coefficients(e.plan), events=False)
    f = wb.forecast(e)
    np.testing.assert_allclose(
        f.seconds, np.diff(line.times, prepend=0.0), rtol=1e-9, atol=1e-12 * line.times[-1]
    )
    if not (
        spec["link"]["downloads"] and e.plan.depth.max() > 1
    ):  # a relay takes in answers until the next model
        assert f.messages == pytest.approx(np.mean(line.messages), rel=1e-12)
        assert f.bytes == pytest.approx(np.mean(line.bytes), rel=1e-12)


@given(experiments(sorted(CASES)))
def test_settings_go_through_json(spec: dict[str, Any]) -> None:
    e = wb.Experiment(**spec)
    assert wb.Experiment.model_validate(json.loads(e.model_dump_json())) == e
    assert wb.Experiment(**e.model_dump()) == e
