"""The machine that one works at: one mpiexec, no network."""

from __future__ import annotations

from typing import Any, Literal

from workbench.base.settings import setting
from workbench.clusters.base import Cluster, HostState, Said, Status, quiet
from workbench.launch.client.pools import FolderPool, Holder, Supervised, open_child
from workbench.launch.head import mpiexec
from workbench.launch.hosts.processes import ours, sweep_processes


class Local(Cluster):
    """The machine that one works at. It is always there, under the name `local`."""

    kind: Literal["local"] = setting("local", "this machine")

    def open_here(self, ranks: int, said: Said = quiet) -> FolderPool:
        """One mpiexec on this machine."""
        mpiexec.check_room(ranks)
        return open_child(
            self, ranks, lambda pool: mpiexec.command(ranks, "workbench.launch.rank.main", pool)
        )

    def holder_here(self, words: dict[str, Any]) -> Holder:
        """The supervisor, found by its process."""
        return Supervised(int(words["supervisor"]))

    def status_here(self, said: Said = quiet) -> Status:
        """Cores, free memory, and this user's ranks."""
        import os
        import socket

        import psutil

        free = psutil.virtual_memory().available / 2**30
        return Status((HostState(socket.gethostname(), "up", len(ours(self.mark)), os.cpu_count(), free),))

    def down_here(self, said: Said = quiet) -> None:
        """End this user's ranks on this machine, those of other notebooks, too; not those of other clusters."""
        sweep_processes(self.mark)
