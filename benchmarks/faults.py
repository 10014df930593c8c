"""Inject faults into real runs: deaths, stops, damaged messages, torn checkpoints, full disks, failed starts.

    python benchmarks/faults.py [--share 1.0] [--seed 0]

Every case is drawn from the seed. A case is wrong if its result is not the expected one, for example if a committed
gradient differs from the full gradient. It is hanging if it does not end in time. Processes that still exist after all
pools are closed are counted as left over.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable

from tests.support.fault_cases import (
    Tally,
    damage,
    deaths,
    full_disks,
    leftovers,
    memory_left,
    starts,
    stops,
    too_many,
    torn_checkpoints,
)

CASES: list[tuple[Callable[[int, random.Random], Tally], int]] = [
    (deaths, 200),
    (too_many, 20),
    (stops, 100),
    (damage, 100),
    (torn_checkpoints, 50),
    (full_disks, 5),
    (starts, 1),
]


def main() -> None:
    """Print the report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--share", type=float, default=1.0, help="share of the cases that are run")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    rng = random.Random(args.seed)
    bad = 0
    for case, count in CASES:
        tally = case(max(1, round(count * args.share)), rng)
        bad += tally.wrong + tally.hanging
        print(tally, flush=True)
    left = leftovers()
    kept = memory_left()
    print(f"{'left over':28s} {left:4d} processes, {kept} folders of shared memory")
    raise SystemExit(1 if bad or left or kept else 0)


if __name__ == "__main__":
    main()
