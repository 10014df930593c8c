"""Compare the savings of recommended mitigations with their predictions, on held-out steps and on real MPI runs.

    python benchmarks/mitigations.py [held] [real] [--count 5]

"held": the diagnosis gets the first half of a recording's steps. The second half is replayed on the virtual clock, with
each mitigation and with waiting for all workers. The saving should lie within the predicted 90 % interval. Recordings
are the available public ones (`wb.traces.at_hand()`), and simulated ones of several delay models.

"real": one of four real workers takes twice as long. This worker is left out, and the other three run again.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import workbench as wb
from tests.support import injected_faults
from workbench.analysis.recordings import Recording, at_hand, load
from workbench.analysis.recordings.mitigations import Mitigation
from workbench.core.contract.delays import Replay

INJECTED = f"{Path(injected_faults.__file__ or '').resolve()}:Injected"
EACH = 60  # samples per worker
LAWS: list[dict[str, Any]] = [
    {"kind": "heterogeneous", "slow": 0.2, "slow_straggles": 0.9, "factor": 4.0},
    {"kind": "markov", "p_slow": 0.05, "p_recover": 0.3, "factor": 6.0},
    {"kind": "shifted_exponential"},
    {"kind": "pareto", "shape": 2.5},
]


def recordings(count: int) -> Iterator[Recording]:
    """Yield each job of the available public recordings, then `count` simulated recordings of each delay model."""
    for file in at_hand().values():
        found = load(file)
        yield from (found.job(name) for name in found.names)
    for delay_model in LAWS:
        for seed in range(count):
            e = wb.Experiment(scheme="UMW", workers=10, rounds=200, delays=delay_model, seed=seed)
            rows = load(wb.run(e)).frame.assign(recording=f"{delay_model['kind']} {seed}")
            yield Recording.of_rows(rows, "made")


def halves(job: Recording) -> tuple[Recording, Recording]:
    """Return the first and the second half of a job's complete steps, as recordings."""
    steps = job.table().dropna().index
    early, late = steps[: len(steps) // 2], steps[len(steps) // 2 :]
    frames = [job.frame[job.frame["step"].isin(some)] for some in (early, late)]
    first, second = (replace(job, frame=frame.reset_index(drop=True)) for frame in frames)
    return first, second


def lasted(job: Recording, folder: Path, scheme: str, args: dict[str, Any], out: Any = None) -> float:
    """Return the seconds of a scheme for all recorded steps, on the virtual clock. `out`: a worker to leave out."""
    columns = list(job.table())
    left = [worker for worker in columns if worker != out]
    kept = replace(job, frame=job.frame[job.frame["worker"].isin(left)])
    file = kept.write(folder / f"{len(left)}.parquet")
    n = len(left)
    e = wb.Experiment(
        scheme=scheme, scheme_args=args, workers=n, rounds=job.steps, problem_args={"samples": n * EACH}
    )
    load_of = e.built_scheme.loads(n, n * EACH).max() / EACH * len(columns) / n
    delay_model = Replay(path=str(file), as_recorded=True, scale=float(load_of))
    return float(wb.run(e.replace(delays=delay_model), events=False, numeric=False).columns["time"][-1])


def out_of(one: Mitigation, job: Recording) -> Any:
    """Return the worker that a mitigation leaves out, or None."""
    return next((w for w in job.table() if one.what == f"leaving worker {w} out"), None)


def held(count: int) -> None:
    """Print predicted and actual savings of each recording, and the coverage of the intervals."""
    inside, off, nothing, all_of = [], [], 0, 0
    for job in recordings(count):
        early, late = halves(job)
        found = wb.diagnose(early).mitigations or ()
        all_of += 1
        nothing += not found
        with tempfile.TemporaryDirectory() as folder:
            for one in found:
                now = lasted(late, Path(folder), "UMW", {})
                then = lasted(late, Path(folder), one.scheme, one.scheme_args, out_of(one, late))
                saved = 1 - then / now
                inside.append(one.low <= saved <= one.high)
                off.append(saved - one.saving)
                print(
                    f"{job.names[0]:24s} {one}: saved {saved:.0%}{'' if inside[-1] else '   outside'}",
                    flush=True,
                )
    print(
        f"{all_of} recordings, {nothing} without a mitigation; of {len(inside)} predictions {np.mean(inside):.0%} lie"
        f" within their 90 % intervals, {np.mean(np.abs(off) <= 0.05):.0%} within 5 points;"
        f" mean error {np.mean(off):+.1%}"
    )


def real(count: int) -> None:
    """Leave out the slow one of four workers on real ranks, and print predicted and actual savings."""
    inside = 0
    for seed in range(count):
        victim = seed % 4
        delay_model: dict[str, Any] = {"kind": INJECTED, "victims": [victim], "task_factor": 2.0}
        e = wb.Experiment(
            scheme="UMW", workers=4, rounds=30, seed=seed, problem="least_squares", delays=delay_model,
            problem_args={"samples": 48, "features": 20}, optimiser_args={"step": 1e-4},
        )  # fmt: skip
        before = wb.run(e, engine="mpi")
        best = next(iter(wb.diagnose(before).mitigations or ()), None)
        if best is None or best.what != f"leaving worker {victim + 1} out":
            print(f"worker {victim + 1} of 4 is slow, but the best mitigation is: {best}")
            continue
        delay_model = {"kind": INJECTED, "task": 0.02 * 4 / 3}
        after = wb.run(e.replace(workers=3, delays=delay_model, seed=seed + 1000), engine="mpi")
        saved = 1 - after.columns["time"][-1] / before.columns["time"][-1]
        inside += best.low <= saved <= best.high
        print(f"real: {best}: saved {saved:.0%}", flush=True)
    print(f"real: {inside} of {count} predictions lie within their 90 % intervals")


def main() -> None:
    """Print one line per prediction."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", nargs="*", default=["held", "real"])
    parser.add_argument("--count", type=int, default=5)
    args = parser.parse_args()
    for what in args.what:
        {"held": held, "real": real}[what](args.count)


if __name__ == "__main__":
    main()
