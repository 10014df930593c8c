"""Since when a cluster has been up, and what that came to: a small file of its name in the user's state folder."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path

from workbench.base.files import write_json
from workbench.clusters.base import Cluster
from workbench.launch.reports import Status


def _file(cluster: Cluster) -> Path:
    from platformdirs import user_state_path

    return user_state_path("straggler-workbench") / "up" / f"{cluster.name}.json"


def since(cluster: Cluster) -> float | None:
    """When it went up, s since 1970; None: it is not up."""
    try:
        return float(json.loads(_file(cluster).read_text())["since"])
    except (OSError, ValueError, KeyError):
        return None


def begin(cluster: Cluster) -> None:
    """It is up from now on, if it was not before."""
    if since(cluster) is None:
        _file(cluster).parent.mkdir(parents=True, exist_ok=True)
        write_json(_file(cluster), {"since": time.time()})


def end(cluster: Cluster) -> None:
    """It is down."""
    _file(cluster).unlink(missing_ok=True)


def billed(cluster: Cluster, status: Status) -> Status:
    """A status with host-hours and their cost."""
    if (began := since(cluster)) is None:
        return replace(status, note="is not up: nothing is counted")
    hours = len(status.hosts) * max(time.time() - began, 0.0) / 3600
    return replace(status, hours=hours, cost=None if cluster.price is None else hours * cluster.price)
