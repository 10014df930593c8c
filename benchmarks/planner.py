"""The planner: real rounds over those that a profile predicts, and how long profiling and planning take.

python benchmarks/planner.py [real] [truth] [speed] [--repeat 3] [--rounds 80]
"""

from __future__ import annotations

import argparse
import os
import time
from typing import Any

import numpy as np

import workbench as wb
from workbench.launch.pools import POOLS
from workbench.profiling import simulated
from workbench.realrun import start_real

WORKERS = 12
PROBLEM: dict[str, Any] = {
    "problem": "least_squares",
    "problem_args": {"samples": 256 * WORKERS, "features": 2048},
    "optimiser_args": {"step": 1e-6},
}
RIVALS: dict[str, tuple[str, dict[str, Any]]] = {
    "UMW": ("UMW", {}),
    "GC s=1": ("GC", {"stragglers": 1}),
    "GC s=3": ("GC", {"stragglers": 3}),
    "CR s=0": ("CR", {"children": 3, "layers": 2, "stragglers": 0}),
    "CR s=1": ("CR", {"children": 3, "layers": 2, "stragglers": 1}),
}
WARM = 4  # rounds


def experiment(scheme: str, args: dict[str, Any], rounds: int) -> wb.Experiment:
    return wb.Experiment(scheme=scheme, scheme_args=args, workers=WORKERS, rounds=rounds + WARM, **PROBLEM)


def real(repeat: int, rounds: int) -> None:
    """Profile this machine, then run: measured rounds over predicted ones, again and again as others' load changes."""
    print(
        f"real: {WORKERS} workers on {os.cpu_count()} cores, least squares 3072 x 2048, nothing emulated; goal 0.85 to"
        " 1.15"
    )
    ratios: dict[str, list[float]] = {name: [] for name in RIVALS}
    for _ in range(repeat):
        profile = wb.profile("local", like=experiment("UMW", {}, rounds), rounds=rounds, resamples=0)
        for name, (scheme, args) in RIVALS.items():
            e = experiment(scheme, args, rounds)
            trace = start_real(e, emulate="nothing", events=False).result()
            measured = float(np.diff(trace.columns["time"])[WARM - 1 :].mean())
            predicted = profile.forecast(e, rounds).mean
            ratios[name].append(measured / predicted)
            print(
                f"  {name:7s} measured {1e3 * measured:7.2f} ms, predicted {1e3 * predicted:7.2f} ms,"
                f" ratio {measured / predicted:.2f}   load of the machine {os.getloadavg()[0]:.1f}",
                flush=True,
            )
    for name, found in ratios.items():
        print(
            f"  {name:7s} measured / predicted: median {np.median(found):.2f}, {min(found):.2f} to {max(found):.2f}"
        )
    POOLS.close()


def truth(repeat: int, rounds: int) -> None:
    """On the virtual clock, where the truth is known: forecasts on the profile over forecasts on the truth."""
    print("truth: forecast on a profile / forecast on the cluster itself, N = 30; goal 1")
    for delays in (
        {"kind": "shifted_exponential"},
        {"kind": "pareto"},
        {"kind": "heterogeneous"},
        {"kind": "markov"},
    ):
        cluster: dict[str, Any] = {
            "delays": delays,
            "link": {"latency": 1e-3, "bandwidth": 8e6, "downloads": True},
        }
        profile = simulated(wb.Experiment(scheme="UMW", workers=30, **cluster), rounds)
        found = []
        for scheme, args in (
            ("UMW", {}),
            ("GC", {"stragglers": 5}),
            ("CR", {"children": 5, "layers": 2, "stragglers": 1}),
        ):
            e = wb.Experiment(scheme=scheme, scheme_args=args, workers=30, **PROBLEM, **cluster)
            ratio = wb.forecast(profile.experiment(e), 500).mean / wb.forecast(e, 500).mean
            found.append(f"{scheme} {ratio:.2f}")
        print(f"  {delays['kind']:20s} {', '.join(found)}")


def speed(repeat: int, rounds: int) -> None:
    """Seconds of a plan over those of one forecast of 100 uncoded rounds; goal 5 s for N = 156."""
    print("speed: a plan of all schemes, simulations included")
    for workers in (12, 156):
        cluster: dict[str, Any] = {"link": {"latency": 1e-3, "bandwidth": 8e6, "downloads": True}}
        profile = simulated(wb.Experiment(scheme="UMW", workers=workers, **cluster), 20, 40)
        args = {"samples": 40 * workers, "features": 500}
        one = wb.Experiment(scheme="UMW", workers=workers, problem_args=args)
        began = time.perf_counter(), time.process_time()
        advice = wb.plan(profile, problem_args=args, rounds=60)
        wall, cpu = time.perf_counter() - began[0], time.process_time() - began[1]
        began = time.perf_counter(), time.process_time()
        wb.forecast(one, 100)
        ratio = cpu / (time.process_time() - began[1])
        print(
            f"  N={workers:3d}: {len(advice.choices)} choices in {wall:.1f} s ({cpu:.1f} s of the cores),"
            f" {ratio:.0f} forecasts' time; best {advice.best.name}"
        )


PARTS = {"real": real, "truth": truth, "speed": speed}


def main() -> None:
    """Print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], default=[])
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=80)
    args = parser.parse_args()
    for name in args.parts or PARTS:
        PARTS[name](args.repeat, args.rounds)


if __name__ == "__main__":
    main()
