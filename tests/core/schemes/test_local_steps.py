"""Local SGD and DiLoCo against plain NumPy loops over workers and steps, on both engines."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import pytest

import workbench as wb
from workbench.core import forecasting
from workbench.core.base.types import Array
from workbench.core.contract.delays import CounterRNG
from workbench.core.engine.virtual.arithmetic import BATCHES_STREAM
from workbench.core.problems.linear import LeastSquares
from workbench.mpi.running.real import resume, start_real

L2, WORKERS, ROUNDS, STEPS = 0.05, 4, 12, 5
SPEC: dict[str, Any] = {
    "workers": WORKERS,
    "rounds": ROUNDS,
    "seed": 3,
    "problem": "least_squares",
    "problem_args": {"samples": 90, "features": 6, "l2": L2},  # shards of 23 and 22 samples
    "delays": {"kind": "shifted_exponential", "shift": 1e-5, "rate": 1e5},
}
Engine = Literal["sim", "mpi"]
ENGINES = ["sim", pytest.param("mpi", marks=[pytest.mark.mpi, pytest.mark.xdist_group("mpi")])]


def experiment(scheme: str, args: dict[str, Any], **fields: Any) -> wb.Experiment:
    return wb.Experiment(**{**SPEC, "scheme": scheme, "scheme_args": args, **fields})


def shards() -> tuple[list[Array], list[Array]]:
    problem = experiment("UMW", {}).build_problem()
    assert isinstance(problem, LeastSquares)
    return np.array_split(problem.X, WORKERS), np.array_split(problem.y, WORKERS)


def gradient(X: Array, y: Array, model: Array) -> Array:
    """Return the gradient of the mean squared error / 2 and the regularisation."""
    return np.asarray(X.T @ (X @ model - y) / len(y) + L2 * model)


def local_sgd(rate: float | list[float], outer: float, batch: int | None = None) -> Array:
    """Return the model of a plain loop.

    `rate`: size of a local step, for all workers or one for each. `outer`: share of the way from the old model to the
    average.
    """
    rates = np.broadcast_to(rate, WORKERS)
    Xs, ys = shards()
    model = np.zeros(6)
    for r in range(ROUNDS):
        ends = []
        for i, (X, y) in enumerate(zip(Xs, ys, strict=True)):
            own = model.copy()
            for draw in range(r * STEPS, (r + 1) * STEPS):
                rows: Any = slice(None)
                if batch is not None:
                    rows = np.sort(
                        CounterRNG(3, BATCHES_STREAM).rng(draw, i + 1).choice(len(y), batch, replace=False)
                    )
                own = own - rates[i] * gradient(X[rows], y[rows], own)
            ends.append(own)
        average = np.average(ends, axis=0, weights=[len(y) for y in ys])
        model = model + outer * (average - model)
    return model


def diloco(rate: float, decay: float, outer: float, momentum: float) -> Array:
    """Return the model of algorithm 1, with AdamW and Nesterov momentum as in PyTorch."""
    Xs, ys = shards()
    model, velocity = np.zeros(6), np.zeros(6)
    m, v, steps = np.zeros((WORKERS, 6)), np.zeros((WORKERS, 6)), 0
    for _ in range(ROUNDS):
        own = np.tile(model, (WORKERS, 1))
        for _ in range(STEPS):
            steps += 1
            for i in range(WORKERS):
                g = gradient(Xs[i], ys[i], own[i])
                own[i] -= rate * decay * own[i]
                m[i] = 0.9 * m[i] + 0.1 * g
                v[i] = 0.999 * v[i] + 0.001 * g**2
                own[i] -= rate * (m[i] / (1 - 0.9**steps)) / (np.sqrt(v[i] / (1 - 0.999**steps)) + 1e-8)
        difference = model - np.average(own, axis=0, weights=[len(y) for y in ys])
        velocity = momentum * velocity + difference
        model = model - outer * (difference + momentum * velocity)
    return model


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("outer", "batch"), [(1.0, None), (0.5, None), (1.0, 7)])
def test_local_sgd_equals_a_plain_loop(engine: Engine, outer: float, batch: int | None) -> None:
    args = {"local_steps": STEPS, "rate": 0.1, "worker_batch": batch}
    e = experiment("LocalSGD", args, optimiser_args={"step": 0.1 * outer})
    np.testing.assert_allclose(wb.run(e, engine=engine).model, local_sgd(0.1, outer, batch), rtol=1e-12)


@pytest.mark.parametrize("engine", ENGINES)
def test_diloco_equals_a_plain_loop(engine: Engine) -> None:
    """By default, the outer step is 0.7 and the momentum 0.9 (Douillard et al., section 3.1)."""
    args = {"local_steps": STEPS, "rate": 0.02, "weight_decay": 0.1}
    for outer, step in (({}, 0.7), ({"step": 0.5}, 0.5)):
        e = experiment("DiLoCo", args, optimiser="nesterov", optimiser_args=outer)
        np.testing.assert_allclose(wb.run(e, engine=engine).model, diloco(0.02, 0.1, step, 0.9), rtol=1e-12)


def test_local_sgd_with_one_step_is_gradient_descent() -> None:
    """This holds for any inner step and any outer optimiser."""
    for optimiser in ("gd", "amsgrad"):
        one = wb.run(experiment("LocalSGD", {"local_steps": 1, "rate": 0.3}, optimiser=optimiser))
        np.testing.assert_allclose(
            one.model, wb.run(experiment("UMW", {}, optimiser=optimiser)).model, rtol=1e-10
        )


def test_local_sgd_averages_models_by_default() -> None:
    curvatures = [float(np.linalg.eigvalsh(X.T @ X / len(X))[-1]) + L2 for X in shards()[0]]
    found = wb.run(experiment("LocalSGD", {"local_steps": STEPS})).model
    np.testing.assert_allclose(found, local_sgd([1 / each for each in curvatures], 1.0), rtol=1e-9)


def test_local_sgd_averages_the_workers_that_answered() -> None:
    """One worker is a hundred times slower. The models of the others are averaged, weighted by their samples."""
    slow = {"kind": "heterogeneous", "shift": 1e-4, "factor": 100.0, "slow": 0.25, "slow_straggles": 1.0}
    args = {"local_steps": 1, "stragglers": 1, "rate": 0.1}
    e = experiment("LocalSGD", args, optimiser_args={"step": 0.1}, delays=slow, rounds=1)
    trace = wb.run(e)
    came = sorted(trace.events.query("kind == 'send' and to == 0")["rank"])
    assert len(came) == WORKERS - 1
    Xs, ys = shards()
    ends = [-0.1 * gradient(Xs[i - 1], ys[i - 1], np.zeros(6)) for i in came]
    wanted = np.average(ends, axis=0, weights=[len(ys[i - 1]) for i in came])
    np.testing.assert_allclose(trace.model, wanted, rtol=1e-12)


def test_local_sgd_round_takes_the_time_of_its_steps() -> None:
    e = experiment("LocalSGD", {"local_steps": 100}, rounds=20)
    steps = wb.forecast(experiment("UMW", {}, rounds=400))
    per_round = wb.forecast(e).mean
    assert per_round < 100 * steps.mean  # slow and fast steps of a worker average out
    mean = 23 * (1e-5 + 1e-5)
    assert 100 * mean < per_round < 1.3 * 100 * mean


def test_local_sgd_forecast_continues_over_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    e = experiment("LocalSGD", {"local_steps": 3, "stragglers": 1})
    whole = wb.forecast(e)
    monkeypatch.setattr(forecasting, "MAX_TIMES_PER_BATCH", 5 * WORKERS)
    np.testing.assert_array_equal(wb.forecast(e).seconds, whole.seconds)


@pytest.mark.mpi
@pytest.mark.xdist_group("mpi")
def test_local_sgd_stopped_run_is_resumed() -> None:
    e = experiment("LocalSGD", {"local_steps": 2, "rate": 0.01}, rounds=150)
    run = start_real(e)
    while len(run.rows()["round"]) < 5:
        assert not run.wait(0.01), run
    run.stop()
    assert len(run.result().rounds) < 150
    np.testing.assert_allclose(resume(run.home).result().model, wb.run(e).model, rtol=1e-12)


@pytest.mark.mpi
@pytest.mark.xdist_group("mpi")
def test_local_sgd_real_workers_may_be_late() -> None:
    slow = {"kind": "heterogeneous", "shift": 1e-4, "factor": 200.0, "slow": 0.25, "slow_straggles": 1.0}
    e = experiment("LocalSGD", {"local_steps": 3, "stragglers": 1}, delays=slow)
    real, sim = wb.run(e, engine="mpi"), wb.run(e)
    np.testing.assert_allclose(real.model, sim.model, rtol=1e-9)
    assert (real.rounds["messages"][:-1] == WORKERS - 1).all()


def test_local_sgd_load_counts_every_local_step() -> None:
    e = experiment("LocalSGD", {"local_steps": 3})
    once = e.replace(scheme_args={"local_steps": 1}).load
    assert e.load == wb.forecast(e).load == pytest.approx(3 * once)
