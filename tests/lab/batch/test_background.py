"""Sweeps in a background process: any process can read their state from the folder."""

from __future__ import annotations

import json
import math
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import workbench as wb
from tests.support.sampled_cases import rotated, sampled_test
from tests.support.sweep_runs import DEATHS, QUICK, wait_for
from workbench.analysis.tables.status import Status, write_plan
from workbench.cli.main import cli
from workbench.core.base.settings import SettingError
from workbench.core.trace.layout import PLAN, SEARCH_STATE, STOP, TRACE
from workbench.lab.batch import Progress, Sweep, SweepRun

LONG = {**QUICK, "rounds": 200_000}


def folder_of(root: Path, states: dict[str, str], total: int | None = None, **more: Any) -> SweepRun:
    """Make a sweep's folder in the state in which a process leaves it."""
    write_plan(root, {"base": QUICK}, [*states], total=total or len(states), jobs=1, **more)
    for name, state in states.items():
        if state != "missing":
            (root / name).mkdir()
            Status(state, error="QuorumLost: round 1" if state == "failed" else "").write(root / name)
    return wb.batch.attach(root)


def test_sweep_run_states_and_failures_equal_the_folder(tmp_path: Path) -> None:
    sweep = folder_of(
        tmp_path, {"a": "done", "b": "failed", "c": "running", "d": "missing", "e": "interrupted"}
    )
    p = sweep.progress()
    assert p.counts == {"done": 1, "failed": 1, "unfinished": 1, "missing": 1, "interrupted": 1}
    assert (p.state, p.share) == ("failed", 0.4)
    assert p.failures == {"b": "QuorumLost: round 1"}
    assert "b: QuorumLost: round 1" in repr(sweep)
    assert math.isnan(p.left)


@pytest.mark.parametrize(
    ("found", "state"), [(None, "done"), ({"over": True}, "done"), ({"over": False}, "stopped")]
)
def test_sweep_run_of_a_search_is_done_at_its_end(
    tmp_path: Path, found: dict[str, Any] | None, state: str
) -> None:
    sweep = folder_of(tmp_path, {"a": "done"}, total=40)
    if found is not None:
        (tmp_path / SEARCH_STATE).write_text(json.dumps({**found, "text": "GC up to 0.2"}))
    assert sweep.state == state
    if found is not None:
        assert "1 of at most 40 runs done" in repr(sweep)
        assert "GC up to 0.2" in repr(sweep)


def test_progress_estimates_the_remaining_time() -> None:
    from workbench.lab.batch.background import _left

    noted = {"begun": time.time() - 30, "before": 4}
    assert _left(noted, {"done": 9, "failed": 1}, 20) == pytest.approx(50, abs=1)
    assert math.isnan(_left(noted, {"done": 4}, 20))
    assert "about 50 s left" in str(Progress("running", {"done": 10}, 20, 50.2))


def test_attach_refuses_folders_without_a_sweep(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="holds no sweep"):
        wb.batch.attach(tmp_path)
    with pytest.raises(SettingError, match="workers"):
        wb.batch.start({"base": {"workers": 0}}, tmp_path / "new")
    assert not (tmp_path / "new").exists()
    with pytest.raises(SettingError, match=r"seeds: a search chooses its runs itself"):
        Sweep(
            seeds=3,
            search={"kind": "crossing", "field": "x", "span": {"low": 0, "high": 1}, "sides": [{}, {}]},
        )


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SweepRun]:
    """Start a sweep with two fast runs, one that fails, and one that lasts longer than the tests."""
    cases = [{}, {"seed": 1}, {"faults": DEATHS}, {"rounds": 200_000}]
    plan = {"base": QUICK, "cases": cases}
    began = time.monotonic()
    sweep = wb.batch.start(plan, tmp_path_factory.mktemp("apart") / "sweep", jobs=1, pictures=False)
    assert time.monotonic() - began < 5
    yield sweep
    sweep.stop()
    sweep.wait(60)


@rotated
def test_start_accepts_a_stop_while_starting(tmp_path: Path) -> None:
    plan = {"base": QUICK, "cases": [{}, {"seed": 1}]}
    sweep = wb.batch.start(plan, tmp_path / "new", pictures=False)
    sweep.stop()
    assert sweep.wait(60)
    assert (sweep.state, sweep.progress().counts.get("done", 0)) == ("stopped", 0)
    assert (tmp_path / "new" / STOP).exists()
    assert not wb.batch.sweep(plan, tmp_path / "new", progress=False, pictures=False).failed
    assert sweep.state == "done"


@rotated
def test_sweep_run_is_attached_stopped_and_resumed_from_elsewhere(begun: SweepRun) -> None:
    other = wb.batch.attach(begun.folder)
    assert other.progress().total == 4  # before any run
    wait_for(lambda: other.progress().counts.get("done", 0) == 2 and other.progress().failures)
    p = other.progress()
    assert p.state == "running"
    assert p.left > 0
    assert "QuorumLost: round 1" in next(iter(p.failures.values()))
    with pytest.raises(SettingError, match="the sweep is under way"):
        other.resume()
    with pytest.raises(SettingError, match=r"a sweep is running in it; wb\.batch\.attach"):
        wb.batch.start(begun.folder)
    table = other.runs().mean("time")
    shown = CliRunner().invoke(cli, ["attach", str(begun.folder), "--once"])
    assert "running: 2 of 4 runs done" in shown.output
    assert "QuorumLost: round 1" in shown.output
    assert f"{table['mean'].iloc[0]:.5g}" in shown.output  # the printed mean is that of the table
    stopped = CliRunner().invoke(cli, ["stop", str(begun.folder)])
    assert "failed: 2 of 4 runs done, 1 failed, 1 interrupted" in stopped.output
    assert begun.wait(30)
    assert (begun.folder / STOP).exists()
    again = other.resume(pictures=False)
    wait_for(lambda: again.progress().state == "running" and again.progress().counts.get("running"))
    assert not (begun.folder / STOP).exists()


def test_attach_command_counts_to_the_target_of_the_search(tmp_path: Path) -> None:
    e = wb.Experiment(scheme="UMW", workers=4, rounds=4)
    trace = wb.run(e)
    trace.save(tmp_path / "one" / TRACE)
    Status("done", e.model_dump(mode="json")).write(tmp_path / "one")
    target = float(trace.columns["relative_error"][2])
    search = {"kind": "optimum", "fields": {"workers": [4]}, "of": "time_to", "target": target}
    plan = {"base": {"scheme": "UMW"}, "search": {**search, "metric": "relative_error"}}
    write_plan(tmp_path, plan, ["one"], total=4)
    means = wb.runs(tmp_path, target=target, metric="relative_error").mean("time_to")
    assert means["n"].tolist() == [1]
    shown = CliRunner().invoke(cli, ["attach", str(tmp_path), "--once"])
    assert f"{means['mean'].iloc[0]:.5g}" in shown.output


def test_attach_after_a_kill_finds_the_finished_runs(begun: SweepRun) -> None:
    again = wb.batch.attach(begun.folder)
    wait_for(lambda: again.progress().counts.get("done") == 2)
    again.stop()
    assert again.wait(60)
    again.resume(pictures=False)
    wait_for(lambda: again.state == "running")
    assert again._process is not None
    os.kill(again._process.pid, signal.SIGKILL)
    assert again.wait(30)
    assert again.progress().counts["done"] == 2
    assert again.state in ("stopped", "failed")  # stopped before, or after, the failed run was repeated


@sampled_test("a search", 0, 2)
@pytest.mark.parametrize("tolerance", [0.8, pytest.param(0.3, marks=pytest.mark.slow)])
def test_sweep_search_uses_earlier_results(tmp_path: Path, tolerance: float) -> None:
    """With one straggler, GC computes twice the samples of UMW. Its gain grows with the slowdown of the straggler."""
    slow = {"kind": "heterogeneous", "shift": 1e-4, "active_straggles": 0.0, "slow_straggles": 1.0}
    search = {
        "kind": "crossing",
        "field": "delays.factor",
        "span": {"low": 1.0, "high": 9.0},
        "tolerance": tolerance,
    }
    sides = [{"scheme": "UMW"}, {"scheme": "GC", "scheme_args": {"stragglers": 1}}]
    base = {"workers": 4, "rounds": 4, "problem": "unit", "delays": {**slow, "slow": 0.25}}
    plan = {"base": base, "search": {**search, "sides": sides, "most": 8, "budget": 60, "confidence": 0.8}}
    summary = wb.batch.sweep(plan, tmp_path / "crossing", jobs=2, progress=False)
    found = wb.batch.attach(tmp_path / "crossing").found
    assert found["over"]
    assert str(summary).endswith(found["text"])
    assert 4 <= len(summary.states) <= 60
    again = wb.batch.sweep(plan, tmp_path / "crossing", progress=False)
    assert (again.found, again.states) == (summary.found, {})  # nothing is left to run


@sampled_test("a search", 1, 2)
def test_optimum_of_a_real_sweep_is_the_best_of_all(tmp_path: Path) -> None:
    slow = {
        "kind": "heterogeneous",
        "slow": 0.25,
        "active_straggles": 0.0,
        "slow_straggles": 1.0,
        "factor": 9.0,
    }
    search = wb.batch.Optimum(
        fields={"scheme_args.stragglers": {"low": 0, "high": 5, "whole": True}}, seeds=2, budget=8
    )
    base = {"scheme": "GC", "workers": 4, "rounds": 4, "problem": "unit", "delays": slow}
    sweep = wb.batch.start(
        wb.batch.Sweep(base=base, search=search), tmp_path / "best", jobs=2, pictures=False
    )
    assert sweep.wait(120)
    done = sweep.runs().done
    assert (sweep.state, len(done)) == (
        "done",
        8,
    )  # 4 and 5 do not fit four workers, and are skipped without a run
    means = done.groupby("scheme_args.stragglers")["time"].mean()
    assert sweep.found["best"] == {"scheme_args.stragglers": means.idxmin()}
    assert sweep.found["mean"] == pytest.approx(means.min())
    assert sweep.found["text"].endswith("of 4 settings")


def test_attach_reports_a_damaged_plan(tmp_path: Path) -> None:
    (tmp_path / PLAN).write_text('{"ba')
    for ask in (wb.batch.attach, wb.batch.start):
        with pytest.raises(SettingError, match=rf"{PLAN}: is damaged"):
            ask(tmp_path)
