"""Main module of every rank: `python -m workbench.mpi.launch.rank.main FOLDER [MPIEXEC ...]`.

Rank 0 takes one task after another from the pool's folder, and passes it to the other ranks, which then wait for the
next task. With a command line of mpiexec, this module becomes the fork server
(`workbench.mpi.launch.rank.forkserver`).
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

from workbench.mpi.launch.poolfolder import say
from workbench.mpi.launch.processes import RANKS_MODULE, die_with_parent
from workbench.mpi.launch.rank.forkserver import RankForkServer


def main(folder: Path) -> None:
    """Run a rank until its end."""
    try:
        die_with_parent()
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is handled by the client
        faulthandler.register(signal.SIGUSR1)  # kill -USR1 writes the rank's stack into the pool's log
        serving = imported()
        say("up")
        serving.serve(folder)
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGKILL)  # MPI notices a killed rank, but not one that exits


def imported(preload: bool = False) -> ModuleType:
    """Import the module that serves runs, without starting MPI.

    `preload`: also do the preparations of a forked rank once.
    """
    try:
        import_module("mpi4py").rc.initialize = False
        serving = import_module("workbench.mpi.launch.rank.serving")
        if preload:
            serving.preload()
        return serving
    except BaseException as error:
        say("failed", json.dumps(f"a rank cannot import what it needs ({type(error).__name__}: {error})"))
        raise


if __name__ == "__main__":
    folder, *command = sys.argv[1:]
    # for modules of the user, which come last, so that they hide no other module
    sys.path.append(os.getcwd())  # noqa: PTH109
    if command:
        faulthandler.register(signal.SIGUSR1)
        try:
            forkserver = RankForkServer(Path(folder), lambda: main(Path(folder)))
        except OSError:  # sockets do not work in this folder, so every rank imports by itself
            start = command[: command.index("-n") + 2]
            os.execv(start[0], [*start, sys.executable, "-P", "-m", RANKS_MODULE, folder])
        sys.exit(forkserver.run(command, partial(imported, preload=True)))
    main(Path(folder))
