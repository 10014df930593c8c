"""The supervisor's eyes and hands on the other hosts of a pool: one connection to each, for as long as the pool lives.

Through it the supervisor learns of ranks that are gone without a word, and of hosts that are: MPI tells of neither.
Rank 0 finds both in the pool's folder. At the end the other side ends what is left of the pool on its host, as it also
does when nobody has spoken to it for a while.
"""

import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from workbench.base.errors import ClusterError
from workbench.launch.gateway import HOST, Gateway
from workbench.launch.poolfolder import PoolFolder

LOOK_EVERY = 0.5  # s
TRIES = 2  # a connection that breaks may come back once
LEAVING = 25.0  # s that all guards together have at the end


@dataclass
class Guards:
    """All of a pool's guards. `way`: as `ways` in pool.json has them; `daemon`: what MPI's daemons are told by."""

    pool: PoolFolder
    ways: list[dict[str, Any]]
    daemon: str
    ending: threading.Event = field(default_factory=threading.Event)
    lost: set[int] = field(default_factory=set)  # ranks
    gone: list[str] = field(default_factory=list)  # hosts

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._guard, args=(way,), daemon=True) for way in self.ways]
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Have all hosts cleared."""
        self.ending.set()
        until = time.monotonic() + LEAVING
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))

    def _guard(self, way: dict[str, Any]) -> None:
        gateway, cache = Gateway.of(way["gateway"]), way["cache"]
        ours: dict[str, Any] = {"pool": self.pool.path.name, "daemon": self.daemon}
        name = None
        for _ in range(TRIES):
            try:
                with gateway.connect(HOST, **ours, cache=cache) as link:
                    name = link.ask("name")[0]["name"]
                    while not self.ending.wait(LOOK_EVERY):
                        ranks = self._places(name)
                        asked = [pid for pid, rank in ranks.items() if rank not in self.lost]
                        self._report(ranks[pid] for pid in link.ask("look", pids=asked)[0]["gone"])
                    link.ask("sweep", **ours)
                    return
            except ClusterError:
                continue  # perhaps only the connection
        self.gone.append(gateway.host)
        self._report(self._places(name).values())

    def _places(self, host: str | None) -> dict[int, int]:
        """Rank by process on a host; empty before all are up."""
        try:
            return {place.pid: rank for rank, place in enumerate(self.pool.places()) if place.host == host}
        except OSError:
            return {}

    def _report(self, ranks: Iterable[int]) -> None:
        with self._lock:
            if self.lost.issuperset(ranks := list(ranks)):
                return
            self.lost.update(ranks)
            self.pool.lose(self.lost)
