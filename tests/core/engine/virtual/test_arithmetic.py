"""Coefficients and real vectors give the same models, also for a stochastic problem with separate draws per commit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given

import workbench as wb
from tests.support.strategies import CASES, experiments
from workbench.core.base.types import Array

DRAWN = f"{Path(__file__).parents[3] / 'support' / 'stochastic_problem.py'}:DrawnArgs"
# schemes that can be simulated with coefficients
CARRIED = [name for name in CASES if not wb.schemes.get(name).numeric]
STEP = 1e-3
# scheme -> parameters, and the number of commits by which the model of a job is older than the newest one
EARLIER: dict[str, tuple[dict[str, Any], int]] = {
    "SR-SGC": ({"burst": 2, "window": 5, "stragglers": 2}, 2),
    "M-SGC": ({"burst": 1, "window": 3, "stragglers": 2}, 2),
}
BURSTS = {
    "kind": "markov",
    "factor": 10.0,
    "p_slow": 0.1,
    "shift": 2e-4,
}  # with seed 2, both schemes repeat jobs


def experiment(scheme: str, args: dict[str, Any], **fields: Any) -> wb.Experiment:
    data = {"samples": 60, "features": 3}
    known = {
        "workers": 6,
        "rounds": 9,
        "problem": DRAWN,
        "problem_args": data,
        "optimiser_args": {"step": STEP},
    }
    return wb.Experiment(scheme=scheme, scheme_args=args, **{**known, **fields})


def by_hand(e: wb.Experiment, lag: int) -> Array:
    """Return the model of gradient descent. Job j uses the model of `lag` commits before, and the draws of commit j."""
    problem = e.build_problem()
    models = [problem.start()]
    for job in range(e.rounds):
        gradient = problem.at(job).gradient([(0, problem.samples, 1.0)], models[max(0, job - lag)])
        models.append(models[-1] - STEP * gradient / problem.samples)
    return models[-1]


@given(experiments(CARRIED, rounds=7))
def test_coefficients_learn_what_vectors_learn_for_a_stochastic_problem(spec: dict[str, Any]) -> None:
    args = spec["scheme_args"]
    least = spec["workers"] * max(args.get("pieces", 1), args.get("micro_batches", 1))
    data = {"samples": max(2, min(60, spec["problem_args"]["samples"]), least), "features": 3}
    step = {"optimiser_args": {"step": STEP}}
    e = wb.Experiment(**{**spec, "problem": DRAWN, "problem_args": data, **step})
    weights, vectors = wb.run(e), wb.run(e, numeric=True)
    np.testing.assert_allclose(weights.model, vectors.model, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("scheme", EARLIER)
def test_stochastic_draws_depend_on_the_job(scheme: str) -> None:
    args, lag = EARLIER[scheme]
    e = experiment(scheme, args, workers=4, delays=BURSTS, seed=2)
    wanted = by_hand(e, lag)
    for numeric in (False, True):
        np.testing.assert_allclose(wb.run(e, numeric=numeric).model, wanted, rtol=1e-9, atol=1e-13)


@pytest.mark.mpi
@pytest.mark.xdist_group("mpi")
@pytest.mark.usefixtures("cache")
@pytest.mark.parametrize("scheme", EARLIER)
def test_stochastic_draws_on_real_ranks_depend_on_the_job(scheme: str) -> None:
    args, lag = EARLIER[scheme]
    e = experiment(scheme, args, workers=4, delays=BURSTS, seed=2)
    np.testing.assert_allclose(wb.run(e, engine="mpi").model, by_hand(e, lag), rtol=1e-9, atol=1e-13)


def test_stochastic_draws_differ_between_local_steps() -> None:
    e = experiment("LocalSGD", {"local_steps": 3, "rate": 0.01}, rounds=4, optimiser_args={"step": 0.01})
    problem, plan = e.build_problem(), e.plan
    model = problem.start()
    for r in range(e.rounds):
        ends = []
        for rank in range(1, 1 + e.workers):
            (part,), own = plan.work[rank].parts, model
            a, b = (int(x) for x in plan.bounds[part : part + 2])
            for draw in range(3 * r, 3 * r + 3):
                own = own - 0.01 * problem.at(draw).gradient([(a, b, 1.0)], own) / (b - a)
            ends.append(own)
        model = np.mean(ends, axis=0)
    np.testing.assert_allclose(wb.run(e).model, model, rtol=1e-9, atol=1e-13)
