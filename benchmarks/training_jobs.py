"""Diagnosis of real training jobs: DistributedDataParallel over gloo, with a fault that is really there.

    python benchmarks/training_jobs.py [healthy] [backward] [overlap] [accumulate] [loader] [forward] [link] [lengths]
                                       [--count 20] [--profiler] [--keep DIR]

Four ranks train on this machine, in processes of their own. In "backward" one of them sleeps 200 ms in the backward
pass of each step, in "overlap" with an all-reduce for each megabyte of gradients, in "accumulate" 50 ms in each of four
micro-batches, in "loader" while its batch is loaded, in "forward" in its forward pass. In "link" a queue of the kernel
limits what one rank sends to 400 Mbit/s (each rank then has a network of its own, which needs root). In "lengths"
nobody is slow, but sequences differ in length. Each job is new, and its slow rank the next one. The fault is on in
every other block of steps. What steps take with it and without is measured in the same job.

It prints how often the right one was named first, whom else, and how far the told ratio is from the measured one, and
the promised saving from what removing the fault gives. Steps are recorded by `wb.record`, or with `--profiler` by
PyTorch's profiler. `--keep` leaves the folders there, and judges those that are there already.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import workbench as wb
from tests.support.ddp_jobs import Job, Measured, measured, run

CASES = {
    "healthy": Job(),
    "backward": Job("backward"),
    "overlap": Job("backward", overlap=True),
    "accumulate": Job("backward", accumulate=4),
    "loader": Job("loader"),
    "forward": Job("forward"),
    "link": Job("link"),
    "lengths": Job("lengths"),
}
WANTED = {"healthy": "", "lengths": "uneven work"}  # in others: the slow worker, or its link


@dataclass(frozen=True)
class Judged:
    """What was told of a job, and what was measured."""

    wanted: str
    named: list[str]
    told: float
    measured: float
    promised: float
    saved: float

    @property
    def is_right(self) -> bool:
        """Whether the right one was named first, or nobody."""
        return self.named[:1] == [self.wanted] * bool(self.wanted)

    def __str__(self) -> str:
        right = "right" if self.is_right else "WRONG"
        return (
            f"{right}: {self.named}, ratio {self.told:.2f} (measured {self.measured:.2f}),"
            f" promised {self.promised:.1%} (removing it saves {self.saved:.1%})"
        )


def judged(kind: str, found: Measured) -> Judged:
    """Diagnose a job's recording."""
    diagnosis = wb.diagnose(found.recording)
    promises = [one.saving for one in diagnosis.mitigations or ()]
    named = [one.who for one in diagnosis.culprits]
    link = f"the link from worker {found.job.who} to worker {(found.job.who + 1) % found.job.ranks}"
    wanted = link if kind == "link" else WANTED.get(kind, f"worker {found.job.who}")
    return Judged(wanted, named, diagnosis.slowdown, found.ratio, max(promises, default=0.0), found.saving)


def jobs(kind: str, count: int, profiler: bool, keep: Path | None) -> list[Judged]:
    """Run new jobs, or judge those that were kept."""
    found = []
    for number in range(count):
        job = replace(CASES[kind], who=number % CASES[kind].ranks, profiler=profiler)
        with tempfile.TemporaryDirectory() as place:
            folder = keep / f"{kind}{'-profiler' * profiler}-{number}" if keep else Path(place) / "job"
            if not (folder / "moments-0.json").is_file():
                shutil.rmtree(folder, ignore_errors=True)
                run(job, folder)
            found.append(judged(kind, measured(job, folder)))
        print(f"  {kind} {number}: {found[-1]}", flush=True)
    return found


def told(kind: str, found: list[Judged]) -> str:
    """Return the counts of a kind in one line."""
    right = sum(one.is_right for one in found)
    errors = [abs(one.told / one.measured - 1) for one in found]
    over = [one.promised - one.saved for one in found]
    line = f"{kind:12s} right {right} of {len(found)}"
    if kind not in ("healthy", "lengths"):
        line += f"; ratio off by {median(errors):.0%} (at most {max(errors):.0%})"
    return f"{line}; promise over saving: {median(over):+.1%} (at most {max(over):+.1%})"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("kinds", nargs="*", default=list(CASES), metavar="kind")
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--profiler", action="store_true")
    parser.add_argument("--keep", type=Path)
    args = parser.parse_args()
    lines = [told(kind, jobs(kind, args.count, args.profiler, args.keep)) for kind in args.kinds]
    print("\n".join(lines))


if __name__ == "__main__":
    main()
