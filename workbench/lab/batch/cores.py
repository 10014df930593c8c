"""Cores of a run: those that it shares with no other run of this user on this host.

A core is taken by a lock on a file, which the system releases when the process ends. Processes that a run starts, such
as its ranks, inherit its cores.
"""

from __future__ import annotations

import os
import platform
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from workbench.core.base.files import private_folder
from workbench.core.base.locks import Lock
from workbench.core.base.settings import SettingError


class OwnCores:
    """Cores that this process has taken. `cores`: their numbers."""

    def __init__(self, cores: list[int], locks: list[Lock]) -> None:
        self.cores, self._locks = cores, locks

    def bind(self, pid: int) -> None:
        """Restrict a process, with its threads, to these cores."""
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with suppress(ProcessLookupError):
                os.sched_setaffinity(int(thread.name), self.cores)

    def release(self) -> None:
        """Let other runs have the cores."""
        for lock in self._locks:
            lock.release()


def take(count: int, given_up: Callable[[], bool] = lambda: False) -> OwnCores | None:
    """Wait for cores that no run has, and take them. Return None once `given_up` returns True.

    Raises `SettingError` if this process may use fewer than `count` cores.
    """
    usable = check(count)
    folder = private_folder(Path(tempfile.gettempdir()) / f"workbench-cores-{os.getuid()}")
    while not given_up():  # `Lock.take` waits some tenths of a second for a lock that is held
        for first in range(0, len(usable) - count + 1, count):
            cores = usable[first : first + count]
            if (locks := _locks([folder / str(core) for core in cores])) is not None:
                return OwnCores(cores, locks)
    return None


def check(count: int) -> list[int]:
    """Return the cores that this process may use. Raises `SettingError` if they are fewer than `count`."""
    if not hasattr(os, "sched_getaffinity"):
        raise SettingError(f"cores = {count}: needs Linux; leave it out")
    usable = sorted(os.sched_getaffinity(0))
    if count > len(usable):
        raise SettingError(
            f"cores = {count}: runs may use {len(usable)} on {platform.node()}; take at most {len(usable)}"
        )
    return usable


def _locks(paths: list[Path]) -> list[Lock] | None:
    """Take all of these locks, or none."""
    taken: list[Lock] = []
    for lock in map(Lock, paths):
        if not lock.take():
            OwnCores([], taken).release()
            return None
        taken.append(lock)
    return taken
