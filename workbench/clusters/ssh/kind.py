"""Hosts that are reached by ssh: one mpiexec over all of them, started on the head.

The head (the first host, another one, or this machine) has rank 0 and the supervisor. It is reached through one ssh
connection, the others from there, so hosts behind the head need not be reached from here. Host keys are checked
strictly. Nothing has to be shared: the package and the data are brought to each host once, into the user's cache;
where the hosts have a file system in common, `shared` names a folder on it, and they lie there once.
"""

import contextlib
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Literal

from platformdirs import user_state_path
from typing_extensions import override

from workbench.base.errors import ClusterError
from workbench.base.files import write_json
from workbench.base.settings import setting
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
        opened = self._since is None
        try:
            super().up(said)
            if opened:
                self._noted.parent.mkdir(parents=True, exist_ok=True)
                write_json(self._noted, {"since": time.time()})
        except BaseException:
            if opened:
                with contextlib.suppress(ClusterError):
                    self.down(said)
            raise

    @override
    def down(self, said: Said = quiet) -> None:
        super().down(said)
        self._noted.unlink(missing_ok=True)

    @override
    def status(self, said: Said = quiet) -> Status:
        found = super().status(said)
        if (since := self._since) is None:
            return replace(found, note="is not up: nothing is counted")
        hours = len(found.hosts) * max(time.time() - since, 0.0) / 3600
        return replace(found, hours=hours, cost=None if self.price is None else hours * self.price)

    @property
    def _noted(self) -> Path:
        """A small file of the cluster's name, which says since when it has been up."""
        return user_state_path("straggler-workbench") / "up" / f"{self.name}.json"

    @property
    def _since(self) -> float | None:
        """When it went up, s since 1970; None: it is not up."""
        try:
            return float(json.loads(self._noted.read_text())["since"])
        except (OSError, ValueError, KeyError):
            return None
