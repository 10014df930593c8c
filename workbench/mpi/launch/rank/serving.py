"""How the ranks of a pool serve run after run."""

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

FOLDER_TIMEOUT_S = 60.0  # s until a new folder shows itself on a slow shared file system
POLL_INTERVAL_S, LONG_POLL_INTERVAL_S, LONG_POLL_AFTER_S = 5e-3, 3e-2, 10.0  # s
OVERSLEEP_PER_RANK_S = 2e-4  # s that a rank may oversleep while it waits for all, for each rank on its host
WAKEABLE_POLL_INTERVAL_S = 0.5  # s, of who is rung when there is something


def serve(folder: Path) -> None:
    """Rank 0 leads, the others follow, until rank 0 says that it is enough."""
    np.seterr(over="ignore", invalid="ignore")  # numbers that are not finite are refused, and told
    sizes = [os.environ.get(f"OMPI_COMM_WORLD_{which}") for which in ("SIZE", "LOCAL_SIZE")]
    near = sizes[0] is not None and sizes[0] == sizes[1]  # all ranks are on this host
    with set_timer_slack(OVERSLEEP_PER_RANK_S * int(sizes[1] or 1)):
        MPI.Init_thread()
    control = Control(MPI.COMM_WORLD, WakeupPipe(folder if near else None, MPI.COMM_WORLD.rank))
    (serve_master if control.rank == MASTER else serve_worker)(PoolFolder(folder), control)
    say("done")
    os.kill(os.getpid(), signal.SIGKILL)  # MPI_Finalize may hang once a rank has died; everything is on disk


def preload() -> None:
    """Do once what every rank of a fork server would do when its first run begins.

    Nothing of other packages is imported: it may start threads, of which a forked process has none.
    """
    for family in (Scheme, ProblemArgs, DelayModel, Optimiser, Schedule):
        family.catalogue.look()
    from_bytes(to_bytes({"numbers": np.zeros(1)}))
    Ledger(MASTER, 1).pack()


def serve_master(pool: PoolFolder, control: Control) -> None:
    """Collect the ranks' places, then take tasks until told to quit, or nobody is there any more to hand them in."""
    settings, places = pool.settings(), _places(control)
    pool.begin(places)
    last = time.monotonic()
    while True:
        path = pool.next_task()
        if pool.lost():  # a host has gone: what waits goes to a new pool
            break
        if path is not None:
            if not _serve_one(pool, path, control, places):
                break
            last = time.monotonic()
            continue
        owner = settings["owner"]  # None for a client on another host, which is not seen
        alone = owner is not None and not is_alive(owner)
        if pool.quitting or alone or time.monotonic() - last > settings["keep"]:
            break
        control.poll()
        control.wakeup.sleep(
            POLL_INTERVAL_S if time.monotonic() - last < LONG_POLL_AFTER_S else LONG_POLL_INTERVAL_S
        )
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
    """Run one task; True if the pool is as good as new."""
    try:
        fields = read_json(path)
        arrays = read_bytes(Path(fields["folder"]) / ARRAYS)
        path.unlink()  # taken: what becomes of it now stands in the run folder
    except (OSError, ValueError):  # withdrawn in this moment, or not to be seen from this host yet
        time.sleep(POLL_INTERVAL_S)
        return not _unseen(path)
    ahead = measured(control, places)
    known = {"what": "run", "task": fields, "places": places, "ahead": ahead}
    control.send(range(1, control.size), known, arrays)
    errors = [error for _, error in ahead.values()]
    return run_master(Task(**fields, arrays=arrays), control, places, pool=pool, errors=errors)


def _unseen(path: Path) -> bool:
    """Has a run waited for long whose folder is not there on this host? Then the pool's user is told so."""
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
    """Rank 0's part from beginning to end; what came of it stands in the run folder. Are the ranks as good as new?

    `joined` gets to see the part before it begins. `pool`: see `part_of`; it is told to end if the ranks are not as
    good as new, before anybody can learn that the run has ended. `errors`: of the other hosts' clocks, s.
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
    """Last words and books, then the word that says how it ended."""
    clean = rank_run.leave()
    with contextlib.suppress(RunError, OSError):
        if rank_run.zero is not None:  # to the disk while the others' books are on their way
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
    except RunError as error:  # the run folder takes nothing any more: the supervisor passes it on
        say("failed", json.dumps(str(error)))
        return False
    return clean


def serve_worker(pool: PoolFolder, control: Control) -> None:
    """Do as rank 0 says, as long as it is there, which shows on its own host."""
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
    """Rank 0's process, once all are up; None where that is not to be seen."""
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
    """A worker's part; what goes wrong is rank 0's to hear. `joined` gets to see the part before it begins.

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
