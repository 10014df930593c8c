"""Live runs: equal bits to an awaited run, stops between rounds, and stored errors."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import workbench as wb
from workbench.core.running import start as live
from workbench.core.running.simulated import SimulatedRun, work
from workbench.mpi.running.real import RealRun

SMALL: dict[str, Any] = {"workers": 12, "rounds": 30, "problem_args": {"samples": 200, "features": 5}}
SCHEMES = [wb.Experiment(scheme=name, **SMALL) for name in ("UMW", "GC", "SGD", "CR", "CADA", "RAR")]


def test_live_run_ends_with_the_bits_of_an_awaited_run() -> None:
    runs = live.start_all(SCHEMES)
    for run, trace in zip(runs, wb.compare(SCHEMES), strict=True):
        assert run.result().same(trace), run
        assert run.result().info == trace.info
        assert run.state == "finished"


@pytest.mark.parametrize("scheme", ["CR", "CADA", "D-Adam"])
def test_run_rows_equal_the_trace(scheme: str) -> None:
    run = live.start(wb.Experiment(scheme=scheme, **SMALL))
    columns = run.result().columns
    for first in (0, 7, 30, 31):
        rows = run.rows(first)
        assert list(rows) == list(columns)
        for name, column in rows.items():
            np.testing.assert_array_equal(column, columns[name][first:])


def watched(experiments: list[wb.Experiment]) -> list[SimulatedRun]:
    """Return runs that record their own rows at each publication."""
    return [Noting(e, False, True) for e in experiments]


class Noting(SimulatedRun):
    def __init__(self, *args: Any) -> None:
        self.seen: list[live.Rows] = []
        super().__init__(*args)

    def publish(self, *args: Any) -> None:
        super().publish(*args)
        self.seen.append(self.rows(len(self.seen)))


@pytest.mark.parametrize("scheme", ["GC", "CADA"])
def test_run_rows_appear_during_the_run_and_never_change(scheme: str) -> None:
    (run,) = watched([wb.Experiment(scheme=scheme, **SMALL)])
    work([run])
    assert [len(rows["loss"]) for rows in run.seen] == [1] * 30
    final = run.result().columns
    settled = [n for n in final if n not in ("stale", "messages", "bytes", "downloads", "samples", "started")]
    # the simulation ends before the learning begins
    counts = [n for n in final if n not in settled] if scheme == "GC" else []
    for name in settled + counts:
        np.testing.assert_array_equal(np.concatenate([rows[name] for rows in run.seen]), final[name])


class Stopping(Noting):
    """Run that stops itself in a given round."""

    at = 11

    def publish(self, *args: Any) -> None:
        super().publish(*args)
        if args[2] == self.at:
            self.stop()


@pytest.mark.parametrize("scheme", ["CR", "SGD", "CADA"])
def test_stopped_run_is_the_beginning_of_the_whole_run(scheme: str) -> None:
    experiment = wb.Experiment(scheme=scheme, **SMALL)
    run = Stopping(experiment, False, True)
    work([run])
    trace, whole = run.result(), wb.run(experiment)
    assert run.state == "stopped" and "11 of 30" in run.note  # noqa: PT018
    assert trace.info["stopped"] is True
    assert list(trace.columns) == list(whole.columns)
    names = set(trace.columns) - ({"stale", "samples", "messages", "bytes"} if scheme == "CADA" else set())
    for name in names:
        np.testing.assert_array_equal(trace.columns[name], whole.columns[name][:11])
    assert set(trace.events["round"]) == set(range(11))
    shorter = wb.run(experiment.replace(rounds=11))
    np.testing.assert_array_equal(trace.model, shorter.model)


def test_stop_of_one_run_keeps_the_others() -> None:
    first, second = Stopping(SCHEMES[0], False, True), SimulatedRun(SCHEMES[3], False, True)
    work([first, second])
    assert (first.state, second.state) == ("stopped", "finished")
    assert len(first.result().rounds) == 11
    assert second.result().same(wb.run(SCHEMES[3]))


@pytest.mark.parametrize("scheme", ["UMW", "CADA"])
def test_stop_at_once_leaves_almost_no_rounds(scheme: str) -> None:
    run = SimulatedRun(wb.Experiment(scheme=scheme, **SMALL), False, True)
    run.stop()
    work([run])
    assert run.state == "stopped"
    assert len(run.result().rounds) <= 1
    assert len(run.rows()["loss"]) == len(run.result().rounds)


def test_stop_from_another_thread_ends_a_long_run() -> None:
    run = live.start(wb.Experiment(scheme="CR", rounds=10**6))
    while run.state == "waiting":
        time.sleep(0.01)
    assert run.state == "running"
    run.stop()
    assert run.wait(60)
    assert run.state == "stopped"
    for thread in [t for t in threading.enumerate() if t.name == "workbench-simulation"]:
        thread.join(60)
        assert not thread.is_alive()


def test_run_error_does_not_end_other_runs() -> None:
    dies = wb.Experiment(scheme="UMW", faults=[{"worker": 3, "round": 2}], **SMALL)
    bad, good = live.start_all([dies, SCHEMES[3]])
    assert good.result().same(wb.run(SCHEMES[3]))
    assert bad.wait() and bad.state == "failed"  # noqa: PT018
    assert "lost worker 3" in bad.note
    with pytest.raises(wb.QuorumLost, match="lost worker 3"):
        bad.result()


def test_run_without_its_data_fails_in_one_sentence() -> None:
    missing = wb.Experiment(problem_args={"data": "nowhere.csv", "samples": 10, "features": 2})
    run = live.start(missing)
    assert run.wait(60)
    assert run.state == "failed" and "nowhere.csv" in run.note and "\n" not in run.note  # noqa: PT018


def test_run_reports_a_diverging_loss() -> None:
    run = live.start(wb.Experiment(optimiser_args={"step": 1e30}, problem="least_squares", **SMALL))
    run.wait()
    assert run.state == "finished"
    assert any("not finite" in text for text in run.warnings)


def test_start_refuses_unknown_engines_and_non_experiments() -> None:
    with pytest.raises(wb.SettingError, match="engine = 'gpu'"):
        live.start(SCHEMES[0], engine="gpu")
    with pytest.raises(wb.SettingError, match=r"give a wb\.Experiment"):
        live.start("CR")  # type: ignore[arg-type]


def test_numeric_runs_carry_the_real_vectors() -> None:
    run = live.start(SCHEMES[3], numeric=True)
    assert run.result().same(wb.run(SCHEMES[3], numeric=True))


def test_run_imports_modules_before_its_thread_starts() -> None:
    code = """
import sys
import threading
import workbench as wb
from workbench import live

assert not any(name.startswith("narwhals") for name in sys.modules)
found, said = [], threading.Event()
live.in_background(lambda: (found.append("narwhals.stable.v1" in sys.modules), said.set()), "a thread")
said.wait(60)
print(found)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[True]\n"


def test_simulated_run_pauses_while_it_is_read() -> None:
    """Without the pause, the reader's NumPy calls wait for Python's lock: three frames per second instead of ten."""
    run = live.start(wb.Experiment(workers=12, rounds=10**6, problem="unit"))
    assert isinstance(run, SimulatedRun)
    rounds = lambda: len(run.timeline.times)  # noqa: E731
    while not rounds():
        time.sleep(0.001)
    with run.resting:
        time.sleep(0.1)  # time for the current round
        before = rounds()
        time.sleep(0.1)
        assert rounds() == before
    while rounds() == before:
        time.sleep(0.001)
    run.stop()
    assert run.wait(30)


def test_real_run_start_moves_a_bar_and_can_be_stopped(tmp_path: Path) -> None:
    run = RealRun(wb.Experiment(workers=12), tmp_path)
    stages = []
    for status in (("starting", 0, 13), ("starting", 13, 13), ("connecting", 0, 0)):
        run._on_progress(*status)
        stages.append((run.note, run.stage))  # None: the progress bar moves without a length
    assert stages == [("starting: 0 of 13", None), ("starting: 13 of 13", 1.0), ("connecting", None)]
    run._begin("round 3 of 50")
    run.stop()
    assert run.note == "stopping"
