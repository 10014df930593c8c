"""Measure the cost of real runs, relative to the drawn delays, to the simulator, and to a plain mpi4py loop.

`textbook_master.py` has that loop.

    python benchmarks/real.py [overhead] [figure8] [textbook] [stream] [start] [messages] [--rounds 100]

All measurements are made on this machine in the same call, and most are printed as ratios.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
import timeit
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import psutil

import workbench as wb
from workbench.core.contract.delays import DelayStream
from workbench.mpi.clusters.warm import POOLS
from workbench.mpi.engine.wire import Buffer, Envelope, decode_message, encode_message
from workbench.mpi.launch import mpiexec
from workbench.mpi.launch.processes import die_with_parent_argv
from workbench.mpi.running.real import RealRun, start_real

FEATURES = 5001
TURNS = 10  # number of alternating measurements
STARS = {1: 0, 12: 1, 84: 8, 156: 16}
TREES = {12: (3, 2, 1), 84: (4, 3, 1), 156: (12, 2, 2)}


def schemes(workers: int) -> list[dict[str, Any]]:
    """Return the fields of GC and CR for this number of workers."""
    children, layers, late = TREES[workers]
    return [
        star(workers),
        {"scheme": "CR", "scheme_args": {"children": children, "layers": layers, "stragglers": late}},
    ]


def star(workers: int) -> dict[str, Any]:
    """Return the fields of GC for this number of workers."""
    return {"scheme": "GC", "scheme_args": {"stragglers": STARS[workers]}}


def experiment(
    workers: int, rounds: int, fields: dict[str, Any], seconds: tuple[float, float]
) -> wb.Experiment:
    """Return an experiment in which a worker's task takes a + Exp(mean b) s, for (a, b) = `seconds` and any load."""
    e = wb.Experiment(
        **fields,
        workers=workers,
        rounds=rounds,
        problem="least_squares",
        problem_args={"samples": workers, "features": FEATURES},
        optimiser_args={"step": 1e-4},
    )
    load = float(e.plan.loads[1:].max())
    shift, mean = seconds
    return e.replace(
        delays={"kind": "shifted_exponential", "shift": shift / load, "rate": load / max(mean, 1e-12)}
    )


def measured(e: wb.Experiment, **options: Any) -> tuple[RealRun, float]:
    """Run on ranks of a pool. Return the run, and the seconds from the call to the start of the first round."""
    POOLS.get(e.workers + 1).await_ready()
    called = time.time()
    run = start_real(e, **options)
    trace = run.result()
    first = (run.home / "live.f64").stat().st_mtime - (trace.columns["time"][-1])
    return run, first - called


def overhead(rounds: int) -> None:
    """Print the mean real round time divided by the simulated one, which has the same draws and no other cost."""
    print(
        "overhead: real round / drawn delays alone, 50 ms + Exp(20 ms), p = 5001; goals 1.07 (N=84), 1.12 (N=156)"
    )
    for workers in (84, 156):
        POOLS.close()  # idle ranks of another pool would use the cores
        for fields in schemes(workers):
            e = experiment(workers, rounds, fields, (0.05, 0.02))
            ideal = wb.run(e, events=False).columns["time"][-1]
            measured(e.replace(rounds=30))  # start the ranks, and fill their caches
            for emulate in ("all", "delays"):
                run, began = measured(e, emulate=emulate, events=False)
                trace = run.result()
                ratio = trace.columns["time"][-1] / ideal
                print(
                    f"  {e.scheme} N={workers:3d} emulate={emulate:7s} {ratio:.3f}   begins after {began:.2f} s,"
                    f" overrun {trace.info['overrun_share']:.1%}, late answers {trace.columns['stale'].sum()}",
                    flush=True,
                )
        floor = bare_star(experiment(workers, rounds, schemes(workers)[0], (0.05, 0.02)))
        print(f"  a bare star loop, GC's draws N={workers:3d}: {floor:.3f}", flush=True)


def bare_star(e: wb.Experiment) -> float:
    """Return the time of the loop of `bare_star.py` divided by the simulated time, with the same draws."""
    POOLS.close()  # idle ranks would use the cores
    stream = DelayStream(e.delays, e.seed, e.workers)
    seconds = np.array([stream.whole(round, e.plan.loads[1:]) for round in range(e.rounds)])
    with tempfile.TemporaryDirectory() as folder:
        files = [f"{folder}/data.npy", f"{folder}/seconds.npy"]
        for file, numbers in zip(files, (np.ones((e.workers, FEATURES)), seconds), strict=True):
            np.save(file, numbers)
        text = baseline("bare_star.py", e.workers, STARS[e.workers], *files)
    return float(text[0]) / float(wb.run(e, events=False).columns["time"][-1])


def baseline(script: str, workers: int, *arguments: object, blocks: bool = False) -> list[str]:
    """Run an mpi4py script. Return the words that it prints.

    `blocks`: whether the script's MPI calls block. Such calls yield the core while they wait.
    """
    host = [] if blocks else ["--host", f"localhost:{workers + 1}"]  # see `mpiexec.command`
    start = [
        *die_with_parent_argv("TERM", mpiexec.find_mpiexec()),
        *host,
        "-n",
        str(workers + 1),
        sys.executable,
    ]
    command = [*start, str(Path(__file__).with_name(script)), *map(str, arguments)]
    environment = {**mpiexec.environment(), "PYTHONPATH": str(Path(__file__).parent.parent)}
    environment["OMPI_MCA_mpi_yield_when_idle"] = str(int(blocks))
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=300)
    return done.stdout.split()


def figure8(rounds: int) -> None:
    """Run figure 8 of paper 1, scaled to this machine. Print real and simulated speedups of CR over the others."""
    common: dict[str, Any] = {
        "workers": 12,
        "rounds": rounds,
        "problem": "logistic",
        "problem_args": {"samples": 1200, "features": 500},
        "delays": {"kind": "shifted_exponential", "shift": 2e-5, "rate": 2e4},
        "link": {"bandwidth": 8e5},
    }
    args = {
        "CR": {"children": 3, "layers": 2, "stragglers": 1},
        "GC": {"stragglers": 3},
        "RAR": {},
        "UMW": {},
        "SGD": {"stragglers": 3},
    }
    times = {}
    for name, scheme_args in args.items():
        e = wb.Experiment(scheme=name, scheme_args=scheme_args, **common)
        measured(e.replace(rounds=3))
        real = start_real(e, events=False).result()
        times[name] = real.columns["time"][-1], wb.run(e, events=False).columns["time"][-1]
    print("figure 8, N=12 (3,2), p=500, 0.8 MB/s: speedup of CR, real and simulated; goal: within 10 %")
    for name in list(args)[1:]:
        real, simulated = (times[name][k] / times["CR"][k] for k in (0, 1))
        print(f"  over {name:4s} {real:6.2f} {simulated:6.2f}   ratio {real / simulated:.3f}")
    for name, (real, simulated) in times.items():
        print(f"  {name:4s} wall clock real / simulated {real / simulated:.3f}")


def textbook(rounds: int) -> None:
    """Compare rounds per second and the master's CPU time with those of `textbook_master.py`, without delays.

    There is one worker, so that each process has one of this machine's two cores, as on a cluster. Short runs
    alternate, and the best run of each program counts, since other processes may use the cores for a while.
    """
    print("no delays, N=1: GC against a textbook master (Irecv all, Waitany, lstsq every round)")
    print("  checked: against the same with the workbench's header and checks for every message; goal 0.8")
    rates: dict[str, list[tuple[float, float]]] = {}
    for _ in range(TURNS):
        rates.setdefault("ours", []).append(our_rate(1, 3 * rounds))
        for what in ("", "checked"):
            rates.setdefault(what, []).append(their_rate(1, 3 * rounds, what))
    ours, ours_cpu = max(rates["ours"])
    for what in ("", "checked"):
        theirs, theirs_cpu = max(rates[what])
        print(
            f"  {ours:.0f} / {theirs:.0f} rounds a second = {ours / theirs:.2f}; master CPU a round"
            f" {1e3 * ours_cpu:.2f} / {1e3 * theirs_cpu:.2f} ms = {ours_cpu / theirs_cpu:.2f} {what}",
            flush=True,
        )


def our_rate(workers: int, rounds: int) -> tuple[float, float]:
    """Return rounds per second, and the master's CPU seconds per round."""
    e = experiment(workers, rounds, star(workers), (0.0, 0.0)).replace(
        delays={"kind": "constant", "shift": 0.0}
    )
    measured(e.replace(rounds=20), emulate="nothing")
    pool = POOLS.get(workers + 1)
    master = psutil.Process(pool.places[0][0])
    before = sum(master.cpu_times()[:2])
    trace = start_real(e, emulate="nothing", events=False).result()
    used = sum(master.cpu_times()[:2]) - before
    return rounds / float(np.asarray(trace.columns["time"])[-1]), used / rounds


def their_rate(workers: int, rounds: int, what: str) -> tuple[float, float]:
    """Return rounds per second of the baseline, and its master's CPU seconds per round."""
    text = baseline("textbook_master.py", workers, STARS[workers], FEATURES, rounds, what, blocks=True)
    rate, used = (float(word) for word in text)
    return rate, used


def stream(rounds: int) -> None:
    """Print the delay from a commit until a notebook has the round, and the seconds that a stop takes, for N = 84."""
    e = experiment(84, rounds, schemes(84)[0], (0.05, 0.02))
    measured(e.replace(rounds=5))
    run = start_real(e.replace(rounds=100 * rounds))
    seen: list[float] = []
    while len(seen) < rounds:
        seen += [time.monotonic()] * (len(run.rows()["round"]) - len(seen))
        time.sleep(0.002)
    asked = time.monotonic()
    run.stop()
    ended = run.home / "ended.json"
    while not ended.exists():
        time.sleep(0.002)
    stopped = time.monotonic() - asked
    zero = json.loads(ended.read_text())["zero"]
    trace = run.result()
    late = np.array(seen) - zero - trace.columns["time"][: len(seen)]
    print("stream, N=84: a round is seen after its commit; goal 200 ms. Stop; goal 2 s")
    late_ms = [1e3 * np.percentile(late, share) for share in (50, 99)]
    print(f"  median {late_ms[0]:.0f} ms, 99 % {late_ms[1]:.0f} ms; stopped in {stopped:.2f} s")


def start(rounds: int) -> None:
    """Print the seconds from the call to the first round without a pool, and those that a stop takes, for N = 84."""
    POOLS.close()
    e = wb.Experiment(**schemes(84)[1], workers=84, rounds=100 * rounds)
    seen = [time.monotonic()]
    run = start_real(e)
    shown = None
    while not len(run.rows()["round"]):
        if (
            run.note,
            run.stage,
        ) != shown or run.stage is None:  # None: the progress bar moves without a length
            shown = (run.note, run.stage)
            seen.append(time.monotonic())
        time.sleep(0.01)
    first, still = time.monotonic() - seen[0], float(np.diff(seen).max(initial=0.0))
    processes = psutil.Process().children(recursive=True)
    used = sum(sum(p.cpu_times()[:4]) for p in processes)
    memory = sum(p.memory_full_info().pss for p in processes) / 2**30
    time.sleep(3)
    asked = time.monotonic()
    run.stop()
    while not (run.home / "ended.json").exists():
        time.sleep(0.002)
    ended = time.monotonic() - asked
    run.wait()
    print("start, N=84, no ranks of a pool: to the first round, of all processes; stop")
    print(
        f"  first round after {first:.1f} s, nothing moved for {still:.2f} s at most, {used:.1f} s of processors,"
        f" {memory:.2f} GiB; the run's end is written {ended:.2f} s after a stop, its trace"
        f" {time.monotonic() - asked:.2f} s"
    )


def messages(rounds: int) -> None:
    """Print the microseconds for writing and reading a message, and for checksums of its words."""
    print("messages: microseconds with warm caches; the best of many turns")
    for floats in (5000, 340_000):
        print(
            f"  p={floats:6d} ",
            ", ".join(f"{name} {1e6 * s:.1f}" for name, s in costs(floats, rounds).items()),
        )


def costs(floats: int, repeat: int, times: int = 20) -> dict[str, float]:
    """Return the seconds for each step of a message of `floats` values, and for other checksums."""
    buffer, value = Buffer(floats), np.random.default_rng(0).standard_normal(floats)
    envelope, words = Envelope(1, 0, 2, 0, 0, floats, 0.0, 0.0, "coded"), buffer.words
    calls = {
        "write": lambda: encode_message(buffer, envelope, value),
        "read": lambda: decode_message(buffer, None, 1, 2),
        "checksum (XXH3)": lambda: buffer.checksum(len(words)),
        "one sum": lambda: np.add.reduce(words),
        "CRC": lambda: crc32(words),
        "copy": lambda: value.copy(),
    }
    return {
        name: min(timeit.repeat(call, number=times, repeat=repeat)) / times for name, call in calls.items()
    }


PARTS = {
    "overhead": overhead,
    "figure8": figure8,
    "textbook": textbook,
    "stream": stream,
    "start": start,
    "messages": messages,
}


def main() -> None:
    """Print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], default=[])
    parser.add_argument("--rounds", type=int, default=100)
    args = parser.parse_args()
    for name in args.parts or PARTS:
        PARTS[name](args.rounds)
    POOLS.close()


if __name__ == "__main__":
    main()
