"""Losses and gradients: finite differences, blocks against one piece, smoothness against eigenvalues."""

from __future__ import annotations

import numpy as np
import pytest
import threadpoolctl
from hypothesis import given
from hypothesis import strategies as st

import workbench as wb
from workbench.core.problems.base import Problem, Request
from workbench.core.problems.linear import LeastSquares, LinearProblem, Logistic, Softmax
from workbench.core.problems.unit import Unit


def problem(kind: str, seed: int, d: int = 37, p: int = 4, l2: float = 0.0) -> LinearProblem:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((d, p))
    if kind == "least_squares":
        return LeastSquares(X, rng.standard_normal(d), l2)
    if kind == "logistic":
        return Logistic(X, rng.integers(0, 2, d).astype(float), l2)
    return Softmax(X, rng.integers(0, 3, d).astype(float), 3, l2)


KINDS = st.sampled_from(["least_squares", "logistic", "softmax"])


@given(KINDS, st.integers(0, 999), st.floats(0, 2))
def test_linear_gradient_is_the_derivative(kind: str, seed: int, l2: float) -> None:
    f = problem(kind, seed, l2=l2)
    rng = np.random.default_rng(seed + 1)
    model, way = rng.standard_normal(f.size), rng.standard_normal(f.size)

    def loss(t: float) -> float:
        return f.evaluate([Request(model + t * way)])[0].loss

    gradient = f.evaluate([Request(model)])[0].gradient
    assert gradient is not None
    slope = (gradient / f.samples + l2 * model) @ way
    assert (loss(1e-5) - loss(-1e-5)) / 2e-5 == pytest.approx(slope, rel=1e-5, abs=1e-7)


@given(KINDS, st.integers(0, 999), st.lists(st.integers(0, 35), min_size=1, max_size=9))
def test_linear_slices_sum_in_any_order(kind: str, seed: int, starts: list[int]) -> None:
    """Repeated, overlapping and unsorted slices give the sum over single slices."""
    f = problem(kind, seed)
    rng = np.random.default_rng(seed)
    model = rng.standard_normal(f.size)
    slices = [(a, a + 2, float(rng.standard_normal())) for a in starts]
    one_by_one = sum(w * f.evaluate([Request(model, within(a, b))])[0].gradient for a, b, w in slices)
    np.testing.assert_allclose(f.gradient(slices, model), one_by_one, atol=1e-11)


def within(first: int, last: int) -> np.ndarray:
    return np.where((np.arange(37) >= first) & (np.arange(37) < last), 1.0, 0.0)


@pytest.mark.parametrize(("starts", "shared"), [((4, 6, 8), True), ((0, 2, 36), False), ((6, 4), False)])
def test_linear_contiguous_rows_are_not_copied(starts: tuple[int, ...], shared: bool) -> None:
    f = problem("least_squares", 0)
    f.gradient([(a, a + 1 if a == 36 else a + 2, 1.0) for a in starts], np.zeros(f.size))
    assert f._excerpt is not None
    assert np.shares_memory(f._excerpt[1], f.X) is shared


@given(KINDS, st.integers(0, 999), st.lists(st.integers(0, 37), min_size=2, max_size=6), st.integers(1, 40))
def test_linear_weighted_pass_equals_the_sum_of_workers(
    kind: str, seed: int, cuts: list[int], block: int
) -> None:
    f = problem(kind, seed)
    f.block = block
    rng = np.random.default_rng(seed)
    model = rng.standard_normal(f.size)
    bounds = sorted({0, 37, *cuts})
    coefficients = rng.standard_normal(len(bounds) - 1)
    slices = [(a, b, float(c)) for a, b, c in zip(bounds[:-1], bounds[1:], coefficients, strict=True)]
    weights = np.repeat(coefficients, np.diff(bounds))
    found = f.evaluate([Request(model), Request(model, weights), Request(-model, gradient=False)])
    np.testing.assert_allclose(found[1].gradient, f.gradient(slices, model), atol=1e-11)
    np.testing.assert_allclose(found[0].gradient, f.gradient([(0, 37, 1.0)], model), atol=1e-11)
    assert found[2].gradient is None
    alone = f.evaluate([Request(model, weights)])[0]
    # bit for bit, whatever else is computed in the same pass
    np.testing.assert_array_equal(alone.gradient, found[1].gradient)


@given(st.sampled_from(["least_squares", "logistic"]), st.integers(0, 99), st.integers(1, 5))
def test_linear_large_data_give_the_same_gradient(kind: str, seed: int, count: int) -> None:
    small, large = problem(kind, seed, d=700), problem(kind, seed, d=700)
    rng = np.random.default_rng(seed)
    weights = [None, rng.standard_normal(700)]
    requests = [Request(rng.standard_normal(4), weights[i % 2], gradient=i != 3) for i in range(count)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("workbench.core.problems.linear.MIN_TILED_BYTES", 0)
        found = large.evaluate(requests)
        alone = [large.evaluate([r])[0] for r in requests]
    for a, b, c in zip(found, alone, small.evaluate(requests), strict=True):
        assert a.loss == b.loss == pytest.approx(c.loss, rel=1e-12)
        assert a.metrics == b.metrics == c.metrics
        if c.gradient is None:
            assert a.gradient is None
            continue
        # bit for bit, whatever else is computed in the same pass
        np.testing.assert_array_equal(a.gradient, b.gradient)
        np.testing.assert_allclose(a.gradient, c.gradient, atol=1e-10)


def threads() -> list[int]:
    """Return the numbers of threads of the linear algebra libraries. scikit-learn has another pool."""
    return [pool["num_threads"] for pool in threadpoolctl.threadpool_info() if pool["user_api"] == "blas"]


def test_linear_small_products_use_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two threads would wait for each other: 14 times the CPU seconds on the digits, with two busy cores."""
    used = []
    mine, losses = problem("softmax", 0), Softmax.losses

    def look(self: Softmax, z: np.ndarray, y: np.ndarray) -> tuple[float, np.ndarray, float]:
        used.extend(threads())
        return losses(self, z, y)

    monkeypatch.setattr(Softmax, "losses", look)
    with threadpoolctl.threadpool_limits(2):
        mine.evaluate([Request(mine.start())])
        assert used
        assert set(used) == {1}
        assert 2 in threads()


@given(KINDS, st.integers(0, 99), st.sampled_from([4, 300]))
def test_linear_smoothness_bounds_the_curvature(kind: str, seed: int, p: int) -> None:
    f = problem(kind, seed, p=p, l2=0.1)
    top = float(np.linalg.eigvalsh(f.X.T @ f.X / f.samples)[-1])
    assert f.smoothness() == pytest.approx(f.curvature * top + 0.1, rel=2e-3)
    assert f.smoothness() == f.smoothness()


def test_softmax_large_scores_do_not_overflow() -> None:
    for f in (problem("logistic", 0), problem("softmax", 0)):
        with np.errstate(all="raise", under="ignore"):
            found = f.evaluate([Request(np.full(f.size, 1e4)), Request(np.full(f.size, -1e4))])
        assert all(np.isfinite(e.loss) for e in found)


def test_logistic_accuracy_counts_right_answers() -> None:
    X = np.array([[1.0], [2.0], [-1.0], [-3.0]])
    f = Logistic(X, np.array([1.0, 1.0, 0.0, 1.0]))
    assert f.evaluate([Request(np.ones(1))])[0].metrics == {"accuracy": 0.75}
    assert problem("least_squares", 0).evaluate([Request(np.zeros(4))])[0].metrics == {}


def test_unit_problem_gives_the_weights_back() -> None:
    f: Problem = Unit(np.array([2, 0, 3]))
    assert f.gradient([(2, 5, 7.0)], f.start()).tolist()[2] == 7.0
    weights = np.repeat([3.0, 9.0, 4.0], [2, 0, 3])
    gradient = f.evaluate([Request(f.start(), weights)])[0].gradient
    assert gradient is not None
    assert gradient[0] == 3.0
    assert gradient[2] == 4.0


def test_linear_smoothness_is_computed_once_for_all_optimisers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Schemes with other optimisers wait for it before their first round, which takes seconds on large data."""
    found: list[float] = []
    largest = LinearProblem._top_eigenvalue

    def counted(problem: LinearProblem, blocks: list[tuple[int, int]]) -> float:
        found.append(largest(problem, blocks))
        return found[-1]

    monkeypatch.setattr(LinearProblem, "_top_eigenvalue", counted)
    e = wb.Experiment(scheme="UMW", workers=4, rounds=2, problem_args={"samples": 73, "features": 11})
    wb.compare([e, e.replace(optimiser="inverse_time", optimiser_args={})])
    assert len(found) == 1
