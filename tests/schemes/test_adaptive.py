"""CADA, G-CADA and LAGC against the paper: who is selected, what it costs, how long it takes, what is learnt."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import workbench as wb
from tests.cases import experiments
from tests.schemes.case_adaptive import CASES
from workbench import theory
from workbench.engines.arithmetic import Numbers
from workbench.errors import QuorumLost
from workbench.runner import timeline
from workbench.schemes.lazy import Laziness
from workbench.settings import SettingError

FAMILY = sorted(CASES)
ETA = 1e-4
DIGITS: dict[str, Any] = {
    "problem": "least_squares",
    "problem_args": {"data": "digits"},
    "workers": 12,
    "rounds": 60,
    "delays": {"kind": "exponential", "mean": ETA},
    "optimiser": "amsgrad",
}


def run(scheme: str, args: dict[str, Any] | None = None, **changes: Any) -> wb.Trace:
    return wb.run(wb.Experiment(scheme=scheme, scheme_args=args or {}, **{**DIGITS, **changes}))


def uploads(trace: wb.Trace) -> list[list[int]]:
    """Ranks whose answers the master took, round by round."""
    sent = trace.events.query("kind == 'send' and to == 0")
    return [sorted(sent["rank"][sent["round"] == r]) for r in range(len(trace.rounds))]


# ---------------------------------------------------------------- laws


@given(experiments(FAMILY, rounds=12))
def test_with_whole_shards_the_unit_problem_gets_all_ones(spec: dict[str, Any]) -> None:
    """Gradients that never change are right however old they are."""
    e = wb.Experiment(**spec)
    numbers = Numbers(e.plan, e.build_problem(), e.build_optimiser(), e.seed)
    line = timeline(e, numbers, events=False)
    held = e.plan.sizes > 0
    for gradient in numbers.gradients:
        np.testing.assert_allclose(gradient[held], 1.0, atol=1e-8)
    assert len(line.times) == e.rounds


@given(experiments(FAMILY, rounds=6))
def test_the_forecast_is_the_event_engine_if_everybody_is_selected_and_an_upper_end_if_not(
    spec: dict[str, Any],
) -> None:
    every_round = {} if spec["scheme"] in ("D-SGD", "D-Adam") else {"max_age": 1}
    e = with_a_batch(wb.Experiment(**spec))
    every = e.replace(scheme_args={**e.scheme_args, **every_round})
    f, line = wb.forecast(e), _line(every)
    seconds = np.diff(line.times, prepend=0.0)
    np.testing.assert_allclose(f.seconds, seconds, rtol=1e-9, atol=1e-12 * line.times[-1])
    assert f.messages == np.mean(line.messages)
    assert f.bytes == np.mean(line.bytes)
    chosen = _line(e)
    taken = np.diff(chosen.times, prepend=0.0)
    assert (taken <= seconds * (1 + 1e-9) + 1e-12 * line.times[-1]).all()
    assert (np.array(chosen.messages) <= line.messages).all()


def with_a_batch(e: wb.Experiment) -> wb.Experiment:
    """Give two thirds of the schemes that have mini-batches one that fits."""
    shard = int(e.plan.sizes.min())
    if e.scheme == "LAGC" or shard == 0 or e.seed % 3 == 0:
        return e
    return e.replace(scheme_args={**e.scheme_args, "batch": 1 + e.seed % shard})


def _line(e: wb.Experiment) -> Any:
    return timeline(e, Numbers(e.plan, e.build_problem(), e.build_optimiser(), e.seed), events=False)


@given(
    st.lists(st.lists(st.floats(-2, 2), min_size=2, max_size=2), min_size=1, max_size=25),
    st.lists(st.floats(0, 4), min_size=1, max_size=4),
    st.floats(0, 5),
    st.integers(1, 6),
)
def test_selection_is_condition_9(
    path: list[list[float]], smoothness: list[float], c: float, max_age: int
) -> None:
    """Every term of the rule recomputed from the whole history of models; before the start nothing moved."""
    models = [np.array(m) for m in path]
    rule, age = Laziness(smoothness, c, max_age), dict.fromkeys(range(len(smoothness)), max_age)
    for k, model in enumerate(models):
        steps = [(models[k + 1 - d], models[k - d]) for d in range(1, max_age + 1) if k - d >= 0]
        limit = c * sum(float((a - b) @ (a - b)) for a, b in steps)
        expected = []
        for g, L in enumerate(smoothness):
            old = age[g] >= max_age
            moved = model - models[k - age[g]] if not old else model
            if old or L**2 * float(moved @ moved) > limit:
                expected.append(g)
            age[g] = 1 if g in expected else age[g] + 1
        assert rule.select(model) == expected
        assert rule.ages == list(age.values())


# ---------------------------------------------------------------- costs


@pytest.mark.parametrize(
    ("groups", "batch", "c"), [(1, 20, 20.0), (3, 32, 20.0), (4, 32, 1.0), (6, None, 30.0), (12, 32, 20.0)]
)
def test_gcada_costs_are_the_papers(groups: int, batch: int | None, c: float) -> None:
    """(5), (6), (19), (22): whole groups download, the fastest uploads, nobody else does anything."""
    size = 12 // groups
    trace = run("G-CADA", {"groups": groups, "batch": batch, "c": c})
    rounds, answered = trace.rounds, uploads(trace)
    assert [len(who) for who in answered] == rounds["messages"].tolist()
    for who in answered:
        assert len({(rank - 1) // size for rank in who}) == len(who)  # one of each selected group
    assert (rounds["downloads"] == size * rounds["messages"]).all()
    if batch:
        assert (rounds["started"] == rounds["downloads"] * batch).all()
        assert (rounds["samples"] == rounds["messages"] * batch).all()  # the others were told to stop
        communication = (rounds["downloads"] + rounds["messages"]).sum()
        computation = rounds["started"].sum() / batch
        assert communication / computation == theory.communication_ratio(size) == (size + 1) / size
    assert (rounds["stale"] == 0).all()
    assert rounds["messages"].iloc[0] == groups
    assert rounds["messages"].sum() < 60 * groups or c == 1.0  # somebody was lazy


def test_costs_of_everybody() -> None:
    rounds = run("D-Adam", {"batch": 10}).rounds
    assert (rounds["messages"] + rounds["downloads"] == 24).all()
    assert (rounds["samples"] == 120).all()
    assert (rounds["started"] == 120).all()


def test_late_answers_on_the_wire_are_refused_and_cost_no_upload() -> None:
    """With latency the stop comes too late for some; the port still takes one answer per group."""
    trace = run(
        "G-CADA",
        {"groups": 3, "max_age": 1, "batch": 9},
        link={"latency": ETA / 2, "bandwidth": 64 * 8 / ETA},
    )
    assert (trace.rounds["messages"] == 3).all()
    assert trace.rounds["stale"].sum() > 20
    assert (trace.rounds["started"] == 12 * 9).all()


def test_workers_that_are_not_selected_idle() -> None:
    trace = run("CADA", {"c": 30.0, "batch": 20})
    computed = trace.events.query("kind == 'compute'")
    worked = [sorted(computed["rank"][computed["round"] == r]) for r in range(60)]
    assert worked == uploads(trace)
    assert 1 < trace.rounds["messages"].mean() < 10


# ---------------------------------------------------------------- how often and how long


def test_how_often_is_between_the_bounds() -> None:
    """A worker with L_m^2 <= c/d is left alone for d rounds at least, and for D at most: (12)."""
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
    assert len({len(rounds) for rounds in when.values()}) > 1  # the smoothest are asked less often


@pytest.mark.parametrize(
    ("scheme", "args", "expected"),
    [
        ("D-Adam", {}, theory.dadam_time(12, ETA)),
        ("CADA", {"batch": 3}, theory.cada_time(12, ETA)),
        ("G-CADA", {"groups": 3, "batch": 3}, theory.gcada_time(3, 4, ETA)),
        ("G-CADA", {"groups": 4}, theory.gcada_time(4, 3, ETA)),
        ("LAGC", {"groups": 4, "stragglers": 2}, theory.gcada_time(4, 3, ETA)),  # grouped-LAG
    ],
)
def test_times_are_the_papers(scheme: str, args: dict[str, Any], expected: float) -> None:
    """(11), (13), (16) for everybody selected, within four standard errors; the event engine has the same rounds."""
    e = wb.Experiment(scheme=scheme, scheme_args=args, **DIGITS)
    f = wb.forecast(e, rounds=20_000)
    assert abs(f.mean - expected) < 4 * f.error
    assert f.error < 0.01 * expected


def test_times_of_the_selected_are_the_papers() -> None:
    """Given how many groups were selected, a round takes (eta / M_G) H_selected on average."""
    seconds, expected = [], []
    for seed in range(6):
        trace = run("G-CADA", {"groups": 6, "c": 30.0, "batch": 20}, rounds=150, seed=seed)
        seconds += np.diff(trace.rounds["time"], prepend=0.0).tolist()
        expected += [theory.gcada_time(k, 2, ETA) for k in trace.rounds["messages"] if k]
        assert trace.rounds["messages"].nunique() > 2
    off = np.array([s for s in seconds if s]) - expected
    assert abs(off.mean()) < 4 * off.std() / np.sqrt(len(off))


# ---------------------------------------------------------------- learning


def test_dadam_is_amsgrad_as_printed() -> None:
    """Equations (8a) to (8c), written out; the product's loop gives the same model."""
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


def test_cada_without_laziness_is_dadam_bit_by_bit() -> None:
    adam = run("D-Adam", {"batch": 40})
    for scheme, args in [("CADA", {"max_age": 1}), ("CADA", {"c": 0}), ("G-CADA", {"groups": 12, "c": 0})]:
        eager = run(scheme, {"batch": 40, **args})
        np.testing.assert_array_equal(eager.model, adam.model)
        assert eager.rounds["time"].equals(adam.rounds["time"])
    assert not np.array_equal(run("CADA", {"batch": 40, "c": 30.0}).model, adam.model)


def test_an_estimate_is_fresh_gradients_plus_old_ones() -> None:
    """Equation (3), from the recorded models and who uploaded when."""
    e = wb.Experiment(scheme="CADA", scheme_args={"c": 30.0}, **DIGITS)
    problem = e.build_problem()
    numbers = Numbers(e.plan, problem, e.build_optimiser())
    line = timeline(e, numbers, events=True)
    last: dict[int, int] = {}
    for k, gradient in enumerate(numbers.gradients):
        last |= {row[1]: k for row in line.events if row[0] == k and row[2] == "send" and row[6] == 0}
        parts = [(e.plan.bounds[m - 1], e.plan.bounds[m], numbers.models[tau]) for m, tau in last.items()]
        expected = sum(problem.X[a:b].T @ (problem.X[a:b] @ th - problem.y[a:b]) for a, b, th in parts)
        np.testing.assert_allclose(gradient, expected, rtol=1e-9, atol=1e-7)
    assert min(last.values()) < max(last.values())


def test_members_of_a_group_draw_their_own_batches() -> None:
    """xi_m, not xi_g: who is fastest decides which mini-batch is used, and the same seed gives the same bits."""
    args = {"groups": 3, "max_age": 1, "batch": 5}
    first, again = run("G-CADA", args), run("G-CADA", args)
    assert first.same(again)
    others = run("G-CADA", args, delays={"kind": "two_part"})
    assert not np.array_equal(first.model, others.model)
    whole = {"groups": 3, "max_age": 1}
    np.testing.assert_array_equal(
        run("G-CADA", whole).model, run("G-CADA", whole, delays={"kind": "two_part"}).model
    )


def test_lagc_decodes_the_same_gradients_as_gcada() -> None:
    """The code is exact, so with the same rule the iterates are those of uncoded groups."""
    args = {"c": 20.0, "groups": 3, "max_age": 6}
    plain = run("G-CADA", args)
    for late in range(4):
        coded = run("LAGC", {**args, "stragglers": late})
        np.testing.assert_allclose(coded.model, plain.model, rtol=1e-7)
        assert (coded.rounds["messages"] == (4 - late) * plain.rounds["messages"]).all()
        assert coded.experiment.load == pytest.approx((late + 1) / 12, abs=1e-3)
    assert plain.rounds["messages"].sum() < 180


# ---------------------------------------------------------------- failures and refusals


def test_a_group_survives_its_dead_until_too_few_are_left() -> None:
    dead = [{"worker": 1, "round": 2}, {"worker": 2, "round": 5}]
    args = {"groups": 3, "max_age": 1, "batch": 5}
    assert (run("G-CADA", args, faults=dead).rounds["messages"] == 3).all()
    assert (run("LAGC", {"groups": 3, "stragglers": 2}, faults=dead).rounds["loss"] > 0).all()
    with pytest.raises(QuorumLost, match="lost workers 1, 2"):
        run("LAGC", {"groups": 3, "stragglers": 1}, faults=dead)
    with pytest.raises(QuorumLost, match="lost worker 7"):
        run("CADA", {}, faults=[{"worker": 7, "round": 3}])


@pytest.mark.parametrize(
    ("scheme", "args", "message"),
    [
        ("G-CADA", {"groups": 5}, r"scheme_args.groups = 5: does not divide 12 workers; take 2, 3, 4, 6"),
        ("LAGC", {"groups": 7}, r"scheme_args.groups = 7: does not divide"),
        ("LAGC", {"groups": 4, "stragglers": 3}, r"scheme_args.stragglers = 3: .* take 0 to 2"),
        ("CADA", {"c": -0.1}, r"scheme_args.c = -0.1: .*greater than or equal to 0"),
        ("G-CADA", {"max_age": 0}, r"scheme_args.max_age = 0: .*greater than or equal to 1"),
        ("CADA", {"batch": 0}, r"scheme_args.batch = 0: .*greater than or equal to 1"),
        ("CADA", {"groups": 3}, r"scheme_args.groups: CADA has no such field"),
        ("CADA", {"batch": 150}, r"scheme_args.batch = 150: the smallest of 12 shards .* take 1 to 149"),
        ("D-SGD", {"batch": 150}, r"scheme_args.batch = 150: .* take 1 to 149"),
        ("G-CADA", {"groups": 4, "batch": 450}, r"scheme_args.batch = 450: .* 4 shards .* take 1 to 449"),
    ],
)
def test_wrong_settings_are_one_sentence(scheme: str, args: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingError, match=message) as error:
        run(scheme, args)
    assert "\n" not in str(error.value)
    assert str(error.value).count("scheme_args") == 1


def test_the_largest_batch_is_the_shard() -> None:
    assert (run("G-CADA", {"groups": 4, "batch": 449, "max_age": 1}).rounds["started"] == 12 * 449).all()


@pytest.mark.slow
def test_costs_and_times_at_mnists_size() -> None:
    data = {"data": "synthetic", "samples": 60_000, "features": 784}
    spec = {"problem_args": data, "rounds": 40, "optimiser_args": {"rate": 0.01}}
    adam = run("D-Adam", {"batch": 100}, **spec)
    assert (adam.rounds["messages"] + adam.rounds["downloads"] == 24).all()
    for groups in (3, 4):
        trace = run("G-CADA", {"groups": groups, "batch": 100, "c": 5.0}, **spec)
        costs = trace.rounds[["messages", "downloads", "started"]].sum()
        ratio = (costs["messages"] + costs["downloads"]) / (costs["started"] / 100)
        assert ratio == theory.communication_ratio(12 // groups)
        assert costs["messages"] < 40 * groups
        assert trace.rounds["loss"].iloc[-1] < adam.initial["loss"]
