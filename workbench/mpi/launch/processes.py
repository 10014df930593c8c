"""Processes of ours on a host: which they are, whether they live, and how they end whatever became of their pool.

Ranks and supervisors are told by their command line, which names a module of this package and the folder of a pool,
daemons by the name that mpiexec gives to its job. Only processes of this user are looked at.

`python -P -m workbench.mpi.launch.processes KILL mpiexec ...` is a command that ends with whoever started it.
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
DAEMONS = ("prted", "prterun", "mpiexec", "ssh")  # the last holds the connection to a daemon on another host
TERM_TIMEOUT_S = 5.0  # s between TERM and KILL
DIES_WITH_PARENT, TIMER_SLACK = 1, 29  # PR_SET_PDEATHSIG, PR_SET_TIMERSLACK


class ProcessId(NamedTuple):
    """One rank's process."""

    pid: int
    host: str

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


def this_process() -> ProcessId:
    """The calling process."""
    return ProcessId(os.getpid(), socket.gethostname())


def exists(pid: int) -> bool:
    """Is there such a process, be it only an entry that nobody has collected yet? Asking takes 1.5 us."""
    try:
        if pid <= 0:  # those would be whole groups
            return False
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass
    return True


def is_alive(pid: int) -> bool:
    """Is there such a process, and is it more than an entry that nobody has collected yet? Asking takes 80 us."""
    if not exists(pid):
        return False
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except OSError:  # gone in this moment, or a system without /proc, or one that hides processes there
        return exists(pid)


def awaited(done: Callable[[], object], seconds: float, every: float = 0.02) -> bool:
    """Look again and again whether something is so, for so many seconds at most; says whether it came to be.

    >>> awaited(lambda: True, 1.0), awaited(lambda: False, 0.0)
    (True, False)
    """
    until = time.monotonic() + seconds
    while not (found := done()) and time.monotonic() < until:
        time.sleep(every)
    return bool(found)


def die_with_parent(how: signal.Signals = signal.SIGKILL) -> None:
    """Have this process get a signal when the one that started it ends; on systems other than Linux, nothing."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(DIES_WITH_PARENT, how)


@contextlib.contextmanager
def set_timer_slack(seconds: float) -> Iterator[None]:
    """Let this thread's short sleeps last up to so long; on systems other than Linux, nothing.

    MPI_Init waits for the others by looking every 0.1 ms: 85 ranks on two cores do nothing else.
    """
    if sys.platform != "linux":
        yield
        return
    prctl = ctypes.CDLL(None).prctl
    prctl(TIMER_SLACK, ctypes.c_ulong(int(1e9 * seconds)))
    try:
        yield
    finally:
        prctl(TIMER_SLACK, ctypes.c_ulong(0))  # as ever


def die_with_parent_argv(how: str, *command: str) -> list[str]:
    """Command line that runs another, which gets the signal KILL, TERM or the like when whoever starts it ends."""
    return [sys.executable, "-P", "-m", "workbench.mpi.launch.processes", how, *command]


def ours(pool: str, module: str = RANKS_MODULE) -> list[Any]:
    """Processes of this user that run a module of ours for a pool whose folder's path holds `pool`."""
    return [p for p, argv in _mine() if module in argv and _names(argv[argv.index(module) :], pool)]


def _mine() -> Iterator[tuple[Any, list[str]]]:
    """The user's other processes and their command lines."""
    import psutil

    me = os.getuid()
    for process in psutil.process_iter(["cmdline", "uids"]):
        uids = process.info["uids"]
        if uids is not None and uids.real == me and process.pid != os.getpid():
            yield process, process.info["cmdline"] or []


def _names(argv: list[str], text: str) -> bool:
    return any(text in argument for argument in argv[1:])


def kill_processes(pool: str, daemon: str = "") -> int:
    """End supervisors, daemons of MPI and ranks: TERM, 5 s, KILL; returns how many supervisors and ranks there were.

    `pool`: of those whose folder's path holds it, not empty; `daemon`: part of the command line of its daemons.
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
    """End the processes that run a module for a pool, see `ours`; `pool` must not be empty."""
    assert pool
    _end(ours(pool, module))


def end_one(pid: int, module: str) -> None:
    """End this process if it runs that module."""
    _end([process for process, argv in _mine() if process.pid == pid and module in argv])


def end_daemons(daemon: str) -> None:
    """End MPI's processes of one mpiexec, by the name of its job (which must not be empty)."""
    assert daemon
    _end([p for p, argv in _mine() if _is_daemon(argv) and _names(argv, daemon)])


def _end(processes: list[Any]) -> None:
    """TERM, 5 s, KILL."""
    import psutil

    left = list({process.pid: process for process in processes}.values())
    _signal(left, "terminate")
    _, left = psutil.wait_procs(left, TERM_TIMEOUT_S)
    _signal(left, "kill")
    psutil.wait_procs(left, TERM_TIMEOUT_S)


def _is_daemon(argv: list[str]) -> bool:
    return bool(argv) and os.path.basename(argv[0]) in DAEMONS  # noqa: PTH119 - a word, not a file


def _daemon(rank: Any) -> list[Any]:
    """MPI's own process above a rank: mpiexec, or what it started on another host."""
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
    die_with_parent(signal.Signals[f"SIG{sys.argv[1]}"])  # the tie outlasts what follows
    os.execvp(sys.argv[2], sys.argv[2:])
