"""Compare schemes by the time until a thin ResNet-18 reaches a held-out accuracy, on the virtual clock.

    python benchmarks/networks.py [--rounds 120] [--seeds 3] [--channels 8] [--target 0.8]

Twelve workers train on 1000 synthetic images in batches of 64, and 200 images are held out. A sample takes 10 ms, and
ten times as long while a worker is slow. The Markov delay model draws the slow spells. Round times are simulated and
not measured. For one seed, all schemes have the same stragglers and the same batches. Exact schemes have the same
models, so they differ only in time. The target must be reached by the mean of five evaluations.
"""

from __future__ import annotations

import argparse
import os
import time

os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"

import numpy as np

import workbench as wb

SCHEMES = {
    "UMW": {},
    "GC": {"stragglers": 2},
    "Backup": {"stragglers": 2},
    "IS-GC": {"replication": 2, "wait_for": 8},
}


def experiments(options: argparse.Namespace, seed: int) -> list[wb.Experiment]:
    """Return one experiment for each scheme."""
    common = {
        "workers": 12,
        "rounds": options.rounds,
        "batch": 64,
        "evaluate_every": 5,
        "seed": seed,
        "problem": "resnet18",
        "problem_args": {"channels": options.channels, "samples": 1200, "test": 200, "device": "cpu"},
        "optimiser": "sgd",
        "optimiser_args": {"step": 0.1, "momentum": 0.9, "schedule": {"kind": "cosine", "warmup": 10}},
        "delays": {"kind": "markov", "factor": 10.0, "p_slow": 0.05, "p_recover": 0.5, "shift": 0.01},
    }
    return [wb.Experiment(scheme=name, scheme_args=args, **common) for name, args in SCHEMES.items()]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--rounds", type=int, default=120, help="rounds of a run")
    parser.add_argument("--seeds", type=int, default=3, help="seeds of stragglers and batches")
    parser.add_argument("--channels", type=int, default=8, help="channels of the first stage")
    parser.add_argument("--target", type=float, default=0.8, help="held-out accuracy to reach")
    options = parser.parse_args()
    began, found = time.perf_counter(), []
    for seed in range(options.seeds):
        traces = wb.compare(experiments(options, seed))
        for trace in traces:
            reached = trace.time_to(options.target, "test_accuracy")
            rounds = np.searchsorted(trace.columns["time"], reached) + 1 if np.isfinite(reached) else np.nan
            last = (
                trace.columns["time"][-1] / len(trace.columns["time"]),
                trace.columns["test_accuracy"][-1],
            )
            found.append((reached, rounds, *last))
    table = np.array(found).reshape(options.seeds, len(SCHEMES), 4)
    print(f"{'scheme':8} {'s a round':>9} {'rounds':>16} {'s to target':>20} {'accuracy at the end':>20}")
    for name, rows in zip(SCHEMES, table.transpose(1, 0, 2), strict=True):
        reached, rounds, each, last = rows.T
        print(
            f"{name:8} {each.mean():9.3f} {' '.join(f'{r:.0f}' for r in rounds):>16}"
            f" {' '.join(f'{s:.1f}' for s in reached):>20} {' '.join(f'{a:.3f}' for a in last):>20}"
        )
    print(f"simulated seconds; the computation itself took {time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main()
