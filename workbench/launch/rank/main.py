"""What every process of a pool runs: `python -m workbench.launch.rank.main FOLDER [MPIEXEC ...]`.

Rank 0 takes tasks out of the pool's folder, one after the other, and tells the others; the ranks stay for the next.
With mpiexec's command line it starts that, and forks the ranks, see `workbench.launch.rank.nursery`.
"""

import faulthandler
import json
import os
import signal
import sys
import time
import traceback
from functools import partial
from importlib import import_module
from pathlib import Path
from types import ModuleType

import mpi4py

from workbench.launch.poolfolder import say
from workbench.launch.processes import die_with_parent
from workbench.launch.rank.nursery import Nursery


def main(folder: Path) -> None:
    """A rank, from beginning to end."""
    try:
        die_with_parent()
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the client's business
        faulthandler.register(signal.SIGUSR1)  # kill -USR1 shows in the pool's log where a rank is
        serving = imported()
        say("up")
        serving.serve(folder)
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGKILL)  # MPI notices a killed rank; one that exits, it does not


def imported(rehearse: bool = False) -> ModuleType:
    """What serves runs, for ranks that are still to be forked with a rehearsal; MPI waits until it is told to begin."""
    try:
        mpi4py.rc.initialize = False
        serving = import_module("workbench.launch.rank.serving")
        if rehearse:
            serving.rehearse()
        return serving
    except BaseException as error:
        say("failed", json.dumps(f"a rank cannot import what it needs ({type(error).__name__}: {error})"))
        raise


if __name__ == "__main__":
    folder, *command = sys.argv[1:]
    if command:
        sys.exit(
            Nursery(Path(folder), lambda: main(Path(folder))).run(command, partial(imported, rehearse=True))
        )
    main(Path(folder))
