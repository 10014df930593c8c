"""Base class of all kinds of clusters, and how to add a kind.

A cluster is the content of a small YAML file: frozen settings, and a way to get ranks. A new kind is one file in this
package (or one folder) with a subclass of `Cluster` that has a `kind`. It is then found by `load`, on the command line,
in the notebooks and in the explorer.

Every kind reaches its ranks in the same way:

* A *pool* is a folder on the machine that starts the ranks (`workbench.mpi.launch.poolfolder`), with one supervisor
  above one mpiexec. Only files connect a pool with its user. A supervisor may therefore be a child process
  (`workbench.mpi.launch.head.pools.ChildPool`). It may also be a process on another host, or a batch job that shares
  the file system.
* `here` returns the `Site` of that machine, and is all that a kind has to write. If ranks run in jobs, subclass
  `workbench.mpi.clusters.batch.BatchCluster`, which defines `here` and needs four other methods (see
  `workbench.mpi.clusters.pbs`).
* If that machine is another one, `gateway` defines how to reach it. An agent there (`workbench.mpi.clusters.agent`)
  then executes the methods of that site, and copies run folders home during the runs. A kind needs no code for this.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator

from workbench.core.base.errors import ClusterError
from workbench.core.base.files import made_cache_folder, write_file
from workbench.core.base.plugins import Catalogue, KindFamily
from workbench.core.base.settings import setting
from workbench.mpi.launch.client.remote import RemoteSite
from workbench.mpi.launch.gateway import Gateway
from workbench.mpi.launch.reports import Finding, Outputs, ProgressCallback, Status, no_progress, table
from workbench.mpi.launch.site import Site

_HOST = re.compile(r"[A-Za-z0-9_.:\[\]][A-Za-z0-9_.:\[\]-]*")
_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")


def host_name(text: str) -> str:
    """Return a host's name or address, perhaps with USER@ before it, after checking it.

    Raises ValueError for anything that a program could take for an option, or a shell for a command.
    """
    user, at, host = text.rpartition("@")
    if text.startswith("-"):
        raise ValueError(f"{text!r} begins with a hyphen; write the name or address of a host")
    if not _HOST.fullmatch(host) or (at and not _USER.fullmatch(user)):
        raise ValueError(f"{text!r} is not the name of a host; use letters, digits, dots and hyphens")
    return text


def plain_word(text: str) -> str:
    """Return `text` if it may be an argument of a command line.

    Raises ValueError if it begins with a hyphen, as options do, or has characters that cannot be printed.
    """
    if text.startswith("-") or not text.isprintable():
        raise ValueError(f"{text!r} begins with a hyphen, or has characters that cannot be printed")
    return text


def matching(pattern: str, why: str) -> AfterValidator:
    """Return a validator that accepts only text of this pattern. `why`: its error message for other text."""

    def check(text: str) -> str:
        if not re.fullmatch(pattern, text):
            raise ValueError(f"{text!r}: {why}")
        return text

    return AfterValidator(check)


HostName = Annotated[str, AfterValidator(host_name)]
Word = Annotated[str, AfterValidator(plain_word)]


class Cluster(KindFamily):
    """Cluster of hosts for real runs. Subclasses are kinds, registered by their class attribute `kind`.

    >>> from workbench.mpi import clusters
    >>> clusters.load("local").kind
    'local'
    """

    catalogue: ClassVar[Catalogue[Cluster]] = Catalogue(
        "kind", "workbench.mpi.clusters", "workbench.clusters"
    )
    # Whether the ranks cannot read this machine's files. Prepared data are then copied to the hosts.
    elsewhere: ClassVar[bool] = False
    # Whether idle pools of this process must close before a new pool can start.
    alone: ClassVar[bool] = False

    name: str = setting("", "name of the file without .yaml; not written into the file")
    price: float | None = setting(None, "cost of a host, for `workbench cluster status`", "$/h", ge=0)

    def located(self, folder: Path) -> Cluster:
        """Return a copy whose relative paths are resolved against the folder of the cluster's file. `load` calls it."""
        return self

    @property
    def mark(self) -> str:
        """Suffix of the names of the cluster's pool folders. It identifies the processes of this cluster."""
        return f"-{re.sub(r'[^A-Za-z0-9]+', '_', self.name)}.pool"

    def files(self) -> dict[str, str]:
        """Return the files to copy to the machine that starts the ranks: field -> path on this machine."""
        return {}

    def carried(self) -> dict[str, Any]:
        """Return the settings for use on the machine that starts the ranks."""
        return self.model_dump(mode="json")

    def without(self, hosts: Sequence[str]) -> Cluster | None:
        """Return the cluster without some lost hosts. None if no cluster remains, or the kind does not support it."""
        return None

    @property
    def cache(self) -> str | None:
        """Folder for all caches on the hosts, or None for the default one."""
        return None

    def fits(self, ranks: int, there: int) -> bool:
        """Return whether an idle pool of `there` ranks suits a run of `ranks` ranks: enough, but not far too many."""
        return ranks <= there <= 2 * ranks + 16

    @property
    def gateway(self) -> Gateway | None:
        """Connection to the machine that starts the ranks, or None if it is this machine."""
        return None

    @abstractmethod
    def here(self) -> Site:
        """Return the site that starts the ranks from this machine."""

    @property
    def site(self) -> Site:
        """Site that runs the methods below: this machine, or an agent on the machine that starts the ranks."""
        if (gateway_used := self.gateway) is None:
            return self.here()
        settings = self.model_dump(mode="json")
        return RemoteSite(self.name, gateway_used, settings, self.carried(), self.files(), self.cache)

    def up(self, progress: ProgressCallback = no_progress) -> None:
        """Prepare the cluster for runs, unless it is prepared already. Leaves nothing behind when it raises."""
        self.checked("is not up", progress)

    def checked(self, otherwise: str, progress: ProgressCallback) -> None:
        """Raise `ClusterError` with a table of problems, if there are any."""
        if found := self.check(progress):
            raise ClusterError(f"{self.name}: {otherwise}\n{table(found)}")

    def check(self, progress: ProgressCallback = no_progress) -> list[Finding]:
        """Return the problems that would keep runs from starting. Empty if there are none."""
        return self.site.check(progress)

    def status(self, progress: ProgressCallback = no_progress) -> Status:
        """Return the current state of hosts and ranks."""
        return self.site.status(progress)

    def down(self, progress: ProgressCallback = no_progress) -> None:
        """End all ranks of the cluster, and undo `up`."""
        self.site.down(progress)

    def run(self, command: Sequence[str], progress: ProgressCallback = no_progress) -> Outputs:
        """Run a command on every host. Return exit code and output by host."""
        return self.site.run(command, progress)


def placed(name: str, text: str) -> Path:
    """Return a file with this content in the user's cache, written if needed. Equal content has an equal path."""
    path = made_cache_folder("clusters") / f"{name}-{sha256(text.encode()).hexdigest()[:16]}"
    if not path.exists():
        write_file(path, text)
    return path


def rebuilt(fields: dict[str, Any]) -> Cluster:
    """Return the cluster of a `model_dump`. Raises `SettingError`."""
    return Cluster.catalogue.get_class(str(fields.get("kind")))(**fields)
