"""Cluster profiles: the parameters of a simulated cluster are recovered, and real processes are measured."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import workbench as wb
from tests.support.sampled_cases import rotated
from workbench.analysis.planning import measuring
from workbench.analysis.planning.delay_fits import drawn
from workbench.analysis.planning.linkfit import PortFit
from workbench.analysis.planning.measurements import Fitted
from workbench.analysis.planning.measuring import (
    Observed,
    filled,
    fit_all,
    grid,
    hosts_of,
    on_one_clock,
    profile,
    simulated,
)
from workbench.analysis.planning.profile import ClusterProfile, Task, scaled
from workbench.core.base.settings import SettingError
from workbench.core.contract.delays import Heterogeneous, ShiftedExponential, resampled
from workbench.core.contract.sharing import slowed
from workbench.mpi.clusters.ssh.kind import Ssh

FEW_EXAMPLES = settings(max_examples=6)
LINK: dict[str, Any] = {"latency": 1e-3, "bandwidth": 8e6, "downloads": True}
RIVALS: list[tuple[str, dict[str, Any]]] = [
    ("UMW", {}),
    ("GC", {"stragglers": 3}),
    ("CR", {"children": 3, "layers": 2, "stragglers": 1}),
    ("RAR", {}),
    ("CEGC", {"load": 3, "stragglers": 1, "reduction": 2}),
]


def truth(**fields: Any) -> wb.Experiment:
    return wb.Experiment(**{"scheme": "UMW", "workers": 12, "link": LINK, **fields})


@pytest.fixture(scope="module")
def known() -> ClusterProfile:
    return simulated(truth(), rounds=40, resamples=6)


def test_simulated_measures_loads_in_turn_on_the_same_workers() -> None:
    """All loads are measured on the same permanently slow workers. Stragglers of single rounds differ between loads."""
    delays = {"kind": "heterogeneous", "slow_straggles": 0.7}
    one, *others = simulated(truth(delays=delays, seed=2), rounds=40).recorded
    late = [each.times > 3 * each.typical for each in (one, *others)]
    often = [each.mean(axis=0) > 0.4 for each in late]
    assert 0 < often[0].sum() < 12
    for each, slow in zip(late[1:], often[1:], strict=True):
        np.testing.assert_array_equal(slow, often[0])
        assert (each != late[0]).any()


@FEW_EXAMPLES
@given(
    shift=st.floats(1e-5, 1e-3),
    spread=st.floats(0.3, 2.0),
    latency=st.floats(1e-4, 1e-2),
    bandwidth=st.floats(1e6, 1e8),
    seed=st.integers(0, 2**32 - 1),
)
def test_simulated_profile_recovers_delays_and_link(
    shift: float, spread: float, latency: float, bandwidth: float, seed: int
) -> None:
    delays = {"kind": "shifted_exponential", "shift": shift, "rate": 1 / (shift * spread)}
    link = {"latency": latency, "bandwidth": bandwidth, "downloads": True}
    found = simulated(truth(delays=delays, link=link, seed=seed), rounds=40)
    delay_model = found.delays(64, 1024)
    assert delay_model.kind in ("shifted_exponential", "pareto")
    # seconds per sample of a worker whose draw is the mean
    mean = delay_model.compute(np.ones((1, 1)), np.array([64.0]))[0] / 64
    assert mean == pytest.approx(shift * (1 + spread), rel=0.25)
    assert found.link(1024).latency == pytest.approx(latency, rel=0.05)
    expected = wb.Experiment(link=link).link.transfer(1024)
    # If few answers meet at the port, only the sum of latency and transfer time can be measured.
    assert found.link(1024).transfer(1024) == pytest.approx(expected, rel=0.1, abs=0.02 * latency)
    assert found.link(1024).downloads


@pytest.mark.parametrize(("scheme", "args"), RIVALS, ids=lambda x: x if isinstance(x, str) else "")
def test_forecasts_on_the_profile_are_those_on_the_truth(
    known: ClusterProfile, scheme: str, args: dict[str, Any]
) -> None:
    e = truth(scheme=scheme, scheme_args=args, problem_args={"samples": 1200, "features": 500})
    expected = wb.forecast(e, 400).mean
    assert wb.forecast(known.experiment(e), 400).mean == pytest.approx(expected, rel=0.06)


@pytest.mark.parametrize(
    "delays",
    [
        {"kind": "heterogeneous", "slow": 0.3},
        {"kind": "markov", "p_slow": 0.05, "p_recover": 0.2},
        {"kind": "pareto", "shape": 2.5},
        {"kind": "constant", "shift": 1e-4},
    ],
    ids=lambda d: d["kind"],
)
def test_simulated_profile_recovers_every_delay_model(delays: dict[str, Any]) -> None:
    found = simulated(truth(workers=30, delays=delays, seed=2), rounds=60)
    delay_model = found.delay_model(found.main)
    assert delay_model is not None
    assert delay_model.delays.kind == delays["kind"]
    e = truth(workers=30, delays=delays, seed=2, problem_args={"samples": 3000, "features": 100})
    expected, mean = wb.forecast(e, 300).mean, wb.forecast(found.experiment(e), 300).mean
    assert mean == pytest.approx(expected, rel=0.1)


@pytest.mark.parametrize(
    "scheme", [("UC-MMC", {"clusters": 2, "load": 6}), ("GC-MMC", {"clusters": 4, "load": 3, "order": 2})]
)
def test_profile_of_per_part_answers_includes_the_cost_of_a_task(
    scheme: tuple[str, dict[str, Any]],
) -> None:
    """If a task takes the same time for any load, its first part is done no earlier than its last one."""
    delays = {"kind": "exponential", "mean": 5e-3}
    found = simulated(truth(delays=delays, seed=3), rounds=60)
    name, args = scheme
    ratios = []
    for each, numbers in (("UMW", {}), (name, args)):
        e = truth(
            delays=delays, scheme=each, scheme_args=numbers, problem_args={"samples": 1200, "features": 100}
        )
        ratios.append(found.forecast(e, 400).mean / wb.forecast(e, 400).mean)
    # 0.75 if each part took its share of the whole time
    assert ratios[1] == pytest.approx(ratios[0], rel=0.05)


def test_scaled_with_fewer_but_longer_samples_takes_as_long() -> None:
    delay_model = wb.Experiment(delays={"kind": "pareto", "fixed": 12.0}).delays
    draw = np.full((1, 1), 1.3)
    whole, part = (
        delay_model.compute(draw, np.array([60])),
        scaled(delay_model, 5.0).compute(draw, np.array([12])),
    )
    assert part == pytest.approx(whole)


@pytest.mark.parametrize(("groups", "searches"), [([], 1), ([{"workers": [2, 5], "latency": 0.02}], 4)])
def test_resampled_rounds_are_searched_for_groups_only_if_there_are_some(
    groups: list[dict[str, Any]], searches: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A search takes seconds of processor time if workers have different speeds."""
    calls, search = list[PortFit](), measuring.fit_groups

    def counted(found: Sequence[Any], port: PortFit) -> PortFit:
        calls.append(port)
        return search(found, port)

    monkeypatch.setattr(measuring, "fit_groups", counted)
    link = {"latency": 1e-3, "bandwidth": 8e6, "downloads": True, "groups": groups}
    profile = simulated(wb.Experiment(scheme="UMW", workers=6, link=link), 20, 3)
    assert len(calls) == searches
    assert bool(profile.fitted.port.groups) == bool(groups)


def test_simulated_profile_detects_a_link_without_downloads() -> None:
    found = simulated(truth(link={"latency": 1e-3}, delays={"kind": "constant", "shift": 1e-4}), rounds=10)
    assert not found.link(100).downloads
    assert found.delays(16, 64).compute(np.zeros((1, 1)), np.array([1.0]))[0] == pytest.approx(1e-4)


def test_profile_resampled_has_a_spread_around_the_fit(known: ClusterProfile) -> None:
    rates = [
        each.delay_models[0].rate
        for each in known.resampled
        if isinstance(each.delay_models[0], ShiftedExponential)
    ]
    delay_model = known.fitted.delay_models[0]
    assert isinstance(delay_model, ShiftedExponential)
    assert len(set(rates)) == len(known.resampled) == 6
    # the errors of all six resampled rates may have the same sign
    assert abs(np.mean(rates) - delay_model.rate) < 3 * np.std(rates, ddof=1)


def test_profile_resampled_share_of_slow_workers_is_uncertain() -> None:
    """A measurement shows which of the measured workers are slow.

    The share of slow workers on other machines is estimated from these 20 workers, so it has a sampling error.
    """
    delays = {"kind": "heterogeneous", "slow": 0.3, "slow_straggles": 0.9, "active_straggles": 0.0}
    found = simulated(truth(workers=20, delays=delays, seed=1), rounds=30, resamples=40)
    slow = [
        each.delay_models[0].slow
        for each in found.resampled
        if isinstance(each.delay_models[0], Heterogeneous)
    ]
    assert len(slow) >= 35  # a draw may have no slow worker
    assert 0.03 < np.std(slow) < 0.2  # sqrt(0.3 * 0.7 / 20) = 0.10


def test_profile_file_round_trips(known: ClusterProfile, tmp_path: Path) -> None:
    for name in ("a.json", "b.yaml"):
        path = known.save(tmp_path / name)
        assert ClusterProfile.load(path) == known
    fields = json.loads((tmp_path / "a.json").read_text())
    assert fields["hosts"][0]["name"] == "simulated"
    # links as earlier versions wrote them
    older = {**fields, "links": [{"up": {"latency": 1e-3}, "down": {"latency": 1e-3}}]}
    (tmp_path / "a.json").write_text(json.dumps(older))
    assert ClusterProfile.load(tmp_path / "a.json") == known
    assert fields["versions"]["numpy"]
    assert not list(tmp_path.glob(".*"))  # no temporary file is left


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", r"p\.json: "),
        ('{"format": 99}', r"p\.json: "),
        ("[]", r"p\.json: "),
        ("{}", r"p\.json: cluster: is missing"),
    ],
)
def test_profile_load_reports_a_broken_file(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "p.json"
    path.write_text(text)
    with pytest.raises(SettingError, match=message):
        ClusterProfile.load(path)


def test_profile_save_and_load_accept_file_names(known: ClusterProfile, tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"no such file"):
        ClusterProfile.load(tmp_path / "none.json")
    with pytest.raises(SettingError, match=r"end it in \.json or \.yaml"):
        known.save(tmp_path / "p.txt")
    with pytest.raises(SettingError, match=r"no folder"):
        known.save(tmp_path / "not" / "p.json")


def test_profile_replays_times_that_fit_no_model(known: ClusterProfile) -> None:
    """For any recording, UMW has the recorded round times, since all workers start at the same recorded round."""
    recorded = known.recorded[3]
    worse = known.fitted.replace(delay_models=(None,), typical=(recorded.typical,))
    alone = known.replace(recorded=(recorded,), delay_models=known.delay_models[3:4], fitted=worse)
    e = grid(12, None, 40)[3].replace(rounds=40)
    replayed = wb.forecast(alone.experiment(e), 40)
    assert alone.experiment(e).delays.kind == "replay"
    assert replayed.mean == pytest.approx(np.mean(recorded.rounds), rel=0.02)
    np.testing.assert_allclose(np.sort(replayed.seconds), np.sort(recorded.rounds), rtol=0.03)


@rotated
def test_profile_resampled_includes_the_uncertainty_of_a_recording(known: ClusterProfile) -> None:
    """All workers of a round are delayed together, and no delay model fits.

    The mean has the sampling error of the 60 rounds of each of six loads.
    """
    luck = np.exp(np.random.default_rng(0).normal(0.0, 0.6, (6, 60, 1)) * np.ones(12))
    rows = (typical * own for typical, own in zip(known.fitted.typical, luck, strict=True))
    recorded = tuple(
        each.replace(seconds=tuple(map(tuple, new))) for each, new in zip(known.recorded, rows, strict=True)
    )
    bare = known.replace(recorded=recorded).replayed()
    whole = bare.relative[0][:, 0]
    assert len(whole) == 360

    def spread(fits: Sequence[Fitted]) -> float:
        means = [drawn(bare.delays(64, 1024, fit), 2000, 1).mean() for fit in fits]
        return float(np.std(np.log(means)))

    again = [bare.fitted.replace(drawn=seed) for seed in range(24)]
    rng = np.random.default_rng(1)
    expected = float(np.std([np.log(whole[resampled(360, rng)].mean()) for _ in range(4000)]))
    assert spread(again) == pytest.approx(expected, rel=0.35)
    assert spread([bare.fitted] * 3) < 1e-12


def test_profile_counts_relays(known: ClusterProfile) -> None:
    """On shared cores, a ring costs a worker as many messages as a star does. A tree of two layers adds one relay."""
    there = known.replace(hosts=(known.hosts[0].replace(cores=2),))
    problem = {"samples": 600, "features": 20}
    tree = {"children": 3, "layers": 2, "stragglers": 0}
    star, ring, high = (
        there.task(truth(scheme=scheme, scheme_args=args, problem_args=problem))
        for scheme, args in (("UMW", {}), ("RAR", {}), ("CR", tree))
    )
    assert (star.messages, ring.messages, high.messages) == (2, 2, 2)
    assert (star.relays, ring.relays, high.relays) == (0, 0, 1)


def test_profile_reports_shared_cores(known: ClusterProfile) -> None:
    host = known.hosts[0].replace(cores=2)
    crowded = known.replace(hosts=(host,))
    assert any("12 workers on 2 cores" in note for note in crowded.notes())
    assert not known.notes()


@given(slots=st.lists(st.integers(1, 4), min_size=1, max_size=4), workers=st.integers(1, 12))
def test_profile_workers_share_the_cores_of_their_host(
    known: ClusterProfile, slots: list[int], workers: int
) -> None:
    """With the measured machines, each worker keeps its host.

    With other machines, each host has its share of the workers.
    """
    places = Ssh(hosts=[{"host": f"h{i}", "slots": n} for i, n in enumerate(slots)]).placed(13)
    hosts = tuple(host.replace(cores=2) for host in hosts_of(places, None))
    profile = known.replace(hosts=hosts)
    assert [hosts[k].name for k in profile.host_of_each()] == places[1:]
    last = hosts[-1].replace(who=(*(hosts[-1].who or ()), 13))
    with pytest.raises(SettingError, match=r"^hosts.who: there are workers 1 to 12; name each one once$"):
        known.replace(hosts=(*hosts[:-1], last))
    task = Task(50, 20, 20)
    very, others = (each.sharing(workers, task) for each in (profile.here(12), profile))
    assert very is not None
    assert others is not None
    assert [[places[w + 1] for w in place] for place in very.places] == [
        [host.name] * sum(there == host.name for there in places[1 : workers + 1]) for host in hosts
    ]
    for host, place in zip(hosts, others.places, strict=True):
        assert abs(len(place) - host.ranks * workers / 12) < 1


def test_profile_workers_share_cores_by_their_demand(known: ClusterProfile) -> None:
    """Tasks that only wait take the same time on two cores as on twelve. Busy ones take longer."""
    shared, problem = known.hosts[0].replace(cores=2), {"samples": 600, "features": 20}

    def mean(busy: float, scheme: str, **args: Any) -> float:
        recorded = tuple(each.replace(busy=busy) for each in known.recorded)
        there = known.replace(hosts=(shared,), recorded=recorded)
        return there.forecast(truth(scheme=scheme, scheme_args=args, problem_args=problem), 50).mean

    alone = known.forecast(truth(problem_args=problem), 50).mean
    assert mean(0.0, "UMW") == mean(0.1, "UMW") == alone
    assert alone < mean(0.5, "UMW") < mean(1.0, "UMW") < 6 * alone
    # parts that are no longer needed are not started
    assert mean(1.0, "UC-MMC", load=12) < mean(1.0, "GC", stragglers=11)
    late = mean(0.0, "SGD", stragglers=3)  # a straggler finishes its task before it takes the next one
    assert (
        known.forecast(truth(scheme="SGD", scheme_args={"stragglers": 3}, problem_args=problem), 50).mean
        < late
    )
    assert late < alone


@pytest.mark.parametrize(
    ("share", "counted", "off"), [(0.02, 1.0, 0.01), (0.14, 1.0, 0.05), (1.0, 1.0, 1e-3), (1.0, 0.95, 1e-3)]
)
def test_filled_finds_the_unshared_times_of_tasks(share: float, counted: float, off: float) -> None:
    alone = np.random.default_rng(0).exponential(1.0, (60, 12)) + 1.0
    none, shared = np.zeros((60, 12)), slowed(alone, 2 / share)
    crew, commit = ((np.arange(12), 2.0),), shared.max(axis=1)
    seen = Observed(1.0, 1, none[:, 0], *[none] * 6, commit, used=counted * share * alone.mean(), crew=crew)
    (seen,) = filled([seen])
    found = seen.alone(shared, seen.share(shared))
    np.testing.assert_allclose(found, alone, rtol=off)


@pytest.mark.parametrize("patient", [0.0, 1.0])
def test_fit_all_counts_messages_as_work_on_full_cores(patient: float) -> None:
    """Twelve workers share two cores. The master receives answers as they come, or after all tasks."""
    tasks = np.random.default_rng(0).uniform(0.9e-3, 1.1e-3, (60, 12))
    done = np.cumsum(tasks.reshape(60, 6, 2), axis=1).reshape(60, 12)
    end = done + 1e-4 + patient * (done.max(axis=1, keepdims=True) - done) * np.linspace(0.8, 1.0, 12)
    commit = end.max(axis=1) + 5e-4
    start = np.cumsum(commit) - commit
    moments = [start[:, None] + each for each in (0.0 * done, done - tasks, done - tasks, done, done, end)]
    seen = Observed(10.0, 5, start, *moments, start + commit, used=1e-3, crew=((np.arange(12), 2.0),))
    fitted, (times,) = fit_all(filled([seen]))
    assert fitted.port == PortFit(downloads=False)
    np.testing.assert_allclose(slowed(times, 2.0).max(axis=1), commit, rtol=1e-3)
    # with a core for each worker, the same times are fitted as links, whose answers may be delayed
    idle, _ = fit_all(filled([replace(seen, crew=((np.arange(12), 12.0),))]))
    for link in (idle.port, *idle.port.groups):
        assert link.latency + link.overhead > 5e-5 or link.delays is not None


def test_on_one_clock_corrects_clock_offsets() -> None:
    """A worker's clock is an hour ahead. In each direction, the fastest message takes 1 ms."""
    rng = np.random.default_rng(0)
    left = np.arange(20.0)[:, None] + np.zeros((20, 2))
    came = left + 1e-3 + rng.exponential(1e-3, (20, 2))
    came[0] = left[0] + 1e-3
    begun, done = came, came + 0.1
    end = done + 1e-3 + rng.exponential(1e-3, (20, 2))
    end[1] = done[1] + 1e-3
    seen = Observed(10.0, 5, np.arange(20.0), left, came, begun, done, done, end, end.max(axis=1))
    off = np.array([0.0, 3600.0])
    wrong = Observed(
        10.0, 5, seen.start, left, came + off, begun + off, done + off, done + off, end, seen.commit
    )
    right = on_one_clock(wrong, np.array([False, True]))
    np.testing.assert_allclose(right.done, seen.done, atol=1e-8)
    np.testing.assert_allclose(right.came, seen.came, atol=1e-8)


def test_scaled_changes_only_the_times() -> None:
    for spec in ({"kind": "markov"}, {"kind": "pareto"}, {"kind": "two_part"}, {"kind": "heterogeneous"}):
        delay_model = truth(delays=spec).delays
        draw = np.ones((2, 3))
        once, twice = (each.compute(draw, np.ones(3)) for each in (delay_model, scaled(delay_model, 2.0)))
        np.testing.assert_allclose(twice, 2 * once)


@pytest.mark.parametrize(
    ("problem", "args"),
    [
        ("logistic", {"data": "breast_cancer"}),
        ("softmax", {"data": "digits"}),
        ("least_squares", {"samples": 500, "features": 40, "l2": 0.1}),
    ],
)
def test_grid_of_a_calibration_like_an_experiment(problem: str, args: dict[str, Any]) -> None:
    """The grid has synthetic data, the model size of `like` and another one, and one to four times its load."""
    like = wb.Experiment(scheme="UMW", workers=5, problem=problem, problem_args=args)
    found = grid(5, like, 8)
    sizes = {e.shape()[1] for e in found}
    assert like.shape()[1] in sizes
    assert len(sizes) == 2
    loads = sorted(e.built_scheme.loads(5, e.shape()[0]).mean() for e in found)
    assert loads[0] == pytest.approx(like.shape()[0] / 5, rel=0.05)
    assert loads[-1] == pytest.approx(4 * loads[0], rel=0.05)
    assert {e.problem_args.get("data", "synthetic") for e in found} == {"synthetic"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rounds": 3}, r"^rounds = 3: "),
        ({"workers": 0}, r"^workers = 0: "),
        ({"cluster": "nowhere"}, r"nowhere"),
        ({"like": wb.Experiment(problem="unit")}, r"^like\.problem = 'unit': "),
    ],
)
def test_profile_refuses_impossible_requests_before_starting(options: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        profile(**options)


@rotated
@pytest.mark.mpi
@pytest.mark.xdist_group("mpi")
def test_profile_measures_real_ranks(tmp_path: Path) -> None:
    """Profile four ranks on this machine: every time is measured, and the profile can be saved and forecast with."""
    found = profile("local", workers=4, rounds=10, resamples=3)
    assert (found.workers, sum(host.ranks for host in found.hosts)) == (4, 4)
    assert found.one_clock
    assert found.hosts[0].cores
    assert found.hosts[0].free
    for each in found.recorded:
        assert each.times.shape == (10, 4)
        assert (each.times > 0).all()
        assert 0 < each.busy <= 1
    assert len(found.resampled) == 3
    assert ClusterProfile.load(found.save(tmp_path / "p.json")) == found
    e = truth(workers=4, problem="least_squares", problem_args={"samples": 400, "features": 500})
    assert wb.forecast(found.experiment(e), 20).mean > 0
