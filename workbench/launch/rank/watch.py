"""Which ranks are gone without a word (a process that exits is not reported by MPI)."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterable

from workbench.launch.poolfolder import PoolFolder
from workbench.launch.processes import Place, exists, is_alive

LOOK_EVERY = 0.25  # s
CLOSELY = 4  # every so many looks; between them it is enough that there is a process of that number


class Watch:
    """Looks from time to time whether the processes of some ranks are still there.

    Those on this host are looked at; of others the pool's folder tells, where there is one.
    """

    def __init__(
        self, places: dict[int, Place], ranks: Iterable[int], pool: PoolFolder | None = None
    ) -> None:
        host, ranks = socket.gethostname(), list(ranks)
        self.pids = {rank: places[rank].pid for rank in ranks if places[rank].host == host}
        self.far = {rank for rank in ranks if places[rank].host != host}
        self.pool = pool if self.far else None
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
        told = sorted(self.far.intersection(self.pool.lost())) if self.pool is not None else []
        self.far -= set(told)
        return found + told
