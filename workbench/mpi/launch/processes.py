"""Processes of the workbench on a host: find them, check whether they live, and end them.

Ranks and supervisors are recognised by their command line, which has a module of this package and the folder of a pool.
Daemons are recognised by the name of mpiexec's job. Only processes of this user are considered.

`python -P -m workbench.mpi.launch.processes KILL mpiexec ...` runs a command that ends with its parent.
"""

import contextlib
import ctypes
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

RANKS_MODULE, SUPERVISOR_MODULE = "workbench.mpi.launch.rank.main", "workbench.mpi.launch.head.supervisor"
# names of the programs of MPI's daemons; an ssh process holds the connection to one on another host
DAEMONS = ("prted", "prterun", "mpiexec", "ssh")
TERM_TIMEOUT_S = 5.0  # s between TERM and KILL
DIES_WITH_PARENT, TIMER_SLACK = 1, 29  # options of prctl: PR_SET_PDEATHSIG, PR_SET_TIMERSLACK


class ProcessId(NamedTuple):
    """Process of one rank, and its host."""

    pid: int
    host: str

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


def this_process() -> ProcessId:
    """Return the calling process."""
    return ProcessId(os.getpid(), socket.gethostname())


def exists(pid: int) -> bool:
    """Return whether a process exists, even as a zombie. Takes 1.5 us."""
    try:
        if pid <= 0:  # 0 and negative numbers are process groups
            return False
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass
    return True


def is_alive(pid: int) -> bool:
    """Return whether a process exists and is not a zombie. Takes 80 us."""
    if not exists(pid):
        return False
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except OSError:  # it has just ended, or the system has no /proc, or hides processes there
        return exists(pid)


def awaited(done: Callable[[], object], seconds: float, every: float = 0.02) -> bool:
    """Poll `done` until it is true, for up to `seconds`. Return whether it became true.

    >>> awaited(lambda: True, 1.0), awaited(lambda: False, 0.0)
    (True, False)
    """
    until = time.monotonic() + seconds
    while not (found := done()) and time.monotonic() < until:
        time.sleep(every)
    return bool(found)


def die_with_parent(how: signal.Signals = signal.SIGKILL) -> None:
    """Let this process get a signal when its parent ends. Linux only."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(DIES_WITH_PARENT, how)


@contextlib.contextmanager
def set_timer_slack(seconds: float) -> Iterator[None]:
    """Let this thread's short sleeps take up to `seconds` longer. Linux only.

    MPI_Init waits for the other ranks by polling every 0.1 ms, which would keep two cores busy with 85 ranks.
    """
    if sys.platform != "linux":
        yield
        return
    prctl = ctypes.CDLL(None).prctl
    prctl(TIMER_SLACK, ctypes.c_ulong(int(1e9 * seconds)))
    try:
        yield
    finally:
        prctl(TIMER_SLACK, ctypes.c_ulong(0))  # 0 restores the default


def die_with_parent_argv(how: str, *command: str) -> list[str]:
    """Return a command line that runs another one, which gets a signal (KILL, TERM, ...) when its parent ends."""
    return [sys.executable, "-P", "-m", "workbench.mpi.launch.processes", how, *command]


def ours(pool: str, module: str = RANKS_MODULE) -> list[Any]:
    """Return this user's processes that run a module of the workbench for a pool. `pool`: part of its folder's path."""
    return [p for p, argv in _mine() if module in argv and _names(argv[argv.index(module) :], pool)]


def _mine() -> Iterator[tuple[Any, list[str]]]:
    """Return the user's other processes and their command lines."""
    import psutil

    me = os.getuid()
    for process in psutil.process_iter(["cmdline", "uids"]):
        uids = process.info["uids"]
        if uids is not None and uids.real == me and process.pid != os.getpid():
            yield process, process.info["cmdline"] or []


def _names(argv: list[str], text: str) -> bool:
    return any(text in argument for argument in argv[1:])


def kill_processes(pool: str, daemon: str = "") -> int:
    """End supervisors, MPI daemons and ranks by TERM, then by KILL. Return the number of supervisors and ranks.

    `pool`: part of their folders' paths, not empty. `daemon`: part of the command line of their daemons.
    """
    import psutil

    assert pool
    above = ours(pool, SUPERVISOR_MODULE)
    _signal(above, "terminate")
    _, stubborn = psutil.wait_procs(above, TERM_TIMEOUT_S + 8.0 if above else 0.0)
    ranks = ours(pool)
    _end([*stubborn, *ranks, *(process for rank in ranks for process in _daemon(rank))])
    if daemon:
        end_daemons(daemon)
    return len(above) + len(ranks)


def end_ours(pool: str, module: str) -> None:
    """End the processes that run a module for a pool, see `ours`. `pool` must not be empty."""
    assert pool
    _end(ours(pool, module))


def end_one(pid: int, module: str) -> None:
    """End a process, if it runs the module."""
    _end([process for process, argv in _mine() if process.pid == pid and module in argv])


def end_daemons(daemon: str) -> None:
    """End the MPI processes of one mpiexec, by the name of its job, which must not be empty."""
    assert daemon
    _end([p for p, argv in _mine() if _is_daemon(argv) and _names(argv, daemon)])


def _end(processes: list[Any]) -> None:
    """End processes: TERM, 5 s, KILL."""
    import psutil

    left = list({process.pid: process for process in processes}.values())
    _signal(left, "terminate")
    _, left = psutil.wait_procs(left, TERM_TIMEOUT_S)
    _signal(left, "kill")
    psutil.wait_procs(left, TERM_TIMEOUT_S)


def _is_daemon(argv: list[str]) -> bool:
    return bool(argv) and os.path.basename(argv[0]) in DAEMONS  # noqa: PTH119 - a word, not a file


def _daemon(rank: Any) -> list[Any]:
    """Return MPI's own process above a rank: mpiexec, or its daemon on another host."""
    import psutil

    with contextlib.suppress(psutil.Error):
        return [parent for parent in (rank.parent(),) if parent and _is_daemon(parent.cmdline())]
    return []


def _signal(processes: list[Any], how: str) -> None:
    import psutil

    for process in processes:
        with contextlib.suppress(psutil.Error):
            getattr(process, how)()


if __name__ == "__main__":
    die_with_parent(signal.Signals[f"SIG{sys.argv[1]}"])  # exec keeps this setting
    os.execvp(sys.argv[2], sys.argv[2:])
