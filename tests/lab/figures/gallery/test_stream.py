"""The static figure of a stream of rounds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import workbench as wb
from workbench.core.base.settings import SettingError
from workbench.core.trace.stream import STATES, Stream
from workbench.lab.figures import stream

E = wb.Experiment(scheme="GC", scheme_args={"stragglers": 2}, workers=6, rounds=9, problem="unit")


def test_stream_figure_has_workers_and_newest_rounds() -> None:
    trace = wb.run(E)
    table = Stream.of(trace)
    figure = stream(trace, rounds=4)
    z = np.asarray(figure.data[0].z)
    np.testing.assert_array_equal(z.reshape(6, 4, 8).transpose(1, 0, 2), table.grid[5:])
    assert figure.data[0].x[0] == pytest.approx(5 + 0.5 / 8)
    assert [trace.name for trace in figure.data[1:8]] == list(STATES)
    np.testing.assert_allclose(figure.data[8].x, table.utilisation())
    np.testing.assert_allclose(figure.data[9].x, table.lateness())


def test_stream_figure_refuses_runs_without_events() -> None:
    with pytest.raises(SettingError, match="kept no events; run with events=True"):
        stream(wb.run(E, events=False))


@pytest.mark.parametrize(("workers", "rounds", "step"), [(1, 1, 1), (6, 9, 1), (40, 30, None)])
def test_stream_figure_ticks_are_whole_numbers(workers: int, rounds: int, step: int | None) -> None:
    figure = stream(wb.run(wb.Experiment(scheme="UMW", workers=workers, rounds=rounds, problem="unit")))
    layout = figure.layout
    assert (layout.xaxis.dtick, layout.yaxis.dtick) == (step, step)
    subtitle_text = layout.title.subtitle.text
    assert subtitle_text.startswith("round 0 ·" if rounds == 1 else f"rounds 0 to {rounds - 1} ·")
    # The legend, 30 px high, is above the rows for any height. The subtitle ends 82 px below the top.
    assert (layout.legend.y, layout.legend.yanchor) == (1, "bottom")
    assert layout.margin.t - 30 > 82


def test_stream_figure_late_share_is_of_the_shown_rounds() -> None:
    e = E.replace(faults=[{"worker": 2, "round": 1}])
    trace = wb.run(e)
    table = Stream.of(trace)
    for rounds in (9, 4):
        share = table.late[-rounds:].sum() / table.asked[-rounds:].sum()
        assert (
            f" · {share:.1%} of the answers late" in stream(trace, rounds=rounds).layout.title.subtitle.text
        )


MANY = wb.Experiment(
    scheme="GC", scheme_args={"stragglers": 20}, workers=84, rounds=100, problem="unit", seed=1
)


def test_stream_figure_of_many_cells_is_sorted_and_titled_by_its_finding() -> None:
    speeds = [0.1 if worker in (41, 42) else 1.0 for worker in range(1, 85)]
    base = {"base": {"kind": "shifted_exponential"}, "common": {"kind": "constant", "shift": 1e-9}}
    trace = wb.run(MANY.replace(delays={"kind": "groups", **base, "speeds": speeds}))
    table, figure = Stream.of(trace), stream(trace)
    shares, bars = figure.data[0], figure.data[-1].x
    assert figure.layout.title.text.startswith("GC, 84 workers: workers 41–42 late in ")
    np.testing.assert_allclose(bars, np.sort(table.lateness())[::-1])
    assert (
        np.asarray(shares.customdata)[..., 1] >= 20
    ).all()  # rounds of a block: few rounds give random shares
    assert list(figure.layout.yaxis.ticktext[:1]) == [f"{np.argmax(table.lateness()) + 1}"]
    np.testing.assert_allclose(np.asarray(shares.z).mean(axis=1), bars, atol=1e-9)


def test_stream_finding_names_nobody_among_equal_workers() -> None:
    assert ": nobody stands out, each was late in " in stream(wb.run(MANY)).layout.title.text
    waits = MANY.replace(scheme="UMW", scheme_args={})
    assert ": nobody was late, and workers computed " in stream(wb.run(waits)).layout.title.text


@pytest.mark.parametrize(
    ("wrong", "why"),
    [({"rounds": 0}, "rounds = 0: take 1"), ({"first": 99}, "first = 99: .* rounds 0 to 8$")],
)
def test_stream_figure_refuses_rounds_that_are_not_there(wrong: dict[str, int], why: str) -> None:
    with pytest.raises(SettingError, match=why):
        stream(wb.run(E), **wrong)


def test_figures_of_a_run_that_finished_no_round_say_so() -> None:
    """A run can be stopped before its first commit."""
    trace = wb.run(E)
    stopped = replace(
        trace, columns={name: values[:0] for name, values in trace.columns.items()}, event_rows=[]
    )
    draw: Any
    for draw, argument in (
        (stream, stopped),
        (wb.figures.gantt, stopped),
        (wb.figures.round_times, [stopped]),
        (wb.figures.convergence, [stopped]),
        (wb.figures.convergence_bands, [stopped]),
    ):
        with pytest.raises(SettingError, match="the run of GC finished no round"):
            draw(argument)
