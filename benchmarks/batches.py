"""What a sweep costs over its runs' own time.

    python benchmarks/batches.py [--runs 100] [--jobs 2] [--rounds 300] [--fresh 6]

The runs' own time: the same experiments in one warm process (run, save the run folder, draw the three figures of
`notebooks/run.ipynb`), divided by the number of jobs; one half of them before the sweep, one after it, for the speed
of a shared machine changes within minutes. A sweep adds kernels, notebooks, pages and its own start. On a machine that
is busy otherwise the ratio of the clock says little; that of the processors' time then says more.
"""

from __future__ import annotations

import argparse
import os
import resource
import time
from pathlib import Path
from tempfile import TemporaryDirectory

# As a sweep that uses all cores gives its runs; read when NumPy is loaded.
os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"

import workbench as wb
from workbench.batch import Sweep, sweep

TREE = {"children": 4, "layers": 3, "stragglers": 1}
BASE = {
    "scheme": "CR",
    "scheme_args": TREE,
    "workers": 84,
    "problem": "softmax",
    "problem_args": {"data": "digits"},
}


class Cost:
    """Seconds on the clock, and of all processors in this process and its children, since it was made."""

    def __init__(self) -> None:
        self.begin, self.used = time.perf_counter(), self._used()

    @staticmethod
    def _used() -> float:
        every = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        return sum(usage.ru_utime + usage.ru_stime for usage in every)

    def so_far(self) -> tuple[float, float]:
        """Clock, processors."""
        return time.perf_counter() - self.begin, self._used() - self.used


def alone(experiment: wb.Experiment, folder: Path) -> None:
    """What a notebook does, without one."""
    trace = wb.run(experiment)
    trace.save(folder)
    for figure in (wb.figures.convergence([trace]), wb.figures.round_times([trace]), wb.figures.gantt(trace)):
        figure.to_json()


def own(experiments: list[wb.Experiment], folder: Path) -> tuple[float, float]:
    """Cost of the runs alone, the first of which warms up."""
    alone(experiments[0], folder / "warm")
    cost = Cost()
    for i, experiment in enumerate(experiments):
        alone(experiment, folder / str(i))
    return cost.so_far()


def swept(plan: Sweep, folder: Path, jobs: int, fresh: bool = False) -> tuple[float, float]:
    """Cost of the sweep."""
    cost = Cost()
    summary = sweep(plan, folder, jobs=jobs, fresh=fresh, progress=False)
    assert len(summary.named("done")) == len(plan.items())
    return cost.so_far()


def main() -> None:
    """Print the ratios."""
    options = argparse.ArgumentParser()
    for name, default in (("runs", 100), ("jobs", 2), ("rounds", 300), ("fresh", 6)):
        options.add_argument(f"--{name}", type=int, default=default)
    given = options.parse_args()
    with TemporaryDirectory() as root:
        for count, fresh in ((given.runs, False), (given.fresh, True)):
            plan = Sweep(base={**BASE, "rounds": given.rounds}, seeds=max(count, 2))
            experiments = [item.experiment for item in plan.items()]
            count = len(experiments)
            before = own(experiments[::2], Path(root) / f"before-{fresh}")
            whole = swept(plan, Path(root) / f"sweep-{fresh}", given.jobs, fresh)
            after = own(experiments[1::2], Path(root) / f"after-{fresh}")
            clock, used = (sum(pair) for pair in zip(before, after, strict=True))
            kind = "every kernel anew" if fresh else "kernels forked"
            drift = after[0] / len(experiments[1::2]) / (before[0] / len(experiments[::2]))
            print(
                f"{count} runs of {clock / count:.2f} s, -j {given.jobs}, {kind}: {whole[0]:.1f} s,"
                f" {whole[0] * given.jobs / clock:.2f} times their own time; processors {whole[1] / used:.2f} times;"
                f" runs alone afterwards {drift:.2f} of before"
            )


if __name__ == "__main__":
    main()
