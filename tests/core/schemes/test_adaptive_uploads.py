"""CADA1 and CADA2: their rules, compared with a plain loop after their authors' programs, on both engines."""

from __future__ import annotations

import json
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import workbench as wb
from tests.support.cada import program as cada_program
from workbench.core.base.types import Array
from workbench.core.contract.batches import BatchSampler
from workbench.core.contract.delays import CounterRNG
from workbench.core.engine.virtual.arithmetic import BATCHES_STREAM
from workbench.core.problems.linear import LeastSquares

WORKERS, ROUNDS, SAMPLES, L2 = 5, 40, 90, 0.05
SPEC: dict[str, Any] = {
    "workers": WORKERS,
    "rounds": ROUNDS,
    "seed": 3,
    "problem": "least_squares",
    "problem_args": {"samples": SAMPLES, "features": 6, "l2": L2},
    "delays": {"kind": "shifted_exponential", "shift": 1e-5, "rate": 1e5},
}
Scheme = Literal["CADA1", "CADA2"]
Engine = Literal["sim", "mpi"]
ENGINES = ["sim", pytest.param("mpi", marks=[pytest.mark.mpi, pytest.mark.xdist_group("mpi")])]
ARGS: dict[str, Any] = {"c": 0.02, "window": 4, "max_age": 9}


def experiment(scheme: str, args: dict[str, Any] | None = None, **fields: Any) -> wb.Experiment:
    return wb.Experiment(**{**SPEC, "scheme": scheme, "scheme_args": {**ARGS, **(args or {})}, **fields})


def rows_of(e: wb.Experiment, worker: int, round: int, first: int, last: int) -> tuple[Array, float]:
    """Return the samples of a worker in a round, and the weight of each."""
    if (batch := e.scheme_args.get("worker_batch")) is not None:
        drawn = (
            CounterRNG(3, BATCHES_STREAM).rng(round, worker + 1).choice(last - first, batch, replace=False)
        )
        return first + np.sort(drawn), (last - first) / batch
    if e.batch is not None:
        drawn = BatchSampler(SAMPLES, e.batch, e.seed).rows(round)
        return drawn[(drawn >= first) & (drawn < last)], SAMPLES / len(drawn)
    return np.arange(first, last), 1.0


def loop(e: wb.Experiment) -> tuple[Array, list[list[int]]]:
    """Return the last model, and the workers that send in each round.

    The loop follows `ijcnn.m` of CADA-master, commit 9aead8f. Rounds count from 1, and names are those of that program.
    The model is updated by the workbench's gradient descent or AMSGrad. In the program, a gradient may get one round
    older than here.
    """
    problem = e.build_problem()
    whole = getattr(problem, "whole", problem)
    assert isinstance(whole, LeastSquares)
    bounds = np.cumsum([0, *map(len, np.array_split(np.arange(SAMPLES), WORKERS))])
    c, slots, bound = (e.scheme_args[name] for name in ("c", "window", "max_age"))
    theta, sending = [np.zeros(6)], []
    grads, lossgrads, tilde = (np.zeros((WORKERS, 6)) for _ in range(3))
    local, delay, snapshot = np.zeros((WORKERS, 6)), np.zeros(WORKERS, int), np.zeros(6)
    optimiser = e.build_optimiser()
    state = optimiser.start(problem)
    for k in range(1, e.rounds + 1):
        now = theta[k - 1]
        first_of_period = (k - 1) % bound == 0
        if first_of_period:
            snapshot = now
        trigger = 0.0
        for n in range(min(slots, k - 1)):
            trigger += np.linalg.norm(theta[k - 1 - n] - theta[k - 2 - n]) ** 2
        came = []
        for i in range(WORKERS):
            rows, share = rows_of(e, i, k - 1, bounds[i], bounds[i + 1])
            X, y, part = whole.X[rows], whole.y[rows], (bounds[i + 1] - bounds[i]) / SAMPLES

            def mean(model: Array, X: Array = X, y: Array = y, share: float = share) -> Array:
                return np.asarray(X.T @ (X @ model - y) * share / SAMPLES)

            new = mean(now) + L2 * part * now
            if e.scheme == "CADA1":
                old = mean(snapshot) + L2 * part * snapshot
                change = np.linalg.norm((new - old) - (grads[i] - tilde[i])) ** 2
                due = first_of_period
            else:
                old = mean(local[i]) + L2 * part * local[i]
                change, delay[i] = np.linalg.norm(new - old) ** 2, delay[i] + 1
                due = delay[i] > bound - 1
            if change >= c * trigger or due:
                grads[i], tilde[i], local[i], delay[i] = new, old, now, 0
                lossgrads[i] = mean(now)
                came.append(i + 1)
        sending.append(came)
        total = SAMPLES * lossgrads.sum(axis=0)
        model, state = optimiser.update(state, now, total, problem, k - 1)
        theta.append(model)
    return theta[-1], sending


def uploads(trace: wb.Trace) -> list[list[int]]:
    """Return the ranks that sent a gradient, round by round."""
    sent = trace.events.query("kind == 'send' and to == 0 and bytes > 0")
    return [sorted(sent["rank"][sent["round"] == r]) for r in range(len(trace.rounds))]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("scheme", ["CADA1", "CADA2"])
@pytest.mark.parametrize("batches", [{}, {"worker_batch": 6}, {"batch": 30}])
@pytest.mark.parametrize("optimiser", ["gd", "amsgrad"])
def test_models_and_uploads_are_those_of_the_authors_program(
    engine: Engine, scheme: Scheme, batches: dict[str, int], optimiser: str
) -> None:
    """Both gradients of a worker are computed on the same samples: all, those of its own batch, or of the round's."""
    if engine == "mpi" and optimiser == "gd":
        pytest.skip("the workers' programs are those of the other case")
    own = {k: v for k, v in batches.items() if k == "worker_batch"}
    common = {k: v for k, v in batches.items() if k == "batch"}
    e = experiment(scheme, own, optimiser=optimiser, **common)
    trace = wb.run(e, engine=engine)
    model, sending = loop(e)
    np.testing.assert_allclose(trace.model, model, rtol=1e-9)
    assert uploads(trace) == sending
    if optimiser == "amsgrad":  # some gradients are sent, and some are not
        assert ROUNDS * WORKERS / 9 < sum(map(len, sending)) < ROUNDS * WORKERS


@pytest.mark.parametrize("scheme", ["CADA1", "CADA2"])
@pytest.mark.parametrize("program", cada_program.PROGRAMS)
@pytest.mark.parametrize("l2", cada_program.L2)
def test_uploads_and_models_are_those_of_the_executed_programs(
    scheme: Scheme, program: str, l2: float
) -> None:
    """The saved numbers are from the authors' programs themselves, which Octave executed (see `program`).

    The programs regularise with the models at which gradients were sent, so with `l2` models differ a little.
    """
    wanted = json.loads(cada_program.NUMBERS.read_text())[cada_program.key_of(program, scheme, l2)]
    trace = wb.run(cada_program.experiment(program, scheme, l2))
    assert [[int(rank) for rank in each.strip("-")] for each in wanted["sent"].split()] == uploads(trace)
    np.testing.assert_allclose(trace.model, wanted["model"], atol=1e-5 if l2 else 1e-12)


@pytest.mark.parametrize("scheme", ["CADA1", "CADA2"])
def test_threshold_of_zero_is_distributed_adam(scheme: Scheme) -> None:
    """A round takes twice as long, since each worker computes two gradients."""
    e = experiment(scheme, {"c": 0.0, "worker_batch": 6})
    every = e.replace(scheme="D-Adam", scheme_args={"worker_batch": 6})
    mine, other = wb.run(e), wb.run(every)
    np.testing.assert_array_equal(mine.model, other.model)
    np.testing.assert_allclose(mine.rounds["time"], 2 * other.rounds["time"])
    np.testing.assert_array_equal(mine.rounds["bytes"], other.rounds["bytes"])


@given(st.sampled_from(["CADA1", "CADA2"]), st.integers(1, 12), st.integers(0, 50))
def test_no_gradient_is_older_than_max_age(scheme: Scheme, most: int, seed: int) -> None:
    sent = uploads(wb.run(experiment(scheme, {"c": 1e9, "max_age": most}, seed=seed, rounds=20)))
    assert sent[0] == list(range(1, WORKERS + 1))
    assert sent[1::most][1:] == sent[1::most][:-1] or most == 1
    for rank in range(1, WORKERS + 1):
        rounds = [r for r, came in enumerate(sent) if rank in came]
        assert all(b - a <= most for a, b in zip(rounds, [*rounds[1:], 20], strict=True))
        # with this threshold, a gradient is sent only at its maximum age
        assert len(rounds) == -(-20 // most)


@pytest.mark.parametrize("scheme", ["CADA1", "CADA2"])
def test_forecast_is_exact_without_transfer_times_and_an_upper_bound_with_them(scheme: Scheme) -> None:
    for link, exact in (({}, True), ({"latency": 1e-4}, True), ({"bandwidth": 1e6}, False)):
        e = experiment(scheme, link=link)
        found, engine = wb.forecast(e), np.diff(wb.run(e).rounds["time"], prepend=0.0)
        assert (engine <= found.seconds * (1 + 1e-9)).all()
        assert np.allclose(engine, found.seconds, rtol=1e-9) == exact
    assert wb.forecast(e).load == pytest.approx(
        2 * wb.forecast(e.replace(scheme="D-SGD", scheme_args={})).load
    )


@pytest.mark.parametrize("engine", ENGINES)
def test_a_dead_worker_ends_the_run(engine: Engine) -> None:
    with pytest.raises(wb.QuorumLost, match="2"):
        wb.run(experiment("CADA2", faults=[{"worker": 2, "round": 3}]), engine=engine)


def test_empty_messages_are_no_wrong_answers() -> None:
    """A fault that changes answers does not change a message without content."""
    e = experiment("CADA2", faults=[{"kind": "zeros", "worker": 1, "round": 1}])
    trace = wb.run(e)
    empty = trace.events.query("kind == 'send' and to == 0 and bytes == 0")
    assert 1 in set(empty["rank"])
    assert len(empty) + sum(map(len, uploads(trace))) == WORKERS * ROUNDS
