"""How many digits decoding costs: amplification and relative gradient errors of every code.

    python benchmarks/codes.py [--sets 200] [--long]

Survivor sets are drawn at random (seed 0). --long adds 10,000 sets of the cyclic code with 156 workers, 39 stragglers.
"""

from __future__ import annotations

import argparse
from typing import Any

from tqdm import tqdm

import workbench as wb
from workbench.codes import report

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


def main() -> None:
    """Print one row per code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", type=int, default=200)
    parser.add_argument("--long", action="store_true")
    options = parser.parse_args()
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
