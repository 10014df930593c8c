"""Commits of gradients at several models: coefficients give the models of real vectors, and few models are kept."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import workbench as wb
from workbench.core.contract.weights import VersionedWeights
from workbench.core.engine.virtual.arithmetic import Coefficients, Numbers
from workbench.core.running.simulated import timeline
from workbench.core.trace.learning import Commits, _Trajectory, last_uses


def experiment(workers: int, rounds: int, seed: int, kind: str = "shifted_exponential") -> wb.Experiment:
    return wb.Experiment(
        scheme="ASGD",
        workers=workers,
        rounds=rounds,
        seed=seed,
        problem="least_squares",
        problem_args={"samples": 60, "features": 4},
        optimiser_args={"step": 1e-3},
        delays={"kind": kind},
    )


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(1, 7), st.integers(1, 25), st.integers(0, 99), st.sampled_from(["exponential", "markov"]))
def test_learn_versioned_weights_equals_vectors(workers: int, rounds: int, seed: int, kind: str) -> None:
    e = experiment(workers, rounds, seed, kind)
    weights, numbers = wb.run(e), wb.run(e, numeric=True)
    np.testing.assert_allclose(weights.model, numbers.model, rtol=1e-10, atol=1e-14)
    np.testing.assert_array_equal(weights.columns["time"], numbers.columns["time"])
    np.testing.assert_allclose(weights.columns["residual"].shape, (rounds,))


def test_versioned_commits_are_sums_at_their_models() -> None:
    e = experiment(workers=5, rounds=30, seed=3)
    commits = Coefficients(e.plan)
    numbers = Numbers(e.plan, e.build_problem(), e.build_optimiser(), e.seed)
    timeline(e, commits, events=False)
    timeline(e, numbers, events=False)
    old, bounds = 0, e.plan.bounds
    for round, (weights, gradient) in enumerate(zip(commits.weights, numbers.gradients, strict=True)):
        if not isinstance(weights, VersionedWeights):
            continue
        assert (weights.versions <= round).all()
        old += int((weights.versions < round).sum())
        wanted = weights.gradient(
            lambda weighted, version: numbers.problem.gradient(
                [(int(bounds[p]), int(bounds[p + 1]), float(w)) for p, w in weighted], numbers.models[version]
            )
        )
        np.testing.assert_allclose(gradient, wanted, rtol=1e-12)
    assert old > 20  # otherwise the test would show nothing


@pytest.mark.parametrize("workers", [2, 6])
def test_learn_keeps_models_only_while_needed(workers: int) -> None:
    e = experiment(workers, rounds=60, seed=1)
    commits = Coefficients(e.plan)
    timeline(e, commits, events=False)
    assert max(last_uses(commits.weights)) > 50
    problem = e.build_problem()
    trajectory = _Trajectory(problem, Commits(e.build_optimiser(), commits.weights, e.plan.sizes))
    kept = []
    for t in range(e.rounds + 1):
        trajectory.take(t, problem.evaluate([trajectory.request(t)])[0])
        kept.append(len(trajectory.models))
    assert max(kept) <= e.plan.versions
    assert kept[-1] == 0


def test_learn_computes_equal_commits_once() -> None:
    e = experiment(workers=4, rounds=20, seed=2)
    one, other = Coefficients(e.plan), Coefficients(e.plan)
    timeline(e, one, events=False)
    timeline(e, other, events=False)
    keys = [Commits(e.build_optimiser(), c.weights, e.plan.sizes).key() for c in (one, other)]
    assert keys[0] == keys[1]
    slower = e.model_copy(update={"seed": 5})
    third = Coefficients(e.plan)
    timeline(slower, third, events=False)
    assert Commits(e.build_optimiser(), third.weights, e.plan.sizes).key() != keys[0]
