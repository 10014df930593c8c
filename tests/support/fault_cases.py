"""Cases of real runs with faults: deaths, stops, damaged messages, torn checkpoints, full disks."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import psutil

import workbench as wb
from tests.support.fault_injection import HOW, crashing, damaging
from workbench.core.contract.delays import DelayStream
from workbench.core.contract.plan import MASTER
from workbench.core.trace import records
from workbench.core.trace.checkpoint import read_checkpoint
from workbench.core.trace.records import read_arrivals
from workbench.mpi.clusters.warm import POOLS
from workbench.mpi.launch import mpiexec
from workbench.mpi.launch.poolfolder import PREFIX, SHARED_MEMORY_FOLDER
from workbench.mpi.running.real import RealRun, resume, start_real
from workbench.mpi.running.replay import replay_arrivals

PATIENCE = 90.0  # s after which a run counts as hanging, with the start of the ranks
EXACT = 1e-10  # relative error of a committed gradient
# prefix of the names of this process's pools; other processes may have pools as well
POOL_PREFIX = f"{os.getpid()}-"
PROBLEM: dict[str, Any] = {
    "problem": "least_squares",
    "problem_args": {"samples": 240, "features": 60, "data_seed": 1},
    "delays": {"kind": "shifted_exponential", "shift": 1e-4, "rate": 1.5e4},
    "rounds": 40,
}
SCHEMES: list[dict[str, Any]] = [
    {"scheme": "GC", "scheme_args": {"stragglers": 2}, "workers": 8},
    {"scheme": "CR", "scheme_args": {"children": 3, "layers": 2, "stragglers": 1}, "workers": 12},
]


@dataclass
class Tally:
    """The results of one kind of fault."""

    name: str
    cases: int = 0
    wrong: int = 0
    hanging: int = 0
    worst: float = 0.0  # relative error of a gradient
    notes: Counter[str] = field(default_factory=Counter)

    def __str__(self) -> str:
        notes = ", ".join(f"{count} {note}" for note, count in sorted(self.notes.items()))
        numbers = f"{self.cases:4d} cases {self.wrong:3d} wrong {self.hanging:3d} hanging"
        return f"{self.name:28s} {numbers}   worst gradient {self.worst:.0e}   {notes}"


def experiment(number: int, **fields: Any) -> wb.Experiment:
    """Make an experiment with GC or CR, alternately."""
    return wb.Experiment(**{**PROBLEM, **SCHEMES[number % len(SCHEMES)], "seed": number, **fields})


def judged(tally: Tally, run: RealRun) -> bool:
    """Wait for a run that should succeed, and check every committed gradient."""
    if not run.wait(PATIENCE):
        tally.hanging += 1
        tally.notes[f"still running: {run}"] += 1
        run.stop()
        return False
    if run.error is not None:
        tally.wrong += 1
        tally.notes[str(run.error)[:60]] += 1
        return False
    error = gradient_error(run)
    tally.worst = max(tally.worst, error)
    tally.wrong += error > EXACT or len(run.result().rounds) != run.experiment.rounds
    return True


def gradient_error(run: RealRun) -> float:
    """Return the largest relative difference between a committed gradient and the full gradient at its model."""
    problem = run.experiment.build_problem()
    committed = records.read_gradients(run.home, problem.size)
    models = np.concatenate([problem.start()[None], records.read_models(run.home, problem.size)])
    worst = 0.0
    for gradient, model in zip(committed, models, strict=False):
        full = problem.gradient([(0, problem.samples, 1.0)], model)
        worst = max(worst, float(np.linalg.norm(gradient - full) / np.linalg.norm(full)))
    return worst


def begun(e: wb.Experiment, **options: Any) -> tuple[RealRun, list[int]]:
    """Start a run and wait for its first round. Return the run, and the processes of its ranks."""
    run = start_real(e, gradients=True, **options)
    while not len(run.rows()["round"]) and not run.wait(0.005):
        pass
    assert run.pool is not None
    return run, [pid for pid, _ in run.pool.places]


def victims(e: wb.Experiment, rng: random.Random, more: int = 0) -> list[int]:
    """Draw 1 to s children of every parent that is not drawn itself. With `more`: s + `more` children of one parent."""
    s = int(e.scheme_args["stragglers"])
    parents = [rank for rank, children in enumerate(e.plan.children) if children]
    if more:
        return rng.sample(e.plan.children[rng.choice(parents)], s + more)
    dead: set[int] = set()
    for parent in parents:
        if parent not in dead:
            dead.update(rng.sample(e.plan.children[parent], rng.randint(1, s)))
    return sorted(dead)


def deaths(count: int, rng: random.Random) -> Tally:
    """Let up to s children of any parent die at random times: killed, by a segmentation fault, or by exiting."""
    tally = Tally("deaths, up to s a parent")
    number = 0
    while tally.cases < count:
        number += 1
        e, how = experiment(number), ("kill", "segfault", "exit")[number % 3]
        dead = victims(e, rng)
        tally.cases += len(dead)
        tally.notes[how] += len(dead)
        if how == "exit" or number % 2:  # during a computation
            faults = [{"kind": how, "worker": rank, "round": rng.randrange(e.rounds)} for rank in dead]
            judged(tally, start_real(e.replace(faults=faults), gradients=True))
            continue
        run, pids = begun(e)  # at any time
        for rank in dead:
            time.sleep(rng.uniform(0, 0.1))
            os.kill(pids[rank], signal.SIGKILL if how == "kill" else signal.SIGSEGV)
        judged(tally, run)
    return tally


def too_many(count: int, rng: random.Random) -> Tally:
    """Kill s + 1 children of one parent. A typed error names them within 10 s, and the checkpoint is valid."""
    tally = Tally("deaths, s + 1 of a parent")
    for number in range(count):
        e = experiment(number)
        run, pids = begun(e, checkpoint_every=0.05)
        time.sleep(rng.uniform(0.1, 0.3))
        dead = victims(e, rng, more=1)
        for rank in dead:
            os.kill(pids[rank], signal.SIGKILL)
        tally.cases += 1
        killed = time.monotonic()
        if not run.wait(10.0):
            tally.hanging += 1
            run.stop()
            continue
        named = isinstance(run.error, wb.QuorumLost) and set(run.error.missing) >= set(dead)
        tally.wrong += not named or gradient_error(run) > EXACT
        last = read_checkpoint(run.home)
        done, model = last.rounds, last.model
        tally.wrong += not np.array_equal(model, records.read_models(run.home, len(model))[done - 1])
        tally.notes[f"named within {1 + int(time.monotonic() - killed)} s"] += 1
    return tally


def stops(count: int, rng: random.Random) -> Tally:
    """Stop workers for a while, then continue them."""
    tally = Tally("stopped and continued")
    number = 0
    while tally.cases < count:
        number += 1
        run, pids = begun(experiment(number))
        for _ in range(4):
            pid = pids[rng.randrange(1, run.experiment.workers + 1)]
            os.kill(pid, signal.SIGSTOP)
            time.sleep(rng.uniform(0.01, 0.2))
            os.kill(pid, signal.SIGCONT)
        tally.cases += 4
        judged(tally, run)
    return tally


def damage(count: int, rng: random.Random) -> Tally:
    """Damage messages of one worker. They are refused, counted, and attributed to this worker."""
    tally = Tally("damaged messages")
    number = 0
    while tally.cases < count:
        number += 1
        e = experiment(number)
        rank = rng.randint(1, e.workers)
        plans = {rank: {r: rng.choice(HOW) for r in range(e.rounds)}}
        run = start_real(e, gradients=True, substitutes=damaging(plans))
        if judged(tally, run):
            refused = run.result().info["refused"]
            parent = int(e.plan.parent[rank])
            tally.wrong += any(word["sender"] != rank or word["by"] != parent for word in refused)
            tally.cases += len(refused)
            for word in refused:
                tally.notes[word["reason"]] += 1
    return tally


def with_predictable_answers(number: int, gap: float = 0.008) -> wb.Experiment:
    """Make an experiment in which one worker is later than all others by `gap` seconds in every round."""
    for seed in range(number * 1000, (number + 1) * 1000):
        e = wb.Experiment(
            **{
                **PROBLEM,
                "rounds": 12,
                "delays": {"kind": "shifted_exponential", "shift": 1e-4, "rate": 2e3},
            },
            scheme="GC",
            scheme_args={"stragglers": 1},
            workers=5,
            seed=seed,
        )
        stream = DelayStream(e.delays, e.seed, e.workers)
        times = np.sort([stream.whole(r, e.plan.loads[1:]) for r in range(e.rounds)], axis=1)
        if (times[:, -1] - times[:, -2]).min() > gap:
            return e
    raise LookupError(f"no seed with a gap of {gap} s")


def torn_checkpoints(count: int, rng: random.Random) -> Tally:
    """Kill the master at a random byte of a checkpoint. The resumed run ends with the same model.

    If the machine is too busy for the drawn delays, other answers may arrive in time. Models then differ in their last
    bits. Only the offline replay must give the same bits.
    """
    tally = Tally("master killed while writing")
    for number in range(count):
        e = with_predictable_answers(number)
        whole = start_real(e, gradients=True)
        judged(tally, whole)
        torn = start_real(e, checkpoint_every=0.04, substitutes=crashing(rng.randint(2, 5), rng.random()))
        tally.cases += 1
        if not torn.wait(PATIENCE):
            tally.hanging += 1
            continue
        if torn.error is None:  # the run ended before that checkpoint
            tally.notes["was too fast"] += 1
            continue
        again = resume(torn.home)
        if not again.wait(PATIENCE):
            tally.hanging += 1
            continue
        model = again.result().model
        same = np.array_equal(model, whole.result().model)
        offline = np.array_equal(replay_arrivals(torn.home)[-1], model)
        alike = in_time(torn.home) == in_time(whole.home)
        tally.wrong += not offline or (alike and not same)
        tally.notes["other answers in time"] += not alike
        tally.notes["bit-identical"] += same
        tally.notes["replayed offline"] += offline
    return tally


def in_time(folder: Path) -> dict[int, set[tuple[int, int]]]:
    """Return which answers the master used in each round."""
    return {round: set(answers) for round, answers in read_arrivals(folder, MASTER).items()}


def full_disks(count: int, rng: random.Random) -> Tally:
    """Fill the disk during a run. The error is one sentence, and the last checkpoint is valid."""
    tally = Tally("disk full")
    for number in range(count):
        with small_disk(rng.randint(24, 40)) as disk:
            if disk is None:
                tally.notes["not tried: mounting a small disk is not allowed here"] += 1
                return tally
            tally.cases += 1
            run = start_real(experiment(number, rounds=200), folder=disk / "run", checkpoint_every=0.02)
            if not run.wait(PATIENCE):
                tally.hanging += 1
                run.stop()
                continue
            reported = isinstance(run.error, wb.RunError) and "cannot be written" in str(run.error)
            last = read_checkpoint(run.home)
            done, model = last.rounds, last.model
            sound = np.array_equal(model, records.read_models(run.home, len(model))[done - 1])
            tally.wrong += not (reported and sound)
            tally.notes["reported, checkpoint sound"] += reported and sound
            POOLS.close()
    return tally


@contextmanager
def small_disk(kilobytes: int) -> Iterator[Path | None]:
    """Mount a file system with `kilobytes` more than the start of a run needs.

    Yields None if mounting is forbidden.
    """
    with tempfile.TemporaryDirectory() as folder:
        size = f"size={64 + kilobytes}k"
        mount = ["mount", "-t", "tmpfs", "-o", size, "tmpfs", folder]
        if subprocess.run(mount, capture_output=True).returncode:
            yield None
            return
        try:
            yield Path(folder)
        finally:
            subprocess.run(["umount", "-l", folder], check=True)


def starts(count: int, rng: random.Random) -> Tally:
    """Prevent the start of a run in several ways. The error is one sentence within ten seconds."""
    tally = Tally("cannot start")
    for name, broken in BROKEN.items():
        for _ in range(count):
            POOLS.close()
            tally.cases += 1
            began = time.monotonic()
            with broken():
                run = start_real(experiment(0))
                hangs = not run.wait(10.0)
            tally.hanging += hangs
            tally.wrong += not isinstance(run.error, wb.RunError) or "\n" in str(run.error)
            tally.notes[f"{name} ({time.monotonic() - began:.1f} s)"] += 1
    return tally


@contextmanager
def patched(target: Any, name: str, value: Any) -> Iterator[None]:
    """Set an attribute within a block."""
    before = getattr(target, name)
    setattr(target, name, value)
    try:
        yield
    finally:
        setattr(target, name, before)


@contextmanager
def no_mpiexec() -> Iterator[None]:
    """Hide mpiexec in the environment and on the PATH."""
    with (
        patched(mpiexec.sys, "executable", "/nowhere/python"),
        patched(mpiexec.shutil, "which", lambda name: None),
    ):
        yield


@contextmanager
def cannot_import() -> Iterator[None]:
    """Let the import of a module fail that every rank needs."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "pydantic.py").write_text("raise ImportError('broken on purpose')\n")
        real = mpiexec.environment
        with patched(mpiexec, "environment", lambda: {**real(), "PYTHONPATH": folder}):
            yield


BROKEN: dict[str, Callable[[], Any]] = {
    "no mpiexec": no_mpiexec,
    "a rank cannot import": cannot_import,
    "too little memory": lambda: patched(mpiexec, "MEGABYTES_PER_RANK", 10**6),
    "too many ranks": lambda: patched(mpiexec, "_process_limit", lambda: 4),
}


def leftovers() -> int:
    """Count processes of this test that exist after all pools were closed."""
    POOLS.close()
    time.sleep(0.5)
    texts = [" ".join(p.info["cmdline"] or ()) for p in psutil.process_iter(["cmdline"])]
    return sum("workbench.mpi.launch" in each and f"/{POOL_PREFIX}" in each for each in texts)


def memory_left() -> int:
    """Count folders of shared memory of this test's ranks that still exist."""
    return (
        len(list(SHARED_MEMORY_FOLDER.glob(f"{PREFIX}{POOL_PREFIX}*")))
        if SHARED_MEMORY_FOLDER.exists()
        else 0
    )
