"""CADA, G-CADA and LAGC: properties, selected workers, costs, failures and refusals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import workbench as wb
from tests.support.schemes.adaptive import CASES, DIGITS, ETA, run, uploads
from tests.support.strategies import experiments
from workbench.core import theory
from workbench.core.base.errors import QuorumLost
from workbench.core.base.settings import SettingError
from workbench.core.engine.virtual.arithmetic import Numbers
from workbench.core.running.simulated import timeline
from workbench.core.schemes.lazy import Laziness

FAMILY = sorted(CASES)


# ---------------------------------------------------------------- properties


@given(experiments(FAMILY, rounds=12))
def test_cada_with_whole_shards_commits_all_ones(spec: dict[str, Any]) -> None:
    """Gradients that do not depend on the model are correct at any age."""
    e = wb.Experiment(**spec)
    numbers = Numbers(e.plan, e.build_problem(), e.build_optimiser(), e.seed)
    simulated = timeline(e, numbers, events=False)
    held = e.plan.sizes > 0
    for gradient in numbers.gradients:
        np.testing.assert_allclose(gradient[held], 1.0, atol=1e-8)
    assert len(simulated.times) == e.rounds


@given(experiments(FAMILY, rounds=6))
def test_cada_forecast_is_exact_or_an_upper_bound(
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
    """Return the experiment with a batch that fits into each shard. LAGC, empty shards and some seeds get none."""
    shard = int(e.plan.sizes.min())
    if e.scheme == "LAGC" or shard == 0 or e.seed % 3 == 0:
        return e
    return e.replace(scheme_args={**e.scheme_args, "worker_batch": 1 + e.seed % shard})


def _line(e: wb.Experiment) -> Any:
    return timeline(e, Numbers(e.plan, e.build_problem(), e.build_optimiser(), e.seed), events=False)


@given(
    st.lists(st.lists(st.floats(-2, 2), min_size=2, max_size=2), min_size=1, max_size=25),
    st.lists(st.floats(0, 4), min_size=1, max_size=4),
    st.floats(0, 5),
    st.integers(1, 6),
)
def test_cada_selection_is_condition_9(
    path: list[list[float]], smoothness: list[float], c: float, max_age: int
) -> None:
    """Each term of the rule is computed from the whole history of models.

    Before the start, models count as unchanged.
    """
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
    """By (5), (6), (19) and (22), selected groups download, their fastest worker uploads, and other groups are idle."""
    size = 12 // groups
    trace = run("G-CADA", {"groups": groups, "worker_batch": batch, "c": c})
    rounds, answered = trace.rounds, uploads(trace)
    assert [len(who) for who in answered] == rounds["messages"].tolist()
    for who in answered:
        assert len({(rank - 1) // size for rank in who}) == len(who)  # one rank of each selected group
    assert (rounds["downloads"] == size * rounds["messages"]).all()
    if batch:
        assert (rounds["started"] == rounds["downloads"] * batch).all()
        assert (rounds["samples"] == rounds["messages"] * batch).all()  # the other workers got a stop message
        communication = (rounds["downloads"] + rounds["messages"]).sum()
        computation = rounds["started"].sum() / batch
        assert communication / computation == theory.communication_ratio(size) == (size + 1) / size
    assert (rounds["stale"] == 0).all()
    assert rounds["messages"].iloc[0] == groups
    assert rounds["messages"].sum() < 60 * groups or c == 1.0  # at least one group was skipped


def test_cada_costs_with_all_workers_selected() -> None:
    rounds = run("D-Adam", {"worker_batch": 10}).rounds
    assert (rounds["messages"] + rounds["downloads"] == 24).all()
    assert (rounds["samples"] == 120).all()
    assert (rounds["started"] == 120).all()


def test_cada_late_answers_are_refused_and_count_no_upload() -> None:
    """With latency, the stop message is too late for some workers. The port still takes one answer per group."""
    trace = run(
        "G-CADA",
        {"groups": 3, "max_age": 1, "worker_batch": 9},
        link={"latency": ETA / 2, "bandwidth": 64 * 8 / ETA},
    )
    assert (trace.rounds["messages"] == 3).all()
    assert trace.rounds["stale"].sum() > 20
    assert (trace.rounds["started"] == 12 * 9).all()


def test_cada_workers_that_are_not_selected_idle() -> None:
    trace = run("CADA", {"c": 30.0, "worker_batch": 20})
    computed = trace.events.query("kind == 'compute'")
    worked = [sorted(computed["rank"][computed["round"] == r]) for r in range(60)]
    assert worked == uploads(trace)
    assert 1 < trace.rounds["messages"].mean() < 10


# ---------------------------------------------------------------- failures and refusals


def test_gcada_group_tolerates_deaths_up_to_its_redundancy() -> None:
    dead = [{"worker": 1, "round": 2}, {"worker": 2, "round": 5}]
    args = {"groups": 3, "max_age": 1, "worker_batch": 5}
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
        ("CADA", {"c": -0.1}, r"scheme_args.c = -0.1: take 0 or more"),
        ("G-CADA", {"max_age": 0}, r"scheme_args.max_age = 0: take 1 or more"),
        ("CADA", {"worker_batch": 0}, r"scheme_args.worker_batch = 0: take 1 or more"),
        ("CADA", {"groups": 3}, r"scheme_args.groups: CADA has no such field"),
        (
            "CADA",
            {"worker_batch": 150},
            r"scheme_args.worker_batch = 150: the smallest of 12 shards .* take 1 to 149",
        ),
        ("D-SGD", {"worker_batch": 150}, r"scheme_args.worker_batch = 150: .* take 1 to 149"),
        (
            "G-CADA",
            {"groups": 4, "worker_batch": 450},
            r"scheme_args.worker_batch = 450: .* 4 shards .* take 1 to 449",
        ),
    ],
)
def test_cada_refuses_wrong_settings(scheme: str, args: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingError, match=message) as error:
        wb.Experiment(scheme=scheme, scheme_args=args, **DIGITS)
    assert "\n" not in str(error.value)
    assert str(error.value).count("scheme_args") == 1


def test_cada_batch_above_the_shard_of_a_file_is_refused(tmp_path: Path) -> None:
    """An experiment is created without opening its data. The batch is refused later, at the forecast."""
    np.savez(tmp_path / "mine.npz", X=np.ones((25, 2)), y=np.arange(25.0))
    e = wb.Experiment(
        scheme="CADA",
        scheme_args={"worker_batch": 3},
        problem="least_squares",
        problem_args={"data": str(tmp_path / "mine.npz")},
    )
    with pytest.raises(
        SettingError, match=r"batch = 3: the smallest of 12 shards of 25 samples has 2; take 1"
    ):
        wb.forecast(e)
    with pytest.raises(SettingError, match="batch = 3"):
        e.replace(problem="unit", problem_args={"samples": 35})


def test_cada_largest_batch_is_the_shard() -> None:
    assert (
        run("G-CADA", {"groups": 4, "worker_batch": 449, "max_age": 1}).rounds["started"] == 12 * 449
    ).all()


@pytest.mark.slow
def test_cada_costs_and_times_at_the_size_of_mnist() -> None:
    data = {"data": "synthetic", "samples": 60_000, "features": 784}
    spec = {"problem_args": data, "rounds": 40, "optimiser_args": {"rate": 0.01}}
    adam = run("D-Adam", {"worker_batch": 100}, **spec)
    assert (adam.rounds["messages"] + adam.rounds["downloads"] == 24).all()
    for groups in (3, 4):
        trace = run("G-CADA", {"groups": groups, "worker_batch": 100, "c": 5.0}, **spec)
        costs = trace.rounds[["messages", "downloads", "started"]].sum()
        ratio = (costs["messages"] + costs["downloads"]) / (costs["started"] / 100)
        assert ratio == theory.communication_ratio(12 // groups)
        assert costs["messages"] < 40 * groups
        assert trace.rounds["loss"].iloc[-1] < adam.initial["loss"]
