"""The Gantt chart: every event of a round is a bar within its round."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import workbench as wb
from tests.support.figure_runs import experiment
from tests.support.strategies import CASES, experiments
from workbench.core.base.settings import SettingError
from workbench.lab.figures import gantt
from workbench.lab.figures.round_events import events_of

QUICK = [name for name in CASES if not wb.schemes.get(name).numeric]


def bars(figure: go.Figure, name: str) -> go.Bar | None:
    return next((bar for bar in figure.data if bar.type == "bar" and bar.name == name), None)


def spans(bar: go.Bar) -> tuple[np.ndarray, np.ndarray]:
    """Return start and end of the bars, in the figure's unit."""
    begin = np.asarray(bar.base, dtype=float)
    return begin, begin + np.asarray(bar.x, dtype=float)


def count(figure: go.Figure, name: str) -> int:
    bar = bars(figure, name)
    return 0 if bar is None else len(bar.y)


def unit(figure: go.Figure) -> float:
    name = figure.layout.xaxis.title.text.rsplit("(", 1)[1].rstrip(")")
    return {"s": 1.0, "ms": 1e3, "µs": 1e6}[name]


@settings(max_examples=20)
@given(experiments(QUICK, problem_args={"samples": 300}), st.integers(0, 3))
def test_gantt_bars_are_the_events_of_the_round(spec: dict[str, Any], round: int) -> None:
    trace = wb.run(wb.Experiment(**spec))
    figure, window = gantt(trace, round), events_of(trace, round)
    events = trace.events[trace.events["round"] == round]
    assert count(figure, "computes") == (events["kind"] == "compute").sum()
    assert count(figure, "answer too late: dropped") == (events["kind"] == "drop").sum()
    first, last = window.early * unit(figure), window.duration * unit(figure)
    slack = 1e-9 * max(1.0, last - first)
    for bar in (b for b in figure.data if b.type == "bar"):
        begin, end = spans(bar)
        assert np.all(begin >= first - slack)
        assert np.all(end <= last + slack)
        assert np.all(np.asarray(bar.x) >= 0)
        assert set(bar.y) <= set(range(window.plan.ranks))


def test_gantt_of_a_star_shows_computing_queueing_and_port(traces: list[wb.Trace]) -> None:
    trace = traces[0]
    figure, round = gantt(trace, 2), 2
    start = trace.columns["time"][1]
    events = trace.events[trace.events["round"] == round]
    sends = events[(events["kind"] == "send") & (events["to"] == 0)].sort_values("rank")
    port = bars(figure, "message through the port")
    order = np.argsort(port.y)
    begin, end = spans(port)
    np.testing.assert_allclose(begin[order], (sends["begun"] - start) * unit(figure))
    np.testing.assert_allclose(end[order], (sends["end"] - start) * unit(figure))
    received = bars(figure, "port receives")
    assert set(received.y) == {0}
    assert sorted(received.base) == sorted(port.base)
    line = figure.layout.shapes[0]
    assert line.x0 == pytest.approx((trace.columns["time"][2] - start) * unit(figure))


def test_gantt_of_a_relay_shows_its_port(traces: list[wb.Trace]) -> None:
    received = bars(gantt(traces[-1], 0), "port receives")
    assert {0} < set(received.y) <= {0, 1, 2, 3}


def test_gantt_marks_late_answers_by_a_cross(traces: list[wb.Trace]) -> None:
    trace = traces[3]  # SGD does not wait for two workers
    late = trace.events[trace.events["kind"] == "drop"]
    round = int(late["round"].iloc[0])
    figure = gantt(trace, round)
    crosses = next(mark for mark in figure.data if mark.name == "dropped")
    assert sorted(crosses.y) == sorted(late[late["round"] == round]["rank"])
    hollow = bars(figure, "answer too late: dropped")
    np.testing.assert_allclose(crosses.x, spans(hollow)[1])
    assert hollow.marker.color == "rgba(0,0,0,0)"


def test_gantt_clips_answers_at_the_end_of_the_round() -> None:
    far = {"latency": 0.05, "bandwidth": 1e6}
    trace = wb.run(experiment("SGD", {"stragglers": 6}, rounds=3, link=far))
    window = events_of(trace, 1)
    drops = window.of("drop")
    assert (drops["end"] > window.start + window.duration).any(), "the example must have messages in flight"
    figure = gantt(trace, 1)
    begin, end = spans(bars(figure, "answer too late: dropped"))
    last = window.duration * unit(figure)
    assert np.all(begin < last)
    np.testing.assert_allclose(end, np.minimum(drops["end"] - window.start, window.duration) * unit(figure))


def test_gantt_leaves_workers_without_an_answer_open() -> None:
    slow = {"kind": "shifted_exponential", "shift": 1e-6, "rate": 10.0}
    trace = wb.run(experiment("SGD", {"stragglers": 6}, rounds=3, delays=slow))
    events = trace.events[trace.events["round"] == 1]
    idle = set(range(1, 13)) - set(events[events["kind"] == "compute"]["rank"])
    assert idle, "the example must have stragglers"
    figure = gantt(trace, 1)
    cut = bars(figure, "still computing: cut off")
    duration = float(np.diff(trace.columns["time"])[0]) * unit(figure)
    assert set(cut.y) == idle
    np.testing.assert_allclose(spans(cut)[1], duration)
    assert cut.text == "cut off"


def test_gantt_shows_simultaneous_computing_and_sending(traces: list[wb.Trace]) -> None:
    plain = gantt(traces[-1], 3)  # a relay sends a model, not an answer, while it computes
    assert bars(plain, "computes").offset is None
    trace = traces[0]
    kinds = trace.events["kind"].to_numpy()
    early = np.where(kinds == "send", trace.events["start"] - 1e-9, trace.events["start"])
    split = gantt(
        replace(trace, event_rows={**{c: trace.events[c].to_numpy() for c in trace.events}, "start": early}),
        3,
    )
    above, below = bars(split, "computes"), bars(split, "message travels, queues")
    assert above.offset + above.width <= below.offset


def test_gantt_does_not_mark_idle_workers_as_cancelled(traces: list[wb.Trace]) -> None:
    trace = traces[0]
    events = trace.events
    about = (events["round"] == 2) & ((events["rank"] == 3) | (events["to"] == 3))
    stop = events[about & (events["to"] == 3)].assign(bytes=0, start=0.0)  # an empty message is not a model
    kept = pd.concat([events[~about], stop])
    lazy = replace(trace, event_rows={name: kept[name].to_numpy() for name in kept})
    figure = gantt(lazy, 2)
    assert bars(figure, "still computing: cut off") is None
    assert figure.layout.title.subtitle.text.endswith("11 computed · 0 too late · 0 cut off · 1 not asked")
    assert events_of(lazy, 2).early == 0.0


def test_gantt_of_a_round_without_duration(traces: list[wb.Trace]) -> None:
    trace = traces[0]
    quick = replace(trace, columns={**trace.columns, "time": np.zeros(15)})
    assert gantt(quick, 2).layout.title.subtitle.text.startswith("0 s")


def test_gantt_marks_dead_workers() -> None:
    trace = wb.run(experiment("GC", {"stragglers": 2}, faults=[{"worker": 4, "round": 1}], rounds=3))
    alive, after = gantt(trace, 0), gantt(trace, 2)
    assert not [mark for mark in alive.data if mark.name == "dead"]
    dead = next(mark for mark in after.data if mark.name == "dead")
    assert list(dead.y) == [4]
    cut = bars(after, "still computing: cut off")
    assert cut is None or 4 not in cut.y


def test_gantt_marks_faults_with_their_kind() -> None:
    faults = [
        {"kind": "pause", "worker": 4, "round": 1, "seconds": 0.5},
        {"kind": "sign_flip", "worker": 2, "round": 1, "last": 1},
        {"kind": "slow", "worker": 3, "round": 0, "factor": 2.0},
    ]
    trace = wb.run(experiment("UMW", {}, faults=faults, rounds=3))
    marks = [{m.name: m for m in gantt(trace, round).data}.get("faults") for round in range(3)]
    kinds = [dict(zip(m.y.tolist(), m.customdata, strict=True)) for m in marks]
    assert kinds[0] == {3: "slow"}
    assert set(kinds[1]) == {2, 3, 4}
    assert (kinds[1][2], kinds[1][3], kinds[1][4].split(", ")[0]) == ("sign_flip", "slow", "pause")
    assert set(kinds[2]) == {3}
    assert list(bars(gantt(trace, 1), "pauses: a fault").y) == [4]


def test_gantt_shows_decoding_and_downloads() -> None:
    link = {"latency": 1e-3, "bandwidth": 1e5, "downloads": True}
    figure = gantt(wb.run(experiment("GC", {"stragglers": 2}, decode_rate=1e5, link=link, rounds=2)), 1)
    assert list(bars(figure, "decodes").y) == [0]
    assert sorted(bars(figure, "model comes down").y) == list(range(1, 13))


PARETO: dict[str, Any] = {"delays": {"kind": "pareto"}, "problem_args": {"samples": 60}}


@pytest.mark.parametrize("scheme", ["ASGD", "FedBuff"])
def test_gantt_of_asynchronous_workers_is_full(scheme: str) -> None:
    """Workers compute all the time, also those whose computation the end of the run interrupts."""
    trace = wb.run(wb.Experiment(scheme=scheme, workers=8, rounds=12, **PARETO))
    for round in range(12):
        figure, window = gantt(trace, round), events_of(trace, round)
        begin, end = spans(bars(figure, "computes"))
        busy = np.bincount(bars(figure, "computes").y, end - begin, minlength=9)[1:]
        np.testing.assert_allclose(busy, window.duration * unit(figure), rtol=1e-9)
        assert "not asked" not in figure.layout.title.subtitle.text


@pytest.mark.parametrize("scheme", ["M-SGC", "DSAG"])
def test_gantt_shows_computing_for_other_rounds(scheme: str) -> None:
    """Workers of these schemes compute for one round in the time of another."""
    trace = wb.run(wb.Experiment(scheme=scheme, workers=8, rounds=12, **PARETO))
    times, events = [0.0, *trace.columns["time"]], trace.events
    computed, others = events[events["kind"] == "compute"], 0
    for round in range(12):
        window = computed[(computed["end"] > times[round]) & (computed["start"] < times[round + 1])]
        shown = bars(gantt(trace, round), "computes")
        inside = window["end"].clip(upper=times[round + 1]) - window["start"].clip(lower=times[round])
        begin, end = spans(shown)
        lengths = (end - np.maximum(begin, 0.0)).clip(0) / unit(gantt(trace, round))
        np.testing.assert_allclose(
            np.bincount(shown.y, lengths, minlength=9),
            np.bincount(window["rank"], inside, minlength=9),
            atol=1e-9,
        )
        others += int((window["round"] != round).sum())
    assert others, "the example must have such work"


def test_gantt_of_three_ranks_has_room_for_its_legend() -> None:
    link = {"latency": 1e-3, "bandwidth": 1e5, "downloads": True}
    figure = gantt(wb.run(experiment("SGD", {"stragglers": 1}, workers=2, rounds=9, link=link)), 3)
    entries = [mark for mark in figure.data if mark.name and mark.showlegend is not False]
    assert len(entries) >= 6
    margin = figure.layout.template.layout.margin
    inner = figure.layout.height - margin.t - margin.b
    assert inner >= len(entries) * 1.3 * 15  # px of a line of the legend


def test_gantt_of_a_ring(traces: list[wb.Trace]) -> None:
    figure = gantt(traces[2], 3)
    assert sorted(bars(figure, "exchanges a series of messages").y) == list(range(1, 13))
    commits = next(mark for mark in figure.data if mark.name == "commits")
    assert sorted(commits.y) == list(range(1, 13))
    assert min(bars(figure, "computes").base) < 0  # workers start before the last one has finished round 2


def test_gantt_of_large_clusters_is_truncated() -> None:
    trace = wb.run(experiment("UMW", workers=400, rounds=1, problem_args={"samples": 400, "features": 2}))
    figure = gantt(trace, 0)
    assert figure.layout.height < 2000
    assert "ranks 0 to 299 shown" in figure.layout.title.subtitle.text
    assert max(bars(figure, "computes").y) == 299
    ring = gantt(wb.run(trace.experiment.replace(scheme="RAR")), 0)
    assert max(next(mark for mark in ring.data if mark.name == "commits").y) == 299


def test_gantt_refuses_what_is_not_a_trace_or_round(traces: list[wb.Trace]) -> None:
    wrong: Any = traces[0].experiment, "3"
    with pytest.raises(SettingError, match=r"^trace = Experiment: is not a Trace"):
        gantt(wrong[0])
    with pytest.raises(SettingError, match=r"^round = '3': take a whole number from 0 to 14"):
        gantt(traces[0], wrong[1])


@pytest.mark.parametrize("round", [-1, 15, 99])
def test_gantt_refuses_a_round_outside_the_run(traces: list[wb.Trace], round: int) -> None:
    with pytest.raises(SettingError, match=rf"^round = {round}: the run has rounds 0 to 14"):
        gantt(traces[0], round)


def test_gantt_refuses_a_run_without_events(traces: list[wb.Trace]) -> None:
    bare = wb.run(traces[0].experiment, events=False)
    with pytest.raises(
        SettingError, match=r"^round = 0: the trace kept no events of it; run with events=True"
    ):
        gantt(bare, 0)


def test_gantt_of_an_early_round_has_no_work_that_the_end_interrupts() -> None:
    """In each round but the last, all computing of asynchronous workers is in the events."""
    e = wb.Experiment(scheme="ASGD", workers=6, rounds=25, link={"latency": 2e-3}, seed=3)
    trace = wb.run(e)
    found = events_of(trace, 10)
    assert (found.work["start"] < trace.columns["time"][10]).all()
