"""The stream widget: every view gets every round, whenever it was opened. A click opens a round."""

from __future__ import annotations

import re
import time
from threading import Lock
from typing import Any

import numpy as np

import workbench as wb
from tests.support.widget_messages import receives
from workbench.core.running.run import Run
from workbench.core.trace.stream import UNFINISHED, Stream
from workbench.lab.figures.gallery import stream as gallery
from workbench.lab.widgets import Rounds, StreamPlot, stream
from workbench.lab.widgets.assets import FOLDER

E = wb.Experiment(
    scheme="CR",
    scheme_args={"children": 3, "layers": 2, "stragglers": 1},
    workers=12,
    rounds=90,
    problem="unit",
)
TRACE = wb.run(E)


class Slow(Run):
    """Run whose events appear on request of the test."""

    def __init__(self, trace: wb.Trace, engine: str = "sim") -> None:
        super().__init__(trace.experiment, engine)
        self.trace, self.seen, self.there = trace, 0, 0
        self._begin("going on")

    def watcher(self) -> Any:
        def new() -> dict[str, Any]:
            part = slice(self.seen, self.there)
            self.seen = self.there
            return {name: self.trace.events[name].to_numpy()[part] for name in self.trace.events}

        return new


class View:
    """View that stores the messages that it gets, and requests missing ones, like js/stream.js."""

    def __init__(self, plot: StreamPlot) -> None:
        self.plot, self.bytes, self.edition = plot, 0, plot.edition
        self.grid = np.zeros((0, 12, plot.shape[1]), np.uint8)
        plot.send = self.hear  # type: ignore[method-assign]

    def hear(self, content: dict[str, Any], buffers: list[bytes]) -> None:
        assert content["kind"] == "columns"
        self.bytes += len(buffers[0])
        if content["edition"] != self.edition:
            self.edition, self.grid = content["edition"], self.grid[:0]
        if content["first"] > len(self.grid):
            receives(self.plot, {"kind": "from", "first": len(self.grid)})
            return
        columns = np.frombuffer(buffers[0], np.uint8).reshape(content["count"], *self.grid.shape[1:])
        after = self.grid[content["first"] + len(columns) :]
        self.grid = np.concatenate([self.grid[: content["first"]], columns, after])[: content["rounds"]]
        self.shares = np.frombuffer(buffers[1], np.float32).reshape(2, -1)


def still(run: Run) -> StreamPlot:
    """Return a plot that reads its run only on request."""
    plot = StreamPlot()
    plot._follow = lambda run: None  # type: ignore[method-assign]
    plot.show(run)
    return plot


def test_stream_plot_sends_only_new_slices() -> None:
    run = Slow(TRACE)
    plot = still(run)
    early, count = View(plot), len(TRACE.events)
    for there in range(0, count + 400, 400):
        run.there = min(there, count)
        plot._look()
    whole = Stream.of(TRACE)
    np.testing.assert_array_equal(early.grid, whole.grid)
    np.testing.assert_allclose(early.shares, [whole.utilisation(), whole.lateness()], rtol=1e-5)
    assert early.bytes < 3 * whole.grid.nbytes  # current rounds are sent repeatedly, and all others once
    late = View(plot)
    receives(plot, {"kind": "from", "first": 0})
    np.testing.assert_array_equal(late.grid, whole.grid)
    run.seen = run.there = 0
    run._end(TRACE, "finished", "done")
    plot._conclude()
    np.testing.assert_array_equal(late.grid, whole.grid)
    assert (plot.active, plot.edition) == (False, 2)


def test_stream_plot_click_opens_a_round() -> None:
    run = Slow(TRACE)
    rounds = Rounds()
    rounds.stream._follow = lambda run: None  # type: ignore[method-assign]
    rounds.show(run)
    run.there = len(TRACE.events)
    rounds.stream._look()
    # the player loads plotly.js, which blocks the page for a while
    assert rounds.player not in rounds.children
    receives(rounds.stream, {"kind": "pick", "round": 80, "worker": 3})
    assert rounds.player in rounds.children
    assert rounds.player.label == "CR, 12 workers: round 80"
    assert rounds.round == 80
    receives(rounds.stream, {"kind": "pick", "round": 3, "worker": 3})
    assert "round = 3: before its end only rounds 26 to 89 can be opened" in rounds.message.value
    run._end(TRACE, "finished", "done")
    rounds.stream._conclude()
    receives(rounds.stream, {"kind": "pick", "round": 3, "worker": 3})
    assert rounds.player.label == "CR, 12 workers: round 3"
    assert rounds.message.value == ""


def test_stream_plot_shows_the_current_round_of_real_runs() -> None:
    run = Slow(TRACE, "mpi")
    plot = still(run)
    view, count = View(plot), len(TRACE.events)
    for there in range(0, count, 300):
        run.there = there
        plot._look()
        assert len(view.grid) == len(plot.stream) + (there > 0)
        assert (view.grid[:-1] != UNFINISHED).all()
    assert (view.grid[-1] != UNFINISHED).any()
    receives(plot, {"kind": "pick", "round": len(plot.stream), "worker": 3})
    rounds = Rounds()
    rounds.stream = plot
    rounds.look_into(len(plot.stream))
    assert "before its end only rounds" in rounds.message.value
    run._state, run.note = "failed", "QuorumLost"
    plot._conclude()
    assert len(view.grid) == len(plot.stream) < 90  # the round under way at the stop never ended


def test_stream_plot_stop_keeps_what_was_shown() -> None:
    run = Slow(TRACE)
    plot = still(run)
    run.there = len(TRACE.events) // 2
    plot._look()
    receives(plot, {"kind": "stop"})
    assert not run.wanted()
    seen = len(plot.stream)
    short = wb.Trace(E, "sim", {"round": np.zeros(0), "time": np.zeros(0)}, [], np.zeros(1))
    run._end(short, "stopped", "stopped before it had learnt")
    plot._conclude()
    assert len(plot.stream) == seen > 20
    assert plot.status.startswith("stopped")


class Busy(Slow):
    """Run that computes in this process. It records whether it pauses while it is read."""

    def watcher(self) -> Any:
        self.resting = self.lock = Lock()
        self.rested: list[bool] = []
        new = super().watcher()
        return lambda: (self.rested.append(self.lock.locked()), new())[1]


def test_stream_plot_pauses_a_simulation_while_read() -> None:
    run = Busy(TRACE)
    plot = StreamPlot(run)
    run.there = len(TRACE.events)
    while len(plot.stream) < 90:
        time.sleep(0.01)
    run._end(TRACE, "finished", "done")
    assert plot.wait(10)
    assert all(run.rested)
    assert not run.lock.locked()


def test_stream_plot_of_finished_run_folders(tmp_path: Any) -> None:
    shown = stream(TRACE.save(tmp_path / "run"))
    np.testing.assert_array_equal(shown.stream.stream.grid, Stream.of(TRACE).grid)


def test_stream_plot_of_a_large_finished_run_has_its_finding() -> None:
    """A page draws 84 workers over 100 rounds as shares over blocks of rounds, most often late on top."""
    args = {"stragglers": 20}
    base = {"base": {"kind": "shifted_exponential"}, "common": {"kind": "constant", "shift": 1e-9}}
    speeds = [0.1 if worker in (41, 42) else 1.0 for worker in range(1, 85)]
    delays = {"kind": "groups", **base, "speeds": speeds}
    trace = wb.run(
        wb.Experiment(scheme="GC", scheme_args=args, workers=84, rounds=100, problem="unit", delays=delays)
    )
    plot = stream(trace).stream
    assert plot.wait(10)
    assert plot.finding.startswith("workers 41–42 late in ")
    assert sorted(plot.order) == list(range(84))
    assert set(plot.order[:2]) == {40, 41}
    late = Stream.of(trace).lateness()[plot.order]
    assert (np.diff(late) <= 0).all()
    assert late[0] > late[-1]


def test_stream_plot_and_figure_draw_blocks_from_the_same_size_on() -> None:
    (line,) = re.findall(r"^const MAX_CELLS.*;$", (FOLDER / "stream.js").read_text("utf-8"), re.MULTILINE)
    page = {name: int(number) for name, number in re.findall(r"(\w+) = (\d+)", line)}
    figure = {
        "MAX_CELLS": gallery.MAX_CELLS,
        "BLOCKS": gallery.MAX_BLOCKS,
        "MIN_ROUNDS": gallery.MIN_BLOCK_ROUNDS,
    }
    assert page == figure
