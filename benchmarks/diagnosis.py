"""Measure the accuracy of the diagnosis on short real MPI runs with injected faults.

A run counts as correct if the slowed worker, link or host is named, and nothing else.

    python benchmarks/diagnosis.py [rank] [link] [host] [healthy] [raw-...] [neighbour]
                                [neighbour-healthy] [drawn] [--count 100] [--keep DIR] [--exchange]

Processes, messages and waiting times are real. The delays are injected: a task takes 20 ms plus an exponential time,
and a message of "link" takes 10 ms plus an exponential time. Four ranks of this machine count as two hosts.

========================== ============================================================================================
rank                       the tasks of one worker take 20 % longer
host                       the tasks of both workers of one host take 20 % longer
link                       the messages of one worker take 50 % longer
healthy                    no fault
raw-rank, raw-host,        the same on the machine's own clock (`emulate="delays"`), where other load of the machine
raw-healthy                causes delays and counts against the diagnosis. The cases above use the clock of the
                           emulated cluster, where such load causes none.
neighbour,                 nothing is injected: four workers compute for some tens of ms, two on each of two cores,
neighbour-healthy          beside a busy process on one core. Both cases need cores that are idle otherwise.
drawn                      no processes: times are drawn from six distributions, with no fault, or with one worker four
                           times slower in some of the steps. The share of recordings is printed in which any worker,
                           or that worker, is named, at the level of a recording with hosts.
========================== ============================================================================================

With "neighbour", each host stays on one core. A virtual core shares a physical one with other virtual machines, so it
may be slower than another by a fifth for some seconds. The diagnosis distinguishes a slower core from waiting for a
processor. Both are counted, and each counts as a false alarm if no fault was injected. A loop on both cores, before and
after each run, measures their speeds. `--exchange`: the hosts exchange cores every 0.1 s, so that a slow core affects
both alike.

Stars alternate with all-reduces (of the MPI library, or an explicit ring with links). `--keep DIR` keeps the run
folders, each with a measurement of the machine's load (NAME.load.json). Runs that are there already are not repeated.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Callable
from itertools import chain, product
from pathlib import Path

import numpy as np
from scipy.stats import binomtest

import workbench as wb
from tests.support.injected_faults import (
    PLACES,
    lies,
    traced,
)
from workbench.analysis.recordings.attribution import p_values
from workbench.analysis.recordings.diagnosis import FALSE_ALARM_LEVEL
from workbench.analysis.recordings.run_model import SLOWER, WAITING
from workbench.analysis.recordings.verdict import Culprit
from workbench.core.base.text import read_json
from workbench.core.base.types import Array

HEALTHY = {"healthy": ("rank", "link"), "raw-healthy": ("raw-rank",), "neighbour-healthy": ("neighbour",)}


def slower(one: Culprit, load: Path) -> str:
    """Return a culprit as text, with its cause. For a slower core, include the ratio of the measured core speeds."""
    if one.what != SLOWER:
        return f"{one.who} ({one.what})"
    text = f"{one.who} ({one.what}: {one.more:.0%} longer for the same work"
    probes = read_json(load).get("probes") if load.is_file() else None
    second = one.who in {f"host {PLACES[-1]}", *(f"worker {i + 1}" for i in (2, 3))}
    text = [f"{(each[second] / each[not second] - 1):+.0%}" for each in probes or ()]
    return f"{text}{'; a loop before and after it: ' + ', '.join(text) if text else ''})"


def summary(kind: str, found: list[tuple[str, list[Culprit]]]) -> str:
    """Return as text how many runs were diagnosed correctly, with a 95 % interval (Clopper and Pearson).

    `found`: for each run, the name of the slowed worker, link or host ("" if none), and the culprits found.
    """
    right = [named for wanted, named in found if [one.who for one in named[:1]] == [wanted] * bool(wanted)]
    besides = [[one for one in named if one.who != wanted] for wanted, named in found if wanted]
    wrong = [named[0].who for wanted, named in found if named and named[0].who != wanted]
    band = binomtest(len(right), len(found)).proportion_ci(0.95)
    most = max(set(wrong), key=wrong.count) if wrong else ""
    line = (
        f"{kind:28s} {'named' if found[0][0] else 'nobody named'}: {len(right):3d} of {len(found)}"
        f" ({band.low:.0%} to {band.high:.0%});"
        f" somebody else, too: {sum(map(bool, besides))}{f'; wrongly, most often: {most}' if most else ''}"
    )
    if not kind.startswith("neighbour"):
        return line
    if found[0][0]:
        causes = ((len([1 for named in right if named[0].what == what]), what) for what in (WAITING, SLOWER))
        others = sum(any(one.what == WAITING for one in some) for some in besides)
        return f"{line}; first for {', '.join(f'{n} {what}' for n, what in causes)}; others for waiting: {others}"
    waiting, slow = (
        sum(any(one.what == what for one in named) for _, named in found) for what in (WAITING, SLOWER)
    )
    return (
        f"{line}; for waiting, a false alarm: {waiting}; for a slower core, measured and not injected: {slow}"
    )


def run_cases(what: str, args: argparse.Namespace, keep: Path) -> None:
    """Run one kind of fault, and print the results: for stars and all-reduces separately if they alternate."""
    healthy = what.endswith("healthy")
    kinds = HEALTHY[what] if healthy else (what,)
    found: dict[str, list[tuple[str, list[Culprit]]]] = {}
    for place in range(args.count):
        number, kind = divmod(place, len(kinds))
        which = (kinds[kind], number, args.seed, keep, healthy, args.exchange)
        one, trace = traced(*which)
        named = list(wb.diagnose(trace).culprits)
        found.setdefault(one.experiment.scheme, []).append((one.wanted, named))
        if [each.who for each in named] != [one.wanted] * bool(one.wanted):
            load = lies(*which).with_name(f"{lies(*which).name}.load.json")
            print(
                f"  {what} {place}: {', '.join(slower(each, load) for each in named) or 'nobody'}", flush=True
            )
        if place % 10 == 9 and place < args.count - 1:
            print(f"  so far, {summary(what, [*chain(*found.values())])}", flush=True)
    for scheme, some in found.items() if len(found) > 1 and not healthy else ():
        print(summary(f"{what}, {scheme}", some), flush=True)
    print(summary(what, [*chain(*found.values())]), flush=True)


def autocorrelated(steps: int, workers: int, length: float, rng: np.random.Generator) -> Array:
    """Return standard normal values, (steps, workers), whose autocorrelation falls to 1/e after `length` steps."""
    noise, r = rng.normal(size=(steps, workers)), np.exp(-1 / length)
    for t in range(1, steps):
        noise[t] = r * noise[t - 1] + (1 - r**2) ** 0.5 * noise[t]
    return noise


def bursty(steps: int, workers: int, length: float, rng: np.random.Generator) -> Array:
    """Return times, (steps, workers). A tenth are three times longer, in bursts of `length` steps on average."""
    late, leave = rng.random((steps, workers)) < 0.1, 1 / length
    for t in range(1, steps):
        late[t] = rng.random(workers) < np.where(late[t - 1], 1 - leave, leave / 9)
    return np.where(late, 3.0, 1.0) * (1 + 0.05 * rng.exponential(size=late.shape))


DRAWN: dict[str, Callable[[tuple[int, int], np.random.Generator], Array]] = {
    "exponential": lambda size, rng: rng.exponential(size=size),
    "shifted exponential": lambda size, rng: 1 + rng.exponential(size=size),
    "Pareto (2.5)": lambda size, rng: 1 + rng.pareto(2.5, size=size),
    "lognormal (0.2)": lambda size, rng: np.exp(0.2 * rng.normal(size=size)),
    "bursts": lambda size, rng: bursty(*size, 0.05 * size[0] + 1, rng),
    "drift": lambda size, rng: np.exp(0.1 * autocorrelated(*size, 0.1 * size[0], rng)),
}
SIZES = [(30, 4), (30, 12), (100, 4), (100, 8), (100, 12), (100, 32), (300, 12), (300, 84)]
SLOW_PARTS = {"last 10 %": (0.9, 1), "last 20 %": (0.8, 1), "last 40 %": (0.6, 1), "last 60 %": (0.4, 1)}
SLOW_PARTS |= {"last 80 %": (0.2, 1), "all": (0, 1), "first 40 %": (0, 0.4), "30 to 60 %": (0.3, 0.6)}


def drawn_recordings(count: int, seed: int) -> None:
    """Print the share of drawn recordings in which any worker (without a fault) or the slowed worker is named, %."""
    print(
        "named, in per cent: distribution, steps x workers, healthy, then a worker four times slower in",
        *SLOW_PARTS,
        sep=" | ",
    )
    for delay_model, size in product(DRAWN, SIZES):
        found = dict.fromkeys(["healthy", *SLOW_PARTS], 0)
        for number in range(count):
            rng = np.random.default_rng([seed, number, *size])
            times, who = DRAWN[delay_model](size, rng), number % size[1]
            found["healthy"] += bool((p_values(times, rng) <= FALSE_ALARM_LEVEL).any())
            for part, (first, last) in SLOW_PARTS.items():
                slow = times.copy()
                slow[round(first * size[0]) : round(last * size[0]), who] *= 4
                found[part] += bool(p_values(slow, rng)[who] <= FALSE_ALARM_LEVEL / 2)
        shares = " | ".join(f"{value / count:.0%}" for value in found.values())
        print(f"{delay_model} | {size[0]} x {size[1]} | {shares}", flush=True)


def main() -> None:
    """Print one line per kind of fault."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", nargs="*", default=["rank", "link", "host", "healthy"])
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path)
    cores = parser.add_mutually_exclusive_group()
    cores.add_argument("--still", action="store_true", help="hosts stay on their cores (default)")
    cores.add_argument("--exchange", action="store_true", help="hosts change cores every tenth of a second")
    args = parser.parse_args()
    print(f"load of this machine: {os.getloadavg()[0]:.0f} processes on {os.cpu_count()} cores", flush=True)
    if "drawn" in args.what:
        args.what.remove("drawn")
        drawn_recordings(args.count, args.seed)
    with tempfile.TemporaryDirectory() as folder:
        keep = (args.keep or Path(folder)).resolve()
        keep.mkdir(parents=True, exist_ok=True)
        for what in args.what:
            run_cases(what, args, keep)


if __name__ == "__main__":
    main()
