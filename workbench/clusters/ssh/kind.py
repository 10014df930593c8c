"""Hosts that are reached by ssh: one mpiexec over all of them, started on the head.

The head (the first host, another one, or this machine) has rank 0 and the supervisor. It is reached through one ssh
connection, the others from there, so hosts behind the head need not be reached from here. Host keys are checked
strictly. Nothing has to be shared: the package and the data are brought to each host once, into the user's cache;
where the hosts have a file system in common, `shared` names a folder on it, and they lie there once.
"""

from __future__ import annotations

import contextlib
from typing import Literal

from typing_extensions import override

from workbench.base.errors import ClusterError
from workbench.base.settings import setting
from workbench.clusters.ssh.bills import begin, billed, end, since
from workbench.clusters.ssh.head import Head
from workbench.clusters.ssh.settings import SshSettings
from workbench.launch.reports import Said, Status, quiet
from workbench.launch.site import Site


class Ssh(SshSettings):
    """Hosts that are reached by ssh."""

    kind: Literal["ssh"] = setting("ssh", "hosts that are reached by ssh")

    @override
    def here(self) -> Site:
        return Head(self)

    def up(self, said: Said = quiet) -> None:
        """Check all hosts and bring the package there."""
        opened = since(self) is None
        try:
            super().up(said)
            begin(self)
        except BaseException:
            if opened:
                with contextlib.suppress(ClusterError):
                    self.down(said)
            raise

    @override
    def down(self, said: Said = quiet) -> None:
        super().down(said)
        end(self)

    @override
    def status(self, said: Said = quiet) -> Status:
        found = super().status(said)
        return billed(self, found)
