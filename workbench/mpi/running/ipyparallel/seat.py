"""What an engine of ipyparallel does in runs: it sits down among the ranks, then takes its part in run after run.

All engines are called at the same time, see `interactive`; between runs they are free for anything.
"""

import json
from functools import cache

from IPython import get_ipython
from mpi4py import MPI

from workbench.core.contract.plan import MASTER
from workbench.mpi.engine.control import Control
from workbench.mpi.launch.processes import Place, awaited, here
from workbench.mpi.launch.rank.part import Part
from workbench.mpi.launch.rank.serving import conduct, follow_one
from workbench.mpi.launch.task import Task
from workbench.mpi.running.ipyparallel.inside import Inside, inside

NAME = "part"  # of what is left in the engine's namespace
LAST_WORDS = 2.0  # s


def where() -> str:
    """Rank, size of the world, process and host, as JSON; engines may be asked one by one."""
    place = here()
    return json.dumps([MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size, place.pid, place.host])


@cache
def channel() -> Control:
    """The engine's channel to the others, kept as long as it lives; the first call has to be made by all of them."""
    return Control(MPI.COMM_WORLD)


def sit() -> None:
    """Get ready for runs."""
    _leave(Inside(channel().rank))


def serve(words: str, arrays: bytes, places: str) -> bool:
    """Take part in one run from beginning to end; True if the engine is as good as new.

    `words`: the task as JSON, `arrays`: its arrays, `places`: process and host of every rank, as JSON.
    """
    control, parts = channel(), list[Part]()
    control.poll()  # words of the last run that came after it had ended here
    task = Task(**json.loads(words), arrays=arrays)
    known = [Place(*place) for place in json.loads(places)]
    clean = True
    if control.rank == MASTER:
        clean = conduct(task, control, known, joined=parts.append)
    else:
        follow_one(task, control, known, joined=parts.append)
    # Nobody looks after these once the engine is the user's again.
    awaited(lambda: control.quiet, LAST_WORDS, 1e-3)
    _leave(inside(parts[0]) if parts else Inside(control.rank))
    return clean


def _leave(seen: Inside) -> None:
    """Put it where the user's code finds it."""
    shell = get_ipython()
    assert shell is not None  # an engine is a kernel
    shell.user_ns[NAME] = seen
