"""Measure the digits lost by decoding: amplification and relative gradient error of every code.

    python benchmarks/codes.py [--sets 200] [--long] [--graph 100000] [--grid]

Survivor sets are drawn at random (seed 0). --long adds 10,000 sets of the cyclic code with 156 workers, 39 stragglers.
--graph N measures a graph code of N workers instead: its construction, decoding, and three rounds on the virtual clock.
--grid prints the largest residual and the lost digits of the default GC code for up to 200 workers instead.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np
from tqdm import tqdm

import workbench as wb
from workbench.core.codes import cyclic, quality, random_regular, report

GRID_WORKERS = (10, 20, 30, 40, 50, 60, 64, 70, 80, 90, 97, 100, 110, 120, 128, 150, 157, 180, 200)
GRID_STRAGGLERS = (1, 2, 3, 4, 6, 8, 10, 12, 15, 20, 25, 30, 40, 60, 99)
SPECS: list[tuple[str, int, dict[str, Any]]] = [
    ("GC", 156, {"stragglers": 39}),
    ("GC", 156, {"stragglers": 39, "code": "tandon"}),
    ("GC", 156, {"stragglers": 39, "code": "mds"}),
    ("GC", 157, {"stragglers": 39}),
    ("GC", 156, {"stragglers": 38, "code": "fractional"}),
    ("CR", 156, {"children": 12, "layers": 2, "stragglers": 4}),
    ("CEGC", 10, {"load": 4, "stragglers": 1, "reduction": 3}),
    ("CEGC", 20, {"load": 5, "stragglers": 2, "reduction": 3, "construction": "polynomial"}),
    ("CEGC", 20, {"load": 5, "stragglers": 2, "reduction": 3}),
    ("CEGC", 40, {"load": 10, "stragglers": 6, "reduction": 4}),
    ("FRC", 20, {"replication": 4}),
    ("CRC", 20, {"replication": 4, "coefficients": "random"}),
    ("GC-MMC", 40, {"clusters": 4, "load": 10, "order": 6}),
    ("GC-MMC", 40, {"clusters": 4, "load": 10, "order": [6, 8, 10]}),
    ("LCC", 40, {"load": 10}),
    ("LAGC", 12, {"groups": 3, "stragglers": 1}),
]


def graph(workers: int, degree: int = 4, late: float = 0.2) -> None:
    """Print the CPU seconds and the error of least-squares decoding of a graph code."""
    marks = [time.process_time()]
    code = random_regular(workers, degree)
    marks.append(time.process_time())
    answered = np.flatnonzero(np.random.default_rng(0).random(workers) > late)
    weights, _ = code.decode(tuple(answered.tolist()))
    marks.append(time.process_time())
    edges = code.edges[answered]
    miss = 1 - np.bincount(edges.ravel(), np.repeat(weights, 2), minlength=code.parts)
    args = {"replication": degree, "wait_for": workers - int(late * workers)}
    unit = {"problem": "unit", "problem_args": {"samples": code.parts}}
    wb.run(wb.Experiment(scheme="GGC", scheme_args=args, workers=workers, rounds=3, **unit), events=False)
    made, decoded, run = np.diff([*marks, time.process_time()])
    print(
        f"{workers} workers: made in {made:.2f} s, decoded in {decoded:.2f} s, three rounds in {run:.2f} s (CPU);"
    )
    off = np.abs(miss[edges].sum(axis=1)).max()
    print(f"normal equations off by {off:.2g}, largest weight {np.abs(weights).max():.3g}")


def grid() -> None:
    """Print the largest |a B - 1| and the lost digits. Survivors are random, consecutive or equally spaced."""
    print(f"{'workers':>7} {'S':>4} {'residual':>9} {'lost of 16':>10} {'lost of 7':>9}")
    for workers in GRID_WORKERS:
        for late in GRID_STRAGGLERS:
            if late < workers:
                code = cyclic(workers, late)
                few = max(4, int(1e8 / quality.cost(code)))
                sets = [
                    *quality.survivors(code, min(few, 200)),
                    *quality.runs(code, few),
                    *quality.strides(code, few),
                ]
                missed = max(quality.missed(code, answered) for answered in sets)
                lost = [quality.lost(code, dtype=dtype) for dtype in (np.float64, np.float32)]
                print(f"{workers:7} {late:4} {missed:9.1e} {lost[0]:10.1f} {lost[1]:9.1f}", flush=True)


def main() -> None:
    """Print one row per code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", type=int, default=200)
    parser.add_argument("--long", action="store_true")
    parser.add_argument("--graph", type=int)
    parser.add_argument("--grid", action="store_true")
    options = parser.parse_args()
    if options.graph:
        return graph(options.graph)
    if options.grid:
        return grid()
    rows = [(*spec, options.sets) for spec in SPECS]
    if options.long:
        rows.append(("GC", 156, {"stragglers": 39}, 10_000))
    print(
        f"{'scheme':8} {'workers':>7} {'sets':>6} {'amplification':>14} {'float64':>9} {'float32':>9}  settings"
    )
    for name, workers, args, sets in tqdm(rows, unit="code", leave=False):
        for code in wb.schemes.get(name)(**args).codes(workers):
            found = report(code, sets)
            figures = (
                f"{found['amplification']:14.3g} {found['error_float64']:9.2g} {found['error_float32']:9.2g}"
            )
            tqdm.write(f"{name:8} {workers:7} {sets:6} {figures}  {args}")


if __name__ == "__main__":
    main()
