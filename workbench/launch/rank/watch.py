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
CLOSELY = 4  # every so many looks; between them it is enough that there is a process of that number


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
        self.looks = 0

    def gone(self) -> list[int]:
        """Ranks that have gone since the last look; each is named once."""
        now = time.monotonic()
        if now - self.looked < LOOK_EVERY:
            return []
        self.looked = now
        self.looks += 1
        there = is_alive if self.looks % CLOSELY == 0 else exists
        found = [rank for rank, pid in self.pids.items() if not there(pid)]
        for rank in found:
            del self.pids[rank]
        return found + self._told()

    def _told(self) -> list[int]:
        if self.lost is None or not self.lost.exists():
            return []
        told = sorted(self.far & set(json.loads(self.lost.read_text())))
        self.far -= set(told)
        return told


def exists(pid: int) -> bool:
    """Is there such a process, be it only an entry that nobody has collected yet? Asking takes 1.5 us."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
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
