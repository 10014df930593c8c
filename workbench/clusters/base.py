"""What every kind of cluster offers, and how a kind plugs in.

A cluster is the content of a small YAML file: a frozen bag of settings that knows how to get ranks. A new kind is one
file in this package with a subclass of `Cluster` whose field `kind` has a name of its own as its default; it is then
found by `load`, on the command line, in the notebooks and in the explorer.

How a run reaches its ranks, the same way on every kind:

* A *pool* is a folder on the machine that starts the ranks, with one supervisor above one mpiexec
  (`workbench.launch.head.supervisor`). Rank 0 writes ``ready.json`` there, takes tasks out of ``tasks/`` one after the
  other, and writes each run into the run folder that the task names. A file named ``quit`` ends it, ``gone.json`` says
  why it ended. Nothing but files connects a pool with who uses it, so a supervisor may be a child process
  (`workbench.launch.client.pools.ChildPool`), a process on another host, or a batch job that shares the file system.
* `open_here` makes such a pool, on the machine that starts the ranks. A kind whose supervisor is a job subclasses
  `workbench.launch.client.pools.FolderPool`: `running` (is the job there?), `wait` and `kill`.
* If that machine is another one, `gateway` says how it is reached, and `open_pool` asks an agent there
  (`workbench.clusters.agent`) to call `open_here`, `check_here` and so on; run folders come home through it while the
  runs go on. A kind does not notice.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import AfterValidator

from workbench.base.plugins import Catalogue, Family
from workbench.base.settings import setting
from workbench.launch.client.gateway import Gateway
from workbench.launch.client.pools import FolderPool, Holder, Pool
from workbench.launch.hosts.host import Host

if TYPE_CHECKING:
    from pathlib import Path


Said = Callable[[str, int, int], None]  # what is going on, how many are done, of how many
_HOST = re.compile(r"[A-Za-z0-9_.:\[\]][A-Za-z0-9_.:\[\]-]*")
_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")


def quiet(what: str, done: int, total: int) -> None:
    """Say nothing."""


def host_name(text: str) -> str:
    """Check a host's name or address, perhaps with USER@ before it.

    Raises ValueError for anything that a program could take for an option, or a shell for a command.
    """
    user, at, host = text.rpartition("@")
    if text.startswith("-"):
        raise ValueError(f"{text!r} begins with a hyphen; write the name or address of a host")
    if not _HOST.fullmatch(host) or (at and not _USER.fullmatch(user)):
        raise ValueError(f"{text!r} is no name of a host; use letters, digits, dots and hyphens")
    return text


def plain_word(text: str) -> str:
    """A word that is handed to a program: nothing that looks like an option, no control characters."""
    if text.startswith("-") or not text.isprintable():
        raise ValueError(f"{text!r} begins with a hyphen, or has characters that cannot be printed")
    return text


HostName = Annotated[str, AfterValidator(host_name)]
Word = Annotated[str, AfterValidator(plain_word)]


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong: on which host, what, what was found, and what is wanted."""

    host: str
    what: str
    found: str
    wanted: str


def table(findings: Sequence[Finding]) -> str:
    """Findings as lines of text in columns."""
    rows = [("host", "what", "found", "wanted"), *((f.host, f.what, f.found, f.wanted) for f in findings)]
    widths = [max(len(row[i]) for row in rows) for i in range(4)]
    return "\n".join(
        "  ".join(word.ljust(w) for word, w in zip(row, widths, strict=True)).rstrip() for row in rows
    )


@dataclass(frozen=True)
class HostState:
    """One host as `Cluster.status` shows it."""

    host: str
    state: str  # "up", or why not
    ranks: int = 0  # of ours
    cores: int | None = None
    free: float | None = None  # GiB
    note: str = ""


@dataclass(frozen=True)
class Status:
    """What there is of a cluster now. `hours`: host-hours since it went up; `cost`: what those came to."""

    hosts: tuple[HostState, ...] = ()
    hours: float | None = None
    cost: float | None = None
    note: str = ""

    @property
    def ranks(self) -> int:
        """Ranks of ours on all hosts."""
        return sum(host.ranks for host in self.hosts)


class Cluster(Family):
    """Where real runs go. Subclasses are kinds, registered by their field `kind`.

    >>> from workbench import clusters
    >>> clusters.load("local").kind
    'local'
    """

    catalogue: ClassVar[Catalogue[Cluster]] = Catalogue("kind", "workbench.clusters", "workbench.clusters")
    elsewhere: ClassVar[bool] = False  # do ranks have to be told where prepared data lie?
    alone: ClassVar[bool] = False  # has a new pool to wait for the room that idle ones of this process have?

    kind: str = setting("", "what sort of cluster it is")
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

    # ---------------------------------------------------------------- for runs

    def fits(self, ranks: int, there: int) -> bool:
        """Do a warm pool's ranks do for a run that needs so many, without many more that are only in the way?"""
        return ranks <= there <= 2 * ranks + 16

    @property
    def gateway(self) -> Gateway | None:
        """How the machine that starts the ranks is reached; None: it is this one."""
        return None

    def open_pool(self, ranks: int, said: Said = quiet) -> Pool:
        """Start so many ranks and return at once (`Pool.await_ready` waits).

        Raises `ClusterError` where that cannot be. Whatever has to be in place on the hosts is checked, and brought
        there, before anything starts.
        """
        if (way := self.gateway) is None:
            return self.open_here(ranks, said)
        from workbench.clusters.remote import open_there

        return open_there(self, way, ranks, said)

    def holder(self, words: dict[str, Any], home: Path) -> Holder:
        """Who has the run whose holder.json says `words`, found again from another process; see `Pool.words`."""
        if (way := self.gateway) is None:
            return self.holder_here(words)
        from workbench.clusters.remote import held_there

        return held_there(self, way, words, home)

    @abstractmethod
    def open_here(self, ranks: int, said: Said = quiet) -> FolderPool:
        """As `open_pool`, on the machine that starts the ranks."""

    @abstractmethod
    def holder_here(self, words: dict[str, Any]) -> Holder:
        """As `holder`, on that machine."""

    # ---------------------------------------------------------------- for `workbench cluster`

    def check(self, said: Said = quiet) -> list[Finding]:
        """What is wrong on which host; empty: runs can start. Brings the package to the hosts on the way."""
        if (way := self.gateway) is None:
            return self.check_here(said)
        from workbench.clusters.remote import check_there

        return check_there(self, way, said)

    def check_here(self, said: Said = quiet) -> list[Finding]:
        """As `check`, on the machine that starts the ranks."""
        return []

    def status(self, said: Said = quiet) -> Status:
        """Hosts, ranks of ours on them, and cost so far."""
        if (way := self.gateway) is None:
            return self.status_here(said)
        from workbench.clusters.remote import status_there

        return status_there(self, way, said)

    def status_here(self, said: Said = quiet) -> Status:
        """As `status`, on that machine."""
        return Status()

    def up(self, said: Said = quiet) -> None:
        """Have everything in place for runs; does nothing where it is so already. Leaves nothing when it raises."""

    def down(self, said: Said = quiet) -> None:
        """End what is ours on the hosts, and take away what `up` brought; does nothing where there is nothing."""
        if (way := self.gateway) is None:
            self.down_here(said)
            return
        from workbench.clusters.remote import down_there

        down_there(self, way, said)

    def down_here(self, said: Said = quiet) -> None:
        """As `down`, on that machine."""

    def run(self, command: Sequence[str], said: Said = quiet) -> dict[str, tuple[int, str]]:
        """Run a command on every host; exit code and output of each."""
        if (way := self.gateway) is None:
            return self.run_here(command, said)
        from workbench.clusters.remote import run_there

        return run_there(self, way, command, said)

    def run_here(self, command: Sequence[str], said: Said = quiet) -> dict[str, tuple[int, str]]:
        """As `run`, on that machine; here: on that machine alone."""
        import socket

        answer = Host().do_run(b"", list(command))
        return {socket.gethostname(): (answer["code"], answer["output"])}


def rebuilt(words: dict[str, Any]) -> Cluster:
    """The cluster whose `model_dump` this is; raises `SettingError`."""
    return Cluster.catalogue.get_class(str(words.get("kind")))(**words)
