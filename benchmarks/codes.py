"""Digits lost by decoding: amplification and relative gradient errors of every code.

    python benchmarks/codes.py [--sets 200] [--long] [--graph 100000]

Survivor sets are drawn at random (seed 0). --long adds 10,000 sets of the cyclic code with 156 workers, 39 stragglers.
--graph times a graph code of that many workers instead: making it, decoding, and three rounds on the virtual clock.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np
from tqdm import tqdm

import workbench as wb
from workbench.core.codes import random_regular, report

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
    """Print CPU seconds, and the error of least-squares decoding."""
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


def main() -> None:
    """Print one row per code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", type=int, default=200)
    parser.add_argument("--long", action="store_true")
    parser.add_argument("--graph", type=int)
    options = parser.parse_args()
    if options.graph:
        return graph(options.graph)
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
