"""Warm ranks: processes that serve run after run, so that only the first one has to wait for their start.

A pool is a folder (see `workbench.clusters.base`): whoever can read and write it can use the pool.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import secrets
import shutil
import subprocess
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from workbench.base.errors import ClusterError
from workbench.base.files import atomic_write, private_folder
from workbench.launch.head import mpiexec
from workbench.launch.head.supervisor import GONE, LOG, PROGRESS, QUIT, shared
from workbench.launch.hosts.processes import SUPERVISOR, ours
from workbench.launch.rank.watch import here, is_alive
from workbench.launch.task import Task

if TYPE_CHECKING:
    from workbench.clusters.base import Cluster

READY, TASKS, ARRAYS, SETTINGS = "ready.json", "tasks", "task.npz", "pool.json"
KEEP = 900.0  # s without a run after which a pool ends by itself
SECONDS_PER_RANK = 1.5  # generous: at this pace a start is given up
LEAVING = 12.0  # s that a supervisor needs at most to end its ranks
Said = Callable[[str, int, int], None]  # what is going on, how many are done, of how many


def pools_folder() -> Path:
    """Where pools meet their clients: readable by this user only."""
    from platformdirs import user_cache_path

    return private_folder(user_cache_path("straggler-workbench") / "pools")


class Holder(Protocol):
    """The processes that have a run."""

    def look(self) -> None:
        """Bring what is new into the run folder here; nothing to do where the ranks write it themselves."""

    @property
    def there(self) -> bool:
        """Can they still end it?"""

    def reason(self) -> str | None:
        """Why not, as far as that is known."""

    def release(self) -> None:
        """Let go of what it takes to look; the run goes on."""


@dataclass(frozen=True)
class Supervised:
    """Who has a run of which only the supervisor's process is known."""

    pid: int

    def look(self) -> None:
        """The ranks write into the run folder themselves."""

    @property
    def there(self) -> bool:
        """Is the supervisor?"""
        return is_alive(self.pid)

    def reason(self) -> str | None:
        """Unknown."""
        return None

    def release(self) -> None:
        """Nothing is held."""


class Pool(ABC):
    """Ranks that take run after run, as their user sees them; a `Holder` of each run while it is under way."""

    cluster: Cluster
    ranks: int

    @property
    @abstractmethod
    def alive(self) -> bool:
        """Can it take a run?"""

    @property
    @abstractmethod
    def there(self) -> bool:
        """Are its processes there?"""

    @abstractmethod
    def reason(self) -> str | None:
        """Why it ended, if a rank said so."""

    def lost(self) -> list[str]:
        """Hosts that have gone, as far as that is known once the pool has ended."""
        return []

    @property
    @abstractmethod
    def places(self) -> list[tuple[int, str]]:
        """Process and host of each rank."""

    @abstractmethod
    def await_ready(self, said: Said | None = None) -> None:
        """Wait until all ranks are up; raises `ClusterError` with the reason if they do not come."""

    @abstractmethod
    def submit(self, task: Task, said: Said | None = None) -> None:
        """Hand a run in; it begins once those before it are over."""

    @property
    @abstractmethod
    def waiting(self) -> bool:
        """Is the newest run still in the queue, with no rank that has taken it?"""

    @abstractmethod
    def words(self) -> dict[str, Any]:
        """What holder.json says of the newest run: enough for `Cluster.holder` to find it from another process."""

    def look(self) -> None:
        """Bring what is new of the newest run into its folder here; see `Holder`."""
        return

    def release(self) -> None:
        """Let go of what it takes to use it; its ranks end by themselves."""
        return

    def clear(self) -> None:
        """Take away what a pool that has ended by itself has left here."""
        return

    @abstractmethod
    def close(self) -> None:
        """End the ranks; nothing is left when this returns."""


@dataclass
class FolderPool(Pool):
    """A pool whose folder lies on a file system of this machine; how its supervisor runs is the subclass's business."""

    cluster: Cluster
    folder: Path
    ranks: int
    tasks: list[Path] = field(default_factory=list)  # handed in

    @property
    @abstractmethod
    def running(self) -> bool:
        """Is the supervisor there, or still to come (a job in the queue)?"""

    @abstractmethod
    def wait(self, seconds: float) -> bool:
        """Wait until the supervisor has gone, so long at most; says whether it has."""

    @abstractmethod
    def kill(self) -> None:
        """End a supervisor that does not go by itself, and its ranks."""

    @property
    def start_patience(self) -> float:
        """Seconds after which a start is given up; a queue may need more."""
        return 30.0 + SECONDS_PER_RANK * self.ranks

    @property
    def up_note(self) -> str:
        """What it is waiting for while it starts."""
        return "starting processes"

    @property
    def there(self) -> bool:
        """See `Pool.there`."""
        return self.running and not (self.folder / GONE).exists()

    @property
    def alive(self) -> bool:
        """See `Pool.alive`."""
        return self.there and not self.quitting

    @property
    def quitting(self) -> bool:
        """Was it told to end?"""
        return (self.folder / QUIT).exists()

    @property
    def places(self) -> list[tuple[int, str]]:
        """See `Pool.places`."""
        return [(pid, host) for pid, host in json.loads((self.folder / READY).read_text())["places"]]

    def reason(self) -> str | None:
        """See `Pool.reason`."""
        self.wait(8.0)
        gone = self.folder / GONE
        return json.loads(gone.read_text()).get("reason") if gone.exists() else None

    def lost(self) -> list[str]:
        """See `Pool.lost`."""
        gone = self.folder / GONE
        return list(json.loads(gone.read_text()).get("gone", [])) if gone.exists() else []

    def await_ready(self, said: Said | None = None) -> None:
        """See `Pool.await_ready`."""
        until = time.monotonic() + self.start_patience
        while not self.ready:
            if not self.alive:
                raise ClusterError(self.why_not())
            if time.monotonic() > until:
                self.close()
                raise ClusterError(f"{self.ranks} processes: not up in time; see {self.folder / LOG}")
            if said is not None:
                said(self.up_note, self.up, self.ranks)
            time.sleep(0.02)
        if said is not None:
            said(self.up_note, self.ranks, self.ranks)

    @property
    def ready(self) -> bool:
        """Are all ranks up?"""
        return (self.folder / READY).exists()

    @property
    def up(self) -> int:
        """How many are."""
        try:
            return int((self.folder / PROGRESS).read_text() or 0)
        except (OSError, ValueError):
            return 0

    def why_not(self) -> str:
        """Why it did not start, in one sentence: the ranks' own reason, else the last line of the log."""
        reason = self.reason()
        if reason:
            return f"{self.ranks} processes: {reason}; reinstall the environment"
        log = (self.folder / LOG).read_text(errors="replace") if (self.folder / LOG).exists() else ""
        lines = [line.strip() for line in log.splitlines() if line.strip(" -\n")]
        last = lines[0] if lines else "it ended without a word"
        return f"{self.ranks} processes: mpiexec could not start them ({last}); see {self.folder / LOG}"

    def submit(self, task: Task, said: Said | None = None) -> None:
        """See `Pool.submit`."""
        with atomic_write(Path(task.folder) / ARRAYS) as out:
            out.write(task.arrays)
        path = self.folder / TASKS / f"{time.time_ns()}-{secrets.token_hex(4)}.json"
        with atomic_write(path, "w") as out:
            out.write(json.dumps(task.words()))
        self.tasks.append(path)

    @property
    def waiting(self) -> bool:
        """See `Pool.waiting`."""
        return bool(self.tasks) and self.tasks[-1].exists()

    def words(self) -> dict[str, Any]:
        """See `Pool.words`."""
        return {"cluster": self.cluster.model_dump(mode="json"), "pool": str(self.folder)}

    def leave(self) -> None:
        """Whoever used it is gone without closing it; nothing to do for a pool that has an owner, see `make_folder`."""

    def close(self) -> None:
        """See `Pool.close`."""
        if self.folder.exists():
            (self.folder / QUIT).touch()
        if not self.wait(8.0):
            self.kill()
        remove(self.folder)


@dataclass
class ChildPool(FolderPool):
    """A pool whose supervisor is a child of this process."""

    supervisor: subprocess.Popen[bytes] = field(kw_only=True)

    @property
    def running(self) -> bool:
        """See `FolderPool.running`."""
        return self.supervisor.poll() is None

    def wait(self, seconds: float) -> bool:
        """See `FolderPool.wait`."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.supervisor.wait(seconds)
        return not self.running

    def clear(self) -> None:
        """See `Pool.clear`."""
        self.close()

    def kill(self) -> None:
        """See `FolderPool.kill`."""
        self.supervisor.terminate()
        if not self.wait(LEAVING):
            self.supervisor.kill()

    def words(self) -> dict[str, Any]:
        """See `Pool.words`."""
        return {**super().words(), "supervisor": self.supervisor.pid}


def make_folder(
    ranks: int,
    command: Callable[[str], list[str]],
    owner: int | None,
    keep: float = KEEP,
    within: Path | None = None,
    mark: str = "",
    **more: Any,
) -> Path:
    """Folder of a new pool, with all that its supervisor has to know.

    Parameters
    ----------
    ranks
        How many.
    command
        The supervisor's command line for a pool folder: mpiexec and what it starts.
    owner
        Process on rank 0's host with which the pool ends, once the run under way is over; None: `keep` alone counts.
    keep
        Seconds without a run after which it ends.
    within
        Folder for it, on a file system that the ranks see; by default `pools_folder`.
    mark
        End of its name, by which its processes are found (`Cluster.mark`).
    more
        ``environment`` (dict of variables on top of the supervisor's own), ``ways`` (how the other hosts are
        reached) and ``alone`` (there are none); see `workbench.launch.head.supervisor`.
    """
    folder = (within or pools_folder()) / f"{os.getpid()}-{secrets.token_hex(4)}{mark}"
    (folder / TASKS).mkdir(parents=True, mode=0o700)
    settings: dict[str, Any] = {"command": command(str(folder)), "owner": owner, "keep": keep, "ranks": ranks}
    settings["host"] = here().host
    (folder / SETTINGS).write_text(json.dumps({**settings, **more}))
    return folder


def open_child(cluster: Cluster, ranks: int, command: Callable[[str], list[str]], **more: Any) -> ChildPool:
    """Start mpiexec, with all ranks on this machine, under a supervisor; see `make_folder`."""
    sweep()
    folder = make_folder(ranks, command, os.getpid(), mark=cluster.mark, alone=True, **more)
    return ChildPool(cluster, folder, ranks, supervisor=supervised(folder))


def supervised(folder: Path) -> subprocess.Popen[bytes]:
    """Start the supervisor of a pool's folder; it has a session of its own."""
    with (folder / LOG).open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "workbench.launch.head.supervisor", str(folder)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=mpiexec.environment(),
            start_new_session=True,
        )


def sweep() -> None:
    """Remove the folders of pools that are gone and whose client is gone."""
    for folder in pools_folder().iterdir():
        owner = folder.name.partition("-")[0]
        if owner.isdigit() and not is_alive(int(owner)) and _over(folder):
            remove(folder)


def remove(folder: Path) -> None:
    """Take away the folder of a pool that has ended, and what its ranks have left in shared memory."""
    for left in (shared(folder), folder):
        shutil.rmtree(left, ignore_errors=True)


def _over(folder: Path) -> bool:
    """Has a pool ended? Where even its supervisor was killed, that shows in its ranks, on this host at least.

    Before they were up, it shows in the supervisor, which is on this host if the pool is alone on it.
    """
    if (folder / GONE).exists():
        return True
    try:
        if not (folder / READY).exists():
            settings = json.loads((folder / SETTINGS).read_text())
            near = settings["alone"] and settings["host"] == here().host
            return near and not ours(folder.name, SUPERVISOR)
        places = json.loads((folder / READY).read_text())["places"]
    except (OSError, ValueError, KeyError):
        return False
    return all(host == here().host and not is_alive(pid) for pid, host in places)


class Pools:
    """The pools of this process, by cluster and number of ranks. Safe to use from several threads."""

    def __init__(self) -> None:
        self._pools: list[tuple[Cluster, Pool]] = []  # with the cluster that was asked for
        self._over: list[Pool] = []  # those that have ended; somebody may still ask why
        self._lock = threading.Lock()

    def get(self, ranks: int, cluster: Cluster | None = None, said: Said | None = None) -> Pool:
        """A pool with as many ranks or some more: a warm one, else a new one (see `Pool.await_ready`).

        Raises `ClusterError` where there is no room, no mpiexec, or something wrong with a host.
        """
        from workbench import clusters

        where = cluster or clusters.load(clusters.LOCAL)
        with self._lock:
            self._forget_dead()
            fit = [pool for of, pool in self._pools if of == where and where.fits(ranks, pool.ranks)]
            if fit:
                return min(fit, key=lambda pool: pool.ranks)
            if where.alone:
                self._close([entry for entry in self._pools if entry[0].name == where.name])
            pool = where.open_pool(ranks, *([said] if said else []))
            self._pools.append((where, pool))
            return pool

    def _forget_dead(self) -> None:
        for entry in list(self._pools):
            if not entry[1].alive:
                self._pools.remove(entry)
                entry[1].release()
                self._over.append(entry[1])

    def close(self) -> None:
        """End all of them."""
        with self._lock:
            self._close(list(self._pools))
            while self._over:
                self._over.pop().clear()

    def _close(self, entries: list[tuple[Cluster, Pool]]) -> None:
        for entry in entries:
            self._pools.remove(entry)
            entry[1].close()


POOLS = Pools()
atexit.register(POOLS.close)
