"""The simulator: ports, late messages, deaths, decoding and downloads."""

from __future__ import annotations

import gc
import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import workbench as wb
from tests.support.strategies import experiments
from workbench.core.contract.delays import DelayStream
from workbench.core.engine.virtual import sim
from workbench.core.engine.virtual.arithmetic import Coefficients
from workbench.core.running.simulated import timeline
from workbench.core.schemes.coded_reduce import tree_parents


def through_the_port(ready: np.ndarray, transfer: float) -> list[float]:
    """Return departure times from the port by a plain loop: one message at a time, in order of arrival."""
    free, done = 0.0, []
    for t in np.sort(ready):
        free = max(free, t) + transfer
        done.append(free)
    return done


@given(st.integers(1, 12), st.floats(0, 2), st.floats(0, 1), st.integers(0, 99))
def test_simulate_a_round_of_a_star_by_hand(workers: int, transfer: float, latency: float, seed: int) -> None:
    late = workers // 3
    link = {"latency": latency, "bandwidth": 8 * 4 / transfer if transfer > 1e-9 else None}
    e = wb.Experiment(
        scheme="SGD", scheme_args={"stragglers": late}, workers=workers, rounds=1, seed=seed, link=link,
        problem="least_squares", problem_args={"features": 4, "samples": 60},
    )  # fmt: skip
    compute = DelayStream(e.delays, seed, workers).whole(0, e.plan.loads[1:])
    done = through_the_port(compute + latency, e.link.transfer(4))
    simulated = timeline(e, Coefficients(e.plan), events=True)
    assert simulated.times[0] == pytest.approx(done[workers - late - 1], rel=1e-12)
    assert simulated.messages == [workers - late]


@given(experiments(["UMW", "SGD", "GC", "CR"], rounds=6))
def test_simulate_events_are_consistent(spec: dict[str, Any]) -> None:
    """Causes come before effects, a port takes one message at a time, links never overtake, counts add up."""
    e = wb.Experiment(**spec)
    simulated = timeline(e, Coefficients(e.plan), events=True)
    sends = [row for row in simulated.events if row[2] == "send"]
    up = [row for row in sends if row[6] == e.plan.parent[row[1]]]
    transfer = e.link.transfer(e.shape()[1])
    for _, _, kind, start, begun, end, *_ in simulated.events:
        assert start <= begun <= end, kind
    for parent in {row[6] for row in up}:
        slots = sorted((row[4], row[5]) for row in up if row[6] == parent)
        if transfer:
            assert all(b[0] >= a[1] - 1e-12 for a, b in itertools.pairwise(slots))
    for child in {row[1] for row in up}:
        rounds = [row[0] for row in sorted(up, key=lambda row: row[5]) if row[1] == child]
        assert rounds == sorted(rounds)
    assert sum(simulated.messages) == len(up)
    assert sum(simulated.stale) == sum(row[2] == "drop" for row in simulated.events)
    assert all(np.diff(simulated.times) >= 0)


def test_simulate_straggler_does_not_block_the_next_round(tmp_path: Path) -> None:
    """One worker is 1000 times slower for the whole run. A code for one straggler never waits for it."""
    table = tmp_path / "slow.csv"
    table.write_text("worker,iteration,seconds\n0,0,1\n1,0,1\n2,0,1\n3,0,1000\n")
    delays = {"kind": "replay", "path": str(table), "samples": 1.0}
    common: dict[str, Any] = {"workers": 4, "rounds": 20, "problem": "unit", "problem_args": {"samples": 4}}
    common["delays"] = delays
    coded = wb.run(wb.Experiment(scheme="GC", scheme_args={"stragglers": 1}, **common))
    waits = wb.run(wb.Experiment(scheme="UMW", **common))
    assert coded.rounds["time"].iloc[-1] == pytest.approx(20 * 2.0)  # two parts per worker, 1 s each
    assert waits.rounds["time"].iloc[-1] == pytest.approx(20 * 1000.0)


def test_simulate_drops_and_counts_late_answers() -> None:
    e = wb.Experiment(
        scheme="GC", scheme_args={"stragglers": 3}, workers=12, rounds=50, link={"bandwidth": 8e3},
        problem="least_squares", problem_args={"samples": 120, "features": 50},
    )  # fmt: skip
    rounds = wb.run(e).rounds
    assert rounds["stale"].sum() > 0
    assert (rounds["messages"] == 9).all()
    assert (rounds["messages"] + rounds["stale"] <= 12).all()


@pytest.mark.parametrize(
    ("scheme", "args", "workers", "dead", "parent"),
    [
        ("UMW", {}, 5, [3], 0),
        ("GC", {"stragglers": 2}, 6, [1, 4, 5], 0),
        ("GC", {"stragglers": 1, "code": "fractional"}, 6, [3, 4], 0),
        ("SGD", {"stragglers": 1}, 5, [2, 3], 0),
        ("CR", {"children": 3, "layers": 2, "stragglers": 1}, 12, [4, 6], 1),
        ("CR", {"children": 3, "layers": 2, "stragglers": 1}, 12, [1, 3], 0),
        ("RAR", {}, 5, [2], -1),
    ],
)
def test_simulate_too_many_deaths_raise_quorum_lost(
    scheme: str, args: dict[str, Any], workers: int, dead: list[int], parent: int
) -> None:
    faults = [{"worker": w, "round": 3} for w in dead]
    e = wb.Experiment(scheme=scheme, scheme_args=args, workers=workers, rounds=6, faults=faults)
    with pytest.raises(wb.QuorumLost) as error:
        wb.run(e)
    assert (error.value.parent, error.value.round, error.value.missing) == (parent, 3, tuple(dead))
    for word in ("round 3", *(str(w) for w in dead)):
        assert word in str(error.value)


@given(st.data())
def test_simulate_up_to_s_deaths_change_nothing(data: st.DataObject) -> None:
    children, layers = data.draw(st.sampled_from([(3, 2), (4, 2), (2, 3), (5, 1)]))
    late = data.draw(st.integers(1, children - 1))
    parents = tree_parents(children, layers)
    faults = []
    for parent in set(parents[1:].tolist()):
        under = [int(r) for r in np.flatnonzero(parents == parent)]
        for worker in data.draw(st.lists(st.sampled_from(under), max_size=late, unique=True)):
            faults.append({"worker": worker, "round": data.draw(st.integers(0, 5))})
    spec = {"scheme": "CR", "scheme_args": {"children": children, "layers": layers, "stragglers": late}}
    e = wb.Experiment(**spec, workers=len(parents) - 1, rounds=6, faults=faults, problem="unit")
    coefficients = Coefficients(e.plan)
    timeline(e, coefficients, events=False)
    assert coefficients.weights == [None] * 6


def test_simulate_decoding_time() -> None:
    spec: dict[str, Any] = {"scheme": "GC", "scheme_args": {"stragglers": 1}, "workers": 4, "rounds": 3}
    spec |= {"delays": {"kind": "constant", "shift": 0.1}, "problem_args": {"samples": 4, "features": 10}}
    free = wb.run(wb.Experiment(**spec))
    charged = wb.Experiment(**spec, decode_rate=100.0)
    trace = wb.run(charged)
    gap = trace.rounds["time"] - free.rounds["time"]
    np.testing.assert_allclose(gap, 3 * 10 / 100 * np.arange(1, 4))  # 3 messages of 10 floats a round
    assert wb.forecast(charged).mean == pytest.approx(trace.rounds["time"].iloc[-1] / 3)
    assert (trace.events["kind"] == "decode").sum() == 3


def test_simulate_download_time() -> None:
    spec: dict[str, Any] = {
        "scheme": "UMW",
        "workers": 4,
        "rounds": 2,
        "delays": {"kind": "constant", "shift": 0.0},
    }
    spec["problem_args"] = {"samples": 4, "features": 10}
    link = {"latency": 0.5, "bandwidth": 80.0}
    up = wb.run(wb.Experiment(**spec, link=link)).rounds["time"].iloc[0]
    both = wb.run(wb.Experiment(**spec, link={**link, "downloads": True})).rounds["time"].iloc[0]
    assert up == pytest.approx(0.5 + 4 * 1.0)
    assert both == pytest.approx(up + 1.5)


def test_garbage_collection_skips_the_objects_of_a_long_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """They count as old afterwards. If a process has frozen its objects, they stay frozen."""
    monkeypatch.setattr(sim, "MANY_OBJECTS", 100)
    gc.unfreeze()  # conftest.py has frozen the modules of the tests
    try:
        with sim._uncollected():
            rows = [[k] for k in range(1000)]
        assert gc.isenabled()
        assert not gc.get_freeze_count()
        assert any(row is rows for row in gc.get_objects(generation=2))
    finally:
        gc.freeze()
    with sim._uncollected():
        rows = [[k] for k in range(1000)]
    assert gc.get_freeze_count()
