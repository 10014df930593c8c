"""What every kind of cluster offers, and how a kind plugs in.

A cluster is the content of a small YAML file: frozen settings, and how to get ranks. A new kind is one file in this
package (or one folder) with a subclass of `Cluster` that has a `kind`. It is then found by `load`, on the command line,
in the notebooks and in the explorer.

How a run reaches its ranks, the same way on every kind:

* A *pool* is a folder on the machine that starts the ranks (`workbench.mpi.launch.poolfolder`), with one supervisor
  above one mpiexec. Nothing but files connects a pool with who uses it, so a supervisor may be a child process
  (`workbench.mpi.launch.head.pools.ChildPool`), a process on another host, or a batch job that shares the file system.
* `here` says how that machine does what a cluster offers: it is all that a kind has to write. Where ranks run in jobs,
  subclass `workbench.mpi.clusters.batch.BatchCluster`, which has it: four methods are left, see
  `workbench.mpi.clusters.pbs`.
* If that machine is another one, `gateway` says how it is reached, and an agent there (`workbench.mpi.clusters.agent`)
  is asked to do the same; run folders come home through it while the runs go on. A kind does not notice.
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
    """Check a host's name or address, perhaps with USER@ before it.

    Raises ValueError for anything that a program could take for an option, or a shell for a command.
    """
    user, at, host = text.rpartition("@")
    if text.startswith("-"):
        raise ValueError(f"{text!r} begins with a hyphen; write the name or address of a host")
    if not _HOST.fullmatch(host) or (at and not _USER.fullmatch(user)):
        raise ValueError(f"{text!r} is not a name of a host; use letters, digits, dots and hyphens")
    return text


def plain_word(text: str) -> str:
    """A word that is handed to a program: nothing that looks like an option, no control characters."""
    if text.startswith("-") or not text.isprintable():
        raise ValueError(f"{text!r} begins with a hyphen, or has characters that cannot be printed")
    return text


def matching(pattern: str, why: str) -> AfterValidator:
    """Text of this form only; `why` is said of other text."""

    def check(text: str) -> str:
        if not re.fullmatch(pattern, text):
            raise ValueError(f"{text!r}: {why}")
        return text

    return AfterValidator(check)


HostName = Annotated[str, AfterValidator(host_name)]
Word = Annotated[str, AfterValidator(plain_word)]


class Cluster(KindFamily):
    """Where real runs go. Subclasses are kinds, registered by their class attribute `kind`.

    >>> from workbench.mpi import clusters
    >>> clusters.load("local").kind
    'local'
    """

    catalogue: ClassVar[Catalogue[Cluster]] = Catalogue(
        "kind", "workbench.mpi.clusters", "workbench.clusters"
    )
    elsewhere: ClassVar[bool] = False  # do ranks have to be told where prepared data lie?
    alone: ClassVar[bool] = False  # has a new pool to wait for the room that idle ones of this process have?

    name: str = setting("", "the file's name without .yaml; not written into the file")
    price: float | None = setting(None, "what a host costs, for `workbench cluster status`", "$/h", ge=0)

    def located(self, folder: Path) -> Cluster:
        """The same with paths that are relative to the folder of its file made absolute; `load` calls it."""
        return self

    @property
    def mark(self) -> str:
        """End of the names of its pools' folders: processes of this cluster are told by it."""
        return f"-{re.sub(r'[^A-Za-z0-9]+', '_', self.name)}.pool"

    def files(self) -> dict[str, str]:
        """Fields that name files here which the machine that starts the ranks needs as well, and those files."""
        return {}

    def carried(self) -> dict[str, Any]:
        """The settings as they hold on the machine that starts the ranks."""
        return self.model_dump(mode="json")

    def without(self, hosts: Sequence[str]) -> Cluster | None:
        """The cluster without some hosts that have gone; None where nothing is left, or that makes no sense."""
        return None

    @property
    def cache(self) -> str | None:
        """Folder for all caches on the hosts; None: the usual one."""
        return None

    def fits(self, ranks: int, there: int) -> bool:
        """Do a warm pool's ranks do for a run that needs so many, without many more that are only in the way?"""
        return ranks <= there <= 2 * ranks + 16

    @property
    def gateway(self) -> Gateway | None:
        """How the machine that starts the ranks is reached; None: it is this one."""
        return None

    @abstractmethod
    def here(self) -> Site:
        """How this machine starts the ranks; what `site` is where no `gateway` leads elsewhere."""

    @property
    def site(self) -> Site:
        """Who does what follows: this machine, or an agent on the one that starts the ranks."""
        if (gateway_used := self.gateway) is None:
            return self.here()
        settings = self.model_dump(mode="json")
        return RemoteSite(self.name, gateway_used, settings, self.carried(), self.files(), self.cache)

    def up(self, progress: ProgressCallback = no_progress) -> None:
        """Have everything in place for runs; does nothing where it is so already. Leaves nothing when it raises."""
        self.checked("is not up", progress)

    def checked(self, otherwise: str, progress: ProgressCallback) -> None:
        """Raise `ClusterError` with a table of what is wrong, if anything is."""
        if found := self.check(progress):
            raise ClusterError(f"{self.name}: {otherwise}\n{table(found)}")

    def check(self, progress: ProgressCallback = no_progress) -> list[Finding]:
        """What is missing here for runs; empty: nothing."""
        return self.site.check(progress)

    def status(self, progress: ProgressCallback = no_progress) -> Status:
        """What there is of it now."""
        return self.site.status(progress)

    def down(self, progress: ProgressCallback = no_progress) -> None:
        """End what runs there, and take back what `up` made."""
        self.site.down(progress)

    def run(self, command: Sequence[str], progress: ProgressCallback = no_progress) -> Outputs:
        """Run a command on every host; exit code and output of each."""
        return self.site.run(command, progress)


def placed(name: str, text: str) -> Path:
    """A file of this content in the user's cache, written if it is not there; the same content has the same path."""
    path = made_cache_folder("clusters") / f"{name}-{sha256(text.encode()).hexdigest()[:16]}"
    if not path.exists():
        write_file(path, text)
    return path


def rebuilt(fields: dict[str, Any]) -> Cluster:
    """The cluster whose `model_dump` this is; raises `SettingError`."""
    return Cluster.catalogue.get_class(str(fields.get("kind")))(**fields)
