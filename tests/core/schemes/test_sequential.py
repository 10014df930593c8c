"""Sequential codes: the times of the authors' simulator, full gradients at stale models, loads, refusals."""

from __future__ import annotations

import csv
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import workbench as wb
from tests.support import sequential_reference as plain
from tests.support.schemes.sequential import CASES, multiplexed, selective
from workbench.core.base.settings import SettingError
from workbench.core.contract.delays import recorded
from workbench.core.contract.weights import VersionedWeights
from workbench.core.engine.virtual.arithmetic import Coefficients
from workbench.core.forecasting import forecast
from workbench.core.running.simulated import timeline
from workbench.core.schemes.sequential import SRSGC
from workbench.mpi.running.real import resume, start_real

TRACES = Path(__file__).resolve().parents[4] / "shared" / "data" / "ec2_traces.csv"
ROUNDS: dict[str, Any] = {"SR-SGC": plain.selective_repeat, "M-SGC": plain.multiplexed}
SLOW = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))


def recording(path: Path, delays: list[list[float]]) -> dict[str, Any]:
    """Write a recording. Return a delay model that replays these seconds, (workers, rounds)."""
    with path.open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(["worker", "iteration", "seconds"])
        out.writerows((i, r, repr(s)) for i, row in enumerate(delays) for r, s in enumerate(row))
    return {"kind": "replay", "path": str(path), "as_recorded": True}


def bursty(seed: int, workers: int, rounds: int, share: float) -> list[list[float]]:
    """Return the seconds of workers that are slow for several rounds in a row, (workers, rounds)."""
    rng = np.random.default_rng(seed)
    slow, rows = rng.random(workers) < share, []
    for _ in range(rounds):
        slow = np.where(slow, rng.random(workers) < 0.5, rng.random(workers) < share)
        rows.append(rng.uniform(1.0, 1.4, workers) * np.where(slow, rng.uniform(2.5, 9.0, workers), 1.0))
    return [[float(x) for x in row] for row in np.array(rows).T]


@SLOW
@given(
    st.one_of(st.tuples(st.just("SR-SGC"), selective()), st.tuples(st.just("M-SGC"), multiplexed())),
    st.integers(3, 14),
    st.integers(0, 2**20),
    st.sampled_from([0.02, 0.1, 0.3]),
)
def test_sequential_rounds_equal_the_plain_algorithm(
    tmp_path: Path, drawn: tuple[str, tuple[dict[str, Any], int]], jobs: int, seed: int, share: float
) -> None:
    name, (args, workers) = drawn
    delays = bursty(seed, workers, jobs + 10, share)
    numbers = (args["burst"], args["window"], args["stragglers"], args["tolerance"], jobs)
    seconds, ready = ROUNDS[name](delays, *numbers)
    e = wb.Experiment(
        scheme=name,
        scheme_args=args,
        workers=workers,
        rounds=jobs,
        problem="unit",
        problem_args={"samples": 120},
        delays=recording(tmp_path / f"{seed}-{jobs}-{workers}.csv", delays),
    )
    wanted = np.cumsum(seconds)[ready]
    times = timeline(e, Coefficients(e.plan), events=False).times
    np.testing.assert_allclose(times, wanted, rtol=1e-12)
    assert times[-1] == pytest.approx(sum(seconds), abs=1e-9)
    np.testing.assert_allclose(np.cumsum(forecast(e).seconds), wanted, rtol=1e-12)


@SLOW
@given(st.integers(2, 9), st.integers(0, 8), st.sampled_from([0.0, 0.2, 1.0]), st.integers(0, 2**20))
def test_sequential_gc_equals_the_plain_algorithm(
    tmp_path: Path, workers: int, spare: int, mu: float, seed: int
) -> None:
    spare = min(spare, workers - 1)
    delays = bursty(seed, workers, 12, 0.2)
    e = wb.Experiment(
        scheme="GC",
        scheme_args={"stragglers": spare, "tolerance": mu},
        workers=workers,
        rounds=12,
        delays=recording(tmp_path / f"{seed}-{workers}.csv", delays),
    )
    wanted = np.cumsum(plain.gradient_coding(delays, spare, mu, jobs=12))
    np.testing.assert_allclose(timeline(e, Coefficients(e.plan), events=False).times, wanted, rtol=1e-12)
    np.testing.assert_allclose(np.cumsum(forecast(e).seconds), wanted, rtol=1e-12)
    first = e.model_copy(update={"scheme_args": {"stragglers": spare}})
    usual = wb.Experiment(**first.model_dump())
    # without a tolerance, the master waits for no further worker
    assert (forecast(usual).seconds <= forecast(e).seconds * (1 + 1e-12)).all()


@pytest.mark.parametrize("name", CASES)
@SLOW
@given(data=st.data())
def test_sequential_job_is_the_gradient_at_the_newest_certain_model(name: str, data: st.DataObject) -> None:
    args, workers = data.draw(CASES[name])
    delay_model = data.draw(
        st.sampled_from([{"kind": "markov", "p_slow": 0.3}, {"kind": "pareto", "shape": 1.2}])
    )
    e = wb.Experiment(
        scheme=name,
        scheme_args=args,
        workers=workers,
        rounds=12,
        seed=data.draw(st.integers(0, 99)),
        problem="unit",
        problem_args={"samples": 10 * workers},
        delays={"shift": 1e-3, **delay_model},
    )
    committed = Coefficients(e.plan)
    timeline(e, committed, events=False)
    held = e.plan.sizes > 0
    for job, weights in enumerate(committed.weights):
        model = max(0, job - e.built_scheme.lag)
        if model == job:
            assert weights is None
            continue
        assert isinstance(weights, VersionedWeights)
        assert set(weights.versions.tolist()) == {model}
        np.testing.assert_allclose(weights.total(e.plan.parts)[held], 1.0, atol=1e-8)


def test_sequential_models_are_independent_of_stragglers() -> None:
    runs = [
        wb.run(
            wb.Experiment(
                scheme="SR-SGC",
                scheme_args={"burst": 2, "window": 3, "stragglers": 3},
                workers=8,
                rounds=30,
                seed=seed,
                problem="least_squares",
                problem_args={"samples": 200, "features": 4},
                optimiser_args={"step": 1e-3},
                delays={"kind": "markov", "p_slow": 0.3},
            )
        )
        for seed in (1, 2)
    ]
    assert runs[0].columns["time"][-1] != runs[1].columns["time"][-1]
    np.testing.assert_array_equal(runs[0].columns["loss"], runs[1].columns["loss"])


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ({"burst": 2, "window": 4}, r"does not divide 3 \(W - 1\); take window = 3 or 5"),
        ({"burst": 3, "window": 2}, r"does not divide 1 \(W - 1\); take window = 4"),
        ({"stragglers": 9}, "there are 8 workers; take 0 to 8"),
    ],
)
def test_srsgc_refuses_invalid_settings(args: dict[str, int], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        wb.Experiment(scheme="SR-SGC", scheme_args=args, workers=8)


def test_msgc_refuses_invalid_settings() -> None:
    with pytest.raises(SettingError, match="take burst = 2 or less, or window = 4"):
        wb.Experiment(scheme="M-SGC", scheme_args={"burst": 3, "window": 3}, workers=8)


def test_sequential_code_tolerates_dead_workers() -> None:
    spec = {
        "workers": 6,
        "rounds": 20,
        "problem": "unit",
        "problem_args": {"samples": 60},
        "delays": {"kind": "constant", "shift": 1e-3},
        "faults": [{"worker": 2, "round": 5}],
    }
    e = wb.Experiment(scheme="SR-SGC", scheme_args={"burst": 1, "window": 2, "stragglers": 2}, **spec)
    assert len(timeline(e, Coefficients(e.plan), events=False).times) == 20
    e = wb.Experiment(scheme="M-SGC", scheme_args={"burst": 1, "window": 2, "stragglers": 2}, **spec)
    with pytest.raises(wb.QuorumLost, match="2"):
        timeline(e, Coefficients(e.plan), events=False)


@pytest.mark.parametrize(("burst", "window", "stragglers"), [(1, 2, 2), (2, 3, 3), (1, 3, 6), (1, 2, 4)])
def test_selective_repeat_tolerates_deaths_up_to_the_code(burst: int, window: int, stragglers: int) -> None:
    """Earlier stragglers may exhaust the tolerated bursts. After a death, only the job's own code counts."""
    args = {"burst": burst, "window": window, "stragglers": stragglers}
    spare, ended = SRSGC(**args).spare, 0
    for seed in range(6):
        e = wb.Experiment(
            scheme="SR-SGC",
            scheme_args=args,
            workers=8,
            rounds=20,
            seed=seed,
            delays={"kind": "pareto", "shape": 1.2},
            faults=[{"worker": worker, "round": 5} for worker in range(1, spare + 2)],
        )
        with pytest.raises(wb.QuorumLost):
            wb.run(e)
        with suppress(wb.QuorumLost):  # if a worker dies while it repeats a job, the run ends
            rounds = wb.run(e.replace(faults=e.faults[:spare])).rounds
            assert len(rounds) == 20
            assert rounds["residual"].max() < 1e-6
            ended += 1
    assert ended >= 4


@pytest.mark.mpi
@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("SR-SGC", {"burst": 1, "window": 2, "stragglers": 2}),
        ("M-SGC", {"burst": 1, "window": 3, "stragglers": 2}),
        ("GC", {"stragglers": 1, "tolerance": 1.0}),
    ],
)
def test_sequential_real_processes_equal_the_simulator(name: str, args: dict[str, Any]) -> None:
    e = wb.Experiment(
        scheme=name,
        scheme_args=args,
        workers=4,
        rounds=12,
        seed=3,
        problem="least_squares",
        problem_args={"samples": 200, "features": 5},
        optimiser_args={"step": 1e-3},
        delays={"kind": "markov", "factor": 5.0, "p_slow": 0.3, "shift": 4e-4},
    )
    wb.run(e.replace(rounds=2), engine="mpi")  # new ranks are late in their first round
    simulated, real = wb.run(e), wb.run(e, engine="mpi", emulate="all")
    np.testing.assert_allclose(real.columns["loss"], simulated.columns["loss"], rtol=1e-9)
    np.testing.assert_array_equal(real.columns["messages"], simulated.columns["messages"])
    assert (real.columns["started"] >= real.columns["samples"]).all()


@pytest.mark.mpi
@pytest.mark.parametrize("name", CASES)
def test_sequential_stopped_run_is_resumed(name: str, tmp_path: Path) -> None:
    e = wb.Experiment(
        scheme=name,
        scheme_args={"burst": 1, "window": 2, "stragglers": 2},
        workers=4,
        rounds=60,
        problem="least_squares",
        problem_args={"samples": 80, "features": 4},
        optimiser_args={"step": 0.1},
        delays={"kind": "markov", "p_slow": 0.2, "p_recover": 0.8, "factor": 4.0, "shift": 3e-4},
    )
    run = start_real(e, folder=tmp_path / "run")
    while len(run.rows()["round"]) < 5:
        assert not run.wait(0.01), run
    run.stop()
    run.result()
    done = resume(run.home).result()
    assert len(done.rounds) == 60
    assert done.columns["loss"][-1] < 1.001 * min(done.columns["loss"])


@pytest.mark.skipif(not TRACES.is_file(), reason="the recorded EC2 traces are not beside this checkout")
@pytest.mark.parametrize("name", ROUNDS)
def test_sequential_with_recorded_times_equals_the_plain_algorithm(name: str) -> None:
    delay_model = {"kind": "replay", "path": str(TRACES), "experiment": "ec2-7", "as_recorded": True}
    times, _ = recorded(str(TRACES), "ec2-7")
    args = {"burst": 2, "window": 3, "stragglers": 4, "tolerance": 0.5}
    e = wb.Experiment(
        scheme=name,
        scheme_args=args,
        workers=15,
        rounds=20,
        problem="unit",
        problem_args={"samples": 450},
        delays=delay_model,
    )
    seconds, ready = ROUNDS[name](times[:15].tolist(), *args.values(), 20)
    np.testing.assert_allclose(
        timeline(e, Coefficients(e.plan), events=False).times, np.cumsum(seconds)[ready], rtol=1e-12
    )


@pytest.mark.parametrize("name", CASES)
def test_sequential_with_a_tuned_step_learns_as_gradient_descent(name: str) -> None:
    """Stale gradients need smaller steps: with the best step of gradient descent, the run diverges."""
    e = wb.Experiment(
        scheme=name,
        scheme_args={"burst": 2, "window": 3},
        workers=6,
        rounds=40,
        problem="least_squares",
        problem_args={"samples": 120, "features": 4},
    )
    (plain,) = wb.tune([e.replace(scheme="UMW", scheme_args={})])
    (own,) = wb.tune([e])
    wanted = wb.run(plain).columns["loss"][-1]
    assert wb.run(own).columns["loss"][-1] < 1.01 * wanted
    assert wb.run(own.replace(optimiser_args=plain.optimiser_args)).columns["loss"][-1] > 2 * wanted
