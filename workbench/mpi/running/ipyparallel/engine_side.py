"""What an engine of ipyparallel does in runs: it sits down among the ranks, then takes its part in run after run.

All engines are called at the same time, see `interactive`; between runs they are free for anything.
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

NAME = "part"  # of what is left in the engine's namespace
GOODBYE_TIMEOUT_S = 2.0  # s


def where() -> str:
    """Rank, size of the world, process and host, as JSON; engines may be asked one by one."""
    place = this_process()
    return json.dumps([MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size, place.pid, place.host])


@cache
def channel() -> Control:
    """The engine's channel to the others, kept as long as it lives; the first call has to be made by all of them."""
    return Control(MPI.COMM_WORLD)


def init_rank() -> None:
    """Get ready for runs."""
    _leave(RankSnapshot(channel().rank))


def serve(fields: str, arrays: bytes, places: str) -> bool:
    """Take part in one run from beginning to end; True if the engine is as good as new.

    `words`: the task as JSON, `arrays`: its arrays, `places`: process and host of every rank, as JSON.
    """
    control, parts = channel(), list[RankRun]()
    control.poll()  # words of the last run that came after it had ended here
    task = Task(**json.loads(fields), arrays=arrays)
    known = [ProcessId(*place) for place in json.loads(places)]
    clean = True
    if control.rank == MASTER:
        clean = run_master(task, control, known, joined=parts.append)
    else:
        run_worker(task, control, known, joined=parts.append)
    # Nobody looks after these once the engine is the user's again.
    awaited(lambda: control.drained, GOODBYE_TIMEOUT_S, 1e-3)
    _leave(snapshot(parts[0]) if parts else RankSnapshot(control.rank))
    return clean


def _leave(seen: RankSnapshot) -> None:
    """Put it where the user's code finds it."""
    shell = get_ipython()
    assert shell is not None  # an engine is a kernel
    shell.user_ns[NAME] = seen
