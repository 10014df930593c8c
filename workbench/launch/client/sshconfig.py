"""How ssh is called for a cluster: a configuration file whose first words are strict, then the user's own."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

from workbench.base.files import atomic_write

if TYPE_CHECKING:
    from workbench.clusters.ssh import Ssh

ALIVE = ("5", "4")  # s between ssh's own questions, and how many may be left without an answer


def command(cluster: Ssh, host: str) -> tuple[str, ...]:
    """Command line that runs a command on a host; the command is still to follow."""
    return ("ssh", "-T", "-F", str(config(cluster)), "--", host)


def config(cluster: Ssh) -> Path:
    """The configuration file, written if it is not there; the first value of each setting counts."""
    from platformdirs import user_cache_path

    folder = user_cache_path("straggler-workbench") / "clusters"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    text = words(cluster)
    path = folder / f"ssh-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    if not path.exists():
        with atomic_write(path, "w") as out:
            out.write(text)
    return path


def words(cluster: Ssh) -> str:
    """Its content."""
    settings = {
        "BatchMode": "yes",  # never ask
        "StrictHostKeyChecking": "yes",
        "UpdateHostKeys": "no",
        "ConnectTimeout": str(max(int(cluster.timeout), 1)),
        "ServerAliveInterval": ALIVE[0],
        "ServerAliveCountMax": ALIVE[1],
        "ClearAllForwardings": "yes",
        "ForwardAgent": "no",
        "LogLevel": "ERROR",
        **({"User": cluster.user} if cluster.user else {}),
        **({"Port": str(cluster.port)} if cluster.port else {}),
    }
    if cluster.known_hosts is not None:
        settings |= {"UserKnownHostsFile": quoted(cluster.known_hosts), "GlobalKnownHostsFile": "/dev/null"}
    if cluster.identity is not None:
        settings |= {"IdentityFile": quoted(cluster.identity), "IdentitiesOnly": "yes"}
    lines = [f"{name} {value}\n" for name, value in settings.items()]
    return "".join(lines) + f"Include {quoted(cluster.config or '~/.ssh/config')}\n"


def quoted(path: str) -> str:
    """A path as the configuration takes it."""
    return '"' + path.replace('"', "") + '"' if " " in path else path


def for_mpiexec(cluster: Ssh) -> str:
    """Arguments of the ssh that mpiexec calls.

    It ends a run when that ssh ends, so a host that has become silent is not reported by it: guards do that.
    """
    return f"-T -F {config(cluster)} -o ServerAliveInterval=0 -o TCPKeepAlive=no"
