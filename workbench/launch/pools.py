"""Warm ranks: processes that serve run after run, so that only the first one has to wait for their start."""

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
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from workbench.errors import ClusterError
from workbench.files import atomic_write
from workbench.launch import mpiexec
from workbench.launch.places import is_alive
from workbench.launch.supervisor import GONE, LOG, PROGRESS, QUIT
from workbench.launch.tasks import Task

READY, TASKS, ARRAYS = "ready.json", "tasks", "task.npz"
KEEP = 900.0  # s without a run after which a pool ends by itself
SECONDS_PER_RANK = 1.5  # generous: at this pace a start is given up
Said = Callable[[str, int, int], None]  # what is going on, how many are done, of how many


def pools_folder() -> Path:
    """Where pools meet their clients: readable by this user only."""
    from platformdirs import user_cache_path

    folder = user_cache_path("straggler-workbench") / "pools"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return folder


@dataclass
class Pool:
    """One mpiexec with its ranks."""

    folder: Path
    ranks: int
    supervisor: subprocess.Popen[bytes]
    tasks: list[Path] = field(default_factory=list)  # handed in

    @property
    def there(self) -> bool:
        """Are its processes there?"""
        return self.supervisor.poll() is None and not (self.folder / GONE).exists()

    @property
    def alive(self) -> bool:
        """Can it take a run?"""
        return self.there and not self.quitting

    @property
    def quitting(self) -> bool:
        """Was it told to end?"""
        return (self.folder / QUIT).exists()

    @property
    def places(self) -> list[tuple[int, str]]:
        """Process and host of each rank."""
        return [(pid, host) for pid, host in json.loads((self.folder / READY).read_text())["places"]]

    def reason(self) -> str | None:
        """Why it ended, if a rank said so."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.supervisor.wait(8.0)
        gone = self.folder / GONE
        return json.loads(gone.read_text()).get("reason") if gone.exists() else None

    def await_ready(self, said: Said | None = None) -> None:
        """Wait until all ranks are up; raises `ClusterError` with the reason if they do not come."""
        until = time.monotonic() + 30.0 + SECONDS_PER_RANK * self.ranks
        while not (self.folder / READY).exists():
            if not self.alive:
                raise ClusterError(self._why_not())
            if time.monotonic() > until:
                self.close()
                raise ClusterError(f"{self.ranks} processes: not up in time; see {self.folder / LOG}")
            if said is not None:
                said("starting processes", self._up(), self.ranks)
            time.sleep(0.02)
        if said is not None:
            said("starting processes", self.ranks, self.ranks)

    def _up(self) -> int:
        try:
            return int((self.folder / PROGRESS).read_text() or 0)
        except (OSError, ValueError):
            return 0

    def _why_not(self) -> str:
        """One sentence: the ranks' own reason, else the last line of the log."""
        reason = self.reason()
        if reason:
            return f"{self.ranks} processes: {reason}; reinstall the environment"
        log = (self.folder / LOG).read_text(errors="replace") if (self.folder / LOG).exists() else ""
        lines = [line.strip() for line in log.splitlines() if line.strip(" -\n")]
        last = lines[0] if lines else "it ended without a word"
        return f"{self.ranks} processes: mpiexec could not start them ({last}); see {self.folder / LOG}"

    def submit(self, task: Task) -> Path:
        """Hand a run in; it begins once those before it are over."""
        with atomic_write(Path(task.folder) / ARRAYS) as out:
            out.write(task.arrays)
        path = self.folder / TASKS / f"{time.time_ns()}-{secrets.token_hex(4)}.json"
        with atomic_write(path, "w") as out:
            out.write(json.dumps(task.words()))
        self.tasks.append(path)
        return path

    def close(self) -> None:
        """End the ranks; nothing is left when this returns."""
        if self.folder.exists():
            (self.folder / QUIT).touch()
        try:
            self.supervisor.wait(8.0)
        except subprocess.TimeoutExpired:
            self.supervisor.terminate()
            self.supervisor.wait(12.0)
        shutil.rmtree(self.folder, ignore_errors=True)


class Pools:
    """The pools of this process, by number of ranks. Safe to use from several threads."""

    def __init__(self) -> None:
        self._pools: list[Pool] = []
        self._lock = threading.Lock()

    def get(self, ranks: int) -> Pool:
        """A pool with as many ranks or some more: a warm one, else a new one (see `Pool.await_ready`)."""
        with self._lock:
            self._pools = [pool for pool in self._pools if pool.alive]
            fit = [pool for pool in self._pools if ranks <= pool.ranks <= 2 * ranks + 16]
            if fit:
                return min(fit, key=lambda pool: pool.ranks)
            self._pools.append(open_pool(ranks))
            return self._pools[-1]

    def close(self) -> None:
        """End all of them."""
        with self._lock:
            for pool in self._pools:
                pool.close()
            self._pools.clear()


def open_pool(ranks: int) -> Pool:
    """Start mpiexec under a supervisor; raises `ClusterError` where there is no room or no mpiexec."""
    mpiexec.check_room(ranks)
    sweep()
    folder = pools_folder() / f"{os.getpid()}-{secrets.token_hex(4)}"
    (folder / TASKS).mkdir(parents=True, mode=0o700)
    command = mpiexec.command(ranks, "workbench.launch.ranks", str(folder))
    settings: dict[str, Any] = {"command": command, "owner": os.getpid(), "keep": KEEP, "ranks": ranks}
    (folder / "pool.json").write_text(json.dumps(settings))
    with (folder / LOG).open("ab") as log:
        supervisor = subprocess.Popen(
            [sys.executable, "-m", "workbench.launch.supervisor", str(folder)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=mpiexec.environment(),
            start_new_session=True,
        )
    return Pool(folder, ranks, supervisor)


def sweep() -> None:
    """Remove the folders of pools that are gone and whose client is gone."""
    for folder in pools_folder().iterdir():
        owner = folder.name.partition("-")[0]
        if (folder / GONE).exists() and owner.isdigit() and not is_alive(int(owner)):
            shutil.rmtree(folder, ignore_errors=True)


POOLS = Pools()
atexit.register(POOLS.close)
