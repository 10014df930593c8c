"""Learning from decoding vectors, compared with a plain loop."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.core.contract.optimisers import AMSGrad, GradientDescent, InverseTime, Nesterov, Optimiser
from workbench.core.problems.base import Request
from workbench.core.problems.linear import LeastSquares
from workbench.core.trace.learning import Commits, learn

RNG = np.random.default_rng(3)
X, TRUTH = RNG.standard_normal((40, 5)), RNG.standard_normal(5)
Y = X @ TRUTH + 0.1 * RNG.standard_normal(40)
SIZES = np.array([10, 12, 18])


def gradient(model: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray:
    b = np.ones(40) if weights is None else np.repeat(weights, SIZES)
    return np.asarray(X.T @ (b * (X @ model - Y)))


@given(st.lists(st.one_of(st.none(), st.tuples(*[st.floats(-2, 2)] * 3)), min_size=1, max_size=8))
def test_learn_equals_a_plain_loop(weights: list[Any]) -> None:
    f = LeastSquares(X, Y, l2=0.1, truth=TRUTH)
    vectors = [None if w is None else np.array(w) for w in weights]
    run = learn(f, [Commits(GradientDescent(step=0.1), vectors, SIZES)])[0]
    model = np.zeros(5)
    for t, b in enumerate(vectors):
        model = model - 0.1 * (gradient(model, b) / 40 + 0.1 * model)
        residual = X @ model - Y
        assert run.loss[t] == pytest.approx(residual @ residual / 80 + 0.05 * model @ model)
        assert run.metrics["model_error"][t] == pytest.approx(
            (model - TRUTH) @ (model - TRUTH) / (TRUTH @ TRUTH)
        )
    np.testing.assert_allclose(run.model, model)


def test_learn_computes_equal_trajectories_once() -> None:
    class Counting(LeastSquares):
        seen = 0

        def evaluate(self, requests: Any) -> Any:
            Counting.seen += len(requests)
            return super().evaluate(requests)

    same = Commits(GradientDescent(step=0.1), [None] * 6, SIZES)
    cut_otherwise = Commits(GradientDescent(step=0.1), [None] * 6, np.array([20, 20]))
    differs = Commits(GradientDescent(step=0.1), [None] * 5 + [np.array([1.0, 1.0, 0.0])], SIZES)
    found = learn(Counting(X, Y), [same, cut_otherwise, same, differs])
    assert Counting.seen == 7 + 2  # until the last round all are equal
    np.testing.assert_array_equal(found[0].model, found[1].model)
    assert not np.array_equal(found[0].model, found[3].model)


@pytest.mark.parametrize(
    "optimiser", [GradientDescent(), Nesterov(), InverseTime(), AMSGrad(rate=0.05), Nesterov(momentum=0.5)]
)
def test_learn_decreases_the_loss_with_every_optimiser(optimiser: Optimiser) -> None:
    loss = learn(LeastSquares(X, Y), [Commits(optimiser, [None] * 200, SIZES)])[0].loss
    best = float(np.linalg.lstsq(X, Y, rcond=None)[1][0]) / 80
    assert loss[-1] < 0.05 * loss[0]
    assert loss[-1] >= best * (1 - 1e-12)


def test_optimiser_steps_are_the_papers() -> None:
    """Steps are c1/(t+c2), or fall by the factor 0.7 at milestones. AMSGrad keeps a running maximum."""
    f = LeastSquares(X, Y)
    g = gradient(np.zeros(5))
    inverse = InverseTime(c1=3.0, c2=7.0)
    moved, _ = inverse.update(inverse.start(f), np.zeros(5), g, f, 5)
    np.testing.assert_allclose(moved, -3.0 / 12 * g / 40)
    decayed = GradientDescent(step=0.02, decay=0.7, milestones=(1300, 2100))
    for t, factor in [(1299, 1.0), (1300, 0.7), (2100, 0.49)]:
        moved, _ = decayed.update(decayed.start(f), np.zeros(5), g, f, t)
        np.testing.assert_allclose(moved, -0.02 * factor * g / 40)
    ams = AMSGrad(rate=0.1, beta1=0.9, beta2=0.99, eps=1e-8)
    state = ams.start(f)
    big, small = np.array([1.0, 0, 0, 0, 2.0]) * 40, np.array([0.0, 1e-3, 0, 0, 0.1]) * 40
    _, state = ams.update(state, np.zeros(5), big, f, 0)
    v1 = 0.01 * (big / 40) ** 2
    _, state = ams.update(state, np.zeros(5), small, f, 1)
    np.testing.assert_allclose(state["vhat"], np.maximum(v1, 0.99 * v1 + 0.01 * (small / 40) ** 2))


def test_learn_keeps_the_start() -> None:
    f = LeastSquares(X, Y)
    run = learn(f, [Commits(GradientDescent(step=0.1), [None] * 2, SIZES)])[0]
    assert run.initial["loss"] == f.evaluate([Request(np.zeros(5))])[0].loss
    assert len(run.loss) == len(run.metrics["relative_error"]) == 2
    assert np.isnan(run.metrics["relative_error"][0])
