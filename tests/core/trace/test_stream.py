"""The stream of rounds: events in any order give the same image, which agrees with the view of a round."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import workbench as wb
from workbench.core.trace.stream import (
    COMPUTES,
    DEAD,
    DROPPED,
    LATE,
    MAX_SLICES,
    SLICES_PER_ROUND,
    STATES,
    UNFINISHED,
    Stream,
)
from workbench.lab.figures.round_events import events_of

WAITS = STATES.index("waits")
LINK = {"latency": 1e-3, "bandwidth": 1e6}
TREE = {"children": 3, "layers": 2, "stragglers": 1}
CASES: dict[str, dict[str, Any]] = {
    "GC": {"scheme_args": {"stragglers": 3}},
    "CR": {"scheme_args": TREE},
    "UMW": {},
    "RAR": {},
    "SGD": {"scheme_args": {"stragglers": 4}},
    "ASGD": {},
    "LAGC": {},
}


def run(scheme: str, **more: Any) -> wb.Trace:
    base = {
        "workers": 12,
        "rounds": 12,
        "link": LINK,
        "delays": {"kind": "heterogeneous"},
        "problem_args": {"samples": 60},
    }
    return wb.run(wb.Experiment(scheme=scheme, **{**base, **CASES[scheme], **more}))


TRACES = {name: run(name) for name in CASES}
TRACES["died"] = run("CR", faults=[{"worker": 7, "round": 4}])


@pytest.mark.parametrize("name", TRACES)
def test_stream_rounds_end_as_in_the_trace(name: str) -> None:
    trace = TRACES[name]
    stream = Stream.of(trace)
    np.testing.assert_allclose(stream.ends, trace.columns["time"], rtol=1e-12)
    assert stream.grid.shape == (12, 12, SLICES_PER_ROUND)
    assert (stream.utilisation() <= 1 + 1e-6).all()
    assert (stream.late <= stream.asked).all()


@pytest.mark.parametrize("name", ["GC", "CR", "UMW", "SGD", "died"])
def test_stream_late_workers_are_those_of_the_round_view(name: str) -> None:
    trace = TRACES[name]
    stream = Stream.of(trace)
    for k in range(12):
        r = events_of(trace, k)
        shown = {*r.cut_off.rank, *r.silent.rank, *r.did("drop").rank} - {0} - set(r.answers["rank"])
        assert {int(w) + 1 for w in np.flatnonzero(stream.late[k])} == set(map(int, shown)) - set(r.dead)
        refused = np.flatnonzero((stream.grid[k] == DROPPED).any(axis=1)) + 1
        assert set(refused) <= set(map(int, r.did("drop").rank))


@settings(max_examples=20)
@given(st.sampled_from(sorted(TRACES)), st.integers(1, 400), st.randoms(use_true_random=False))
def test_stream_is_independent_of_the_order_of_pieces(name: str, piece: int, random: Any) -> None:
    trace = TRACES[name]
    events = {column: trace.events[column].to_numpy() for column in trace.events}
    order = np.arange(len(events["round"]))
    pieces = [order[i : i + piece] for i in range(0, len(order), piece)]
    random.shuffle(pieces)
    stream, whole = Stream(trace.experiment), Stream.of(trace)
    first = order[events["round"] == 0]
    stream.add({column: values[first] for column, values in events.items()})
    for part in pieces:
        part = part[events["round"][part] > 0]
        before = stream.grid.copy()
        changed = stream.add({column: values[part] for column, values in events.items()})
        same = len(before) if changed is None else changed
        # slices that were not updated are unchanged
        np.testing.assert_array_equal(stream.grid[:same], before[:same])
        assert (stream.utilisation() <= 1 + 1e-6).all()
    np.testing.assert_array_equal(stream.grid, whole.grid)
    np.testing.assert_allclose(stream.busy, whole.busy, rtol=1e-5)
    np.testing.assert_allclose(stream.utilisation(), whole.utilisation(), rtol=1e-5)
    np.testing.assert_allclose(stream.lateness(), whole.lateness())
    np.testing.assert_array_equal(stream.late, whole.late)


def test_stream_marks_dead_workers_from_their_round_on() -> None:
    stream = Stream.of(TRACES["died"])
    assert (stream.grid[4:, 6] == DEAD).all()
    assert not (stream.grid[:4] == DEAD).any()
    assert not stream.late[4:, 6].any()


def test_stream_of_a_slow_worker_is_late_and_busy(tmp_path: Path) -> None:
    slow = [
        {"worker": w, "iteration": i, "seconds": 1.0 if w == 2 else 0.01} for w in range(6) for i in range(9)
    ]
    path = tmp_path / "times.csv"
    pd.DataFrame(slow).to_csv(path, index=False)
    delays = {"kind": "replay", "path": str(path), "as_recorded": True}
    trace = wb.run(
        wb.Experiment(scheme="GC", scheme_args={"stragglers": 1}, workers=6, rounds=9, delays=delays)
    )
    stream = Stream.of(trace)
    worst = int(np.argmax(stream.lateness()))
    assert stream.lateness()[worst] == 1.0
    assert stream.utilisation()[worst] == pytest.approx(1.0)
    assert (stream.grid[:, worst] == LATE).all()
    assert np.delete(stream.lateness(), worst).max() == 0


@pytest.mark.parametrize("scheme", ["ASGD", "FedBuff", "M-SGC"])
def test_stream_of_work_over_several_rounds_is_the_time_of_computing(scheme: str) -> None:
    """Workers of these schemes compute across the ends of rounds. No part of this work counts as waiting."""
    e = wb.Experiment(
        scheme=scheme, workers=6, rounds=60, delays={"kind": "pareto"}, problem_args={"samples": 60}
    )
    trace = wb.run(e)
    stream, end = Stream.of(trace), float(trace.columns["time"][-1])
    events = trace.events[(trace.events["kind"] == "compute") & (trace.events["rank"] > 0)]
    seconds = (events["end"].clip(upper=end) - events["start"]).clip(lower=0)
    truth = seconds.groupby(events["rank"]).sum().reindex(range(1, 7)).to_numpy() / end
    found = stream.utilisation()
    assert (found >= truth - 1e-5).all()  # it includes work that was under way at the end
    if scheme == "M-SGC":
        return  # M-SGC cuts off work at its deadlines, and such work has no event
    longest = (end - events.groupby("rank")["end"].max()).reindex(range(1, 7)).clip(lower=0).to_numpy() / end
    assert (found <= truth + longest + 1e-5).all()
    lengths = np.diff(stream.ends, prepend=stream.starts[0])
    drawn = ((stream.grid == COMPUTES).mean(axis=2) * lengths[:, None]).sum(axis=0) / end
    np.testing.assert_allclose(drawn, found, atol=0.25)  # a slice shows one state only
    assert not stream.late.any()


@pytest.mark.parametrize("scheme", ["ASGD", "FedBuff"])
@pytest.mark.parametrize("link", [{}, LINK])
def test_stream_of_asynchronous_workers_is_busy_until_the_end(scheme: str, link: dict[str, float]) -> None:
    """A worker gets its next model at once. Over free links, this is the moment in which its computation ends."""
    spec: dict[str, Any] = {"delays": {"kind": "pareto"}, "problem_args": {"samples": 60}, "link": link}
    stream = Stream.of(wb.run(wb.Experiment(scheme=scheme, workers=6, rounds=30, **spec)))
    assert (stream.grid != WAITS).mean() > (0.99 if not link else 0.8)
    if not link:
        np.testing.assert_allclose(stream.utilisation(), 1.0, atol=1e-5)


def test_stream_of_long_runs_has_fewer_slices() -> None:
    assert Stream(wb.Experiment(scheme="UMW", workers=4, rounds=MAX_SLICES)).slices == 2


@pytest.mark.parametrize("name", ["GC", "CR", "died"])
@settings(max_examples=15)
@given(st.floats(0.02, 0.98), st.integers(1, 11))
def test_stream_shows_the_current_round(name: str, share: float, k: int) -> None:
    trace = TRACES[name]
    whole = Stream.of(trace)
    start, end = whole.ends[k - 1], whole.ends[k]
    now = start + share * (end - start)
    events = {column: trace.events[column].to_numpy() for column in trace.events}
    known = events["end"].astype(float) <= now
    stream = Stream(trace.experiment)
    stream.add({column: values[known] for column, values in events.items()})
    before = stream.grid.copy()
    column = stream.under_way(now)
    assert column is not None
    assert len(stream) == k
    np.testing.assert_array_equal(stream.grid, before)  # the current round is not stored
    over = (column != UNFINISHED).all(axis=0)
    assert over[0]
    assert (over == (column != UNFINISHED).any(axis=0)).all()  # all workers are shown up to the same time
    assert (np.diff(over.astype(int)) <= 0).all()
    states = column[:, over]
    assert not (states == LATE).any()  # before the end of the round, no worker is late
    dead = [w - 1 for w, at in stream.dead.items() if at <= k]
    assert (states[dead] == DEAD).all()
    mine = {column: values[known & (events["round"] == k)] for column, values in events.items()}
    receivers = mine["to"][(mine["kind"] == "send") & (mine["rank"] == 0)]  # the master's children, in a tree
    busy = {*receivers} - {*mine["rank"][mine["kind"] == "compute"]}
    assert all(states[worker - 1, -1] == COMPUTES for worker in busy if whole.asked[k, worker - 1])
    stream.add({column: values[~known] for column, values in events.items()})
    np.testing.assert_array_equal(stream.grid, whole.grid)
    assert stream.under_way(now) is None  # all rounds are over
