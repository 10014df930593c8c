"""Where ranks are started, the pools that come of it, and who has a run: as whoever asks for a run sees them.

A *pool* is ranks that serve run after run, so that only the first one has to wait for their start. On the machine that
starts them it is a folder (`workbench.mpi.launch.poolfolder`), with one supervisor above one mpiexec; from elsewhere,
an agent there is asked (`workbench.mpi.launch.client.there`).
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from workbench.mpi.launch.processes import Place
from workbench.mpi.launch.reports import Finding, Outputs, Said, Status, quiet
from workbench.mpi.launch.task import Task


class Holder(ABC):
    """The processes that have a run. Unless said otherwise its ranks write into the run folder themselves."""

    @property
    @abstractmethod
    def there(self) -> bool:
        """Can they still end it?"""

    def look(self) -> None:
        """Bring what is new into the run folder here."""
        return

    def reason(self) -> str | None:
        """Why they cannot, as far as that is known."""
        return None

    def release(self) -> None:
        """Let go of what it takes to look; the run goes on."""
        return


class Pool(ABC):
    """Ranks that take run after run."""

    ranks: int  # how many

    @property
    @abstractmethod
    def alive(self) -> bool:
        """Can it take a run?"""

    @abstractmethod
    def lost(self) -> list[str]:
        """Hosts that have gone, as far as that is known once the pool has ended."""

    @property
    @abstractmethod
    def places(self) -> list[Place]:
        """Process and host of each rank."""

    @abstractmethod
    def await_ready(self, said: Said = quiet) -> None:
        """Wait until all ranks are up; raises `ClusterError` with the reason if they do not come."""

    @abstractmethod
    def submit(self, task: Task, said: Said = quiet) -> Holder:
        """Hand a run in; it begins once those before it are over. Returns who has it."""

    @property
    @abstractmethod
    def waiting(self) -> bool:
        """Is the newest run still in the queue, with no rank that has taken it?"""

    @abstractmethod
    def words(self) -> dict[str, Any]:
        """What holder.json says of the newest run: enough for `Site.holder` to find it from another process."""

    def release(self) -> None:
        """Let go of what it takes to use it; its ranks end by themselves."""
        return

    def clear(self) -> None:
        """Take away what a pool that has ended by itself has left here."""
        return

    @abstractmethod
    def close(self) -> None:
        """End the ranks; nothing is left when this returns."""


class Site(ABC):
    """Where ranks are started: this machine, as each kind of cluster does it, or `There`, where an agent does it."""

    @abstractmethod
    def open(self, ranks: int, said: Said = quiet) -> Pool:
        """Start so many ranks and return at once (`Pool.await_ready` waits).

        Raises `ClusterError` where that cannot be. Whatever has to be in place on the hosts is checked, and brought
        there, before anything starts.
        """

    @abstractmethod
    def holder(self, words: dict[str, Any], home: Path) -> Holder:
        """Who has the run of a folder whose holder.json says `words`; see `Pool.words`."""

    @abstractmethod
    def check(self, said: Said = quiet) -> list[Finding]:
        """What is wrong on which host; empty: runs can start. Brings the package to the hosts on the way."""

    @abstractmethod
    def status(self, said: Said = quiet) -> Status:
        """Hosts, ranks of ours on them, and cost so far."""

    @abstractmethod
    def down(self, said: Said = quiet) -> None:
        """End what is ours on the hosts, and take away what was brought there; where there is nothing, do nothing."""

    @abstractmethod
    def run(self, command: Sequence[str], said: Said = quiet) -> Outputs:
        """Run a command on every host."""
