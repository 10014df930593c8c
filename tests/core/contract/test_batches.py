"""Mini-batches: each commit is the gradient of a batch that depends on seed and job only, on both engines."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import workbench as wb
from tests.support.strategies import CASES, experiments
from workbench.core.base.settings import SettingError
from workbench.core.base.types import Array
from workbench.core.contract.batches import BatchSampler, chosen_rows
from workbench.core.contract.plan import uncoded_plan
from workbench.core.contract.problem import Request, gradient_of_rows, rows_of
from workbench.core.engine.virtual.arithmetic import Coefficients, Numbers
from workbench.core.running.simulated import timeline

STEP = 0.3
DATA = {"samples": 240, "features": 3}
EXACT = [
    n for n in CASES if (s := wb.schemes.get(n)).exact and not s.numeric and not s.delayed and n != "LCC"
]
CARRIED = [n for n in CASES if not wb.schemes.get(n).numeric and n not in ("DSAG", "LCC")]
REAL = ("UMW", "GC", "CR", "RAR", "CEGC", "GC-MMC", "FRC", "SR-SGC", "M-SGC", "IS-GC", "Backup")
SMALL: dict[str, dict[str, Any]] = {
    "CR": {"children": 2, "layers": 2},
    "M-SGC": {"burst": 1, "window": 3, "stragglers": 2},
    "SR-SGC": {"burst": 2, "window": 5, "stragglers": 2},
}


def experiment(scheme: str = "UMW", **fields: Any) -> wb.Experiment:
    known: dict[str, Any] = {
        "scheme_args": SMALL.get(scheme, {}),
        "workers": 6,
        "rounds": 14,
        "batch": 60,
        "problem": "logistic",
        "problem_args": DATA,
        "optimiser_args": {"step": STEP},
    }
    return wb.Experiment(scheme=scheme, **{**known, **fields})


def sgd_by_hand(e: wb.Experiment, lag: int = 0) -> Array:
    """Return the model of mini-batch SGD on the experiment's batches. Job j uses the model of `lag` commits before."""
    plain = e.replace(batch=None).build_problem()
    assert e.sampler is not None
    models = [plain.start()]
    for job in range(e.rounds):
        rows = e.sampler.rows(job)
        gradient = gradient_of_rows(plain, rows, np.full(len(rows), 1 / len(rows)), models[max(0, job - lag)])
        models.append(models[-1] - STEP * gradient)
    return models[-1]


# ------------------------------------------------------------------------------------------------ the sampler


@given(st.integers(1, 300), st.data(), st.integers(0, 2**40))
def test_batch_sampler_epoch_has_every_sample_once(samples: int, data: st.DataObject, seed: int) -> None:
    sampler = BatchSampler(samples, data.draw(st.integers(1, samples)), seed)
    for epoch in (0, 3):
        first = epoch * sampler.batches_per_epoch
        batches = [sampler.rows(first + k) for k in range(sampler.batches_per_epoch)]
        assert sorted(np.concatenate(batches).tolist()) == list(range(samples))
        for rows in batches:
            # one sample from each stratum, except perhaps the last
            strata = rows // sampler.batches_per_epoch
            assert np.array_equal(strata, np.arange(len(rows)))
            assert sampler.strata - 1 <= len(rows) <= sampler.strata <= sampler.batch


@given(st.integers(2, 300), st.integers(0, 1000), st.integers(0, 99))
def test_batch_sampler_depends_on_seed_and_job_only(samples: int, job: int, seed: int) -> None:
    batch = max(1, samples // 3)
    one, other = BatchSampler(samples, batch, seed), BatchSampler(samples, batch, seed)
    for k in (job + 700, 0, job):  # other jobs were requested before
        one.rows(k)
    assert np.array_equal(one.rows(job), other.rows(job))


def test_batch_sampler_orders_differ_by_seed_and_epoch() -> None:
    orders = {tuple(BatchSampler(100, 10, seed).rows(10 * epoch)) for seed in range(4) for epoch in range(4)}
    assert len(orders) == 16


@given(experiments([n for n in CASES if n != "LCC"], rounds=5), st.integers(1, 400), st.integers(0, 99))
def test_batch_loads_count_the_samples_of_each_rank(spec: dict[str, Any], batch: int, first: int) -> None:
    plan = wb.Experiment(**{**spec, "problem": "logistic", "problem_args": {"samples": 400}}).plan
    sampler = BatchSampler(400, batch, 1)
    for job in (first, first + 200, *range(first, first + 70), first):  # more jobs than the cache holds
        counts = sampler.counts(job, plan.bounds)
        assert sampler.loads(job, plan) == [int(counts[work.parts].sum()) for work in plan.work]
    other = uncoded_plan(3, 400)
    assert sum(sampler.loads(first, other)) == len(sampler.rows(first))


@given(st.data(), st.integers(1, 60))
def test_chosen_rows_are_in_order(data: st.DataObject, samples: int) -> None:
    rows = np.array(sorted(data.draw(st.sets(st.integers(0, samples - 1)))), dtype=np.int64)
    ends = st.tuples(st.integers(0, samples), st.integers(0, samples)).map(sorted)
    drawn = data.draw(st.lists(st.tuples(ends, st.floats(-2, 2)), max_size=5))
    slices = [(a, b, weight) for (a, b), weight in drawn]
    wanted = [(row, w) for row, w in zip(*rows_of(slices), strict=True) if row in rows]
    found = chosen_rows(slices, rows)
    assert list(zip(*found, strict=True)) == wanted


@pytest.mark.parametrize("problem", ["logistic", "least_squares", "softmax"])
def test_gradient_of_rows_equals_that_of_slices(problem: str) -> None:
    made = wb.Experiment(problem=problem, problem_args=DATA).build_problem()
    rows, weights = np.array([7, 3, 4, 100]), np.array([0.5, 2.0, 2.0, -1.0])
    model = made.start() + 0.1
    slices = [(int(r), int(r) + 1, float(w)) for r, w in zip(rows, weights, strict=True)]
    wanted = sum((made.gradient([s], model) for s in slices), start=np.zeros(made.size))
    np.testing.assert_allclose(gradient_of_rows(made, rows, weights, model), wanted, rtol=1e-12, atol=1e-14)


# ------------------------------------------------------------------------------------------------ schemes


def batched(spec: dict[str, Any]) -> wb.Experiment:
    """Return the drawn experiment with mini-batches, and with enough samples that no part is empty."""
    many = {"samples": 400, "features": 3}
    plain = {**spec, "problem": "logistic", "problem_args": many, "optimiser_args": {"step": STEP}}
    e = wb.Experiment(**plain)
    assume(e.plan.parts <= 130)
    return e.replace(batch=(150, 200, 399)[spec["seed"] % 3])


@given(experiments(EXACT, rounds=5))
def test_batch_gradient_is_committed_by_exact_schemes(spec: dict[str, Any]) -> None:
    e = batched(spec)
    np.testing.assert_allclose(wb.run(e).model, sgd_by_hand(e), rtol=1e-6, atol=1e-9)


@given(experiments(CARRIED, rounds=5))
def test_batch_coefficients_learn_what_vectors_learn(spec: dict[str, Any]) -> None:
    e = batched(spec)
    weights, vectors = wb.run(e), wb.run(e, numeric=True)
    np.testing.assert_allclose(weights.model, vectors.model, rtol=1e-6, atol=1e-9)
    assert weights.rounds[["time", "samples", "started"]].equals(
        vectors.rounds[["time", "samples", "started"]]
    )


@pytest.mark.parametrize(("scheme", "lag"), [("SR-SGC", 2), ("M-SGC", 2)])
@pytest.mark.parametrize("numeric", [False, True])
def test_batch_of_a_repeated_job_is_its_own(scheme: str, lag: int, numeric: bool) -> None:
    bursts = {"kind": "markov", "factor": 10.0, "p_slow": 0.1, "shift": 2e-4}
    e = experiment(scheme, workers=4, delays=bursts, seed=2, rounds=40)
    np.testing.assert_allclose(wb.run(e, numeric=numeric).model, sgd_by_hand(e, lag), rtol=1e-9, atol=1e-13)


def test_batch_of_an_asynchronous_worker_covers_its_part() -> None:
    """Each answer covers the worker's own part of the batch of its own step.

    An epoch of steps covers the whole part.
    """
    e = experiment("ASGD", scheme_args={"damping": 0.0}, workers=3, rounds=30)
    plain, plan, trace = e.replace(batch=None).build_problem(), e.plan, wb.run(e)
    assert e.sampler is not None
    events = trace.events
    answers = events[(events["kind"] == "send") & (events["rank"] > 0)].sort_values("end").head(e.rounds)
    steps = dict.fromkeys(range(1, 4), 0)
    models = [plain.start()]
    for rank, version in zip(answers["rank"].tolist(), answers["round"].tolist(), strict=True):
        (part,) = plan.work[rank].parts
        rows = e.sampler.rows(steps[rank])
        own = rows[(rows >= plan.bounds[part]) & (rows < plan.bounds[part + 1])]
        weights = np.full(len(own), plan.parts / len(rows))
        models.append(models[-1] - STEP * gradient_of_rows(plain, own, weights, models[version]))
        steps[rank] += 1
    assert min(steps.values()) > e.sampler.batches_per_epoch
    np.testing.assert_allclose(trace.model, models[-1], rtol=1e-9, atol=1e-13)


def test_drop_compute_divides_by_the_samples_of_the_batch_that_were_computed() -> None:
    args = {"micro_batches": 7, "threshold": 5e-4}
    e = experiment("DropCompute", scheme_args=args, batch=50, delays={"kind": "exponential", "mean": 3e-4})
    numbers, plan = Numbers(e.plan, e.build_problem(), e.build_optimiser()), e.plan
    timeline(e, numbers, events=False)
    weights, plain = Coefficients(e.plan, e.sampler), e.replace(batch=None).build_problem()
    timeline(e, weights, events=False)
    assert e.sampler is not None
    left_out = 0
    for job, (found, decoding) in enumerate(zip(numbers.gradients, weights.weights, strict=True)):
        kept = np.ones(plan.parts, dtype=bool) if decoding is None else np.asarray(decoding) > 0
        rows = e.sampler.rows(job)
        computed = rows[kept[np.searchsorted(plan.bounds, rows, side="right") - 1]]
        mean = gradient_of_rows(
            plain, computed, np.full(len(computed), 1 / len(computed)), numbers.models[job]
        )
        np.testing.assert_allclose(found / plan.samples, mean, rtol=1e-9, atol=1e-12)
        left_out += len(rows) - len(computed)
    assert left_out


def test_batches_are_equal_for_all_schemes_of_a_seed() -> None:
    runs = wb.compare([experiment(scheme) for scheme in ("UMW", "GC", "RAR", "FRC", "CR")])
    for trace in runs[1:]:
        np.testing.assert_allclose(trace.rounds["loss"], runs[0].rounds["loss"], rtol=1e-9)
    other = wb.run(experiment("UMW", seed=1))
    assert abs(other.model - runs[0].model).max() > 1e-4


def test_batch_gradient_with_a_dead_worker_is_exact() -> None:
    e = experiment("GC", scheme_args={"stragglers": 2}, faults=[{"worker": 2, "round": 3}])
    np.testing.assert_allclose(wb.run(e).model, sgd_by_hand(e), rtol=1e-9, atol=1e-12)


SLOW: dict[str, Any] = {
    "kind": "changing",
    "before": {"kind": "constant", "shift": 2e-4},
    "after": {"kind": "constant", "shift": 2e-2},
    "at": 5,
    "worker": 3,
}


@pytest.mark.parametrize("engine", ["sim", pytest.param("mpi", marks=pytest.mark.mpi)])
@pytest.mark.xdist_group("mpi")
@pytest.mark.usefixtures("cache")
def test_batch_gradient_of_an_adaptive_run_is_exact(engine: str) -> None:
    """A change of scheme does not change the batches."""
    e = experiment("UMW", workers=4, rounds=60, adaptive=True, delays=SLOW)
    trace = wb.run(e, engine=engine)
    assert trace.changes[0].after.startswith(("GC", "CR", "CEGC"))
    np.testing.assert_allclose(trace.model, sgd_by_hand(e), rtol=1e-8, atol=1e-11)


@pytest.mark.mpi
@pytest.mark.xdist_group("mpi")
@pytest.mark.usefixtures("cache")
@pytest.mark.parametrize("scheme", REAL)
def test_batch_gradient_is_committed_by_real_ranks(scheme: str) -> None:
    """IS-GC and Backup commit the gradient of the batch if they wait for all workers."""
    lag = 2 if scheme.endswith("-SGC") else 0
    args = SMALL.get(scheme) or {"IS-GC": {"wait_for": 6}, "Backup": {"stragglers": 0}}.get(scheme, {})
    e = experiment(scheme, scheme_args=args, delays={"kind": "constant", "shift": 2e-5})
    trace = wb.run(e, engine="mpi")
    np.testing.assert_allclose(trace.model, sgd_by_hand(e, lag), rtol=1e-8, atol=1e-11)
    assert trace.rounds["loss"].isna().equals(wb.run(e).rounds["loss"].isna())


@pytest.mark.mpi
@pytest.mark.xdist_group("mpi")
@pytest.mark.usefixtures("cache")
def test_batch_gradient_of_real_ranks_with_a_dead_worker_is_exact() -> None:
    e = experiment(
        "GC", scheme_args={"stragglers": 1}, workers=4, rounds=30, faults=[{"worker": 2, "round": 7}]
    )
    trace = wb.run(e, engine="mpi")
    assert list(trace.info["dead"]) == ["2"]
    np.testing.assert_allclose(trace.model, sgd_by_hand(e), rtol=1e-8, atol=1e-11)


@pytest.mark.parametrize(
    ("scheme", "args"),
    [
        ("SGD", {"stragglers": 2}),
        ("Backup", {"stragglers": 2}),
        ("GGC", {"replication": 3, "wait_for": 3}),
        ("CRC", {"replication": 2, "wait_for": 3}),
    ],
)
@pytest.mark.parametrize("numeric", [False, True])
def test_batch_gradient_of_approximate_schemes_has_the_weights_of_the_parts(
    scheme: str, args: dict[str, Any], numeric: bool
) -> None:
    """The commit equals that of a plain loop: each sample of the batch has the weight of its part.

    The weights follow from the answers that arrived: least squares, or those of SGD and Backup.
    """
    pareto, fault = {"kind": "pareto", "shift": 3e-4, "shape": 1.2}, {"worker": 3, "round": 8}
    e = experiment(scheme, scheme_args=args, delays=pareto, faults=[fault])
    trace, plan, plain = wb.run(e, numeric=numeric), e.plan, e.replace(batch=None).build_problem()
    assert e.sampler is not None
    encoding = np.zeros((e.workers, plan.parts))
    for i, work in enumerate(plan.work[1:]):
        encoding[i, work.parts] = work.coefficients
    events, model = trace.events, plain.start()
    ends = events[events["kind"] == "commit"].set_index("round")["end"]
    sent = events[(events["kind"] == "send") & (events["rank"] > 0)]
    for job in range(e.rounds):
        arrived = sent[(sent["round"] == job) & (sent["end"] <= ends[job])]["rank"].to_numpy() - 1
        rows = encoding[np.sort(arrived)]
        weights = {"SGD": 1.0, "Backup": e.workers / len(rows)}.get(scheme)
        if weights is None:
            weights = np.linalg.lstsq(rows.T, np.ones(plan.parts), rcond=None)[0]
        of_parts = rows.T @ np.broadcast_to(weights, len(rows))
        chosen = e.sampler.rows(job)
        share = of_parts[np.searchsorted(plan.bounds, chosen, side="right") - 1] / len(chosen)
        model = model - STEP * gradient_of_rows(plain, chosen, share, model)
        assert trace.rounds["residual"][job] == pytest.approx(((of_parts - 1) ** 2).sum(), abs=1e-9)
    assert trace.rounds["residual"].max() > 0.1
    np.testing.assert_allclose(trace.model, model, rtol=1e-9, atol=1e-12)


# ------------------------------------------------------------------------------------------------ costs and losses


def test_batch_round_takes_its_share_of_the_load() -> None:
    delays = {"kind": "constant", "shift": 1e-3, "fixed": 30.0}
    full, part = (experiment(batch=b, delays=delays) for b in (None, 60))
    assert wb.forecast(full).mean == pytest.approx(1e-3 * (40 + 30))
    assert wb.forecast(part).mean == pytest.approx(1e-3 * (40 / 4 + 30))
    assert wb.run(part).rounds["time"].iloc[-1] == pytest.approx(14 * wb.forecast(part).mean)
    assert (part.load, full.load) == (pytest.approx(1 / 24), pytest.approx(1 / 6))


@given(experiments([n for n in CARRIED if n not in ("ASGD", "FedBuff")], rounds=5))
def test_batch_forecast_equals_the_run(spec: dict[str, Any]) -> None:
    e = batched(spec)
    if wb.schemes.get(e.scheme).clock_driven or e.built_scheme.delayed or e.faults:
        return
    times = np.diff(np.concatenate([[0.0], wb.run(e).columns["time"]]))
    plain = e.replace(batch=None)
    before = np.diff(np.concatenate([[0.0], wb.run(plain).columns["time"]]))
    same = np.allclose(wb.forecast(plain).seconds, before, rtol=1e-9)
    if same:  # otherwise rounds overlap
        np.testing.assert_allclose(wb.forecast(e).seconds, times, rtol=1e-9)


def test_batch_samples_are_counted() -> None:
    e = experiment("UMW", batch=70)
    assert e.sampler is not None
    wanted = [len(e.sampler.rows(r)) for r in range(e.rounds)]
    assert wb.run(e).rounds["samples"].tolist() == wanted


@pytest.mark.parametrize(
    ("every", "known"), [(None, range(14)), (5, (4, 9, 13)), (1, range(14)), (99, (13,))]
)
def test_evaluation_interval_determines_the_evaluated_losses(every: int | None, known: Any) -> None:
    for e in (experiment(evaluate_every=every), experiment("D-SGD", evaluate_every=every)):
        losses = wb.run(e).rounds["loss"]
        assert np.flatnonzero(losses.notna()).tolist() == list(known)


@pytest.mark.parametrize("scheme", ["UMW", "D-SGD"])
def test_evaluation_of_a_stopped_run_includes_its_last_round(scheme: str) -> None:
    run = wb.start(experiment(scheme, rounds=6_000, evaluate_every=5_999, batch=200))
    while len(run.rows()["round"]) < 20:
        time.sleep(0.001)
    run.stop()
    trace = run.result()
    loss, before = trace.rounds["loss"], trace.experiment.replace(batch=None).build_problem()
    assert 20 <= len(loss) < 5_999
    assert loss.notna().sum() == 1
    assert loss.iloc[-1] == before.evaluate([Request(trace.model, gradient=False)])[0].loss


def test_evaluation_interval_default() -> None:
    assert experiment(rounds=1000).evaluation_interval == 4
    assert experiment(rounds=40).evaluation_interval == 2
    assert experiment(batch=None).evaluation_interval == 1


def test_batch_indices_are_not_sent() -> None:
    full, part = wb.run(experiment("GC", batch=None)), wb.run(experiment("GC"))
    assert part.rounds["bytes"].sum() == full.rounds["bytes"].sum()


@pytest.mark.mpi
@pytest.mark.xdist_group("mpi")
@pytest.mark.usefixtures("cache")
def test_batch_indices_are_not_sent_by_real_ranks() -> None:
    """Messages are as many and as long as without batches. An epoch of rounds processes each sample once."""
    fields: dict[str, Any] = {"delays": {"kind": "constant", "shift": 2e-5}, "rounds": 8}
    full, part = (wb.run(experiment("UMW", batch=b, **fields), engine="mpi") for b in (None, 70))
    for name in ("bytes", "messages", "downloads"):
        assert part.rounds[name].tolist() == full.rounds[name].tolist()
    sampler = part.experiment.sampler
    assert sampler is not None
    assert part.rounds["samples"].tolist() == [len(sampler.rows(r)) for r in range(8)]
    assert part.rounds["samples"][: sampler.batches_per_epoch].sum() == DATA["samples"]


# ------------------------------------------------------------------------------------------------ refusals

REFUSALS = [
    ({"batch": 0}, "batch = 0: take 1 or more"),
    ({"batch": 241}, "batch = 241: there are 240 samples; take 1 to 240"),
    ({"batch": 5}, "batch = 5: UMW cuts the data into 6 parts"),
    ({"scheme": "DSAG"}, "batch = 60: .* scheme_args.pieces = 4"),
    ({"scheme": "LCC", "problem": "least_squares"}, "batch = 60: LCC encodes the data"),
    ({"scheme": "D-SGD", "scheme_args": {"worker_batch": 3}}, "batch = 60: scheme_args.worker_batch = 3"),
    ({"problem": "unit", "problem_args": {}}, "batch = 60: the parameters of problem = 'unit'"),
    ({"evaluate_every": 0}, "evaluate_every = 0: take 1 or more"),
]


@pytest.mark.parametrize(("fields", "sentence"), REFUSALS)
def test_batch_settings_that_are_invalid_are_refused(fields: dict[str, Any], sentence: str) -> None:
    with pytest.raises(SettingError, match=sentence):
        experiment(**fields)
