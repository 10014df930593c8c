"""Real MPI runs of four workers in which one worker, link or host is slowed by a known amount."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import psutil
from numpy.typing import NDArray

import workbench as wb
from workbench.core.base.files import write_json
from workbench.core.base.settings import setting
from workbench.core.base.types import Array
from workbench.core.contract.delays import DelayModel
from workbench.core.contract.delays.base import CounterRNG
from workbench.mpi.clusters.warm import POOLS
from workbench.mpi.engine.setup import Emulate
from workbench.mpi.running.real import start_real

WORKERS, ROUNDS = 4, 30
PLACES = ["head", "left", "left", "right", "right"]  # names of the ranks' hosts
TURN = 0.1  # s for which a host keeps its core, if hosts exchange cores
PROBES, PROBED = 9, 100_000  # number of loops, and iterations of each
BUSY = "import os, time\nwhile os.getppid() == {parent}:\n    sum(range(10000))"


class Injected(DelayModel):
    """Times of tasks and messages: a minimum and an exponential part. Those of the victims are longer."""

    kind: Literal["injected"] = "injected"
    task: float = setting(0.02, "least time of a task", "s", gt=0)
    message: float = setting(0.0, "least time of a message on its way", "s", ge=0)
    spread: float = setting(0.1, "mean of the exponential part, in least times", ge=0)
    victims: tuple[int, ...] = setting((), "workers, from 0, whose tasks or messages take longer")
    task_factor: float = setting(1.0, "factor by which their tasks take longer", gt=0)
    message_factor: float = setting(1.0, "factor by which their messages take longer", gt=0)

    def draw(self, keyed: CounterRNG, round: int, workers: int, slot: int, before: Array | None) -> Array:
        """Draw factors on the minimal times of a task and of a message, (2, workers)."""
        drawn = 1 + self.spread * keyed.rng(round, slot).exponential(size=(2, workers))
        slow = np.isin(np.arange(workers), self.victims)
        return np.asarray(drawn * np.where(slow, [[self.task_factor], [self.message_factor]], 1.0))

    def compute(self, draw: Array, samples: NDArray[Any]) -> Array:
        """Return the time of a task, for any number of samples."""
        return np.asarray(np.where(np.asarray(samples) > 0, self.task * draw[0], 0.0))

    def sending(self, draw: Array, share: float) -> Array | None:
        """Return the time of a message, in proportion to its share of a model."""
        return np.asarray(self.message * draw[1] * share) if self.message else None


def toil(model: Array, X: Array, y: Array) -> tuple[float, Array]:
    """Compute least squares slowly, for some tens of ms, which is longer than a time slice of the scheduler."""
    for _ in range(3000):
        residual = X @ model - y
        gradient = X.T @ residual / len(y)
    return float(residual @ residual / (2 * len(y))), gradient


@dataclass(frozen=True)
class Case:
    """Run, and the name that the diagnosis should give."""

    experiment: wb.Experiment
    emulate: Emulate
    wanted: str  # name of the worker, link or host with the fault; "": none
    busy: int = -1  # host whose core another process uses; -1: none
    pinned: bool = False


def case(kind: str, number: int, seed: int, healthy: bool = False) -> Case:
    """Make the n-th run of a kind. Every second one is an all-reduce, except for the kind "neighbour"."""
    rng = np.random.default_rng([seed, number, *kind.encode(), healthy])
    victim, host = int(rng.integers(WORKERS)), int(rng.integers(2))
    raw, kind = kind.startswith("raw-"), kind.removeprefix("raw-")
    wanted = {"rank": f"worker {victim + 1}", "link": f"the link of worker {victim + 1}"}
    wanted |= dict.fromkeys(("host", "neighbour"), f"host {PLACES[1 + 2 * host]}")
    delay_model: dict[str, Any] = {"kind": f"{Path(__file__).resolve()}:Injected"}
    delay_model["victims"] = [2 * host, 2 * host + 1] if kind == "host" else [victim]
    delay_model |= {"message": 0.01, "message_factor": 1.5} if kind == "link" else {"task_factor": 1.2}
    ring = number % 2 == 1
    sizes: dict[str, Any] = {"samples": 40, "features": 20}
    args = {"algorithm": "ring"} if ring and kind == "link" else {}
    if kind == "neighbour":
        delay_model, ring, args = {"kind": "constant"}, False, {}
        sizes = {"loss_and_gradient": f"{Path(__file__).resolve()}:{toil.__name__}", "data": "diabetes"}
    if healthy:
        delay_model |= {"victims": []} if "victims" in delay_model else {}
    e = wb.Experiment(
        scheme="RAR" if ring else "UMW",
        scheme_args=args,
        workers=WORKERS,
        rounds=ROUNDS,
        seed=int(rng.integers(2**31)),
        problem="numpy" if kind == "neighbour" else "least_squares",
        problem_args=sizes,
        delays=delay_model,
        optimiser_args={"step": 1e-4},
    )
    emulate: Emulate = "nothing" if kind == "neighbour" else "delays" if raw else "all"
    busy = host if kind == "neighbour" and not healthy else -1
    return Case(e, emulate, "" if healthy else wanted[kind], busy, kind == "neighbour")


def played(one: Case, folder: Path, exchange: bool) -> wb.Trace:
    """Run a case on ranks of a pool, with each host's workers on one core if they are pinned."""
    pool = POOLS.get(WORKERS + 1)
    pool.await_ready()
    ranks = {f"rank {rank}": pid for rank, (pid, _) in enumerate(pool.places)}
    for pid in ranks.values():
        os.sched_setaffinity(pid, os.sched_getaffinity(0))
    probes = [probe()] if one.pinned else []
    with busy(one.busy >= 0) as neighbours:
        ours = {"watching": os.getpid(), **neighbours, **ranks}
        hosts = {pid: PLACES.index("right") <= rank for rank, pid in enumerate(ranks.values()) if rank}
        hosts |= dict.fromkeys(neighbours.values(), bool(one.busy))
        before, begun = spent(ours), time.monotonic()
        with turning(hosts if one.pinned else {}, exchange):
            trace = start_real(one.experiment, emulate=one.emulate, folder=folder).result()
        load: dict[str, Any] = {
            name: now - was for (name, was), now in zip(before.items(), spent(ours).values(), strict=True)
        }
    probes += [probe()] if one.pinned else []
    load |= {
        "exchange": exchange,
        "probes": probes,
        "seconds": time.monotonic() - begun,
        "processes": os.getloadavg()[0],
    }
    write_json(folder.with_name(f"{folder.name}.load.json"), load)
    return trace


def probe() -> list[float]:
    """Return the median time of the same loop on each of the first two cores, s of this thread's processor time."""
    cores, found = sorted(os.sched_getaffinity(0)), []
    for core in cores[:2]:
        os.sched_setaffinity(0, {core})  # pins this thread
        times = []
        for _ in range(PROBES):
            begun = time.thread_time()
            sum(range(PROBED))
            times.append(time.thread_time() - begun)
        found.append(float(np.median(times)))
    os.sched_setaffinity(0, cores)
    return found


@contextmanager
def turning(hosts: dict[int, bool], exchange: bool) -> Iterator[None]:
    """Pin processes (id -> whether they are on the second host) to their host's core. Hosts may exchange cores."""
    over, cores = threading.Event(), sorted(os.sched_getaffinity(0))

    def turn() -> None:
        turns = 0
        while hosts and not over.wait(TURN if turns else 0.0):
            if exchange or not turns:
                for pid, second in hosts.items():
                    os.sched_setaffinity(pid, {cores[(second + turns) % 2]})
            turns += 1

    thread = threading.Thread(target=turn)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def spent(ours: dict[str, int]) -> dict[str, float]:
    """Return processor times so far, s: of all processes, stolen by the hypervisor, and of each given process."""
    times = psutil.cpu_times()
    found = {"all": times.user + times.nice + times.system + times.irq + times.softirq, "stolen": times.steal}
    of_each = {name: psutil.Process(pid).cpu_times() for name, pid in ours.items()}
    return found | {name: each.user + each.system for name, each in of_each.items()}


@contextmanager
def busy(wanted: bool) -> Iterator[dict[str, int]]:
    """Run a process that keeps a core busy, if wanted. It ends with this process."""
    if not wanted:
        yield {}
        return
    with subprocess.Popen([sys.executable, "-c", BUSY.format(parent=os.getpid())]) as process:
        try:
            time.sleep(0.05)
            yield {"neighbour": process.pid}
        finally:
            process.kill()


def traced(
    kind: str, number: int, seed: int, keep: Path, healthy: bool = False, exchange: bool = False
) -> tuple[Case, wb.Trace]:
    """Return a case and its run: a saved one, or a new one."""
    one, folder = case(kind, number, seed, healthy), lies(kind, number, seed, keep, healthy, exchange)
    there = (folder / "run.json").is_file()
    trace = wb.Trace.load(folder) if there else played(one, folder, exchange)
    return one, replace(trace, info={**trace.info, "places": PLACES})


def lies(kind: str, number: int, seed: int, keep: Path, healthy: bool, exchange: bool = False) -> Path:
    """Return the run folder of a case. The name contains whether hosts exchanged cores."""
    return keep / f"{'exchange-' * exchange}{'healthy-' * healthy}{kind}-{seed}-{number}"
