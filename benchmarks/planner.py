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
    """Profile this machine, then run: measured rounds over predicted ones.

    Other programs' load changes within seconds, so uncoded rounds are measured again before each rival: "beside UMW" is
    the ratio of both schemes' ratios, which a change that slows down both leaves as it is.
    """
    cores, shape = os.cpu_count(), f"{256 * WORKERS} x 2048"
    print(
        f"real: {WORKERS} workers on {cores} cores, least squares {shape}, nothing emulated; goal 0.85 to 1.15"
    )
    alone: dict[str, list[float]] = {name: [] for name in RIVALS}
    beside: dict[str, list[float]] = {name: [] for name in RIVALS}
    for _ in range(repeat):
        profile = wb.profile("local", like=experiment("UMW", {}, rounds), rounds=rounds, resamples=0)
        for name, fields in RIVALS.items():
            uncoded, ratio = ratio_of(profile, "UMW", {}, rounds), ratio_of(profile, *fields, rounds)
            alone[name].append(ratio)
            beside[name].append(ratio / uncoded)
            load = os.getloadavg()[0]
            print(f"  {name:7s} {ratio:.2f}, beside UMW {ratio / uncoded:.2f}   load {load:.1f}", flush=True)
    for name in RIVALS:
        print(f"  {name:7s} measured / predicted {spread(alone[name])}; beside UMW {spread(beside[name])}")
    POOLS.close()


def ratio_of(profile: wb.ClusterProfile, scheme: str, args: dict[str, Any], rounds: int) -> float:
    """Mean measured round over the predicted one."""
    e = experiment(scheme, args, rounds)
    trace = start_real(e, emulate="nothing", events=False).result()
    measured = float(np.diff(trace.columns["time"])[WARM - 1 :].mean())
    return measured / profile.forecast(e, rounds).mean


def spread(found: list[float]) -> str:
    return f"{np.median(found):.2f} ({min(found):.2f} to {max(found):.2f})"


def truth(repeat: int, rounds: int) -> None:
    """On the virtual clock, where the truth is known: forecasts by fitted laws over forecasts on the cluster itself."""
    print("truth: forecast on a profile / on the cluster, N = 30, mean over workers drawn 40 times; goal 1")
    rivals = {"UMW": {}, "GC": {"stragglers": 9}, "CR": {"children": 5, "layers": 2, "stragglers": 2}}
    for kind in ("shifted_exponential", "pareto", "heterogeneous", "markov"):
        link = {"latency": 1e-3, "bandwidth": 8e6, "downloads": True}
        cluster: dict[str, Any] = {"delays": {"kind": kind}, "link": link}
        profile = simulated(wb.Experiment(scheme="UMW", workers=30, **cluster), rounds)
        found = []
        for scheme, args in rivals.items():
            e = wb.Experiment(scheme=scheme, scheme_args=args, workers=30, **PROBLEM, **cluster)
            found.append(f"{scheme} {mean_of(profile.experiment(e)) / mean_of(e):.2f}")
        print(f"  {kind:20s} {', '.join(found)}")


def mean_of(e: wb.Experiment) -> float:
    return float(np.mean([wb.forecast(e, 30, seed).mean for seed in range(40)]))


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
