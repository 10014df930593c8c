"""CADA, G-CADA and LAGC against the paper's formulas: frequencies, times, and learned models."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import workbench as wb
from tests.support.schemes.adaptive import DIGITS, ETA, run, uploads
from workbench.core import theory
from workbench.core.engine.virtual.arithmetic import Numbers
from workbench.core.running.simulated import timeline

# ---------------------------------------------------------------- how often and how long


def test_cada_upload_frequency_is_between_the_bounds() -> None:
    """By (12), a worker with L_m^2 <= c/d is not selected for at least d rounds, and for at most D rounds."""
    c, max_age, scheme = 300.0, 8, {"c": 300.0, "max_age": 8}
    trace = run("CADA", scheme, rounds=200, optimiser_args={"rate": 0.05})
    e, when = trace.experiment, {rank: [0] for rank in range(1, 13)}
    for r, who in enumerate(uploads(trace)):
        when.update({rank: [*when[rank], r] for rank in who if r})
    numbers = Numbers(e.plan, e.build_problem(), e.build_optimiser())
    L = [numbers.smoothness(e.plan.work[rank]) for rank in range(1, 13)]
    for rank, rounds in when.items():
        gaps = [b - a for a, b in pairwise(rounds)]
        least = min(int(c / L[rank - 1] ** 2) + 1, max_age)
        assert least <= min(gaps) <= max(gaps) <= max_age
    mean = trace.rounds["messages"].iloc[1:].mean()
    assert 12 / max_age <= mean <= theory.cada_selected(L, c, max_age) + 12 / 199
    assert len({len(rounds) for rounds in when.values()}) > 1  # the smoothest ones are selected less often


@pytest.mark.parametrize(
    ("scheme", "args", "expected"),
    [
        ("D-Adam", {}, theory.dadam_time(12, ETA)),
        ("CADA", {"worker_batch": 3}, theory.cada_time(12, ETA)),
        ("G-CADA", {"groups": 3, "worker_batch": 3}, theory.gcada_time(3, 4, ETA)),
        ("G-CADA", {"groups": 4}, theory.gcada_time(4, 3, ETA)),
        ("LAGC", {"groups": 4, "stragglers": 2}, theory.gcada_time(4, 3, ETA)),  # grouped-LAG
    ],
)
def test_cada_times_are_the_papers(scheme: str, args: dict[str, Any], expected: float) -> None:
    """Equations (11), (13), (16) with all workers selected, within four standard errors.

    The event engine has the same rounds.
    """
    e = wb.Experiment(scheme=scheme, scheme_args=args, **DIGITS)
    f = wb.forecast(e, rounds=20_000)
    assert abs(f.mean - expected) < 4 * f.error
    assert f.error < 0.01 * expected


def test_cada_times_of_selected_workers_are_the_papers() -> None:
    """A round with k selected groups takes eta / M_G * H_k on average. M_G: workers per group, H_k: harmonic number."""
    seconds, expected = [], []
    for seed in range(6):
        trace = run("G-CADA", {"groups": 6, "c": 30.0, "worker_batch": 20}, rounds=150, seed=seed)
        seconds += np.diff(trace.rounds["time"], prepend=0.0).tolist()
        expected += [theory.gcada_time(k, 2, ETA) for k in trace.rounds["messages"] if k]
        assert trace.rounds["messages"].nunique() > 2
    off = np.array([s for s in seconds if s]) - expected
    assert abs(off.mean()) < 4 * off.std() / np.sqrt(len(off))


# ---------------------------------------------------------------- learning


def test_dadam_is_amsgrad_as_published() -> None:
    """The loop of the workbench gives the model of equations (8a) to (8c), written out here."""
    trace = run("D-Adam", optimiser_args={"rate": 0.02, "eps": 1e-6})
    problem = trace.experiment.build_problem()
    theta = h = v_hat = np.zeros(64)
    for _ in range(60):
        g = problem.X.T @ (problem.X @ theta - problem.y) / problem.samples
        h = 0.9 * h + (1 - 0.9) * g
        v = 0.999 * v_hat + (1 - 0.999) * g**2
        v_hat = np.maximum(v_hat, v)
        theta = theta - 0.02 * np.diag((1e-6 + v_hat) ** -0.5) @ h
    np.testing.assert_allclose(trace.model, theta, rtol=1e-9)


def test_cada_without_laziness_equals_dadam() -> None:
    adam = run("D-Adam", {"worker_batch": 40})
    for scheme, args in [("CADA", {"max_age": 1}), ("CADA", {"c": 0}), ("G-CADA", {"groups": 12, "c": 0})]:
        eager = run(scheme, {"worker_batch": 40, **args})
        np.testing.assert_array_equal(eager.model, adam.model)
        assert eager.rounds["time"].equals(adam.rounds["time"])
    assert not np.array_equal(run("CADA", {"worker_batch": 40, "c": 30.0}).model, adam.model)


def test_cada_estimate_is_fresh_plus_stale_gradients() -> None:
    """Equation (3), from the recorded models and uploads."""
    e = wb.Experiment(scheme="CADA", scheme_args={"c": 30.0}, **DIGITS)
    problem = e.build_problem()
    numbers = Numbers(e.plan, problem, e.build_optimiser())
    simulated = timeline(e, numbers, events=True)
    last: dict[int, int] = {}
    for k, gradient in enumerate(numbers.gradients):
        last |= {row[1]: k for row in simulated.events if row[0] == k and row[2] == "send" and row[6] == 0}
        parts = [(e.plan.bounds[m - 1], e.plan.bounds[m], numbers.models[tau]) for m, tau in last.items()]
        expected = sum(problem.X[a:b].T @ (problem.X[a:b] @ th - problem.y[a:b]) for a, b, th in parts)
        np.testing.assert_allclose(gradient, expected, rtol=1e-9, atol=1e-7)
    assert min(last.values()) < max(last.values())


def test_gcada_group_members_draw_their_own_batches() -> None:
    """Each worker draws its own mini-batch (xi_m in the paper), and the group uses that of its fastest member.

    Equal seeds give equal bits.
    """
    args = {"groups": 3, "max_age": 1, "worker_batch": 5}
    first, again = run("G-CADA", args), run("G-CADA", args)
    assert first.same(again)
    others = run("G-CADA", args, delays={"kind": "two_part"})
    assert not np.array_equal(first.model, others.model)
    whole = {"groups": 3, "max_age": 1}
    np.testing.assert_array_equal(
        run("G-CADA", whole).model, run("G-CADA", whole, delays={"kind": "two_part"}).model
    )


def test_lagc_decodes_the_same_gradients_as_gcada() -> None:
    """The code is exact. With the same rule, the models are therefore those of uncoded groups."""
    args = {"c": 20.0, "groups": 3, "max_age": 6}
    plain = run("G-CADA", args)
    for late in range(4):
        coded = run("LAGC", {**args, "stragglers": late})
        np.testing.assert_allclose(coded.model, plain.model, rtol=1e-7)
        assert (coded.rounds["messages"] == (4 - late) * plain.rounds["messages"]).all()
        assert coded.experiment.load == pytest.approx((late + 1) / 12, abs=1e-3)
    assert plain.rounds["messages"].sum() < 180
