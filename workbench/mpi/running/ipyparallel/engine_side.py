"""What an engine of ipyparallel does in runs: it becomes a rank, then takes part in one run after another.

All engines are called at the same time, see `interactive`. Between runs they are free for the user's code.
"""

import json
from functools import cache

from IPython import get_ipython
from mpi4py import MPI

from workbench.core.contract.plan import MASTER
from workbench.mpi.engine.control import Control
from workbench.mpi.launch.processes import ProcessId, awaited, this_process
from workbench.mpi.launch.rank.rank_run import RankRun
from workbench.mpi.launch.rank.serving import run_master, run_worker
from workbench.mpi.launch.task import Task
from workbench.mpi.running.ipyparallel.snapshot import RankSnapshot, snapshot

NAME = "part"  # name of the snapshot in the engine's namespace
GOODBYE_TIMEOUT_S = 2.0  # s for the last control messages of a run


def where() -> str:
    """Return rank, size of the world, process and host as JSON. Engines may be called one by one."""
    place = this_process()
    return json.dumps([MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size, place.pid, place.host])


@cache
def channel() -> Control:
    """Return the engine's control channel, kept until the engine ends. All engines have to make the first call."""
    return Control(MPI.COMM_WORLD)


def init_rank() -> None:
    """Prepare the engine for runs."""
    _leave(RankSnapshot(channel().rank))


def serve(fields: str, arrays: bytes, places: str) -> bool:
    """Take part in one run. Return whether the engine can take another run.

    `fields`: the task as JSON. `arrays`: its arrays. `places`: process and host of every rank, as JSON.
    """
    control, parts = channel(), list[RankRun]()
    control.poll()  # drop late control messages of the previous run
    task = Task(**json.loads(fields), arrays=arrays)
    known = [ProcessId(*place) for place in json.loads(places)]
    clean = True
    if control.rank == MASTER:
        clean = run_master(task, control, known, joined=parts.append)
    else:
        run_worker(task, control, known, joined=parts.append)
    # Send pending messages now, because the engine runs the user's code next.
    awaited(lambda: control.drained, GOODBYE_TIMEOUT_S, 1e-3)
    _leave(snapshot(parts[0]) if parts else RankSnapshot(control.rank))
    return clean


def _leave(seen: RankSnapshot) -> None:
    """Put the snapshot into the namespace of the user's code."""
    shell = get_ipython()
    assert shell is not None  # an engine is a kernel
    shell.user_ns[NAME] = seen
