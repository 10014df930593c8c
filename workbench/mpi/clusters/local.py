"""The machine that one works at: one mpiexec, no network."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import psutil
from typing_extensions import override

from workbench.core.base.settings import setting
from workbench.mpi.clusters.base import Cluster
from workbench.mpi.launch import mpiexec
from workbench.mpi.launch.head.pools import ChildPool, Supervised, make_folder, supervised, sweep
from workbench.mpi.launch.hosts.host import Host
from workbench.mpi.launch.processes import ours, sweep_processes
from workbench.mpi.launch.reports import Finding, HostState, Outputs, Said, Status, quiet
from workbench.mpi.launch.site import Site


@dataclass(frozen=True)
class ThisMachine(Site):
    """One mpiexec on this machine, with all ranks."""

    cluster: Local

    @override
    def open(self, ranks: int, said: Said = quiet) -> ChildPool:
        mpiexec.check_room(ranks)
        sweep()
        mark, owner = self.cluster.mark, os.getpid()
        folder = make_folder(ranks, lambda p: mpiexec.command(ranks, p), owner, mark=mark, alone=True)
        settings = self.cluster.model_dump(mode="json")
        return ChildPool(settings, folder, ranks, supervisor=supervised(folder))

    @override
    def holder(self, words: dict[str, Any], home: Path) -> Supervised:
        return Supervised(words)

    def check(self, said: Said = quiet) -> list[Finding]:
        """Nothing can be."""
        return []

    def status(self, said: Said = quiet) -> Status:
        """Cores, free memory, and this user's ranks."""
        free = psutil.virtual_memory().available / 2**30
        found = ours(self.cluster.mark)
        above = set()  # those who have forked them
        for process in found:
            with contextlib.suppress(psutil.Error):  # it has ended
                above.add(process.ppid())
        ranks = len({process.pid for process in found} - above)
        return Status((HostState(socket.gethostname(), "up", ranks, os.cpu_count(), free),))

    def down(self, said: Said = quiet) -> None:
        """End this user's ranks on this machine, those of other notebooks, too; not those of other clusters."""
        sweep_processes(self.cluster.mark)

    @override
    def run(self, command: Sequence[str], said: Said = quiet) -> Outputs:
        answer = Host().do_run(b"", list(command))
        return {socket.gethostname(): (answer["code"], answer["output"])}


class Local(Cluster):
    """The machine that one works at. It is always there, under the name `local`."""

    kind: Literal["local"] = setting("local", "this machine")

    @override
    def here(self) -> Site:
        return ThisMachine(self)
