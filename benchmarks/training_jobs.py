"""Measure the accuracy of the diagnosis on real training jobs: DistributedDataParallel over gloo, with a real fault.

    python benchmarks/training_jobs.py [healthy] [backward] [overlap] [accumulate] [loader] [forward] [link]
                                       [link-overlap] [lengths] [kernel] [--mbit 100] [--usual 400] [--width 320]
                                       [--blocks 12] [--count 20] [--profiler] [--device cpu | cuda] [--keep DIR]

Four ranks train on this machine, in processes of their own. In "backward" one of them sleeps 200 ms in the backward
pass of each step, in "overlap" with an all-reduce for each megabyte of gradients, in "accumulate" 50 ms in each of four
micro-batches, in "loader" while its batch is loaded, in "forward" in its forward pass. In "link" queues of the kernel
limit the bandwidth of one rank to 100 Mbit/s, and that of the others to 400 Mbit/s (each rank then has its own network
namespace, which needs root), in "link-overlap" with an all-reduce for each megabyte. `--mbit` and `--usual` set other
bandwidths. With `--usual 0` the other links are copies in memory, which take the time of the shared processors.
`--width` sets another width of the network's layers, and `--blocks` the number of sections with the fault. In "lengths"
no rank is slow, but sequences differ in length. With `--device cuda`, the ranks share the CUDA devices of this machine,
and in "kernel" a kernel of one rank runs for 200 ms in each backward pass. In successive jobs the slow rank changes.
The fault is on in every other block of steps. Steps with and without it are measured in the same job.

It prints how often the right cause was named first, and which others were named. It also prints the errors of the
diagnosed ratio and of the predicted saving. The measured ratio has a 90 % interval: other programs on the same cores
make it wide. Steps are recorded by `wb.record`, or with `--profiler` by PyTorch's
profiler. `--keep` keeps the folders, and diagnoses those that exist already.
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
    "link-overlap": Job("link", overlap=True),
    "lengths": Job("lengths"),
    "kernel": Job("kernel"),
}
WANTED = {"healthy": "", "lengths": "uneven work"}  # in others: the slow worker, or its link


@dataclass(frozen=True)
class Judged:
    """Diagnosis of a job, and the measured times."""

    wanted: str
    named: list[str]
    estimated: float
    measured: float
    band: tuple[float, float]
    promised: float
    saved: float

    @property
    def is_right(self) -> bool:
        """Whether the right cause was named first, or none in a healthy job."""
        return self.named[:1] == [self.wanted] * bool(self.wanted)

    def __str__(self) -> str:
        right = "right" if self.is_right else "WRONG"
        return (
            f"{right}: {self.named}, ratio {self.estimated:.2f} (measured {self.measured:.2f},"
            f" {self.band[0]:.2f} to {self.band[1]:.2f}),"
            f" promised {self.promised:.1%} (removing it saves {self.saved:.1%})"
        )


def judged(kind: str, found: Measured) -> Judged:
    """Diagnose a job's recording."""
    diagnosis = wb.diagnose(found.recording)
    promises = [one.saving for one in diagnosis.mitigations or ()]
    named = [one.who for one in diagnosis.culprits]
    link = f"the link from worker {found.job.who} to worker {(found.job.who + 1) % found.job.ranks}"
    wanted = link if found.job.fault == "link" else WANTED.get(kind, f"worker {found.job.who}")
    promised = max(promises, default=0.0)
    return Judged(wanted, named, diagnosis.slowdown, found.ratio, found.band, promised, found.saving)


def jobs(kind: str, args: argparse.Namespace) -> list[Judged]:
    """Run new jobs, or diagnose those that were kept."""
    found = []
    for number in range(args.count):
        job = replace(CASES[kind], who=number % CASES[kind].ranks, profiler=args.profiler, device=args.device)
        job = replace(job, mbit=args.mbit, usual=args.usual, width=args.width, blocks=args.blocks)
        with tempfile.TemporaryDirectory() as place:
            name = f"{kind}{'-profiler' * args.profiler}-{number}"
            folder = args.keep / name if args.keep else Path(place) / "job"
            if not (folder / "moments-0.json").is_file():
                shutil.rmtree(folder, ignore_errors=True)
                run(job, folder)
            found.append(judged(kind, measured(job, folder)))
        print(f"  {kind} {number}: {found[-1]}", flush=True)
    return found


def summary(kind: str, found: list[Judged]) -> str:
    """Return the counts of a kind in one line."""
    right = sum(one.is_right for one in found)
    errors = [abs(one.estimated / one.measured - 1) for one in found]
    over = [one.promised - one.saved for one in found]
    line = f"{kind:12s} right {right} of {len(found)}"
    if kind not in ("healthy", "lengths"):
        within = sum(one.band[0] <= one.estimated <= one.band[1] for one in found)
        line += (
            f"; ratio off by {median(errors):.0%} (at most {max(errors):.0%}), {within} within the interval"
        )
    return f"{line}; promise over saving: {median(over):+.1%} (at most {max(over):+.1%})"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "kinds", nargs="*", default=[kind for kind in CASES if kind != "kernel"], metavar="kind"
    )
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--mbit", type=int, default=Job.mbit)
    parser.add_argument("--usual", type=int, default=Job.usual)
    parser.add_argument("--width", type=int, default=Job.width)
    parser.add_argument("--blocks", type=int, default=Job.blocks)
    parser.add_argument("--profiler", action="store_true")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--keep", type=Path)
    args = parser.parse_args()
    if "kernel" in args.kinds and args.device != "cuda":
        parser.error("kernel: needs --device cuda")
    lines = [summary(kind, jobs(kind, args)) for kind in args.kinds]
    print("\n".join(lines))


if __name__ == "__main__":
    main()
