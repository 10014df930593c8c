"""GC-MMC and UC-MMC against paper 5: its example, its figure, its limits, on the event engine and in forecasts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import workbench as wb
from tests.support.sampled_cases import sampled_cases
from tests.support.strategies import experiments
from workbench.core.contract.delays import DelayStream
from workbench.core.contract.protocol import (
    CODED,
    MODEL,
    Close,
    Commit,
    Compute,
    Decode,
    Message,
    Node,
    Recv,
    Send,
)
from workbench.core.engine.timeline import Timeline
from workbench.core.engine.virtual.arithmetic import Coefficients
from workbench.core.running.simulated import timeline
from workbench.core.schemes.multi_message import GCMMC, UCMMC

DELAYS = {"kind": "shifted_exponential", "shift": 0.01, "rate": 10.0}  # alpha, mu; one sample per part
FOUR = {"clusters": 4, "load": 10}
FRC, ONE = ("GC-MMC", {**FOUR, "order": 10}), ("GC-MMC", {**FOUR, "order": 6})
TWO, HYBRID = {**FOUR, "order": [6, 8, 10]}, {**FOUR, "order": [6, 8, 10], "hybrid": True}
TABLE = [  # scheme, parameters, mean completion time, messages per round (figure 1, computed again)
    ("GC", {"stragglers": 9}, 1.548, 31),
    ("GC", {"stragglers": 9, "code": "fractional"}, 0.309, 7.5),
    ("GC-MMC", {**FOUR, "order": 10, "when_done": "stop"}, 0.309, 4),
    ("GC-MMC", {**FOUR, "order": 10, "when_done": "go on"}, 0.309, 7.5),
    ("LCC", {"load": 10}, 0.290, 7),
    ("UC-MMC", {"load": 10}, 0.169, 106),
    ("GC-MMC", {**FOUR, "order": 6, "when_done": "stop"}, 0.272, 21.5),
    ("GC-MMC", {**FOUR, "order": 6, "when_done": "go on"}, 0.272, 42.5),
    ("GC-MMC", {**TWO, "when_done": "stop"}, 0.439, 28),
    ("GC-MMC", {**TWO, "when_done": "go on"}, 0.439, 43.8),
    ("GC-MMC", {**HYBRID, "when_done": "go on"}, 0.304, 30.1),
]


def of_the_paper(scheme: str, args: dict[str, Any], rounds: int, **fields: Any) -> wb.Experiment:
    """Return an experiment with K = 40 workers and parts of one sample."""
    fixed: dict[str, Any] = {"workers": 40, "problem": "unit", "problem_args": {"samples": 40}}
    fixed |= {"delays": DELAYS, "rounds": rounds, "seed": 5}
    return wb.Experiment(scheme=scheme, scheme_args=args, **{**fixed, **fields})


def simulated(e: wb.Experiment) -> tuple[Timeline, Coefficients]:
    coefficients = Coefficients(e.plan)
    return timeline(e, coefficients, events=False), coefficients


@pytest.mark.parametrize(("scheme", "args", "seconds", "messages"), sampled_cases("figure 1", 4, TABLE))
def test_mmc_figure_1_by_forecast(scheme: str, args: dict[str, Any], seconds: float, messages: float) -> None:
    f = wb.forecast(of_the_paper(scheme, args, rounds=6000))
    assert f.mean == pytest.approx(seconds, rel=0.02)
    assert f.messages == pytest.approx(messages, rel=0.02)
    assert f.load == 0.25


@pytest.mark.parametrize(("scheme", "args"), [row[:2] for row in TABLE if row[0] != "LCC"])
def test_mmc_figure_1_forecast_equals_the_event_engine(scheme: str, args: dict[str, Any]) -> None:
    e = of_the_paper(scheme, args, rounds=20)
    line, coefficients = simulated(e)
    f = wb.forecast(e)
    np.testing.assert_allclose(f.seconds, np.diff(line.times, prepend=0.0), rtol=1e-10)
    assert f.messages == pytest.approx(np.mean(line.messages), rel=1e-12)
    assert coefficients.weights == [None] * 20


@pytest.mark.slow
@pytest.mark.parametrize(("scheme", "args", "seconds", "messages"), TABLE)
def test_mmc_figure_1_by_events(scheme: str, args: dict[str, Any], seconds: float, messages: float) -> None:
    rounds = 3000
    if scheme == "LCC":
        trace = wb.run(of_the_paper(scheme, args, rounds), events=False).rounds
        times, counts = trace["time"].to_numpy(), trace["messages"].to_numpy()
    else:
        line, _ = simulated(of_the_paper(scheme, args, rounds))
        times, counts = np.array(line.times), np.array(line.messages)
    assert times[-1] / rounds == pytest.approx(seconds, rel=0.02)
    assert counts.mean() == pytest.approx(messages, rel=0.02)


@pytest.mark.parametrize(
    ("args", "order", "hybrid"), [(ONE[1], 6, False), (TWO, [6, 8, 10], False), (HYBRID, [6, 8, 10], True)]
)
def test_mmc_mean_equals_the_theory(args: dict[str, Any], order: int | list[int], hybrid: bool) -> None:
    f = wb.forecast(of_the_paper("GC-MMC", args, rounds=6000))
    exact = wb.theory.mmc_completion(40, 10, order, 4, shift=0.01, rate=10, hybrid=hybrid)
    assert abs(f.mean - exact) < 4 * f.error
    assert f.error < 0.01 * exact


# ------------------------------------------------------------------------------------------ Example 1


def worker_program(scheme: GCMMC, rank: int) -> list[tuple[list[int], int, np.ndarray]]:
    """Return the messages of a worker of Example 1: finished parts, number, coefficients."""
    plan, sent, done = scheme.plan(6, 6), [], list[int]()
    program = scheme.program(Node(rank, plan, 1, 6, None, lambda: 0.0))
    assert isinstance(next(program), Recv)
    effect = program.send(Message(0, MODEL, 0, 0, "model"))
    while not isinstance(effect, Recv):
        if isinstance(effect, Compute):
            (part,) = effect.work.parts.tolist()
            done.append(part)
            effect = program.send(np.eye(6)[part])
        else:
            assert isinstance(effect, Send)
            sent.append((list(done), effect.number, effect.value))
            effect = program.send(None)
    return sent


def test_example_1_correlated_messages() -> None:
    """K = 6, r = 3, m = 2: worker i sends c_i after two computations, and c_(i+1) after the third."""
    scheme = GCMMC(load=3, order=2)
    first = {rank: worker_program(scheme, rank) for rank in range(1, 7)}
    for rank, sent in first.items():
        i = rank - 1
        assert [done for done, *_ in sent] == [
            [i, (i + 1) % 6],
            [i, (i + 1) % 6, (i + 2) % 6],
        ]
        assert sorted(np.flatnonzero(sent[0][2])) == sorted([i, (i + 1) % 6])
        np.testing.assert_array_equal(sent[1][2], first[rank % 6 + 1][0][2])  # the same c_(i+1)


def test_example_1_uncorrelated_messages() -> None:
    """With [3, 2], the masks are those of section III-B. Any 8 of the 12 messages decode."""
    scheme = GCMMC(load=3, order=(3, 2), construction="joint")
    for rank in range(1, 7):
        i = rank - 1
        sent = worker_program(scheme, rank)
        assert [done for done, *_ in sent] == [[i, (i + 1) % 6], [(i + k) % 6 for k in range(3)]]
        assert [sorted(np.flatnonzero(value)) for *_, value in sent] == [sorted(d) for d, *_ in sent]
    assert scheme.agenda(6).code.needed == 8


def received(scheme: GCMMC, arrivals: list[tuple[int, int]]) -> Commit | None:
    """Send messages (rank, number) to the master in this order.

    Return its commit if it commits with the last one, else None.
    """
    sent = {rank: worker_program(scheme, rank) for rank in range(1, 7)}
    program = scheme.program(Node(0, scheme.plan(6, 6), 1, 6, None, lambda: 0.0))
    assert isinstance(next(program), Send)
    effect = program.send(None)
    for rank, number in arrivals:
        assert isinstance(effect, Recv), "it was computed already"
        (kind,) = effect.match.keys() - {"lost"}
        effect = program.send(Message(rank, kind, 0, number, sent[rank][number][2]))
    if isinstance(effect, Recv):
        return None
    assert isinstance(effect, Close)
    assert isinstance(program.send(None), Decode)
    commit = program.send(None)
    assert isinstance(commit, Commit)
    return commit


@given(st.permutations([(1, 0), (1, 1), (2, 0), (2, 1), (4, 0), (4, 1)]))
def test_example_1_workers_1_2_and_4_give_five_different_messages(arrivals: list[tuple[int, int]]) -> None:
    """The workers send c1, c2, c2, c3, c4, c5 in any order.

    A second c2 does not count, so all six messages are needed, unless the last one is c2.
    """
    scheme = GCMMC(load=3, order=2)
    twice = [(1, 1), (2, 0)]
    enough = arrivals[:-1] if arrivals[-1] in twice else arrivals
    commit = received(scheme, enough)
    assert commit is not None
    np.testing.assert_allclose(commit.gradient, 1.0, atol=1e-12)
    assert received(scheme, enough[:-1]) is None


@given(st.permutations([(r, n) for r in range(1, 7) for n in (0, 1)]), st.sampled_from(["joint", "separate"]))
@settings(max_examples=30)
def test_gc_mmc_example_1_uncorrelated_decodes_any_eight_messages(
    arrivals: list[tuple[int, int]], construction: str
) -> None:
    scheme = GCMMC.model_validate({"load": 3, "order": [3, 2], "construction": construction})
    commit = received(scheme, arrivals[:8])
    assert commit is not None
    np.testing.assert_allclose(commit.gradient, 1.0, atol=1e-8)
    assert received(scheme, arrivals[:7]) is None


def test_mmc_example_1_timeline(tmp_path: Path) -> None:
    """Workers 3, 5 and 6 are permanently slow. MMC does not need them, and GC with load 3 waits for one of them."""
    table = tmp_path / "times.csv"
    paces = enumerate([1.0, 1.1, 1.2, 900.0, 900.0, 900.0])
    table.write_text("worker,iteration,seconds\n" + "\n".join(f"{w},0,{s}" for w, s in paces))
    spec: dict[str, Any] = {"workers": 6, "rounds": 1, "problem": "unit", "problem_args": {"samples": 6}}
    spec["delays"] = {"kind": "replay", "path": str(table), "samples": 1.0}
    mmc = [
        wb.Experiment(scheme="GC-MMC", scheme_args={"load": 3, "order": 2}, seed=seed, **spec)
        for seed in range(200)
    ]
    # the assignment of records to workers is drawn
    pace = [DelayStream(e.delays, e.seed, 6).draw(0)[0] for e in mmc]
    seed = next(seed for seed, x in enumerate(pace) if max(x[0], x[1], x[3]) < 2)
    x = pace[seed]
    line, _ = simulated(mmc[seed])
    assert line.times[0] == pytest.approx(max(2 * x[0], 3 * x[1], 3 * x[3]))  # c1, c2 and c3, c4 and c5
    waits, _ = simulated(wb.Experiment(scheme="GC", scheme_args={"stragglers": 2}, seed=seed, **spec))
    assert waits.times[0] == pytest.approx(2700.0)


# ------------------------------------------------------------------------------------------ special cases


@given(experiments(["UC-MMC", "GC-MMC"]))
def test_mmc_forecast_equals_events_with_ties(
    spec: dict[str, Any],
) -> None:
    e = wb.Experiment(**spec)
    line, coefficients = simulated(e)
    f = wb.forecast(e)
    assert coefficients.weights == [None] * e.rounds
    np.testing.assert_allclose(
        f.seconds, np.diff(line.times, prepend=0.0), rtol=1e-9, atol=1e-12 * line.times[-1]
    )
    assert f.messages == pytest.approx(np.mean(line.messages), rel=1e-12)
    assert f.bytes == pytest.approx(np.mean(line.bytes), rel=1e-12)


@pytest.mark.parametrize("per", ["worker", "part"])
def test_mmc_forecast_with_decoding_and_slow_links(per: str) -> None:
    slow = {"latency": 0.02, "bandwidth": 8 * 40 / 0.01, "downloads": True}
    for args in (ONE[1], TWO, HYBRID):
        for when_done in ("stop", "go on"):
            e = of_the_paper("GC-MMC", {**args, "when_done": when_done}, 10, link=slow, decode_rate=1e4,
                             delays={**DELAYS, "per": per})  # fmt: skip
            line, _ = simulated(e)
            np.testing.assert_allclose(wb.forecast(e).seconds, np.diff(line.times, prepend=0.0), rtol=1e-10)


def test_mmc_fractional_repetition_is_the_cluster_of_size_load() -> None:
    """Section III-C: the round times are the same, bit for bit."""
    fractional = wb.forecast(of_the_paper("GC", {"stragglers": 9, "code": "fractional"}, 200))
    clustered = wb.forecast(of_the_paper("GC-MMC", {**FRC[1], "when_done": "go on"}, 200))
    np.testing.assert_array_equal(fractional.seconds, clustered.seconds)
    assert fractional.messages == clustered.messages


def test_mmc_with_one_message_is_cyclic_gradient_coding() -> None:
    cyclic = wb.forecast(of_the_paper("GC", {"stragglers": 9}, 200))
    for order in (10, [10]):
        single = wb.forecast(of_the_paper("GC-MMC", {"load": 10, "order": order}, 200))
        np.testing.assert_array_equal(cyclic.seconds, single.seconds)


def test_mmc_of_order_one_is_uncoded() -> None:
    uncoded, coded = UCMMC(load=3).agenda(7), GCMMC(load=3, order=1).agenda(7)
    np.testing.assert_array_equal(uncoded.code.matrix, np.eye(7))
    np.testing.assert_array_equal(uncoded.rows, coded.rows)
    assert uncoded.code.needed == coded.code.needed == 7


def test_mmc_hybrid_sends_the_plain_sum_last() -> None:
    """Section III-D, K = r = 5, [5, 3]: three coded messages, or one worker that has computed everything."""
    scheme = GCMMC(load=5, order=(5, 3), hybrid=True)
    agenda = scheme.agenda(5)
    assert agenda.code.needed == 3
    assert agenda.after.tolist() == [3, 5]
    np.testing.assert_array_equal(agenda.coefficients(2, 1), np.ones(5))
    assert np.count_nonzero(agenda.coefficients(2, 0)) == 3
    early = GCMMC(load=5, order=(3,), hybrid=True).agenda(5)
    assert early.after.tolist() == [3, 5]


def test_mmc_hybrid_round_is_never_longer() -> None:
    plain, hybrid = (wb.forecast(of_the_paper("GC-MMC", args, 300)).seconds for args in (TWO, HYBRID))
    assert (hybrid <= plain).all()
    assert (hybrid < plain).mean() > 0.5


def test_mmc_stopping_clusters_saves_messages_and_work() -> None:
    for bandwidth in (None, 8 * 40 / 0.02):
        lines = [
            simulated(of_the_paper("GC-MMC", {**ONE[1], "when_done": w}, 40, link={"bandwidth": bandwidth}))
            for w in ("stop", "go on")
        ]
        stop, goes_on = (line for line, _ in lines)
        assert sum(stop.messages) < sum(goes_on.messages)
        assert sum(stop.samples) < sum(goes_on.samples)
        if bandwidth is None:
            np.testing.assert_allclose(stop.times, goes_on.times, rtol=1e-12)
            assert sum(stop.stale) == 0  # the stop messages came in time
        else:
            assert stop.times[-1] < 0.97 * goes_on.times[-1]


def test_mmc_stop_message_is_not_a_download() -> None:
    line, _ = simulated(of_the_paper("GC-MMC", ONE[1], 5))
    assert line.downloads == [40] * 5


# ------------------------------------------------------------------------------------------ deaths and errors


@pytest.mark.parametrize(
    ("args", "workers", "dead", "missing"),
    [
        ({"load": 2, "order": 1, "clusters": 2}, 6, [1, 4], None),
        (
            {"load": 2, "order": 1, "clusters": 2},
            6,
            [4, 5],
            [4, 5],
        ),  # part 5 is lost, which workers 4 and 5 held
        ({"load": 3, "order": 3, "clusters": 2}, 6, [1, 2, 4, 5], None),
        ({"load": 3, "order": [2, 3]}, 6, [2, 5], None),
        ({"load": 3, "order": [2, 3]}, 6, [2, 5, 6], [2, 5, 6]),  # 6 messages are left, 8 are needed
        ({"load": 3, "order": [2, 3], "hybrid": True}, 3, [1, 2], None),
        ({"load": 3, "order": [2, 3]}, 3, [1, 2], None),
        ({"load": 3, "order": 3}, 4, [2, 3], None),
    ],
)
def test_mmc_too_many_deaths_raise_quorum_lost(
    args: dict[str, Any], workers: int, dead: list[int], missing: list[int] | None
) -> None:
    faults = [{"worker": w, "round": 2} for w in dead]
    e = wb.Experiment(
        scheme="GC-MMC", scheme_args=args, workers=workers, rounds=5, faults=faults, problem="unit"
    )
    if missing is None:
        assert simulated(e)[1].weights == [None] * 5
        return
    with pytest.raises(wb.QuorumLost) as error:
        simulated(e)
    assert (error.value.parent, error.value.round, error.value.missing) == (0, 2, tuple(missing))


@pytest.mark.parametrize(
    ("args", "fields"),
    [
        ({"clusters": 5}, ["scheme_args.clusters = 5", "12 workers", "3, 4, 6"]),
        ({"load": 9, "clusters": 3, "order": 2}, ["scheme_args.load = 9", "4 parts", "1 to 4"]),
        ({"load": 3, "order": 4}, ["scheme_args.order = 4", "3 parts", "1 to 3"]),
        ({"load": 3, "order": 0}, ["scheme_args.order = 0", "1 to 3"]),
        ({"load": 3, "order": []}, ["scheme_args.order = []", "[3]"]),
        ({"load": 3, "order": [2, 4]}, ["scheme_args.order = [2, 4]", "1 to 3"]),
        ({"load": 3, "order": [2, 2, 3]}, ["scheme_args.order = [2, 2, 3]", "[2, 3]"]),
        ({"load": 4, "order": [2, 3]}, ["scheme_args.order = [2, 3]", "load = 3", "[2, 3, 4]"]),
        ({"load": 3, "order": "two"}, ["scheme_args.order", "'two'"]),
        ({"load": 0}, ["scheme_args.load = 0", "take 1 or more"]),
        ({"load": 3, "order": 2, "hybrid": True}, ["scheme_args.hybrid = True", "load = 12"]),
        ({"when_done": "sleep"}, ["scheme_args.when_done = 'sleep'", "'stop'"]),
    ],
)
def test_mmc_refuses_wrong_parameters(args: dict[str, Any], fields: list[str]) -> None:
    with pytest.raises(wb.SettingError) as error:
        wb.Experiment(scheme="GC-MMC", scheme_args=args, workers=12)
    assert all(word in str(error.value) for word in fields), str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("per", ["worker", "part"])
def test_mmc_parts_take_as_long_as_the_whole_load(per: str) -> None:
    """A draw X per worker: s parts take s X.

    A draw per part: the sum of the draws. The last part ends with the load.
    """
    plan = GCMMC(load=4, order=2, clusters=2).plan(10, 37)
    stream = DelayStream(of_the_paper(*ONE, 1, delays={**DELAYS, "per": per}).delays, 3, 10)
    progress = stream.progress(0, plan.portions)
    np.testing.assert_allclose(progress[:, -1], stream.whole(0, plan.loads[1:], plan), rtol=1e-14)
    pace = progress / np.cumsum(plan.portions, axis=1)
    assert (np.ptp(pace, axis=1) < 1e-12).all() == (per == "worker")


def test_gc_mmc_kinds_of_messages() -> None:
    assert GCMMC(load=2, when_done="go on").build(4).kind(0) == CODED
    assert GCMMC(load=2, clusters=2).build(4).kind(1) == "coded by cluster 2"
