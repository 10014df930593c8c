"""Every scheme on real ranks: on the problem "unit", and compared with the simulator."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import workbench as wb
from tests.support.fault_injection import damaging
from tests.support.sampled_cases import sampled_cases
from tests.support.specs import LEAST_SQUARES
from tests.support.strategies import CASES, experiments
from workbench.core.trace import records
from workbench.mpi.clusters.warm import POOLS
from workbench.mpi.running.real import RealRun, resume, start_real

pytestmark = [pytest.mark.mpi, pytest.mark.xdist_group("mpi")]

# max workers, since the start of ranks takes most of the time of a run
MAX_WORKERS = 20 if settings().max_examples > 50 else 12
PATIENCE = 240.0  # s after which a run counts as hanging, on a loaded machine
FAST_DELAYS = st.sampled_from(
    [
        {"kind": "shifted_exponential", "shift": 1e-5, "rate": 1e5},
        {"kind": "shifted_exponential", "shift": 1e-5, "rate": 1e5, "per": "part"},
        {"kind": "pareto", "shift": 2e-5, "shape": 2.0},
        {"kind": "exponential", "mean": 3e-3},
        {"kind": "markov", "shift": 2e-5, "p_slow": 0.2, "factor": 5.0},
        {"kind": "two_part", "t1": 1e-5, "lambda1": 1e5, "t2": 1e-3, "lambda2": 1e3},
    ]
)
FAST_LINKS = st.sampled_from(
    [{}, {"latency": 1e-3}, {"latency": 1e-4, "bandwidth": 1e6}, {"bandwidth": 1e5, "downloads": True}]
)
SETTINGS = {  # other settings than the defaults; most schemes need none
    "problem": "least_squares",
    "problem_args": {"samples": 240, "features": 20, "data_seed": 3},
    "workers": 12,
    "rounds": 12,
    "delays": {"kind": "shifted_exponential", "shift": 2e-5, "rate": 1e5},
}


@pytest.fixture(autouse=True, scope="module")
def warm() -> None:
    """Start the largest pool first. It serves all other tests, so that they start no ranks."""
    POOLS.get(MAX_WORKERS + 1).await_ready()


EXACT = [name for name in CASES if wb.schemes.get(name).exact]


@st.composite
def real_experiments(draw: st.DrawFn, names: list[str]) -> dict[str, Any]:
    """Draw an experiment with short delays for real ranks."""
    spec = draw(experiments(names, rounds=3).filter(lambda spec: spec["workers"] <= MAX_WORKERS))
    args = dict(spec["scheme_args"])
    if args.get("deadline") is not None:
        args["deadline"] = 5e-3
    return {**spec, "scheme_args": args, "delays": draw(FAST_DELAYS), "link": draw(FAST_LINKS)}


def finished(spec: dict[str, Any], **options: Any) -> tuple[RealRun, np.ndarray[Any, Any]]:
    """Run an experiment on the ranks of this module. Return the run and every committed gradient."""
    e = wb.Experiment(**spec)
    run = start_real(e, gradients=True, **options)
    assert run.wait(PATIENCE), f"still running: {run}"
    assert len(run.result().rounds) == e.rounds
    assert run.result().info["clean"]
    return run, records.read_gradients(run.home, run.result().model.size)


FEW_EXAMPLES = settings(  # each example is a run on real processes; every scheme has a test below
    max_examples=max(5, settings().max_examples // 20),
    deadline=None,
    phases=[Phase.explicit, Phase.generate],  # runs cannot be shrunk, since their timing varies
    suppress_health_check=list(HealthCheck),
)


@given(real_experiments(EXACT))
@FEW_EXAMPLES
def test_ranks_commit_all_ones_for_exact_schemes(spec: dict[str, Any]) -> None:
    run, gradients = finished(spec)
    held = run.experiment.plan.sizes > 0
    assert len(gradients) == spec["rounds"]
    np.testing.assert_allclose(gradients[:, held], 1.0, atol=1e-8)


@given(real_experiments(LEAST_SQUARES))
@FEW_EXAMPLES
def test_ranks_commit_the_least_squares_decoding_vector(spec: dict[str, Any]) -> None:
    run, gradients = finished(spec)
    e, trace = run.experiment, run.result()
    events = trace.events
    held = e.plan.sizes > 0
    for r, committed in enumerate(gradients):
        matrix = e.built_scheme.encoding(e.plan, r)
        came = sorted(
            set(events[(events["round"] == r) & (events["kind"] == "send") & (events["to"] == 0)]["rank"])
        )
        best = np.linalg.lstsq(matrix[came].T, np.ones(e.plan.parts), rcond=None)[0] @ matrix[came]
        np.testing.assert_allclose(committed[held], best[held], atol=1e-8)
        assert trace.rounds["residual"][r] == pytest.approx(float(((best - 1) ** 2).sum()), abs=1e-12)


@pytest.mark.parametrize("name", sampled_cases("schemes on ranks", 14, sorted(CASES)))
def test_ranks_learn_as_the_simulator_for_every_scheme(name: str) -> None:
    own: dict[str, Any] = (
        {"optimiser_args": {"step": 0.02}} if name in ("ASGD", "AdaptiveK", "FedBuff") else {}
    )
    e = wb.Experiment(scheme=name, **SETTINGS, **own)  # with few answers, the step has to be shorter
    run = start_real(e)
    assert run.wait(PATIENCE), f"still running: {run}"
    trace = run.result()
    assert len(trace.rounds) == e.rounds
    assert trace.rounds["loss"].iloc[-1] < trace.initial["loss"]
    assert trace.info["refused"] == []
    if e.built_scheme.exact:
        sim = wb.run(e)
        np.testing.assert_allclose(trace.model, sim.model, rtol=1e-8, atol=1e-10)
        np.testing.assert_allclose(trace.rounds["loss"], sim.rounds["loss"], rtol=1e-8)


def test_ranks_break_ties_as_the_simulator() -> None:
    """Of 12 answers that are due at the same time, the tie-break chooses 9. An answer that comes early has to wait."""
    args = {"replication": 2, "wait_for": 9}
    delays = {"kind": "constant", "shift": 3e-2}
    spec: dict[str, Any] = {
        "scheme": "FRC",
        "scheme_args": args,
        "workers": 12,
        "rounds": 20,
        "delays": delays,
    }
    spec |= {"problem": "unit", "problem_args": {"samples": 12}}
    e = wb.Experiment(**spec)
    run, _ = finished(spec)
    virtual = wb.run(e)
    sets = [trace.events.query("kind == 'send' and to == 0") for trace in (run.result(), virtual)]
    real, drawn = ([set(rows["rank"][rows["round"] == r]) for r in range(e.rounds)] for rows in sets)
    same = sum(a == b for a, b in zip(real, drawn, strict=True))
    assert same >= e.rounds // 4  # of random sets of nine workers, one in 220 is the same


# With steps of 1e300 the model overflows. With steps of 30 the loss does, and answers much later. `STEPS` begins with a
# small case for each kind of program.
RING = {"algorithm": "ring"}
LARGE = [
    *[(name, {}, 1e300) for name in ("CR", "CADA", "UMW", "SGD", "RAR")],
    *[("RAR", RING, 1e300), ("GC", {}, 30.0), ("UMW", {}, 30.0), ("RAR", RING, 30.0), ("RAR", {}, 30.0)],
]
STEPS = [
    *[("CR", {"children": 2, "layers": 2}, 1e300, 6), ("CADA", {}, 1e300, 6)],
    *[("GC", {}, 30.0, 6), ("RAR", RING, 30.0, 6)],
    *[pytest.param(*each, 12, marks=pytest.mark.slow) for each in LARGE],
]


@pytest.mark.filterwarnings("ignore:overflow|invalid value:RuntimeWarning")  # numbers on the virtual clock
@pytest.mark.parametrize(("name", "args", "step", "workers"), sampled_cases("large steps", 2, STEPS))
def test_ranks_report_divergence_as_the_simulator(
    name: str, args: dict[str, Any], step: float, workers: int
) -> None:
    spec = {
        **SETTINGS,
        "workers": workers,
        "rounds": 200,
        "scheme_args": args,
        "optimiser_args": {"step": step},
    }
    e = wb.Experiment(scheme=name, **spec)
    with pytest.warns(RuntimeWarning, match="the loss is not finite") as warned:
        wb.run(e)
    sentence = next(str(w.message) for w in warned if "the loss is not finite" in str(w.message))
    run = start_real(e, patience=45.0)
    assert run.wait(PATIENCE), f"still running: {run}"
    trace = run.result()
    assert (run.state, run.note, run.warnings[-1]) == ("stopped", sentence, sentence)
    assert 0 < len(trace.rounds) < e.rounds
    again = resume(run.home)  # its model cannot be updated
    assert again.wait(PATIENCE), f"still running: {again}"
    assert again.result().rounds["loss"].iloc[: len(trace.rounds)].equals(trace.rounds["loss"])


def test_start_real_warns_while_waiting() -> None:
    e = wb.Experiment(scheme="UMW", **{**SETTINGS, "optimiser_args": {"step": 1e300}})
    with pytest.warns(RuntimeWarning, match="UMW: the loss is not finite from round 0 on"):
        assert len(wb.run(e, engine="mpi", patience=20.0).rounds) == 2


@pytest.mark.parametrize(("how", "reason"), [("nan", "not finite"), ("flip", "damaged")])
@pytest.mark.parametrize(("scheme", "args"), [("UMW", {}), ("RAR", {"algorithm": "ring"})])
def test_ranks_name_the_sender_of_a_bad_answer(
    scheme: str, args: dict[str, Any], how: str, reason: str
) -> None:
    e = wb.Experiment(scheme=scheme, scheme_args=args, **SETTINGS)
    run = start_real(e, patience=20.0, substitutes=damaging({3: {4: how}}))
    assert run.wait(PATIENCE), f"hangs: {run}"
    with pytest.raises(wb.QuorumLost, match=reason) as lost:
        run.result()
    assert (lost.value.round, lost.value.missing) == (4, (3,))
