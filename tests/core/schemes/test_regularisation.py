"""Regularisation under every scheme: its share of a step is in proportion to the committed gradients."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given

import workbench as wb
from tests.support.strategies import CASES, experiments
from workbench.core.base.types import Array
from workbench.core.contract.problem import Problem, Request
from workbench.core.contract.weights import VersionedWeights
from workbench.core.engine.virtual.arithmetic import Coefficients, Numbers
from workbench.core.running.simulated import timeline
from workbench.core.trace.learning import Commits, follow

L2, STEP, FEATURES = 0.3, 0.05, 3
N, S = 5, 3


def on_data(spec: dict[str, Any], **more: Any) -> wb.Experiment:
    data = {"samples": max(2, spec["problem_args"]["samples"]), "features": FEATURES, "l2": L2}
    gd = {"optimiser": "gd", "optimiser_args": {"step": STEP}}
    return wb.Experiment(**{**spec, "problem": "least_squares", "problem_args": data, **gd, **more})


def with_vectors(e: wb.Experiment) -> Numbers:
    numbers = Numbers(e.plan, e.build_problem(), e.build_optimiser(), e.seed)
    timeline(e, numbers, events=False)
    return numbers


def with_weights(e: wb.Experiment) -> Coefficients:
    weights = Coefficients(e.plan)
    timeline(e, weights, events=False)
    return weights


def loop_sum(problem: Problem, e: wb.Experiment, weights: Any, models: list[Array], round: int) -> Array:
    """Return the committed sum of weight * gradient, part by part, each at its model."""
    bounds = e.plan.bounds
    if not isinstance(weights, VersionedWeights):
        one = np.ones(e.plan.parts) if weights is None else weights
        terms = [(round, j, w) for j, w in enumerate(one)]
    else:
        terms = list(zip(weights.versions.tolist(), weights.parts.tolist(), weights.weights, strict=True))
    slices = [([(int(bounds[j]), int(bounds[j + 1]), float(w))], models[v]) for v, j, w in terms]
    return sum((problem.gradient(*each) for each in slices), start=np.zeros(problem.size))


def mean_weight(e: wb.Experiment, weights: Any) -> float:
    """Return the mean weight of the parts in a commit, or 1 if sums are scaled to be unbiased."""
    if weights is None or e.scheme_args.get("decoding") in {"sum", "one_step"}:
        return 1.0
    total = weights.total(e.plan.parts) if isinstance(weights, VersionedWeights) else weights
    by_samples = e.scheme in {
        "DSAG",
        "DropCompute",
    }  # these schemes scale by samples, and the others by parts
    return float(total @ e.plan.sizes) / e.plan.samples if by_samples else float(np.mean(total))


@given(experiments(sorted(CASES)))
def test_each_step_has_the_l2_term_once_in_proportion_to_the_data(spec: dict[str, Any]) -> None:
    e = on_data(spec)
    numbers, numeric = with_vectors(e), e.built_scheme.numeric
    committed = [None] * e.rounds if numeric else with_weights(e).weights
    problem, d = numbers.problem, numbers.problem.samples
    for r, weights in enumerate(committed):
        model = numbers.models[r]
        sums = numbers.gradients[r] if numeric else loop_sum(problem, e, weights, numbers.models, r)
        wanted = STEP * (sums / d + mean_weight(e, weights) * L2 * model)
        moved, size = model - numbers.models[r + 1], max(1.0, float(np.abs(model).max()))
        np.testing.assert_allclose(moved, wanted, atol=1e-7 * size, rtol=1e-6)


@given(experiments([name for name in CASES if not wb.schemes.get(name).numeric]))
def test_weights_and_vectors_give_the_same_models(spec: dict[str, Any]) -> None:
    e = on_data(spec)
    numbers, weights = with_vectors(e), with_weights(e)
    commits = Commits(e.build_optimiser(), weights.weights, e.plan.sizes, 1, weights.shares)
    # without the last update
    models = [learnt.model for (learnt,) in follow(e.build_problem(), [commits])][:-1]
    scale = max(1.0, *(float(np.abs(model).max()) for model in numbers.models))
    np.testing.assert_allclose(models, numbers.models[1:], atol=1e-6 * scale, rtol=1e-6)


@pytest.mark.parametrize("engine", ["weights", "vectors"])
def test_sgd_with_a_longer_step_is_backup(engine: str) -> None:
    """SGD and Backup end at the same loss. With unscaled regularisation, SGD would end at a loss 3 % higher."""
    args = {"samples": 120, "features": 6, "l2": 1e-2}
    common = {"problem": "logistic", "problem_args": args, "workers": 12, "rounds": 300, "optimiser": "gd"}
    ends = []
    for scheme, step in (("SGD", 2.0), ("Backup", 0.5)):
        e = wb.Experiment(
            scheme=scheme, scheme_args={"stragglers": 9}, optimiser_args={"step": step}, **common
        )
        if engine == "weights":
            ends.append(float(wb.run(e).rounds["loss"].iloc[-1]))
        else:
            (at,) = e.build_problem().evaluate([Request(with_vectors(e).models[-1], gradient=False)])
            ends.append(at.loss)
    assert ends[0] == pytest.approx(ends[1], rel=1e-9)


@pytest.mark.parametrize("scheme", ["SGD", "Backup", "FRC", "CRC", "IS-GC"])
def test_at_the_minimiser_the_steps_of_all_survivor_sets_add_up_to_zero(scheme: str) -> None:
    """The sum over all equally likely sets of answers is a multiple of the objective's gradient, which is 0."""
    workers, data = 6, {"samples": 60, "features": FEATURES, "l2": L2}
    args = {"stragglers": S} if scheme in {"SGD", "Backup"} else {"replication": 2, "wait_for": workers - S}
    args |= {"placement": "fractional"} if scheme == "IS-GC" else {}
    moved = []
    for late in combinations(range(1, workers + 1), S):
        e = wb.Experiment(
            scheme=scheme,
            scheme_args=args,
            workers=workers,
            rounds=1,
            problem="least_squares",
            problem_args=data,
            optimiser="gd",
            optimiser_args={"step": STEP},
            faults=[{"kind": "slow", "worker": w, "round": 0, "factor": 1e6} for w in late],
        )
        problem = e.build_problem()
        X, y = problem.X, problem.y  # type: ignore[attr-defined]
        best = np.linalg.solve(X.T @ X / len(y) + L2 * np.eye(FEATURES), X.T @ y / len(y))
        problem.start = lambda best=best: best  # type: ignore[method-assign, misc]
        numbers = Numbers(e.plan, problem, e.build_optimiser())
        timeline(e, numbers, events=False)
        moved.append(numbers.models[1] - best)
    assert np.abs(moved).max() > 1e-4
    np.testing.assert_allclose(np.mean(moved, axis=0), 0.0, atol=1e-9)
