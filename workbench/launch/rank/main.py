"""What every process of a pool runs: `python -m workbench.launch.rank.main FOLDER`.

Rank 0 takes tasks out of the pool's folder, one after the other, and tells the others; the ranks stay for the next.
"""

import faulthandler
import json
import os
import signal
import sys
import time
import traceback
from pathlib import Path

from workbench.launch.poolfolder import say
from workbench.launch.processes import die_with_parent


def main(folder: Path) -> None:
    """Join the world, then serve."""
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the client's business
    faulthandler.register(signal.SIGUSR1)  # kill -USR1 shows in the pool's log where a rank is
    try:
        from workbench.launch.rank import serving
    except BaseException as error:
        say("failed", json.dumps(f"a rank cannot import what it needs ({type(error).__name__}: {error})"))
        raise
    say("up")
    serving.serve(folder)


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]))
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGKILL)  # MPI notices a killed rank; one that exits, it does not
