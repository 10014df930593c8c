"""What a mini-batch costs beside its share of a full round, and what batches add to a round of the virtual clock.

    python benchmarks/mini_batches.py [--share 0.01] [--repeats 7] [--rounds 300]

Both are measured in turn, in one process on one core, so that a busy machine slows both. A batch is drawn from all of
the data, whose rows lie apart: where data are small, finding them costs more than going through them. Goal: on data of
100 MB and more a batch of 1 % costs at most 1.3 times 1 % of a full round. Smaller data are printed.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from itertools import count
from statistics import median

os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"

import workbench as wb
from workbench.core.contract.problem import in_round
from workbench.core.engine.virtual.arithmetic import Coefficients
from workbench.core.running.simulated import timeline

LARGE_MB = 100
MAX_RATIO = 1.3
SIZES = (("logistic", 130_000, 100), ("softmax", 30_000, 784), ("logistic", 20_000, 20))


def seconds(work: Callable[[], object], least: float = 0.02) -> float:
    """Seconds of a call, of as many as fill some time."""
    begin, calls = time.perf_counter(), 0
    while not calls or time.perf_counter() - begin < least:
        work()
        calls += 1
    return (time.perf_counter() - begin) / calls


def gradients(problem: str, samples: int, features: int, share: float, repeats: int) -> tuple[float, float]:
    """Seconds of a full gradient and of a mini-batch's, medians of alternating measurements."""
    args = {"samples": samples, "features": features}
    e = wb.Experiment(
        problem=problem, problem_args=args, workers=12, scheme="UMW", batch=round(share * samples)
    )
    batched, jobs = e.build_problem(), count()
    model, everything = batched.start(), [(0, samples, 1.0)]
    pairs = [
        (
            seconds(lambda: batched.gradient(everything, model)),
            seconds(lambda: in_round(batched, next(jobs)).gradient(everything, model)),
        )
        for _ in range(repeats)
    ]
    return median(full for full, _ in pairs), median(part for _, part in pairs)


def overhead(scheme: str, rounds: int, repeats: int) -> tuple[float, float]:
    """Seconds of a round of the virtual clock without and with batches, nothing learnt."""
    args = {"samples": 10_000, "features": 20}
    plain = wb.Experiment(problem_args=args, workers=84, scheme=scheme, rounds=rounds)
    both = (plain, plain.replace(batch=1000))
    for e in both:
        timeline(e, Coefficients(e.plan, e.sampler), events=False)
    taken = [
        [seconds(lambda e=e: timeline(e, Coefficients(e.plan, e.sampler), events=False), 0.0) for e in both]
        for _ in range(repeats)
    ]
    return median(a for a, _ in taken) / rounds, median(b for _, b in taken) / rounds


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--share", type=float, default=0.01, help="of the samples, that a batch has")
    parser.add_argument("--repeats", type=int, default=7, help="measurements of each")
    parser.add_argument("--rounds", type=int, default=300, help="rounds of the virtual clock")
    options = parser.parse_args()
    missed = []
    for problem, samples, features in SIZES:
        full, part = gradients(problem, samples, features, options.share, options.repeats)
        megabytes, ratio = 8e-6 * samples * features, part / (options.share * full)
        print(
            f"{problem:10} {samples:7} x {features:4} ({megabytes:4.0f} MB): full {1e3 * full:8.2f} ms,"
            f" batch {1e3 * part:8.3f} ms, {ratio:5.2f} times its share"
        )
        if megabytes >= LARGE_MB and ratio > MAX_RATIO:
            missed.append(f"{problem} {samples} x {features}: {ratio:.2f}")
    for scheme in ("UMW", "GC", "ASGD"):
        plain, batched = overhead(scheme, options.rounds, 3)
        print(f"{scheme:5} 84 workers: {1e6 * plain:7.1f} us a round, with batches {1e6 * batched:7.1f} us")
    print(f"goal of {MAX_RATIO} on data of {LARGE_MB} MB: {'; '.join(missed) or 'met'}")


if __name__ == "__main__":
    main()
