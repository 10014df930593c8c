"""A command that ends with whoever started it: `python -m workbench.launch.head.tied KILL mpiexec ...`.

The word before the command names the signal that it gets then. On systems other than Linux it is simply run.
"""

from __future__ import annotations

import os
import signal
import sys

from workbench.launch.processes import die_with_parent


def tied(how: str, *command: str) -> list[str]:
    """Command line that runs another so."""
    return [sys.executable, "-m", "workbench.launch.head.tied", how, *command]


def main(how: str, *command: str) -> None:
    """Become the command; the tie outlasts that."""
    die_with_parent(signal.Signals[f"SIG{how}"])
    os.execvp(command[0], command)


if __name__ == "__main__":
    main(*sys.argv[1:])
