"""The supervisor's eyes and hands on the other hosts of a pool: one connection to each, for as long as the pool lives.

Through it the supervisor learns of ranks that are gone without a word, and of hosts that are: MPI tells of neither.
Rank 0 finds both in ``lost.json``. At the end the other side ends what is left of the pool on its host, as it also does
when nobody has spoken to it for a while.
"""

from __future__ import annotations

import json
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from workbench.base.errors import ClusterError
from workbench.base.files import atomic_write
from workbench.launch.client.gateway import Connection, Gateway
from workbench.launch.client.package import Package

LOOK_EVERY = 0.5  # s
TRIES = 2  # a connection that breaks may come back once
LEAVING = 25.0  # s that all guards together have at the end
READY, LOST = "ready.json", "lost.json"


@dataclass
class Guards:
    """All of a pool's guards. `way`: as `ways` in pool.json has them; `daemon`: what MPI's daemons are told by."""

    folder: Path
    ways: list[dict[str, Any]]
    daemon: str
    ending: threading.Event = field(default_factory=threading.Event)
    lost: dict[int, str] = field(default_factory=dict)  # rank -> why
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
        gateway = Gateway(
            way["host"], tuple(way["command"]), way["python"], Package(way["key"]), way["patience"]
        )
        name: str | None = None
        for _ in range(TRIES):
            try:
                with gateway.connect(
                    "workbench.launch.hosts.host",
                    pool=self.folder.name,
                    daemon=self.daemon,
                    cache=way["cache"],
                ) as link:
                    name = link.ask("name")[0]["name"]
                    self._look(link, name)
                    link.ask("sweep", pool=self.folder.name, daemon=self.daemon)
                    return
            except ClusterError:
                continue  # perhaps only the connection
        self.gone.append(way["host"])
        self._report({rank: f"{way['host']} is gone" for rank, (_, host) in self._places() if host == name})

    def _look(self, link: Connection, name: str) -> None:
        """Until the end."""
        while not self.ending.wait(LOOK_EVERY):
            pids = {pid: rank for rank, (pid, host) in self._places() if host == name}
            gone = link.ask("look", pids=[pid for pid, rank in pids.items() if rank not in self.lost])[0][
                "gone"
            ]
            self._report({pids[pid]: f"process {pid} on {name} is gone" for pid in gone})

    def _places(self) -> list[tuple[int, tuple[int, str]]]:
        """Rank, process and host; empty before all are up."""
        try:
            return list(enumerate(json.loads((self.folder / READY).read_text())["places"]))
        except OSError:
            return []

    def _report(self, ranks: dict[int, str]) -> None:
        with self._lock:
            if ranks.keys() <= self.lost.keys():
                return
            self.lost.update(ranks)
            with atomic_write(self.folder / LOST, "w") as out:
                out.write(json.dumps(sorted(self.lost)))
