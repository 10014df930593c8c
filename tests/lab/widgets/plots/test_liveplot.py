"""The live plot: every view gets all rows, whenever it was opened, and even if it missed messages."""

from __future__ import annotations

from threading import Event
from typing import Any

import numpy as np
import pytest

import workbench as wb
from tests.support.widget_messages import View, receives
from workbench.core.running.run import Rows, Run, recorded
from workbench.lab.widgets import LivePlot
from workbench.lab.widgets.plots import liveplot
from workbench.lab.widgets.plots.liveplot import MAX_RESENT_ROWS

SMALL: dict[str, Any] = {"workers": 12, "rounds": 40, "problem_args": {"samples": 100, "features": 4}}
TRACES = wb.compare([wb.Experiment(scheme=name, **SMALL) for name in ("UMW", "CR", "SGD")])


class Slow(Run):
    """Run whose rows appear on request of the test. Losses may appear later."""

    def __init__(self, trace: wb.Trace) -> None:
        super().__init__(trace.experiment, trace.engine)
        self.trace, self.done = trace, 0
        self.losses: set[int] | None = None  # rounds with known losses; None: all
        self._begin("going on")

    def rows(self, first: int = 0) -> Rows:
        rows = {name: np.array(c[first : self.done]) for name, c in self.trace.columns.items()}
        if self.losses is not None:
            unknown = [k - first for k in range(first, self.done) if k not in self.losses]
            rows["loss"][unknown] = np.nan
        return rows

    def finish(self) -> None:
        self.done, self.losses = len(self.trace.columns["time"]), None
        self._end(self.trace, "finished", "done")


def still(runs: list[Run]) -> LivePlot:
    """Return a plot that reads its runs only on request."""
    plot = LivePlot()
    plot._follow = lambda: None  # type: ignore[method-assign]
    plot.show(runs)
    return plot


def check(view: View, traces: list[wb.Trace], rounds: int | None = None) -> None:
    assert len(view.curves) == len(traces)
    for curve, trace in zip(view.curves, traces, strict=True):
        columns = {name: np.asarray(c, dtype=float)[:rounds] for name, c in trace.columns.items()}
        np.testing.assert_allclose(curve["time"], columns["time"], rtol=1e-6)
        np.testing.assert_allclose(curve["loss"], columns["loss"], rtol=1e-6)
        np.testing.assert_array_equal(curve["round"], columns["round"] + 1)
        for name in ("bytes", "samples"):
            np.testing.assert_allclose(curve[name], np.cumsum(columns[name]), rtol=1e-6)


def test_live_plot_shows_an_end_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(liveplot, "POLL_INTERVAL_S", 600.0)
    runs = [Slow(trace) for trace in TRACES]
    plot = LivePlot(runs)
    for run in reversed(runs):
        run.finish()
    assert plot.wait(60)
    assert [each["state"] for each in plot.status] == ["finished"] * len(runs)


def test_live_plot_follows_runs_that_are_shown_while_the_end_of_others_is_handled() -> None:
    first, second = (Slow(trace) for trace in TRACES[:2])
    ended, resumed = Event(), Event()
    plot = LivePlot([first])
    plot.when_over(lambda: ended.set() or resumed.wait(60))  # such as a table that reads folders
    first.finish()
    assert ended.wait(60)
    plot.show([second])
    resumed.set()
    second.finish()
    assert plot.wait(60)
    assert [each["state"] for each in plot.status] == ["finished"]


def test_live_plot_sends_rows_once() -> None:
    runs = [Slow(trace) for trace in TRACES]
    plot = still(list(runs))
    view = View(plot)
    for step in (3, 3, 10, 25):
        for run in runs:
            run.done = step
        plot._look()
        check(view, TRACES, step)
    assert view.frames == 3  # no new rows, no message
    for run in runs:
        run.finish()
    plot._look()
    check(view, TRACES)
    plot._look()
    assert view.frames == 4
    # no row is sent twice
    assert view.bytes == sum(4 * len(c) for curve in view.curves for c in curve.values())


def test_live_plot_late_view_gets_all_rows() -> None:
    run = Slow(TRACES[0])
    plot = still([run])
    run.done = 17
    plot._look()
    late = View(plot)
    late.ask()
    check(late, TRACES[:1], 17)
    run.finish()
    plot._look()
    check(late, TRACES[:1])


def test_live_plot_resends_a_lost_frame() -> None:
    run = Slow(TRACES[0])
    plot = still([run])
    view = View(plot)
    hear = view.hear
    run.done = 5
    plot._look()
    plot.send = lambda *_, **__: None  # type: ignore[method-assign]
    run.done = 9
    plot._look()
    plot.send = hear  # type: ignore[method-assign]
    run.done = 12
    plot._look()
    check(view, TRACES[:1], 12)


def test_live_plot_sends_late_losses() -> None:
    run = Slow(TRACES[1])
    run.losses = set()
    plot = still([run])
    view = View(plot)
    run.done = 6
    plot._look()
    assert np.isnan(view.curves[0]["loss"]).all()
    run.losses = {3, 5}
    plot._look()
    assert np.flatnonzero(np.isfinite(view.curves[0]["loss"])).tolist() == [3, 5]
    run.done = 8
    plot._look()
    run.losses = {3, 5, 7}
    plot._look()
    assert np.flatnonzero(np.isfinite(view.curves[0]["loss"])).tolist() == [3, 5, 7]
    run.finish()
    plot._look()
    check(view, TRACES[1:2])


def test_live_plot_gives_up_rows_without_a_loss() -> None:
    trace = wb.run(
        wb.Experiment(
            scheme="UMW", workers=2, rounds=MAX_RESENT_ROWS + 200, problem_args={"samples": 4, "features": 1}
        )
    )
    run = Slow(trace)
    run.losses = set()
    plot = still([run])
    view = View(plot)
    run.done = MAX_RESENT_ROWS + 100
    plot._look()
    before = view.bytes
    run.done += 1
    plot._look()
    assert view.bytes - before < 1.1 * before * MAX_RESENT_ROWS / (MAX_RESENT_ROWS + 100)
    run.finish()
    plot._look()
    check(view, [trace])


def test_live_plot_replaces_or_adds_runs() -> None:
    plot = LivePlot([recorded(TRACES[0])])
    view = View(plot)
    plot.show([recorded(TRACES[1])], keep=True)
    check(view, TRACES[:2])
    plot.show([recorded(TRACES[2])])
    check(view, TRACES[2:])
    assert [curve["name"] for curve in plot.curves] == ["SGD"]


def test_live_plot_labels_one_scheme_on_two_engines() -> None:
    other = Slow(TRACES[1])
    other.engine = "mpi"
    plot = still([recorded(TRACES[1]), other])
    first, second = plot.curves
    assert (first["name"], second["name"]) == ("CR engine=sim", "CR engine=mpi")
    assert first["color"] == second["color"]
    assert first["dash"] != second["dash"]


def test_live_plot_page_can_stop_all_runs() -> None:
    runs = wb.start_all([wb.Experiment(scheme=name, rounds=10**6) for name in ("UMW", "CR")])
    plot, states = LivePlot(), []
    plot.when_over(lambda: states.append([run.state for run in plot.runs]))
    plot.show(runs)
    assert plot.active
    receives(plot, {"kind": "stop"})
    assert plot.wait(120)
    assert states == [["stopped", "stopped"]]
    assert [line["state"] for line in plot.status] == ["stopped", "stopped"]


def test_live_plot_shows_a_failed_run() -> None:
    dies = wb.Experiment(scheme="UMW", faults=[{"worker": 3, "round": 2}], **SMALL)
    plot = LivePlot(wb.start_all([dies, TRACES[1].experiment]))
    assert plot.wait(60)
    assert [line["state"] for line in plot.status] == ["failed", "finished"]
    assert "lost worker 3" in plot.status[0]["note"]
    view = View(plot)
    view.ask()
    assert view.rows(0) == 0
    assert view.rows(1) == 40


def test_live_plot_offers_metrics_as_they_appear() -> None:
    plot = LivePlot([recorded(TRACES[0])])
    assert {"loss", "accuracy", "relative_error", "residual"} <= set(plot.metrics)
    assert not {"time", "messages", "stale", "started"} & set(plot.metrics)


def test_live_plot_offers_metrics_of_held_out_samples() -> None:
    args = {"data": "breast_cancer", "test": 0.25}
    e = wb.Experiment(scheme="UMW", workers=4, rounds=10, problem_args=args, evaluate_every=4)
    plot = LivePlot([wb.start(e)])
    assert plot.wait(60)
    assert {"test_loss", "test_accuracy", "test_auc"} <= set(plot.metrics)
    assert "auc" in plot.rising
    view = View(plot)
    view.ask()
    assert view.rows(0) == 10


@pytest.mark.parametrize("name", ["x", "scale_x", "scale_y"])
def test_live_plot_refuses_unknown_axes(name: str) -> None:
    with pytest.raises(Exception, match=name):
        setattr(LivePlot(), name, "sideways")


def test_live_plot_marks_changes_of_scheme() -> None:
    delay_model = {"kind": "constant", "shift": 1e-3}
    e = wb.Experiment(
        scheme="GC", workers=4, rounds=12, problem_args={"samples": 40}, delays=delay_model, adaptive=True
    )
    run = wb.start(e)
    plot = LivePlot([run])
    assert plot.wait()
    (change,) = run.result().changes
    (mark,) = plot.changes
    assert (mark["curve"], mark["round"]) == (0, change.round)
    assert "would save" in mark["words"].replace("<br>", " ")
    assert plot.status[0]["note"].endswith(f"now {change.after}")
    # the run has the name that it has in figures of its trace
    name = "adaptive (GC, then UMW)"
    assert plot.curves[0]["name"] == plot.status[0]["name"] == run.label == run.result().label == name
