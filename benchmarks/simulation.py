"""Measure the cost of simulated runs, forecasts and imports.

    python benchmarks/simulation.py [--rounds 300] [--growth]

Times are compared with those of a plain NumPy loop in the same call, since the speed of a shared machine changes.
--growth: print only the table of cost against the number of workers, for 20 rounds. Each part runs in a separate
process, so that its peak memory can be measured.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable

import numpy as np
from tqdm import tqdm

import workbench as wb
from workbench.core.engine.virtual.arithmetic import Coefficients
from workbench.core.running.simulated import timeline

STEP = 1e-4


def figure_9a(rounds: int) -> list[wb.Experiment]:
    """Return the experiments of figure 9a: five schemes, 156 workers, 6552 x 5001 data values, and the step `STEP`."""
    preset = wb.presets["fig9a"].replace(rounds=rounds)
    return [
        e.replace(optimiser_args={"step": STEP} if e.optimiser == "gd" else {"c1": 100 * STEP, "c2": 100.0})
        for e in preset
    ]


def bare(rounds: int) -> dict[str, float]:
    """Time a plain NumPy loop of gradient descent on the same data."""
    problem = figure_9a(rounds)[0].build_problem()
    X, y, model = problem.X, problem.y, np.zeros(problem.size)
    X @ model  # loads the pages of X
    start = time.perf_counter()
    for _ in range(rounds):
        probability = 1 / (1 + np.exp(-(X @ model)))
        model = model - STEP * (X.T @ (probability - y)) / len(y)
    return {"seconds": time.perf_counter() - start}


def five(rounds: int) -> dict[str, float]:
    """Time wb.compare with all five schemes, from settings to traces."""
    experiments = figure_9a(rounds)
    data = experiments[0].build_problem().X
    start = time.perf_counter()
    wb.compare(experiments)
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {"seconds": seconds, "peak_over_data": peak / data.nbytes}


def events(rounds: int) -> dict[str, float]:
    """Return the events per second of the event engine alone, for each scheme with messages.

    Events are computations, sends and receives.
    """
    found = {}
    for e in figure_9a(rounds):
        if e.scheme == "RAR":
            continue  # the slices of RAR are not separate events
        arithmetic = Coefficients(e.plan)
        start = time.perf_counter()
        simulated = timeline(e, arithmetic, events=True)
        found[e.scheme] = simulated.handled / (time.perf_counter() - start)
    return found


def forecast(rounds: int) -> dict[str, float]:
    """Time a forecast of 100 rounds of CR on the (99,3) tree with 980,199 workers."""
    e = wb.Experiment(
        scheme="CR", scheme_args={"children": 99, "layers": 3, "stragglers": 20}, workers=980_199, rounds=100,
        problem_args={"samples": 5_000_000, "features": 100}, link={"bandwidth": 1e6},
    )  # fmt: skip
    start = time.perf_counter()
    wb.forecast(e)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024**2
    return {"seconds": time.perf_counter() - start, "peak_GiB": peak}


def imports(rounds: int) -> dict[str, float]:
    """Time `import workbench`, and a first experiment after it, in new processes: medians of five."""
    found = {}
    for name, more in {"import_seconds": "", "first_experiment_seconds": "; workbench.Experiment()"}.items():
        code = f"import time; t = time.perf_counter(); import workbench{more}; print(time.perf_counter() - t)"
        times = [float(subprocess.check_output([sys.executable, "-c", code])) for _ in range(5)]
        found[name] = float(np.median(times))
    return found


GROWTH_ROUNDS = 20
GROWTH: dict[str, dict[int, tuple[float | None, float | None]]] = {  # workers -> goals: seconds, GiB
    "GC": {
        340: (None, None),
        680: (None, None),
        1000: (4, None),
        2000: (12, None),
        5000: (90, 8),
        10_000: (60, 8),
    },
    "CR": {110: (None, None), 1110: (None, None), 11_110: (4, None)},
    "UMW": {100: (None, None), 1000: (None, None), 10_000: (8, None)},
    "RAR": {100: (None, None), 1000: (None, None), 10_000: (8, None)},
}


def grown(scheme: str, workers: int) -> dict[str, float]:
    """Time a run of one scheme: GC with a fifth of the workers as stragglers, CR with 2 of 10 children."""
    args = {
        "GC": {"stragglers": workers // 5},
        "CR": {"children": 10, "layers": len(str(workers)) - 1, "stragglers": 2},
    }.get(scheme, {})
    data = {"samples": max(10_000, 4 * workers), "features": 20}
    start = time.perf_counter()
    wb.run(
        wb.Experiment(
            scheme=scheme, scheme_args=args, workers=workers, rounds=GROWTH_ROUNDS, problem_args=data
        )
    )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024**2
    return {"seconds": time.perf_counter() - start, "core": time.process_time(), "peak_GiB": peak}


def growth() -> None:
    """Print the cost against the number of workers, and the exponent between rows: cost ~ workers^exponent.

    The exponent is computed from CPU seconds, imports included. Other processes of the machine affect them little.
    """
    print(f"\n{GROWTH_ROUNDS} rounds of wb.run, a process each\n")
    print(f"{'scheme':6} {'workers':>7} {'seconds':>8} {'of a core':>9} {'exponent':>8} {'GiB':>6}  goals")
    for scheme, sizes in GROWTH.items():
        before: tuple[int, float] | None = None
        for workers, goals in sizes.items():
            found = apart(f"{scheme} {workers}", GROWTH_ROUNDS)
            steep = np.log(found["core"] / before[1]) / np.log(workers / before[0]) if before else np.nan
            before = (workers, found["core"])
            wanted = ", ".join(f"{g:g} {unit}" for g, unit in zip(goals, ("s", "GiB"), strict=True) if g)
            cost = (
                f"{found['seconds']:8.2f} {found['core']:9.2f} {steep:8.2f} {found['peak_GiB']:6.2f}".replace(
                    "nan", "   "
                )
            )
            print(f"{scheme:6} {workers:7} {cost}  {wanted and 'below ' + wanted}")


PARTS: dict[str, Callable[[int], dict[str, float]]] = {
    f.__name__: f for f in (bare, five, events, forecast, imports)
}


def apart(part: str, rounds: int) -> dict[str, float]:
    """Run one part in a new process. Return its figures."""
    command = [sys.executable, __file__, "--part", part, "--rounds", str(rounds)]
    return dict(json.loads(subprocess.check_output(command)))


def measured(part: str, rounds: int) -> dict[str, float]:
    """Run one part. Return its figures. "GC 1000" is the row of `growth` for GC with 1000 workers."""
    scheme, _, workers = part.partition(" ")
    return grown(scheme, int(workers)) if workers else PARTS[part](rounds)


def main() -> None:
    """Print the figures with their goals."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--growth", action="store_true")
    parser.add_argument("--part")
    options = parser.parse_args()
    if options.part:
        print(json.dumps(measured(options.part, options.rounds)))
        return
    if options.growth:
        growth()
        return
    order = ["bare", "five", "bare", "five", "bare", "events", "forecast", "imports"]
    found: dict[str, list[dict[str, float]]] = {}
    for part in tqdm(order, unit="part"):
        found.setdefault(part, []).append(apart(part, options.rounds))
    loops = [run["seconds"] for run in found["bare"]]
    ratios = [
        run["seconds"] / ((a + b) / 2) for run, a, b in zip(found["five"], loops[:-1], loops[1:], strict=True)
    ]
    print(
        f"five schemes of figure 9a / bare NumPy loop: {min(ratios):.2f} .. {max(ratios):.2f}  (goal: at most 1.5)"
    )
    print(f"peak memory / data: {max(run['peak_over_data'] for run in found['five']):.2f}  (goal: below 3)")
    for scheme, rate in found["events"][0].items():
        print(f"events a second, {scheme}: {rate:,.0f}  (goal: at least 100,000)")
    million = found["forecast"][0]
    took = f"{million['seconds']:.1f} s, {million['peak_GiB']:.2f} GiB"
    print(f"forecast of 980,199 workers: {took}  (goals: 30 s, 4 GiB)")
    found_imports = found["imports"][0]
    print(f"import workbench: {found_imports['import_seconds']:.2f} s  (goal: below 0.7)")
    print(f"import and first experiment: {found_imports['first_experiment_seconds']:.2f} s")
    growth()


if __name__ == "__main__":
    main()
