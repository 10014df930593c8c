"""Measure the cost of mini-batches against full rounds, and the cost of batches on the virtual clock.

    python benchmarks/mini_batches.py [--share 0.01] [--repeats 7] [--rounds 100]

An epoch of batches processes every sample once, as a full round does. The time of an epoch, with the drawing of its
batches, is divided by the time of a full round. A full round is one call for the gradient on all samples. On the
virtual clock, it also evaluates the loss, so the ratio to gradient and loss is printed as well. Epochs and full rounds
alternate, and are measured in CPU seconds of one thread.

The rows of a batch are far apart in memory. With small data, gathering them takes longer than processing them. Goal: on
data of 100 MB and more, a batch of 1 % costs at most 1.3 times 1 % of a full round. There is no goal for smaller data.
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
from workbench.core.contract.problem import Request, in_round
from workbench.core.engine.virtual.arithmetic import Coefficients
from workbench.core.running.simulated import timeline

LARGE_MB = 100
MAX_RATIO = 1.3
SIZES = (("logistic", 130_000, 100), ("softmax", 30_000, 784), ("logistic", 20_000, 20))
MIN_SECONDS = 0.02  # min s of one measurement; short calls are repeated


def seconds(work: Callable[[], object]) -> float:
    """Return the CPU seconds of a call: the mean over as many calls as take `MIN_SECONDS`."""
    begin, calls = time.process_time(), 0
    while not calls or time.process_time() - begin < MIN_SECONDS:
        work()
        calls += 1
    return (time.process_time() - begin) / calls


def in_turn(
    one: Callable[[], object], other: Callable[[], object], repeats: int
) -> tuple[float, float, float]:
    """Return the CPU seconds of two calls, and the ratio of the second to the first.

    These are medians over alternating measurements.
    """
    one(), other()  # fill the caches
    pairs = [(seconds(one), seconds(other)) for _ in range(repeats)]
    return median(a for a, _ in pairs), median(b for _, b in pairs), median(b / a for a, b in pairs)


def gradients(problem: str, samples: int, features: int, share: float, repeats: int) -> tuple[float, ...]:
    """Return the CPU seconds of a full gradient and of a mini-batch, and two ratios.

    The ratios are the time of an epoch divided by that of a full gradient, and by that of full gradient and loss.
    """
    args = {"samples": samples, "features": features}
    e = wb.Experiment(
        problem=problem, problem_args=args, workers=12, scheme="UMW", batch=round(share * samples)
    )
    assert e.sampler is not None
    batched, jobs, batches = e.build_problem(), count(), e.sampler.batches_per_epoch
    model, everything = batched.start(), [(0, samples, 1.0)]

    def epoch() -> None:
        for _ in range(batches):
            in_round(batched, next(jobs)).gradient(everything, model)

    full, took, ratio = in_turn(lambda: batched.gradient(everything, model), epoch, repeats)
    _, _, with_loss = in_turn(lambda: batched.evaluate([Request(model)]), epoch, repeats)
    return full, took / batches, ratio, with_loss


def overhead(scheme: str, rounds: int, repeats: int) -> tuple[float, float, float]:
    """Return the CPU seconds of a round on the virtual clock without and with batches, and their ratio.

    Gradients are not computed.
    """
    plain = wb.Experiment(
        problem_args={"samples": 10_000, "features": 20}, workers=84, scheme=scheme, rounds=rounds
    )
    batched = plain.replace(batch=1000)

    def run(e: wb.Experiment) -> None:
        timeline(e, Coefficients(e.plan, e.sampler), events=False)

    one, other, ratio = in_turn(lambda: run(plain), lambda: run(batched), repeats)
    return one / rounds, other / rounds, ratio


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--share", type=float, default=0.01, help="share of the samples in a batch")
    parser.add_argument("--repeats", type=int, default=7, help="measurements of each")
    parser.add_argument("--rounds", type=int, default=100, help="rounds of the virtual clock")
    options = parser.parse_args()
    missed = []
    for problem, samples, features in SIZES:
        full, part, *ratios = gradients(problem, samples, features, options.share, options.repeats)
        megabytes = 8e-6 * samples * features
        print(
            f"{problem:10} {samples:7} x {features:4} ({megabytes:4.0f} MB): full {1e3 * full:8.2f} ms,"
            f" batch {1e3 * part:8.3f} ms, {ratios[0]:5.2f} times its share, {ratios[1]:5.2f} of a round with its loss"
        )
        if megabytes >= LARGE_MB and ratios[0] > MAX_RATIO:
            missed.append(f"{problem} {samples} x {features}: {ratios[0]:.2f}")
    for scheme in ("UMW", "GC", "ASGD"):
        plain, batched, ratio = overhead(scheme, options.rounds, options.repeats)
        print(
            f"{scheme:5} 84 workers: {1e6 * plain:7.1f} us a round, with batches {1e6 * batched:7.1f} us,"
            f" {ratio:.2f} times"
        )
    print(f"goal of {MAX_RATIO} on data of {LARGE_MB} MB: {'; '.join(missed) or 'met'}")


if __name__ == "__main__":
    main()
