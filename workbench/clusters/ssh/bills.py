"""Since when a cluster has been up, and what that came to: a small file in the user's state folder."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, replace
from pathlib import Path

from workbench.base.files import atomic_write
from workbench.clusters.base import Cluster
from workbench.launch.reports import Status


@dataclass(frozen=True)
class Bill:
    """Of one cluster."""

    path: Path
    price: float | None  # $ an hour and host

    @property
    def since(self) -> float | None:
        """When it went up, s since 1970; None: it is not up."""
        try:
            return float(json.loads(self.path.read_text())["since"])
        except (OSError, ValueError, KeyError):
            return None

    def begin(self) -> None:
        """It is up from now on, if it was not before."""
        if self.since is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with atomic_write(self.path, "w") as out:
                out.write(json.dumps({"since": time.time()}))

    def end(self) -> None:
        """It is down."""
        self.path.unlink(missing_ok=True)

    def added(self, status: Status, hosts: int) -> Status:
        """A status with host-hours and their cost."""
        if (since := self.since) is None:
            return replace(status, note="is not up: nothing is counted")
        hours = hosts * max(time.time() - since, 0.0) / 3600
        return replace(status, hours=hours, cost=None if self.price is None else hours * self.price)


def bill(cluster: Cluster) -> Bill:
    """The bill of a cluster, by its name."""
    from platformdirs import user_state_path

    return Bill(user_state_path("straggler-workbench") / "up" / f"{cluster.name}.json", cluster.price)
