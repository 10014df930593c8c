"""Cores of a run: taken by one run at a time, and inherited by its ranks."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

import workbench as wb
from tests.support.sampled_cases import rotated
from tests.support.sweep_runs import QUICK
from workbench.core.base.settings import SettingError
from workbench.lab.batch import Sweep, sweep
from workbench.lab.batch.cores import take

pytestmark = pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="needs Linux")
RANKS = "workbench.mpi.launch.rank"
REAL = {**QUICK, "workers": 2, "rounds": 60, "delays": {"kind": "constant", "shift": 0.02}}
two_cores = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")


@two_cores
def test_cores_are_taken_by_one_run_at_a_time() -> None:
    usable = sorted(os.sched_getaffinity(0))
    one = take(1)
    other = take(1)
    assert one is not None
    assert other is not None
    assert {*one.cores, *other.cores} <= set(usable)
    assert one.cores != other.cores
    if len(usable) == 2:
        tries = iter([False, False, True])
        assert take(1, lambda: next(tries)) is None
    one.release()
    again = take(1)
    assert again is not None
    assert again.cores == one.cores
    again.release()
    other.release()
    every = take(len(usable))
    assert every is not None
    assert every.cores == usable
    every.release()


def test_more_cores_than_there_are_is_an_error_before_the_first_run(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"^cores = 4096: runs may use \d+ on .*; take at most \d+$"):
        sweep(Sweep(base=QUICK, cores=4096), tmp_path / "s", progress=False)
    with pytest.raises(SettingError, match="cores = 1: is of runs with notebooks"):
        Sweep(base=QUICK, cores=1, notebooks=False)


class Observer(threading.Thread):
    """Thread that records the cores of the ranks below each new kernel of this process."""

    def __init__(self, kernels: Callable[[], list[psutil.Process]]) -> None:
        super().__init__(daemon=True)
        self.kernels, self.over = kernels, threading.Event()
        self.seen: list[dict[int, set[int]]] = []
        self.earlier = {kernel.pid for kernel in kernels()}  # kernels of other tests, whose ranks stay alive

    def run(self) -> None:
        while not self.over.wait(0.05):
            new = [kernel for kernel in self.kernels() if kernel.pid not in self.earlier]
            now = {kernel.pid: _cores_of_ranks(kernel) for kernel in new}
            self.seen.append({pid: cores for pid, cores in now.items() if cores})


def _cores_of_ranks(kernel: psutil.Process) -> set[int]:
    found: set[int] = set()
    with suppress(psutil.Error):
        for process in kernel.children(recursive=True):
            with suppress(psutil.Error):
                if RANKS in " ".join(process.cmdline()):
                    found.update(process.cpu_affinity())
    return found


def _local() -> list[psutil.Process]:
    with suppress(psutil.Error):
        return [kernel for server in psutil.Process().children() for kernel in server.children()]
    return []


def _of_engines() -> list[psutil.Process]:
    with suppress(psutil.Error):
        return [
            kernel
            for worker in psutil.Process().children()
            for server in worker.children()
            for kernel in server.children()
        ]
    return []


@rotated
@two_cores
@pytest.mark.mpi
@pytest.mark.parametrize(
    ("executor", "kernels"),
    [
        (None, _local),
        pytest.param({"kind": "processes", "engines": 2}, _of_engines, marks=pytest.mark.slow),
    ],
)
def test_pools_of_real_runs_have_cores_of_their_own(
    executor: Any, kernels: Callable[[], list[psutil.Process]], tmp_path: Path
) -> None:
    plan = Sweep(base=REAL, seeds=4, engine="mpi", cores=1)
    observer = Observer(kernels)
    observer.start()
    try:
        summary = sweep(plan, tmp_path / "s", jobs=2, executor=executor, progress=False)
    finally:
        observer.over.set()
        observer.join()
    assert str(summary).endswith("4 done")
    pairs = [seen for seen in observer.seen if len(seen) == 2]
    assert pairs
    for seen in pairs:
        one, other = seen.values()
        assert (len(one), len(other)) == (1, 1)
        assert one != other
    assert len(wb.runs(tmp_path / "s").done) == 4
