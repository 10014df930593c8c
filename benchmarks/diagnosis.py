"""Accuracy of the diagnosis on short real MPI runs with injected faults: is the slowed worker named, and no other?

    python benchmarks/diagnosis.py [rank] [link] [host] [healthy] [raw-...] [neighbour]
                                [neighbour-healthy] [drawn] [--count 100] [--keep DIR] [--exchange]

What is real: the processes, their messages, what they wait for, what they write down. What is injected: a worker's
tasks take 20 ms and more; "rank" makes one worker's last 20 % longer, "host" those of both workers of one host (four
ranks of this machine that are called two hosts); "link" makes one worker's messages take 50 % longer, which else take
10 ms and more. Ranks keep the clock of the emulated cluster (`emulate="all"`), so that what else this machine is doing
is not taken for a fault; "raw-rank", "raw-host" and "raw-healthy" take the machine's own clock: there, who is late by
what nobody has injected counts against the diagnosis. "neighbour" is real altogether: four workers that compute for
some tens of milliseconds, two on each of two cores, and a busy process beside those of one core; it says something
only where nothing else keeps the cores busy. Each host stays on its core. A virtual core
shares a real one with others that nobody here sees, and may be a fifth slower than the next for seconds, which the
diagnosis tells from waiting for a processor: both are counted, and who is named without a fault counts against it, for
whichever. A loop of this program, on both cores before and after each run, says how quick they were then: no rank's
time is in that. `--exchange`: the two hosts, and the neighbour with its own, change cores every tenth of a second, so
that a slow core falls upon both alike.
Stars and all-reduces (the MPI library's own, or with links an explicit ring) take turns. Healthy runs are the same
without a fault. `--keep` leaves the run folders there, each with what this machine did meanwhile (NAME.load.json), and
judges those that are there already: a change of the diagnosis needs no new runs.
"drawn" needs no processes: times are drawn from six laws, healthy ones and with one worker four times slower in a part
of the steps. It prints the share of recordings in which anybody is named, or that worker, at the level of a recording
with hosts.
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
from workbench.analysis.recordings.diagnosis import FALSE_ALARM_LEVEL, Culprit
from workbench.analysis.recordings.run_model import SLOWER, WAITING
from workbench.core.base.text import read_json
from workbench.core.base.types import Array

HEALTHY = {"healthy": ("rank", "link"), "raw-healthy": ("raw-rank",), "neighbour-healthy": ("neighbour",)}


def slower(one: Culprit, load: Path) -> str:
    """Return why a worker was named; for a slower core, by how much, and the probes of its core and the other."""
    if one.what != SLOWER:
        return f"{one.who} ({one.what})"
    text = f"{one.who} ({one.what}: {one.more:.0%} longer for the same work"
    probes = read_json(load).get("probes") if load.is_file() else None
    second = one.who in {f"host {PLACES[-1]}", *(f"worker {i + 1}" for i in (2, 3))}
    text = [f"{(each[second] / each[not second] - 1):+.0%}" for each in probes or ()]
    return f"{text}{'; a loop before and after it: ' + ', '.join(text) if text else ''})"


def told(kind: str, found: list[tuple[str, list[Culprit]]]) -> str:
    """Print how many were named correctly, with a 95 % interval (Clopper and Pearson), and other findings.

    `found`: who was to be named (empty: nobody), and who was.
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


def tried(what: str, args: argparse.Namespace, keep: Path) -> None:
    """Try one kind of fault, with stars and all-reduces separately if they take turns; print progress."""
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
            print(f"  so far, {told(what, [*chain(*found.values())])}", flush=True)
    for scheme, some in found.items() if len(found) > 1 and not healthy else ():
        print(told(f"{what}, {scheme}", some), flush=True)
    print(told(what, [*chain(*found.values())]), flush=True)


def remembered(steps: int, workers: int, memory: float, rng: np.random.Generator) -> Array:
    """Return standard normal values whose correlation decreases to 1/e in `memory` steps."""
    noise, r = rng.normal(size=(steps, workers)), np.exp(-1 / memory)
    for t in range(1, steps):
        noise[t] = r * noise[t - 1] + (1 - r**2) ** 0.5 * noise[t]
    return noise


def bursty(steps: int, workers: int, memory: float, rng: np.random.Generator) -> Array:
    """Return factors of three for a tenth of the time, in bursts of `memory` steps on average."""
    late, leave = rng.random((steps, workers)) < 0.1, 1 / memory
    for t in range(1, steps):
        late[t] = rng.random(workers) < np.where(late[t - 1], 1 - leave, leave / 9)
    return np.where(late, 3.0, 1.0) * (1 + 0.05 * rng.exponential(size=late.shape))


DRAWN: dict[str, Callable[[tuple[int, int], np.random.Generator], Array]] = {
    "exponential": lambda size, rng: rng.exponential(size=size),
    "shifted exponential": lambda size, rng: 1 + rng.exponential(size=size),
    "Pareto (2.5)": lambda size, rng: 1 + rng.pareto(2.5, size=size),
    "lognormal (0.2)": lambda size, rng: np.exp(0.2 * rng.normal(size=size)),
    "bursts": lambda size, rng: bursty(*size, 0.05 * size[0] + 1, rng),
    "drift": lambda size, rng: np.exp(0.1 * remembered(*size, 0.1 * size[0], rng)),
}
SIZES = [(30, 4), (30, 12), (100, 4), (100, 8), (100, 12), (100, 32), (300, 12), (300, 84)]
SLOW_PARTS = {"last 10 %": (0.9, 1), "last 20 %": (0.8, 1), "last 40 %": (0.6, 1), "last 60 %": (0.4, 1)}
SLOW_PARTS |= {"last 80 %": (0.2, 1), "all": (0, 1), "first 40 %": (0, 0.4), "30 to 60 %": (0.3, 0.6)}


def drawn(count: int, seed: int) -> None:
    """Print who is named in simulated recordings, in per cent: any worker if all are alike, else the slowed one."""
    print(
        "named, in per cent: law, steps x workers, healthy, then a worker four times slower in",
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
    cores.add_argument("--still", action="store_true", help="hosts stay on their cores (so it is anyway)")
    cores.add_argument("--exchange", action="store_true", help="hosts change cores every tenth of a second")
    args = parser.parse_args()
    print(f"load of this machine: {os.getloadavg()[0]:.0f} processes on {os.cpu_count()} cores", flush=True)
    if "drawn" in args.what:
        args.what.remove("drawn")
        drawn(args.count, args.seed)
    with tempfile.TemporaryDirectory() as folder:
        keep = (args.keep or Path(folder)).resolve()
        keep.mkdir(parents=True, exist_ok=True)
        for what in args.what:
            tried(what, args, keep)


if __name__ == "__main__":
    main()
