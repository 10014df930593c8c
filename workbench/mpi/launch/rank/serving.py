"""Loops in which the ranks of a pool serve one run after another."""

import contextlib
import json
import os
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI

from workbench.core.base.arrays import from_bytes, to_bytes
from workbench.core.base.errors import RunError
from workbench.core.base.files import write_json
from workbench.core.base.reading import read_bytes
from workbench.core.base.text import read_json
from workbench.core.contract.delays import DelayModel
from workbench.core.contract.optimisers import Optimiser, Schedule
from workbench.core.contract.plan import MASTER
from workbench.core.contract.scheme import Scheme
from workbench.core.engine.timeline import SchemeChanged
from workbench.core.problems import ProblemArgs
from workbench.core.trace.layout import ENDED
from workbench.core.trace.records import SCHEME_CHANGED, RunRecorder
from workbench.mpi.engine.control import Control
from workbench.mpi.engine.ledger import Ledger
from workbench.mpi.engine.wakeup import WakeupPipe
from workbench.mpi.launch.poolfolder import ARRAYS, PoolFolder, say
from workbench.mpi.launch.processes import ProcessId, awaited, is_alive, set_timer_slack, this_process
from workbench.mpi.launch.rank.clocks import answer, measured
from workbench.mpi.launch.rank.rank_run import RankRun, RunFinished, RunStopped, make_rank_run
from workbench.mpi.launch.task import Task, described

FOLDER_TIMEOUT_S = 60.0  # max time until a new folder is visible on a slow shared file system, s
POLL_INTERVAL_S, LONG_POLL_INTERVAL_S, LONG_POLL_AFTER_S = 5e-3, 3e-2, 10.0  # s
# allowed delay of a rank's wake-up while it waits for all ranks, s per rank on this host
OVERSLEEP_PER_RANK_S = 2e-4
WAKEABLE_POLL_INTERVAL_S = 0.5  # s between polls of a rank that is woken for messages


def serve(folder: Path) -> None:
    """Serve runs until rank 0 ends the pool. Rank 0 takes the tasks, and the other ranks follow."""
    np.seterr(over="ignore", invalid="ignore")  # values that are not finite are rejected and reported
    sizes = [os.environ.get(f"OMPI_COMM_WORLD_{which}") for which in ("SIZE", "LOCAL_SIZE")]
    near = sizes[0] is not None and sizes[0] == sizes[1]  # whether all ranks are on this host
    with set_timer_slack(OVERSLEEP_PER_RANK_S * int(sizes[1] or 1)):
        MPI.Init_thread()
    control = Control(MPI.COMM_WORLD, WakeupPipe(folder if near else None, MPI.COMM_WORLD.rank))
    (serve_master if control.rank == MASTER else serve_worker)(PoolFolder(folder), control)
    say("done")
    os.kill(os.getpid(), signal.SIGKILL)  # MPI_Finalize may hang after a rank's death; everything is on disk


def preload() -> None:
    """Do the preparations once that every rank of a fork server would do at the beginning of its first run.

    Modules of other packages are not imported, since they may start threads, which a forked process would lack.
    """
    for family in (Scheme, ProblemArgs, DelayModel, Optimiser, Schedule):
        family.catalogue.look()
    from_bytes(to_bytes({"numbers": np.zeros(1)}))
    Ledger(MASTER, 1).pack()


def serve_master(pool: PoolFolder, control: Control) -> None:
    """Collect the places of the ranks, then run tasks until the pool should end or its owner has ended."""
    settings, places = pool.settings(), _places(control)
    pool.begin(places)
    last = time.monotonic()
    while True:
        path = pool.next_task()
        if pool.lost():  # a host is lost, so the pool ends, and waiting tasks are submitted to a new one
            break
        if path is not None:
            if not _serve_one(pool, path, control, places):
                break
            last = time.monotonic()
            continue
        owner = settings["owner"]  # None for a client on another host, which cannot be checked
        alone = owner is not None and not is_alive(owner)
        if pool.quitting or alone or time.monotonic() - last > settings["keep"]:
            break
        control.poll()
        soon = time.monotonic() - last < LONG_POLL_AFTER_S
        control.wakeup.sleep(POLL_INTERVAL_S if soon else LONG_POLL_INTERVAL_S)
    control.send(range(1, control.size), {"what": "quit"})
    awaited(lambda: control.drained, 1.0, 1e-3)


def _places(control: Control) -> list[ProcessId]:
    places = {MASTER: this_process()}
    while len(places) < control.size:
        for sender, message, _ in control.poll():
            places[sender] = ProcessId(*message["place"])
        time.sleep(1e-3)
    return [places[rank] for rank in range(control.size)]


def _serve_one(pool: PoolFolder, path: Path, control: Control, places: Sequence[ProcessId]) -> bool:
    """Run one task. Return whether the pool can take another one."""
    try:
        fields = read_json(path)
        arrays = read_bytes(Path(fields["folder"]) / ARRAYS)
        path.unlink()  # rank 0 has the task now, and its state is in the run folder
    # The task was withdrawn just now, or its folder is not visible on this host yet
    except (OSError, ValueError):
        time.sleep(POLL_INTERVAL_S)
        return not _unseen(path)
    ahead = measured(control, places)
    known = {"what": "run", "task": fields, "places": places, "ahead": ahead}
    control.send(range(1, control.size), known, arrays)
    errors = [error for _, error in ahead.values()]
    return run_master(Task(**fields, arrays=arrays), control, places, pool=pool, errors=errors)


def _unseen(path: Path) -> bool:
    """Return whether a run has waited too long for a folder that this host lacks. Reports it to the client."""
    try:
        folder, since = read_json(path)["folder"], path.stat().st_mtime
    except (OSError, ValueError):
        return False
    if Path(folder).is_dir() or time.time() - since < FOLDER_TIMEOUT_S:
        return False
    path.unlink()
    why = f"folder = {folder!r}: not there on {this_process().host}; take one that all hosts share"
    say("failed", json.dumps(why))
    return True


def run_master(
    task: Task,
    control: Control,
    places: Sequence[ProcessId],
    joined: Callable[[RankRun], None] = lambda part: None,
    pool: PoolFolder | None = None,
    errors: Sequence[float] = (),
) -> bool:
    """Run a task on rank 0. Its results are in the run folder. Return whether the ranks can take another run.

    `joined`: called with the rank's state before the start. `pool`: see `make_rank_run`. If the ranks cannot take
    another run, the pool is asked to end before the run's end is visible. `errors`: errors of the other hosts' clocks,
    s.
    """
    state, error, rank_run, change = "finished", None, None, None
    began = time.monotonic()
    try:
        rank_run = make_rank_run(task, control, places, pool=pool)
        assert rank_run is not None
        joined(rank_run)
        rank_run.go()
    except RunStopped:
        state = "stopped"
    except SchemeChanged as turned:
        state, change = SCHEME_CHANGED, turned.change
    except Exception as raised:
        state, error = "failed", described(raised, places)
    control.send(range(1, control.size), {"what": "over", "run": task.run})
    fields: dict[str, Any] = {"state": state, "error": error, "emulate": task.emulate, "first": task.first}
    hosts = [place.host for place in places]
    fields |= {"clock_error": max(errors, default=0.0), "hosts": len(set(hosts))}
    fields |= {"places": hosts} if len(set(hosts)) > 1 else {}
    if change is not None and rank_run is not None and rank_run.adaptation is not None:
        fields |= {
            "change": change._asdict(),
            "memory": rank_run.adaptation.controller.as_dict(),
            "left": time.time(),
        }
    if rank_run is not None and rank_run.record is not None:
        fields["offset"] = rank_run.record.offset
    if rank_run is None or rank_run.record is None:
        if pool is not None:
            pool.quit()
        write_json(Path(task.folder) / ENDED, {**fields, "clean": False})
        return False
    return _end(rank_run, rank_run.record, fields, began, pool)


def _end(
    rank_run: RankRun, record: RunRecorder, fields: dict[str, Any], began: float, pool: PoolFolder | None
) -> bool:
    """Exchange goodbyes, collect the ledgers, and write how the run ended."""
    clean = rank_run.leave()
    with contextlib.suppress(RunError, OSError):
        if rank_run.zero is not None:  # written while the ledgers are on their way
            record.save(rank_run.learner.model, rank_run.learner.state)
    ledgers = rank_run.collect()
    plan, places = rank_run.setup.plan, rank_run.places
    clean = clean and len(ledgers) == plan.ranks and not rank_run.halfway
    dead = sorted(r for r in rank_run.transport.dead | rank_run.control.dead if r < plan.ranks)
    fields |= {
        "clean": clean,
        "zero": rank_run.zero,
        "rounds": record.round,
        "committers": list(plan.committers),
    }
    fields |= {"dead": {str(r): str(places[r]) for r in dead}}
    fields |= {"setup": (rank_run.zero or time.monotonic()) - began}
    if pool is not None and not clean:
        pool.quit()
    try:
        record.end(fields, ledgers)
    except RunError as error:  # the run folder cannot be written: the supervisor passes the error on
        say("failed", json.dumps(str(error)))
        return False
    return clean


def serve_worker(pool: PoolFolder, control: Control) -> None:
    """Run tasks that rank 0 sends, until it ends the pool or dies. Only ranks on its host can check for its death."""
    place = this_process()
    control.send(MASTER, {"what": "hello", "place": place})
    last, master = time.monotonic(), None
    while True:
        messages = control.poll()
        while messages:
            _, message, data = messages.pop(0)
            if message["what"] == "quit":
                return
            if message["what"] == "clock":
                messages = answer(control, messages)
            if message["what"] == "run":
                places = [ProcessId(*place) for place in message["places"]]
                master = places[MASTER]
                ahead, _ = message["ahead"].get(place.host, (0.0, 0.0))
                run_worker(Task(**message["task"], arrays=data), control, places, ahead=ahead)
                last = time.monotonic()
        master = master or _master(pool)
        if master is not None and master.host == place.host and not is_alive(master.pid):
            return
        soon = POLL_INTERVAL_S if time.monotonic() - last < LONG_POLL_AFTER_S else LONG_POLL_INTERVAL_S
        control.wakeup.sleep(WAKEABLE_POLL_INTERVAL_S if control.wakeup.enabled else soon)


def _master(pool: PoolFolder) -> ProcessId | None:
    """Return rank 0's process, or None if it is not visible yet."""
    try:
        return pool.places()[MASTER]
    except (OSError, ValueError):
        return None


def run_worker(
    task: Task,
    control: Control,
    places: Sequence[ProcessId],
    joined: Callable[[RankRun], None] = lambda part: None,
    ahead: float = 0.0,
) -> None:
    """Run a task on a worker. Errors are sent to rank 0. `joined`: called with the rank's state before the start.

    `ahead`: s by which the clock of this host is ahead of the master's.
    """
    rank_run = None
    try:
        rank_run = make_rank_run(task, control, places, ahead)
        if rank_run is None:
            return
        joined(rank_run)
        rank_run.go()
    except RunFinished:
        pass
    except Exception as error:
        control.send(MASTER, {"what": "failed", "run": task.run, "error": described(error, places)})
        _until_over(task, rank_run, control)
    if rank_run is not None:
        rank_run.leave()
        rank_run.hand_in()


def _until_over(task: Task, rank_run: RankRun | None, control: Control) -> None:
    until = time.monotonic() + 10.0
    while time.monotonic() < until:
        for _, message, _ in control.poll():
            if message["what"] == "over" and message["run"] == task.run:
                return
        if rank_run is not None:
            rank_run.transport.poll()
        time.sleep(1e-3)
