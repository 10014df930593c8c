"""Where the ranks are, and which of them are gone without a word (a process that exits is not reported by MPI)."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

LOOK_EVERY = 0.25  # s


@dataclass(frozen=True)
class Place:
    """One rank's process."""

    pid: int
    host: str

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


def here() -> Place:
    """The calling process."""
    return Place(os.getpid(), socket.gethostname())


class Watch:
    """Looks from time to time whether the processes of some ranks are still there.

    Those on this host are looked at; of others `lost` tells, a file that the supervisor keeps (see `guards`).
    """

    def __init__(self, places: dict[int, Place], ranks: Iterable[int], lost: Path | None = None) -> None:
        host, ranks = socket.gethostname(), list(ranks)
        self.pids = {rank: places[rank].pid for rank in ranks if places[rank].host == host}
        self.far = {rank for rank in ranks if places[rank].host != host}
        self.lost = lost if self.far else None
        self.looked = time.monotonic()

    def gone(self) -> list[int]:
        """Ranks that have gone since the last look; each is named once."""
        now = time.monotonic()
        if now - self.looked < LOOK_EVERY:
            return []
        self.looked = now
        found = [rank for rank, pid in self.pids.items() if not is_alive(pid)]
        for rank in found:
            del self.pids[rank]
        return found + self._told()

    def _told(self) -> list[int]:
        if self.lost is None or not self.lost.exists():
            return []
        told = sorted(self.far & set(json.loads(self.lost.read_text())))
        self.far -= set(told)
        return told


def is_alive(pid: int) -> bool:
    """Is there such a process, and is it more than an entry that nobody has collected yet?"""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except OSError:  # gone in this moment, or a system without /proc
        return not Path("/proc/self/stat").exists()
