"""Measure the overhead of a sweep, relative to the time of its runs alone.

    python benchmarks/batches.py [--runs 100] [--jobs 2] [--rounds 300] [--fresh 6]
    python benchmarks/batches.py --small 10000 [--table 100000]

"Alone" means: run an experiment, save the run folder, and draw the three figures of `notebooks/run.ipynb`, in a process
that has done a run before. The total time of all runs alone is divided by the number of jobs. It is measured with one
run at a time, and with as many at a time as in the sweep: two runs on two shared cores can slow each other by a fifth.
Half of these runs are before the sweep and half after it, because the speed of a shared machine changes within minutes.
A sweep adds kernels, notebooks, pages and its own start. If the machine is busy with other work, compare the CPU times
and not the wall-clock times.

`--small`: number of runs of about 20 ms each without notebooks, in shards. Their own time is that of `wb.run` in warm
processes. `--table`: number of runs of about 2 ms. The time and memory to open and to filter their table are measured
in a separate process.
"""

from __future__ import annotations

import argparse
import os
import resource
import time
from collections.abc import Callable
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

# The value that a sweep on all cores sets for its runs. NumPy reads it when it is imported.
os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"

import workbench as wb
from workbench.lab.batch import Sweep, sweep

TREE = {"children": 4, "layers": 3, "stragglers": 1}
BASE = {
    "scheme": "CR",
    "scheme_args": TREE,
    "workers": 84,
    "problem": "softmax",
    "problem_args": {"data": "digits"},
}


SMALL_ROUNDS = 15  # rounds of a run of about 20 ms
WARM_RUNS = 100  # runs of a first sweep, after which the growth of memory is measured


class Cost(NamedTuple):
    """Wall-clock seconds, and CPU seconds."""

    clock: float
    used: float


def _used() -> float:
    every = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in every)


def alone(experiment: wb.Experiment) -> Cost:
    """Do the work of a sweep's notebook without a kernel. Return its cost."""
    clock, used = time.perf_counter(), _used()
    with TemporaryDirectory() as folder:
        trace = wb.run(experiment)
        trace.save(Path(folder) / "run")
        for figure in (
            wb.figures.convergence([trace]),
            wb.figures.round_times([trace]),
            wb.figures.gantt(trace),
        ):
            figure.to_json()
    return Cost(time.perf_counter() - clock, _used() - used)


def own(
    experiments: list[wb.Experiment],
    at_once: int,
    work: Callable[[wb.Experiment], Cost] = alone,
    chunk: int = 1,
) -> Cost:
    """Return the mean cost of a run. `at_once` runs share the machine, in processes that have done one run before."""
    with get_context("spawn").Pool(at_once) as pool:
        pool.map(work, experiments[:at_once], chunksize=1)
        costs = pool.map(work, experiments, chunksize=chunk)
        pool.close()
        pool.join()
    return Cost(*(sum(part) / len(experiments) for part in zip(*costs, strict=True)))


def computed(experiment: wb.Experiment) -> Cost:
    """Compute a run, and keep nothing."""
    clock, used = time.perf_counter(), _used()
    wb.run(experiment, events=False)
    return Cost(time.perf_counter() - clock, _used() - used)


def swept(plan: Sweep, folder: Path, jobs: int, fresh: bool = False) -> Cost:
    """Run the sweep. Return its cost."""
    clock, used = time.perf_counter(), _used()
    summary = sweep(plan, folder, jobs=jobs, fresh=fresh, progress=False)
    assert len(summary.named("done")) + summary.counts.get("done", 0) == sum(1 for _ in plan.numbered())
    return Cost(time.perf_counter() - clock, _used() - used)


def small(count: int, jobs: int) -> None:
    """Print the ratio for runs of about 20 ms in shards, and the memory of the sweep's process."""
    base = {"scheme": "CR", "scheme_args": TREE, "workers": 84, "rounds": SMALL_ROUNDS, "problem": "unit"}
    plan = Sweep(base=base, seeds=count, notebooks=False)
    experiments = [item.experiment for item in islice(plan.items(), min(count, 500))]
    before = own(experiments[::2], jobs, computed, 10)
    with TemporaryDirectory() as root:
        # the first sweep imports all modules that sweeps need
        swept(plan.model_copy(update={"seeds": WARM_RUNS}), Path(root) / "first", jobs)
        idle = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        whole = swept(plan, Path(root) / "sweep", jobs)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - idle
    after = own(experiments[1::2], jobs, computed, 10)
    clock, used = (count * sum(pair) / 2 for pair in zip(before, after, strict=True))
    print(
        f"{count} runs in shards, -j {jobs}: {whole.clock:.1f} s, {whole.clock * jobs / clock:.2f} times their own,"
        f" processors {whole.used / used:.2f} times: {1e3 * clock / count:.1f} ms a run (after the sweep"
        f" {after.clock / before.clock:.2f} of before); the sweep's memory grew by {grown / 1024:.0f} MiB",
        flush=True,
    )


def table(count: int, jobs: int) -> None:
    """Print what it costs to open and to filter the table of many runs in shards."""
    base = {"workers": 4, "rounds": 10, "problem": "unit"}
    grid = {"scheme": ["UMW", "SGD"]}
    plan = Sweep(base=base, grid=grid, seeds=count // 2, notebooks=False)
    with TemporaryDirectory() as root:
        whole = swept(plan, Path(root) / "sweep", jobs)
        print(f"{count} runs in shards: {whole.clock:.1f} s", flush=True)
        with get_context("spawn").Pool(1) as pool:
            opened, filtered, memory = pool.apply(_opened, (f"{root}/sweep",))
    print(f"  table opened in {opened:.2f} s, filtered in {1e3 * filtered:.0f} ms, {memory:.0f} MiB at most")


def _opened(folder: str) -> tuple[float, float, float]:
    clock = time.perf_counter()
    runs = wb.runs(folder)
    opened, clock = time.perf_counter() - clock, time.perf_counter()
    assert 0 < len(runs.where(scheme="UMW", seed=7)) < len(runs)
    return opened, time.perf_counter() - clock, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    """Print the ratios."""
    options = argparse.ArgumentParser()
    for name, default in (
        ("runs", 100),
        ("jobs", 2),
        ("rounds", 300),
        ("fresh", 6),
        ("small", 0),
        ("table", 0),
    ):
        options.add_argument(f"--{name}", type=int, default=default)
    given = options.parse_args()
    if given.small or given.table:
        for count, work in ((given.small, small), (given.table, table)):
            if count:
                work(count, given.jobs)
        return
    with TemporaryDirectory() as root:
        for count, fresh in ((given.runs, False), (given.fresh, True)):
            plan = Sweep(base={**BASE, "rounds": given.rounds}, seeds=max(count, 2))
            experiments = [item.experiment for item in plan.items()]
            ways = sorted({1, given.jobs})
            before = [own(experiments[::2], at_once) for at_once in ways]
            whole = swept(plan, Path(root) / f"sweep-{fresh}", given.jobs, fresh)
            after = [own(experiments[1::2], at_once) for at_once in ways]
            kind = "every kernel started" if fresh else "kernels forked"
            print(f"{len(experiments)} runs, -j {given.jobs}, {kind}: {whole.clock:.1f} s")
            for at_once, early, late in zip(ways, before, after, strict=True):
                clock, used = (len(experiments) * sum(pair) / 2 for pair in zip(early, late, strict=True))
                print(
                    f"  {whole.clock * given.jobs / clock:.2f} times their own time, processors"
                    f" {whole.used / used:.2f} times: {clock / len(experiments):.2f} s a run, {at_once} at a time"
                    f" (after the sweep {late.clock / early.clock:.2f} of before)",
                    flush=True,
                )


if __name__ == "__main__":
    main()
