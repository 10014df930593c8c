"""Interrupted sweeps (killed kernels, Ctrl-C, SIGKILL): finished runs are kept, and others are marked and repeated."""

from __future__ import annotations

import signal
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Thread

import numpy as np
import psutil
import pytest

import workbench as wb
from tests.support.sampled_cases import rotated
from tests.support.sweep_runs import QUICK, SLOW_ROUNDS, held, kernels, start, wait_for, write
from workbench.analysis.tables.status import Status, attempts
from workbench.core.trace.layout import STOP
from workbench.lab.batch import Sweep, sweep

FORKSERVER, RANKS = "workbench.lab.batch.forkserver", "workbench.mpi.launch.rank.main"


def states(folder: Path) -> dict[str, str]:
    found = (
        {path.name: Status.read(path) for path in folder.iterdir() if path.is_dir()}
        if folder.is_dir()
        else {}
    )
    return {name: status.state for name, status in sorted(found.items()) if status}


def finished(folder: Path, *text: str) -> str:
    """Resume a sweep to its end. Return its output."""
    process = start(folder, None, *text)
    out, errors = process.communicate(timeout=3600)
    assert process.returncode == 0, errors
    return out


@rotated
def test_sweep_marks_only_the_run_of_a_killed_kernel_as_failed(tmp_path: Path) -> None:
    folder = tmp_path / "sweep"
    plan = write(tmp_path / "plan.yaml", base={**QUICK, "rounds": SLOW_ROUNDS}, grid={"seed": [0, 1]})
    sweep = start(folder, plan, "-j", "2", "--quiet")
    first, *others = wait_for(lambda: held(sweep))
    first.kill()
    for kernel in others:
        kernel.resume()
    out, errors = sweep.communicate(timeout=300)
    assert sweep.returncode == 1, errors
    assert sorted(states(folder).values()) == ["done", "failed"]
    assert "why: the kernel was killed by SIGKILL" in out
    (name,) = (name for name, state in states(folder).items() if state == "failed")
    assert f"--only {name}" in out
    assert [len(trace.rounds) for trace in wb.runs(folder).traces()] == [SLOW_ROUNDS]


@rotated
def test_sweep_interrupted_by_ctrl_c_keeps_finished_runs(tmp_path: Path) -> None:
    folder = tmp_path / "sweep"
    cases = [{}, *({"rounds": SLOW_ROUNDS, "seed": seed} for seed in range(2))]
    sweep = start(folder, write(tmp_path / "plan.yaml", base=QUICK, cases=cases))
    wait_for(lambda: "done" in states(folder).values())
    wait_for(lambda: held(sweep))
    forked = kernels(sweep)
    sweep.send_signal(signal.SIGINT)
    out, errors = sweep.communicate(timeout=300)
    assert sweep.returncode == 130, errors
    assert "Traceback" not in errors
    assert set(states(folder).values()) == {"done", "interrupted"}
    assert "interrupted" in out
    assert f"resume: workbench sweep {folder}" in out
    assert psutil.wait_procs(forked, timeout=120)[1] == []
    table = wb.runs(folder).table
    assert set(table["state"]) == {"done", "interrupted"}
    kept = table[table["state"] == "done"]
    stamps = [Path(place, "run.json").stat().st_mtime_ns for place in kept["folder"]]
    assert f"{len(kept)} done before" in finished(folder)
    assert [Path(place, "run.json").stat().st_mtime_ns for place in kept["folder"]] == stamps
    assert set(wb.runs(folder).table["state"]) == {"done"}


@pytest.mark.slow
def test_sweep_interrupted_by_ctrl_c_before_the_first_kernel(tmp_path: Path) -> None:
    folder = tmp_path / "sweep"
    sweep = start(folder, write(tmp_path / "plan.yaml", base=QUICK, seeds=5), "--quiet")
    forkserver = wait_for(
        lambda: [p for p in psutil.Process(sweep.pid).children() if FORKSERVER in p.cmdline()]
    )[0]
    forkserver.suspend()  # stopped before it has imported everything
    wait_for(lambda: states(folder))
    others = psutil.Process(sweep.pid).children(recursive=True)
    sweep.send_signal(signal.SIGINT)
    out, errors = sweep.communicate(timeout=300)
    assert sweep.returncode == 130, errors
    assert "Traceback" not in errors
    assert set(states(folder).values()) == {"interrupted"}
    assert "missing" in out
    assert psutil.wait_procs(others, timeout=120)[1] == []


@rotated
def test_sweep_killed_by_sigkill_leaves_no_process(tmp_path: Path) -> None:
    folder = tmp_path / "sweep"
    plan = write(tmp_path / "plan.yaml", base={**QUICK, "rounds": 10 * SLOW_ROUNDS})
    sweep = start(folder, plan)
    wait_for(lambda: held(sweep))
    others = psutil.Process(sweep.pid).children(recursive=True)
    sockets = Path(kernels(sweep)[0].cmdline()[-1])  # a forked kernel has the command line of its fork server
    assert sockets.is_dir()
    sweep.kill()
    sweep.communicate()
    assert psutil.wait_procs(others, timeout=120)[1] == []
    assert not sockets.exists()
    (row,) = wb.runs(folder).table.to_dict("records")
    assert (row["state"], row["error"]) == ("unfinished", "the sweep was killed while it ran")
    assert row["rounds"] == 10 * SLOW_ROUNDS


@pytest.mark.slow
@pytest.mark.mpi
@pytest.mark.xdist_group("mpi")
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_sweep_interrupted_ends_the_ranks_of_real_runs(tmp_path: Path, how: signal.Signals) -> None:
    base = {"scheme": "UMW", "workers": 2, "rounds": 10**6}
    sweep = start(tmp_path / "sweep", write(tmp_path / "plan.yaml", base=base, engine="mpi"), "--quiet")
    wait_for(lambda: len([p for p in family(sweep) if RANKS in p.cmdline()]) >= 3, 300)
    everyone = family(sweep)
    sweep.send_signal(how)
    sweep.communicate(timeout=300)
    assert psutil.wait_procs(everyone, timeout=120)[1] == []


def family(sweep: subprocess.Popen[str]) -> list[psutil.Process]:
    return psutil.Process(sweep.pid).children(recursive=True)


@pytest.mark.slow
def test_sweep_killed_twenty_times_gives_the_same_table(tmp_path: Path) -> None:
    plan = write(
        tmp_path / "plan.yaml", base={**QUICK, "rounds": 300}, grid={"scheme": ["UMW", "RAR"]}, seeds=50
    )
    undisturbed, killed = tmp_path / "undisturbed", tmp_path / "killed"
    process = start(undisturbed, plan, "-j", "2", "--quiet")
    assert process.communicate(timeout=3600)
    assert process.returncode == 0
    rng = np.random.default_rng(0)
    unfinished = 0
    for _ in range(20):
        process = start(killed, plan, "-j", "2", "--quiet")
        forked = wait_for(lambda: kernels(process) or process.poll() is not None)  # noqa: B023
        time.sleep(rng.uniform(0, 1.5))
        process.kill()
        process.communicate()
        assert forked is True or psutil.wait_procs(forked, timeout=120)[1] == []
        unfinished += int((wb.runs(killed).table["state"] == "unfinished").sum())
    assert unfinished >= 10  # runs were under way when the sweep was killed
    finished(killed)
    a, b = (wb.runs(folder).table.drop(columns="folder") for folder in (undisturbed, killed))
    assert len(a) == 100
    assert a.equals(b)


def test_stop_of_a_sweep_ends_no_run_of_another_in_the_same_process(tmp_path: Path) -> None:
    plans = {
        name: Sweep(base={**QUICK, "rounds": rounds * SLOW_ROUNDS}) for name, rounds in (("a", 200), ("b", 8))
    }

    def stop() -> None:
        wait_for(lambda: all(attempts(tmp_path / name) for name in plans))
        (tmp_path / "a" / STOP).write_text("")

    def work(name: str) -> None:
        sweep(plans[name], tmp_path / name, executor=executor, progress=False)

    threads = [Thread(target=stop), Thread(target=work, args=("b",))]
    with ThreadPoolExecutor(2) as executor:
        for thread in threads:
            thread.start()
        with pytest.raises(KeyboardInterrupt):
            work("a")
        for thread in threads:
            thread.join()
    assert list(wb.runs(tmp_path / "b").table["state"]) == ["done"]
