"""Compare the time of this checkout with another commit's: import, first experiment, events, figure 9a, real runs.

    python benchmarks/against.py [COMMIT] [--turns 7] [--only import first umw cr gc fig9a real]

The commit (default: the last state of 1.0) is checked out in another folder. The two checkouts alternate. Each
measurement is the CPU time of a new process (`real`: wall-clock time). The minima of both checkouts, the ratio of the
minima, and the median of paired ratios are printed.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LAST_OF_1_0 = "e5b3171"
TREE = "scheme_args={'children': 4, 'layers': 3, 'stragglers': 1}, workers=84"
SMALL = "problem_args={'samples': 200, 'features': 2}"
EVENTS = """
e = wb.Experiment(scheme={scheme!r}, {args}, rounds=400, {small})
wb.run(e.replace(rounds=5))
best = 9e9
for _ in range(3):
    start = time.process_time()
    wb.run(e)
    best = min(best, time.process_time() - start)
print(best)
"""
HEAD = "import time\nimport workbench as wb\n"
CPU = "print(time.process_time())"
CODE = {  # name -> program that prints seconds
    "import": HEAD + CPU,
    "first": HEAD + f"wb.run(wb.Experiment(scheme='CR', {TREE}, rounds=100))\n" + CPU,
    "umw": HEAD + EVENTS.format(scheme="UMW", args="workers=100", small=SMALL),
    "cr": HEAD + EVENTS.format(scheme="CR", args=TREE, small=SMALL),
    "gc": HEAD + EVENTS.format(scheme="GC", args="scheme_args={'stragglers': 10}, workers=84", small=SMALL),
    "fig9a": HEAD
    + "found = list(wb.presets['fig9a'])\nstart = time.process_time()\n"
    + "wb.compare(found)\nprint(time.process_time() - start)",
    "real": HEAD
    + f"""
e = wb.Experiment(scheme='GC', scheme_args={{'stragglers': 1}}, workers=4, rounds=300, {SMALL},
                  delays={{'kind': 'constant', 'shift': 0.0}})
wb.run(e.replace(rounds=5), engine='mpi')
best = 9e9
for _ in range(3):
    seconds = wb.run(e, engine='mpi').rounds['time']
    best = min(best, (seconds.iloc[-1] - seconds.iloc[20]) / (len(seconds) - 21))
print(best)
""",
}


def seconds(code: str, checkout: Path) -> float:
    """Run a program with the package of a checkout. Return the seconds that it prints."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(checkout),
        "OPENBLAS_NUM_THREADS": "1",
        "OMP_NUM_THREADS": "1",
    }
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=checkout, env=environment, capture_output=True, text=True
    )
    if done.returncode:
        raise SystemExit(f"{checkout}: {done.stderr[-800:]}")
    return float(done.stdout.split()[-1])


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("commit", nargs="?", default=LAST_OF_1_0)
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--only", nargs="*", default=list(CODE), choices=list(CODE))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        other = Path(name) / "other"
        git = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run([*git, "add", "-q", "--detach", str(other), options.commit], check=True)
        try:
            for each in options.only:
                before, now = list[float](), list[float]()
                for turn in range(options.turns):
                    both = [(other, before), (ROOT, now)]
                    for checkout, found in both if turn % 2 else reversed(both):
                        found.append(seconds(CODE[each], checkout))
                paired = statistics.median(b / a for a, b in zip(before, now, strict=True))
                print(
                    f"{each:8} {options.commit} {min(before):.4g} s, now {min(now):.4g} s:"
                    f" ratio of minima {min(now) / min(before):.3f}, median of paired ratios {paired:.3f}",
                    flush=True,
                )
        finally:
            subprocess.run([*git, "remove", "--force", str(other)], check=True)


if __name__ == "__main__":
    main()
