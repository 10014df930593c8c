"""Playback of runs: the shown rounds depend only on the clock, the experiments and the start."""

from __future__ import annotations

import numpy as np
import pytest
from workbench_lectures.playback import Playback, PlaybackRun, length, play

import workbench as wb
from tests.support.lecture_clock import ENTRIES, SMALL, Clock
from workbench.core.running.run import Run, recorded

TRACES = wb.compare(ENTRIES)


def settled(film: Playback) -> list[PlaybackRun]:
    """Return playbacks of runs that have ended."""
    runs = play(ENTRIES, film)
    for run in runs:
        assert run.wait(60)
    return runs


@pytest.mark.parametrize("share", [0.0, 0.1, 0.55, 1.0])
def test_playback_shows_rounds_at_their_times(share: float) -> None:
    clock = Clock()
    runs = settled(Playback(pace=0.5, began=clock.now, clock=clock))
    end = max(trace.columns["time"][-1] for trace in TRACES)
    clock.now += share * end / 0.5 + 1e-9
    for run, trace in zip(runs, TRACES, strict=True):
        shown = int(np.sum(np.asarray(trace.columns["time"]) <= share * end + 1e-9))
        rows = run.rows()
        assert len(rows["round"]) == shown
        np.testing.assert_array_equal(rows["loss"], trace.columns["loss"][:shown])
        assert len(run.rows(3)["round"]) == max(0, shown - 3)
        assert run.state == ("finished" if shown == 30 else "running")
        assert run.note.startswith(f"round {shown} of 30" if shown else "in its first round")


def test_playback_stop_ends_all_runs() -> None:
    clock = Clock()
    runs = settled(Playback(pace=1.0, began=clock.now, clock=clock))
    clock.now += float(TRACES[0].columns["time"][10])
    before = [len(run.rows()["round"]) for run in runs]
    for run in runs:  # as the plot does, while time passes
        run.stop()
        clock.now += 100.0
    assert [len(run.rows()["round"]) for run in runs] == before
    assert {run.state for run in runs} == {"stopped"}


def test_playback_created_again_continues_at_the_clock() -> None:
    clock = Clock()
    began = clock.now
    first = settled(Playback(0.3, began, clock=clock))
    clock.now += 0.4 * float(TRACES[0].columns["time"][-1]) / 0.3
    shown = [run.rows() for run in first]
    again = settled(Playback(0.3, began, clock=clock))
    for run, rows in zip(again, shown, strict=True):
        assert len(rows["round"]) > 3
        for name, column in run.rows().items():
            np.testing.assert_array_equal(column, rows[name])


def test_playback_that_was_stopped_runs_until_its_stop() -> None:
    class Waiting(Run):
        def rows(self, first: int = 0) -> dict[str, np.ndarray[tuple[int], np.dtype[np.float64]]]:
            return {name: np.asarray(c[first : self.done]) for name, c in TRACES[0].columns.items()}

    inner = Waiting(TRACES[0].experiment, "sim")
    inner.done = 2  # type: ignore[attr-defined]
    inner._begin("going on")
    at = float(TRACES[0].columns["time"][20])
    film = PlaybackRun(inner, Playback(1.0, 0.0, stopped=at, clock=Clock()), limit=6)
    assert film.state == "running"
    inner.done = 9  # type: ignore[attr-defined]
    assert film.state == "stopped"
    assert len(film.rows()["round"]) == 6  # the clock was further at the stop, but the run had no more rounds
    assert len(film.rows(4)["round"]) == 2


def test_playback_reports_a_failed_run() -> None:
    dies = wb.Experiment(scheme="UMW", faults=[{"worker": 3, "round": 2}], **SMALL)
    (run,) = play([dies], Playback(1.0, 0.0, clock=Clock()))
    run.wait(60)
    assert run.state == "failed"
    assert "lost worker 3" in run.note


def test_playback_length_is_that_of_the_slowest_scheme() -> None:
    expected = max(float(trace.columns["time"][-1]) for trace in TRACES)
    assert length(ENTRIES) == pytest.approx(expected, rel=0.3)


def test_playback_of_recorded_runs() -> None:
    clock = Clock()
    run = PlaybackRun(recorded(TRACES[1]), Playback(1.0, clock.now, clock=clock))
    assert run.state == "running"
    clock.now += 1e6
    assert run.state == "finished"
    assert run.result() is TRACES[1]
