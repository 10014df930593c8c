"""The planner: forecasts against the event engine, the winner against all candidates, published crossovers."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import workbench as wb
from tests.support.plans import LEARNT, SMALL, advise, engine_mean, learnt, measured
from tests.support.sampled_cases import rotated, sampled_indices, sampled_test
from workbench.analysis.planning.measurements import Host
from workbench.analysis.planning.measuring import simulated
from workbench.analysis.planning.planner import check_memory
from workbench.analysis.planning.targets import OWN_STEPS
from workbench.core.base.settings import SettingError
from workbench.core.contract.delays import Heterogeneous
from workbench.core.running.precision import lost_digits

EXACT = [
    name for name in wb.schemes.names() if wb.schemes.get(name).exact and not wb.schemes.get(name).numeric
]

# ---------------------------------------------------------------- correctness


@pytest.mark.parametrize("count", [10, pytest.param(None, marks=pytest.mark.slow)], ids=["some", "every"])
def test_plan_predictions_equal_the_event_engine(count: int | None) -> None:
    """Each predicted round time is within 12 % of the mean round time of the event engine, with another seed."""
    advice = advise(measured(6, "straggle", 1e-3, 4e5), schemes=EXACT)
    assert {c.scheme for c in advice.choices} >= {"UMW", "GC", "CR", "RAR", "CEGC", "UC-MMC", "GC-MMC"}
    chosen = (
        range(len(advice.choices))
        if count is None
        else sampled_indices("choices", len(advice.choices), count)
    )
    for choice in (advice.choices[i] for i in chosen):
        assert choice.per_round == pytest.approx(engine_mean(choice.experiment, 150), rel=0.12), choice.name
        assert choice.seconds == pytest.approx(choice.per_round * choice.rounds)


@sampled_test("the planner", 0, 4, 2)
# every scheme is planned and run in each example
@settings(max_examples=max(2, settings().max_examples // 50))
@given(
    shift=st.floats(1e-5, 1e-3),
    spread=st.floats(0.0, 3.0),
    latency=st.sampled_from([0.0, 1e-4, 1e-2]),
    bandwidth=st.sampled_from([1e4, 1e6, 1e9]),
    seed=st.integers(0, 2**32 - 1),
)
def test_plan_winner_wins_on_the_true_cluster(
    shift: float, spread: float, latency: float, bandwidth: float, seed: int
) -> None:
    """Run all candidates on the true cluster by the event engine. None is more than a tenth faster than the winner."""
    rate = 1 / (shift * max(spread, 1e-6))
    truth: dict[str, Any] = {
        "delays": {"kind": "shifted_exponential", "shift": shift, "rate": rate},
        "link": {"latency": latency, "bandwidth": bandwidth, "downloads": True},
    }
    profile = simulated(wb.Experiment(scheme="UMW", workers=6, seed=seed, **truth), 40)
    advice = advise(profile, schemes=EXACT)
    real = {c.name: engine_mean(c.experiment.replace(**truth), 120) for c in advice.choices}
    assert real[advice.best.name] <= 1.1 * min(real.values())


@pytest.mark.parametrize(
    ("situation", "winners"),
    [
        (("straggle", 2e-2, 1e4, 6000), {"CR"}),  # slow port: fewer messages share one port
        (("steady", 2e-2, 1e9, 240), {"UMW"}),  # long latency: one hop, and the smallest load
        (("steady", 0.0, 1e9, 240), {"UMW", "RAR"}),  # no stragglers: coding gains nothing
    ],
    ids=["bandwidth", "latency", "nothing"],
)
def test_plan_reproduces_published_crossovers(
    situation: tuple[str, float, float, int], winners: set[str]
) -> None:
    """Rank only the schemes of paper 1, whose gradient coding has cyclic windows."""
    *cluster, samples = situation
    problem = {"samples": samples, "features": 50}
    advice = advise(measured(12, *cluster), problem_args=problem, schemes=["UMW", "RAR", "GC", "CR"])
    first = next(choice for choice in advice.choices if "code" not in choice.experiment.scheme_args)
    assert first.scheme in winners
    assert str(advice).startswith(f"Quickest: {advice.best.name}.")


def test_plan_prefers_groups_where_messages_are_expensive() -> None:
    """With a slow port, gradient coding in groups needs one answer of each group. Cyclic windows need more."""
    problem = {"samples": 120, "features": 50}
    advice = advise(measured(12, "straggle", 2e-2, 1e4), problem_args=problem, schemes=["UMW", "GC", "CR"])
    assert advice.best.scheme == "GC"
    assert advice.best.messages == 1.0


def test_plan_chooses_coding_for_persistently_slow_workers() -> None:
    delays = {"kind": "heterogeneous", "slow": 0.2, "slow_straggles": 0.9, "factor": 20.0}
    profile = simulated(
        wb.Experiment(scheme="UMW", workers=12, delays=delays, link={"latency": 1e-4}, seed=1), 60
    )
    advice = advise(profile, schemes=["UMW", "RAR", "GC", "CR"])
    assert advice.best.scheme in ("GC", "CR")
    umw = next(c for c in advice.choices if c.scheme == "UMW")
    assert umw.dominant == "stragglers"


@rotated
@pytest.mark.parametrize("replay", [False, True])
def test_plan_for_the_same_machines(replay: bool) -> None:
    """Some of twelve workers are permanently slow. The plan tolerates that many, and places them in suitable groups."""
    delays = {
        "kind": "heterogeneous",
        "slow": 0.2,
        "slow_straggles": 1.0,
        "active_straggles": 0.0,
        "factor": 50.0,
    }
    profile = simulated(
        wb.Experiment(scheme="UMW", workers=12, delays=delays, link={"latency": 1e-4}, seed=1), 40
    )
    times = profile.recorded[profile.main].times
    slow = int(np.sum(np.median(times, axis=0) > 10 * np.median(times)))
    assert slow
    advice = advise(profile, schemes=["GC"], replay=replay)
    who = ", ".join(str(w + 1) for w in np.flatnonzero(np.median(times, axis=0) > 10 * np.median(times)))
    told = [note for note in advice.notes if "very machines" in note]
    assert replay or (f"worker {who} of 12 is" in told[0] or f"workers {who} of 12 are" in told[0])
    windows = [c for c in advice.choices if "code" not in c.experiment.scheme_args]
    per_round = {c.experiment.scheme_args["stragglers"]: c.per_round for c in windows}
    borne = {s for s, seconds in per_round.items() if seconds < per_round[1] / 3}
    assert borne == {s for s in per_round if s >= slow}
    for c in advice.choices:
        there = wb.forecast(c.experiment.replace(delays=delays, link={"latency": 1e-4}), 20, seed=1)
        assert c.per_round == pytest.approx(there.mean, rel=0.1), c.name


def test_plan_for_other_machines_of_the_kind() -> None:
    """For other machines of the same kind, the slow workers are drawn again.

    If more or fewer workers are planned than were measured, they are other machines.
    """
    delays = {"kind": "heterogeneous", "slow_straggles": 1.0, "active_straggles": 0.0}
    profile = simulated(wb.Experiment(scheme="UMW", workers=12, delays=delays, seed=1), 40, 8)

    def who(**asked: Any) -> Any:
        return advise(profile, schemes=["UMW"], **asked).best.experiment.delays.slow_workers

    chances = profile.slow_for_good()
    assert chances is not None
    slow = tuple((np.flatnonzero(chances > 0.5) + 1).tolist())
    assert who() == who(machines="same") == slow
    assert who(workers=10, machines="same") == tuple(rank for rank in slow if rank <= 10) != slow
    assert who(machines="new") is who(workers=10) is who(workers=14) is None
    with pytest.raises(
        SettingError, match=r"machines = 'same': 12 workers were measured, and workers = 14; take 12"
    ):
        who(workers=14, machines="same")
    with pytest.raises(SettingError, match="machines = 'old': take 'same'"):
        who(machines="old")


def test_plan_choice_is_forecast_for_the_planned_machines() -> None:
    """The forecast uses the measured profile, for any seed."""
    delays = {"kind": "heterogeneous", "slow_straggles": 1.0, "active_straggles": 0.0}
    profile = simulated(wb.Experiment(scheme="UMW", workers=12, delays=delays, seed=1), 40, 8)
    best = advise(profile, schemes=["GC"]).best
    found = [profile.forecast(best.experiment, 20, seed).mean for seed in range(5)]
    assert found == pytest.approx([best.per_round] * 5, rel=0.02)


def test_plan_names_no_slow_worker_where_all_straggle_alike() -> None:
    delays = {"kind": "heterogeneous", "slow": 0.0}
    profile = simulated(wb.Experiment(scheme="UMW", workers=12, delays=delays, seed=0), 60, 8)
    advice = advise(profile, schemes=["UMW"])
    assert not [note for note in advice.notes if "very machines" in note]
    assert not getattr(advice.best.experiment.delays, "slow_workers", None)
    with pytest.raises(SettingError, match=r"machines = 'new': the profile is of these machines"):
        advise(profile.here(12), schemes=["UMW"], machines="new")


def test_plan_slow_workers_are_as_uncertain_as_the_times() -> None:
    """In few rounds, a slow worker that straggles in half of them is not always found.

    The resampled clusters therefore differ.
    """

    def drawn(rounds: int, **chances: float) -> tuple[np.ndarray, np.ndarray]:
        delays = {"kind": "heterogeneous", "slow": 0.5, **chances}
        found = simulated(wb.Experiment(scheme="UMW", workers=12, delays=delays, seed=3), rounds, 40).here(12)
        delay_models = [
            delay_model
            for each in found.resampled
            for delay_model in each.delay_models[:1]
            if isinstance(delay_model, Heterogeneous)
        ]
        chances = found.slow_for_good()
        assert chances is not None
        return chances, np.array(
            [np.isin(np.arange(1, 13), delay_model.slow_workers or ()) for delay_model in delay_models]
        )

    chances, sure = drawn(60)
    assert len(sure) == 40
    assert (sure == (chances > 0.5)).all()
    chances, unsure = drawn(8, slow_straggles=0.5, active_straggles=0.2)
    assert ((chances > 0.05) & (chances < 0.95)).any()
    assert len(unsure) > 20
    assert np.abs(unsure.mean(axis=0) - chances).max() < 4 * (0.25 / len(unsure)) ** 0.5


def test_plan_reports_the_dominating_cost() -> None:
    slow_port = advise(measured(12, "straggle", 1e-5, 1e4), schemes=["UMW", "CR"])
    far = advise(measured(12, "steady", 2e-2, 1e9), schemes=["UMW", "CR"])
    assert {c.scheme: c.dominant for c in slow_port.schemes}["UMW"] == "transfers"
    assert {c.scheme: c.dominant for c in far.schemes} == {"UMW": "latency", "CR": "latency"}
    assert "transfers through the busiest port" in slow_port.why
    for choice in slow_port.schemes:
        assert sum(choice.parts.values()) == pytest.approx(choice.per_round)


def test_plan_keeps_its_time_limit_and_lists_what_was_not_tried() -> None:
    """With hardly any time, one candidate is ranked, and each other one has a reason."""
    advice = advise(measured(6, "straggle", 1e-3, 4e5, 12), schemes=["UMW", "GC", "CR"], seconds=1e-6)
    assert len(advice.choices) == 1
    assert advice.best.low <= advice.best.seconds <= advice.best.high
    assert all("raise seconds" in each.reason for each in advice.refusals)
    with pytest.raises(SettingError, match=r"^seconds = 0: take more than 0"):
        advise(measured(6, "straggle", 1e-3, 4e5, 12), seconds=0)


def test_plan_tries_more_near_the_best_of_a_scheme() -> None:
    """With 23 workers, the grid has only some numbers of stragglers.

    The best number, for seven slow workers, is between two numbers of the grid.
    """
    slow = tuple(range(1, 8))
    delays = {"kind": "heterogeneous", "slow_workers": slow, "slow_straggles": 1.0, "active_straggles": 0.0}
    profile = simulated(wb.Experiment(scheme="UMW", workers=23, delays={**delays, "factor": 50.0}), 30, 6)
    advice = advise(profile, schemes=["GC"], problem_args={"samples": 2300, "features": 50})
    grid = list(wb.schemes.get("GC").candidates(23))
    assert {"stragglers": 7} not in grid
    assert advice.best.experiment.scheme_args == {"stragglers": 7}


@pytest.mark.parametrize("scheme", ["SGD", "Backup", "FRC", "BGC", "IS-GC", "CRC"])
@given(workers=st.integers(4, 40))
@settings(max_examples=10)
def test_candidates_cover_all_numbers_of_answers(scheme: str, workers: int) -> None:
    """The grid reaches from waiting for all answers but one to waiting for one answer."""
    found = list(wb.schemes.get(scheme).candidates(workers))
    waits = {a.get("wait_for", workers - a.get("stragglers", 0)) for a in found}
    assert {1, workers - 1} <= waits


# ---------------------------------------------------------------- uncertainty


def test_plan_intervals_and_win_shares() -> None:
    advice = advise(measured(6, "straggle", 1e-3, 4e5, 12), schemes=["UMW", "GC", "CR", "RAR"])
    assert sum(choice.sure for choice in advice.choices) == pytest.approx(1.0)
    for choice in advice.choices:
        assert choice.low <= choice.seconds <= choice.high
        assert choice.low < choice.high
    assert advice.sure(advice.best.scheme) >= advice.best.sure
    assert [c.seconds for c in advice.choices] == sorted(c.seconds for c in advice.choices)


@sampled_test("the planner", 1, 4, 2)
def test_plan_reports_the_needed_size_of_a_measurement() -> None:
    """The share of slow workers is estimated badly from 12 workers, and well enough from 48.

    The regret is averaged over two measurements, since two choices may be equally good on one true cluster.
    """
    link = {"latency": 2e-4, "bandwidth": 4e6, "downloads": True}

    def lost(workers: int, kind: str, seed: int) -> float:
        e = wb.Experiment(scheme="UMW", workers=workers, seed=seed, delays={"kind": kind}, link=link)
        advice = advise(simulated(e, 16, 12, seed), workers=12, schemes=["GC"], seed=seed, machines="new")
        assert (advice.runner_up is None) == ("measure about" not in str(advice))
        assert (advice.runner_up is None) == advice.headline.startswith("Quickest")
        # The advice is to measure a few times as many workers, limited by how far neighbouring choices differ.
        assert advice.runner_up is None or advice.runner_up.times < 62
        return advice.runner_up.behind if advice.runner_up else 0.0

    few, many = (np.mean([lost(workers, "heterogeneous", seed) for seed in (1, 3)]) for workers in (12, 48))
    assert many < 0.75 * few  # by a factor of two (the square root of four) without the random part
    assert lost(12, "constant", 1) == 0.0


def test_plan_with_equal_seeds_gives_equal_advice() -> None:
    profile = measured(6, "straggle", 1e-3, 4e5, 12)
    once, twice = (advise(profile, schemes=["UMW", "CR"], seed=3) for _ in range(2))
    assert once == twice


# ---------------------------------------------------------------- rounds to a loss


def test_plan_simulates_approximate_schemes_to_the_same_loss() -> None:
    options = {"problem": "logistic", "problem_args": {"samples": 240, "features": 20}, "effort": 4e9}
    advice = advise(measured(6, "straggle", 1e-3, 1e6), **options, schemes=["UMW", "SGD", "CADA", "BGC"])
    by_scheme = {c.scheme: c for c in advice.schemes}
    assert by_scheme["UMW"].source.startswith("theory")
    assert by_scheme["SGD"].source == "simulated on 240 samples, 24 seeds"
    assert by_scheme["SGD"].rounds >= by_scheme["UMW"].rounds
    assert advice.target == f"to a loss of {advice.loss:.4g}"
    for choice in advice.schemes:
        trace = wb.run(choice.experiment, events=False)
        (there, *_) = np.flatnonzero(trace.columns["loss"] <= advice.loss)
        if choice.scheme in ("UMW", "SGD"):  # the rounds of CADA depend on the draws
            assert trace.columns["time"][there] == pytest.approx(choice.seconds, rel=0.3)


@sampled_test("steps of the planner", 0, 2)
def test_plan_treats_dsgd_of_whole_shards_as_exact() -> None:
    """D-SGD with whole shards has the models of every exact scheme. D-Adam differs, even with the full gradient."""
    options = {**LEARNT, "effort": 5e10}  # effort for several batch sizes of D-Adam
    choices = advise(
        measured(12, "straggle", 1e-4, 1e7), **options, schemes=["UMW", "D-SGD", "D-Adam"]
    ).choices
    by_scheme = {c.scheme: c for c in choices if not c.experiment.scheme_args.get("worker_batch")}
    assert by_scheme.keys() == {"UMW", "D-SGD", "D-Adam"}
    assert all(choice.exact for choice in by_scheme.values())
    batches = [c for c in choices if c.experiment.scheme_args.get("worker_batch")]
    assert batches
    assert not any(c.exact for c in batches)
    assert by_scheme["D-SGD"].source == by_scheme["UMW"].source
    assert by_scheme["D-SGD"].step == by_scheme["UMW"].step
    assert by_scheme["D-SGD"].rounds == by_scheme["UMW"].rounds
    assert by_scheme["D-Adam"].source.startswith("simulated")
    assert not wb.schemes.get("D-SGD")(worker_batch=3).is_exact


@sampled_test("steps of the planner", 1, 2)
def test_plan_gives_every_scheme_a_step_and_an_optimiser() -> None:
    """SGD sums N - S of N answers, so its step is about N / (N - S) times the exact one.

    D-Adam has AMSGrad as its optimiser.
    """
    by_scheme = {c.scheme: c for c in learnt("UMW", "SGD", "D-SGD", "D-Adam").choices}
    assert not by_scheme["SGD"].exact
    exact = by_scheme["UMW"].experiment.optimiser_args["step"]
    half = next(c for c in learnt("UMW", "SGD", "D-SGD", "D-Adam").choices if c.name == "SGD stragglers 6")
    assert 1.2 * exact < half.experiment.optimiser_args["step"] < 3 * exact
    assert half.rounds < 1.6 * by_scheme["UMW"].rounds
    assert by_scheme["D-Adam"].experiment.optimiser == "amsgrad"
    assert by_scheme["D-Adam"].step.startswith("amsgrad rate ")
    assert f"gd step {exact:.3g}" == by_scheme["UMW"].step
    for advice in (learnt("UMW", "SGD", "D-Adam"), learnt("UMW", "SGD", "D-SGD", "D-Adam")):
        assert f"with {advice.best.step}," in advice.why


@sampled_test("the planner", 2, 4, 2)
@pytest.mark.parametrize("scheme", ["DiLoCo", "LocalSGD"])
def test_plan_compares_model_averages_at_their_own_tuned_step(scheme: str) -> None:
    """Schemes that average models commit differences of models.

    The planner chooses the fastest of several steps around that of plain averaging.
    """
    profile = measured(6, "straggle", 1e-3, 1e6)
    problem = {"problem": "logistic", "problem_args": {"samples": 240, "features": 20}}
    advice = advise(profile, **problem, effort=4e9, tolerance=0.15, schemes=["UMW", scheme])
    exact = next(c for c in advice.choices if c.scheme == "UMW")
    choice = next(c for c in advice.choices if c.scheme == scheme)
    assert not choice.exact
    assert choice.experiment.optimiser == wb.schemes.get(scheme).optimiser
    whole = 0.7 if scheme == "DiLoCo" else 1 / choice.experiment.build_problem().smoothness()
    own = choice.experiment.optimiser_args["step"]
    assert own != exact.experiment.optimiser_args["step"]
    assert own / whole in [pytest.approx(k) for k in OWN_STEPS]

    def seconds(step: float) -> float:
        e = choice.experiment.replace(optimiser_args={"step": step}, seed=1, rounds=60)
        trace = wb.run(e, events=False)
        there = np.flatnonzero(trace.columns["loss"] <= advice.loss)
        return float(trace.columns["time"][there[0]]) if len(there) else np.inf

    assert seconds(own) <= 1.05 * min(seconds(k * whole) for k in OWN_STEPS)


def test_plan_keeps_the_users_optimiser_and_step() -> None:
    profile = measured(6, "straggle", 1e-3, 1e6)
    problem = {"problem": "logistic", "problem_args": {"samples": 240, "features": 20}, "effort": 4e9}
    step = {"optimiser_args": {"step": 2.0}}
    advice = advise(profile, **problem, **step, schemes=["UMW", "SGD", "LAGC"])
    assert {c.scheme for c in advice.choices} >= {"UMW", "SGD"}
    assert all(c.experiment.optimiser_args == step["optimiser_args"] for c in advice.choices)
    assert any("at these, as asked for" in note for note in advice.notes)
    chosen = advise(profile, **problem, optimiser="nesterov", schemes=["UMW", "SGD", "CADA"])
    assert {c.experiment.optimiser for c in chosen.choices} == {"nesterov"}
    assert len({c.step for c in chosen.choices}) > 1


@sampled_test("the planner", 3, 4, 2)
def test_plan_first_choice_is_independent_of_other_candidates() -> None:
    whole = learnt("UMW", "GC", "SGD", "CRC", "FRC", "D-Adam")
    for fewer in (learnt("UMW", "SGD", "D-Adam"), learnt("SGD")):
        assert fewer.best.scheme == whole.best.scheme == "SGD"
        assert (fewer.best.experiment, fewer.best.seconds) == (whole.best.experiment, whole.best.seconds)


def test_plan_with_a_user_defined_target() -> None:
    profile = measured(6, "straggle", 1e-3, 1e6)
    problem = {"problem": "logistic", "problem_args": {"samples": 240, "features": 20}}
    loss = wb.run(wb.Experiment(scheme="UMW", workers=6, rounds=40, **problem), events=False).columns["loss"]
    target = float(loss[20] + loss[21]) / 2
    advice = advise(profile, **problem, target=target, rounds=40, schemes=["UMW", "CR"])
    assert advice.target == f"to a loss of {target:.4g}"
    assert {choice.rounds for choice in advice.choices} == {22.0}
    with pytest.raises(SettingError, match=r"^target = 1e-09: "):
        advise(profile, **problem, target=1e-9, rounds=10, schemes=["UMW"])


# ---------------------------------------------------------------- refusals


def test_plan_lists_refused_candidates_with_the_reason() -> None:
    advice = advise(measured(7, "steady", 1e-4, 1e8), schemes=["UMW", "CR", "SGD"])
    reasons = {each.name: each.reason for each in advice.refusals}
    assert "tree" in reasons["CR"]
    assert "effort = 0" in reasons["SGD"]
    logistic = advise(measured(6, "steady", 1e-4, 1e8), schemes=["UMW", "LCC"], problem="logistic")
    assert "encoded data" in {each.name: each.reason for each in logistic.refusals}["LCC"]


@pytest.mark.parametrize("effort", [1e9, 2e9])
def test_plan_keeps_a_scheme_whose_first_candidate_misses_the_loss(effort: float) -> None:
    """With little effort, SGD first waits for one answer, here always that of worker 1, and then for more."""
    slow = {
        "slow_workers": tuple(range(2, 13)),
        "slow_straggles": 1.0,
        "active_straggles": 0.0,
        "factor": 3.0,
    }
    cluster = wb.Experiment(scheme="UMW", workers=12, delays={"kind": "heterogeneous", **slow})
    advice = advise(simulated(cluster, 30, 6), **{**LEARNT, "effort": effort}, schemes=["UMW", "SGD"])
    assert "SGD stragglers 11" in {each.name for each in advice.refusals}
    assert "SGD" in {c.scheme for c in advice.choices}


def test_plan_refuses_fewer_samples_than_parts() -> None:
    with pytest.raises(SettingError, match=r"^schemes: none can be ranked .*take more samples"):
        advise(measured(12, "steady", 1e-4, 1e8), problem_args={"samples": 5, "features": 3}, schemes=["UMW"])


def test_check_memory_refuses_too_little_memory() -> None:
    profile = measured(6, "steady", 1e-4, 1e8)
    e = wb.Experiment(scheme="UMW", workers=6, problem_args={"samples": 10**6, "features": 10**4})
    check_memory(profile, e, 10**6 / 6)  # the available memory is unknown
    small = profile.replace(hosts=(Host(name="a", ranks=6, cores=2, free=8.0),))
    with pytest.raises(SettingError, match=r"6 on a need about 7\d\.\d GiB and 8\.0 GiB are free"):
        check_memory(small, e, 10**6 / 6)


def test_plan_refuses_fields_that_it_sets_itself() -> None:
    with pytest.raises(SettingError, match=r"^delays: the planner fills it in"):
        advise(measured(6, "steady", 1e-4, 1e8), delays={"kind": "constant"})
    for bad in ({"tolerance": 1.0}, {"tolerance": -1.0}, {"effort": -4.0}, {"schemes": []}):
        ((name, value),) = bad.items()
        with pytest.raises(SettingError, match=f"^{name} = {re.escape(str(value))}: "):
            advise(measured(6, "steady", 1e-4, 1e8), **bad)
    with pytest.raises(SettingError, match=r"scheme = 'CX'"):
        advise(measured(6, "steady", 1e-4, 1e8), schemes=["CX"])


# ---------------------------------------------------------------- candidates


@pytest.mark.parametrize("scheme", wb.schemes.names())
@pytest.mark.parametrize("workers", [1, 2, 6, 12, 13])
def test_candidates_of_every_scheme(scheme: str, workers: int) -> None:
    """Candidates differ, are few, and include some that fit, if any parameters of the scheme fit."""
    found = list(wb.schemes.get(scheme).candidates(workers))
    assert len({repr(sorted(args.items())) for args in found}) == len(found) <= 40
    fits = []
    for args in found:
        try:
            fits.append(wb.Experiment(scheme=scheme, scheme_args=args, workers=workers, **SMALL))
        except SettingError as error:
            assert str(error)  # noqa: PT017 - a refusal is one sentence
    if workers in (6, 12):
        assert fits


def test_plan_ranks_no_scheme_that_a_run_refuses() -> None:
    """Some Lagrange codes on 84 workers lose too many digits."""
    profile = measured(6, "straggle", 1e-3, 4e5)
    args = {"samples": 1680, "features": 50}
    advice = advise(profile, schemes=["LCC"], workers=84, problem_args=args)
    known = list(wb.schemes.get("LCC").candidates(84))
    assert 0 < len(advice.choices) < len(known)
    for choice in advice.choices:
        assert lost_digits(choice.experiment.built_scheme, 84) is not None  # raises if a run would be refused
