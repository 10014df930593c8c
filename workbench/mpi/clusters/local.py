"""Cluster of kind `local`: this machine, with one mpiexec and no network."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from typing_extensions import override

from workbench.mpi.clusters.base import Cluster
from workbench.mpi.launch import mpiexec
from workbench.mpi.launch.head.pools import ChildPool, DetachedRun, make_folder, remove_stale, supervised
from workbench.mpi.launch.hosts.host import Host
from workbench.mpi.launch.processes import kill_processes, ours
from workbench.mpi.launch.reports import Finding, HostState, Outputs, ProgressCallback, Status, no_progress
from workbench.mpi.launch.site import Site


@dataclass(frozen=True)
class ThisMachine(Site):
    """Site on this machine: one mpiexec with all ranks."""

    cluster: Local

    @override
    def open(self, ranks: int, progress: ProgressCallback = no_progress) -> ChildPool:
        mpiexec.check_room(ranks)
        remove_stale()
        mark, owner = self.cluster.mark, os.getpid()
        folder = make_folder(ranks, lambda p: mpiexec.command(ranks, p), owner, mark=mark, alone=True)
        settings = self.cluster.model_dump(mode="json")
        return ChildPool(settings, folder, ranks, supervisor=supervised(folder))

    @override
    def owner(self, fields: dict[str, Any], home: Path) -> DetachedRun:
        return DetachedRun(int(fields["supervisor"]))

    def check(self, progress: ProgressCallback = no_progress) -> list[Finding]:
        """Return no findings: this machine needs no preparation."""
        return []

    def status(self, progress: ProgressCallback = no_progress) -> Status:
        """Return cores, free memory, and the number of this user's ranks."""
        free = psutil.virtual_memory().available / 2**30
        found = ours(self.cluster.mark)
        above = set()  # processes that have forked ranks and are not ranks themselves
        for process in found:
            with contextlib.suppress(psutil.Error):  # the process has ended
                above.add(process.ppid())
        ranks = len({process.pid for process in found} - above)
        return Status((HostState(socket.gethostname(), "up", ranks, os.cpu_count(), free),))

    def down(self, progress: ProgressCallback = no_progress) -> None:
        """End this user's ranks on this machine, also those of other notebooks, but not those of other clusters."""
        kill_processes(self.cluster.mark)

    @override
    def run(self, command: Sequence[str], progress: ProgressCallback = no_progress) -> Outputs:
        answer = Host().do_run(b"", list(command))
        return {socket.gethostname(): (answer["code"], answer["output"])}


class Local(Cluster):
    """Cluster of this machine alone. It always exists, under the name `local`."""

    kind = "local"

    @override
    def here(self) -> Site:
        return ThisMachine(self)
