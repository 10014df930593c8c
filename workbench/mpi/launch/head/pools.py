"""Pools on the machine that starts their ranks: their folders, and their supervisors."""

import contextlib
import os
import secrets
import shutil
import subprocess
import sys
import time
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from typing_extensions import override

from workbench.core.base.errors import ClusterError
from workbench.core.base.files import made_cache_folder
from workbench.mpi.launch import mpiexec
from workbench.mpi.launch.poolfolder import PoolFolder, left_in_memory, segments_left, shared
from workbench.mpi.launch.processes import (
    SUPERVISOR_MODULE,
    ProcessId,
    awaited,
    is_alive,
    kill_processes,
    ours,
    this_process,
)
from workbench.mpi.launch.reports import ProgressCallback, no_progress
from workbench.mpi.launch.site import Pool, RunOwner
from workbench.mpi.launch.task import Task

Command = Callable[[str], list[str]]  # folder of a pool -> command line
IDLE_TIMEOUT_S = 900.0  # s without a run after which a pool ends by itself
SECONDS_PER_RANK = 1.5  # a start fails after this many s per rank of the pool without a new rank
CLOSE_TIMEOUT_S = 12.0  # max s that a supervisor needs to end its ranks


def pools_folder() -> Path:
    """Return the folder of the pools' folders, which only this user can read."""
    return made_cache_folder("pools")


@dataclass(frozen=True)
class DetachedRun(RunOwner):
    """Owner of a run of which only the supervisor's process is known, from owner.json."""

    supervisor: int  # process id

    @property
    @override
    def is_alive(self) -> bool:
        return is_alive(self.supervisor)


@dataclass
class FolderPool(Pool, RunOwner):
    """Pool whose folder is on a file system of this machine. Subclasses define how its supervisor runs.

    `cluster`: settings of the cluster, for owner.json. `tasks`: files of the submitted runs.
    """

    cluster: dict[str, Any]
    folder: Path
    ranks: int
    tasks: list[Path] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.files = PoolFolder(self.folder)

    @property
    @abstractmethod
    def running(self) -> bool:
        """Whether the supervisor runs, or will run because its job is in a queue."""

    @abstractmethod
    def wait(self, seconds: float) -> bool:
        """Wait up to `seconds` for the supervisor's end. Return whether it has ended."""

    @abstractmethod
    def kill(self) -> None:
        """End a supervisor that does not end by itself, and its ranks."""

    @property
    def start_patience(self) -> float:
        """Seconds without a new rank after which a start fails. Kinds with a queue wait longer."""
        return 60.0 + SECONDS_PER_RANK * self.ranks

    @property
    def up_note(self) -> str:
        """Text that describes what the start waits for."""
        return "starting processes"

    @property
    @override
    def is_alive(self) -> bool:
        return self.running and self.files.gone() is None

    @property
    @override
    def alive(self) -> bool:
        return self.is_alive and not self.files.quitting

    @property
    @override
    def places(self) -> list[ProcessId]:
        return self.files.places()

    @override
    def reason(self) -> str | None:
        self.wait(8.0)
        return (self.files.gone() or {}).get("reason")

    @override
    def lost(self) -> list[str]:
        return list((self.files.gone() or {}).get("gone", []))

    @override
    def await_ready(self, progress: ProgressCallback = no_progress) -> None:
        up, until = -1, 0.0
        while not self.files.ready:
            if not self.alive:
                raise ClusterError(self.why_not())
            if self.files.up > up:  # the deadline moves as long as further ranks come up
                up, until = self.files.up, time.monotonic() + self.start_patience
            if time.monotonic() > until:
                see = self.files.kept_log()
                self.close()
                raise ClusterError(f"{self.ranks} processes: not up in time{see}")
            if up < self.ranks:
                progress(self.up_note, up, self.ranks)
            else:
                progress("connecting processes", 0, 0)
            time.sleep(0.02)
        progress(self.up_note, self.ranks, self.ranks)

    def why_not(self) -> str:
        """Return why the pool did not start, in one sentence: the ranks' own reason, or the first line of the log."""
        if reason := self.reason():
            return f"{self.ranks} processes: {reason}; reinstall the environment"
        why = next(iter(self.files.logged()), "it ended without a message")
        return f"{self.ranks} processes: mpiexec could not start them ({why}){self.files.kept_log()}"

    @override
    def submit(self, task: Task, progress: ProgressCallback = no_progress) -> RunOwner:
        self.tasks.append(self.files.hand_in(task.as_dict(), task.arrays))
        return self

    @property
    @override
    def waiting(self) -> bool:
        return bool(self.tasks) and self.tasks[-1].exists()

    @override
    def as_dict(self) -> dict[str, Any]:
        return {"cluster": self.cluster, "pool": str(self.folder)}

    def leave(self) -> None:
        """Leave the pool without closing it. A pool with an owner needs nothing, see `make_folder`."""

    @override
    def close(self) -> None:
        asked = False
        with contextlib.suppress(OSError):  # if no file can be written, the pool is killed
            if self.folder.exists():
                self.files.quit()
                asked = True
        if not self.wait(8.0 if asked else 0.0):
            self.kill()
        self.files.remove()


@dataclass
class ChildPool(FolderPool):
    """Pool whose supervisor is a child of this process."""

    supervisor: subprocess.Popen[bytes] = field(kw_only=True)

    @property
    @override
    def running(self) -> bool:
        return self.supervisor.poll() is None

    @override
    def wait(self, seconds: float) -> bool:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.supervisor.wait(seconds)
        return not self.running

    @override
    def clear(self) -> None:
        self.close()

    @override
    def kill(self) -> None:
        self.supervisor.terminate()
        if not self.wait(CLOSE_TIMEOUT_S):
            self.supervisor.kill()

    @override
    def as_dict(self) -> dict[str, Any]:
        return {**super().as_dict(), "supervisor": self.supervisor.pid}


@dataclass
class AttachedPool(FolderPool):
    """Pool whose supervisor was started by another process here. `ranks` is 0, since it is unknown."""

    supervisor: int = field(kw_only=True)  # process id

    @classmethod
    def of(cls, fields: dict[str, Any]) -> Self:
        """Return the pool of an `as_dict`."""
        return cls(fields["cluster"], Path(fields["pool"]), 0, supervisor=int(fields["supervisor"]))

    @property
    @override
    def running(self) -> bool:
        return is_alive(self.supervisor)

    @override
    def wait(self, seconds: float) -> bool:
        return awaited(lambda: not self.running, seconds)

    @override
    def kill(self) -> None:
        kill_processes(self.folder.name)


def make_folder(
    ranks: int, command: Command, owner: int | None, within: Path | None = None, mark: str = "", **more: Any
) -> Path:
    """Create the folder of a new pool, with the settings of its supervisor. Return its path.

    Parameters
    ----------
    ranks
        Number of ranks.
    command
        Function from the path of the pool's folder to the command line of mpiexec.
    owner
        Process on rank 0's host. When it ends, the pool ends after its current run. None: only ``keep`` counts.
    within
        Parent folder, on a file system that the ranks see. By default `pools_folder`.
    mark
        Suffix of the folder's name, which identifies the pool's processes (`Cluster.mark`).
    more
        Further settings of `workbench.mpi.launch.head.supervisor`: ``keep`` (s without a run after which the pool
        ends), ``environment`` (more variables), ``ways`` (connections to other hosts) and ``alone`` (no other hosts).
    """
    folder = (within or pools_folder()) / f"{os.getpid()}-{secrets.token_hex(4)}{mark}"
    known = {"owner": owner, "keep": IDLE_TIMEOUT_S, "ranks": ranks, "host": this_process().host}
    PoolFolder(folder).make(known | {"command": command(str(folder))} | more)
    return folder


def supervised(folder: Path) -> subprocess.Popen[bytes]:
    """Start the supervisor of a pool's folder, in a new session."""
    command, environment = [sys.executable, "-P", "-m", SUPERVISOR_MODULE, str(folder)], mpiexec.environment()
    with PoolFolder(folder).log.open("ab") as log:
        streams: Any = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log}
        return subprocess.Popen(command, **streams, env=environment, start_new_session=True)


def remove_stale() -> None:
    """Remove the folders and the shared memory of pools that have ended and whose client has ended."""
    for folder in pools_folder().iterdir():
        owner = folder.name.partition("-")[0]
        if owner.isdigit() and not is_alive(int(owner)) and _over(PoolFolder(folder)):
            PoolFolder(folder).remove()
    for left in left_in_memory():  # pools whose folders are removed already, or elsewhere
        owner = left.partition("-")[0]
        if owner.isdigit() and not is_alive(int(owner)) and not (ours(left) or ours(left, SUPERVISOR_MODULE)):
            shutil.rmtree(shared(Path(left)), ignore_errors=True)
    with contextlib.suppress(OSError):  # another client removes them at the same time
        for file in segments_left():
            file.unlink()


def _over(pool: PoolFolder) -> bool:
    """Return whether a pool has ended.

    A killed supervisor cannot write that. The pool then has ended if all its ranks were on this host and are dead.
    Before the ranks are up, it has ended if it is alone on this host and its supervisor is dead.
    """
    try:
        if pool.gone() is not None:
            return True
        if not pool.ready:
            settings = pool.settings()
            near = settings["alone"] and settings["host"] == this_process().host
            return near and not ours(pool.path.name, SUPERVISOR_MODULE)
        places = pool.places()
    except (OSError, ValueError, KeyError):
        return False
    return all(place.host == this_process().host and not is_alive(place.pid) for place in places)
