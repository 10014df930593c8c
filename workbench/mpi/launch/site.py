"""Where ranks are started, the pools that come of it, and who has a run: as whoever asks for a run sees them.

A *pool* is ranks that serve run after run, so that only the first one has to wait for their start. On the machine that
starts them it is a folder (`workbench.mpi.launch.poolfolder`), with one supervisor above one mpiexec; from elsewhere,
an agent there is asked (`workbench.mpi.launch.client.remote`).
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from workbench.mpi.launch.processes import ProcessId
from workbench.mpi.launch.reports import Finding, Outputs, ProgressCallback, Status, no_progress
from workbench.mpi.launch.task import Task


class RunOwner(ABC):
    """The processes that have a run. Unless said otherwise its ranks write into the run folder themselves."""

    @property
    @abstractmethod
    def is_alive(self) -> bool:
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
    def places(self) -> list[ProcessId]:
        """Process and host of each rank."""

    @abstractmethod
    def await_ready(self, progress: ProgressCallback = no_progress) -> None:
        """Wait until all ranks are up; raises `ClusterError` with the reason if they do not come."""

    @abstractmethod
    def submit(self, task: Task, progress: ProgressCallback = no_progress) -> RunOwner:
        """Hand a run in; it begins once those before it are over. Returns who has it."""

    @property
    @abstractmethod
    def waiting(self) -> bool:
        """Is the newest run still in the queue, with no rank that has taken it?"""

    @abstractmethod
    def as_dict(self) -> dict[str, Any]:
        """What owner.json says of the newest run: enough for `Site.owner` to find it from another process."""

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
    """Where ranks are started: this machine, or a remote head, where an agent does it."""

    @abstractmethod
    def open(self, ranks: int, progress: ProgressCallback = no_progress) -> Pool:
        """Start so many ranks and return at once (`Pool.await_ready` waits).

        Raises `ClusterError` where that cannot be. Whatever has to be in place on the hosts is checked, and brought
        there, before anything starts.
        """

    @abstractmethod
    def owner(self, fields: dict[str, Any], home: Path) -> RunOwner:
        """Who has the run of a folder whose owner.json says `words`; see `Pool.as_dict`."""

    @abstractmethod
    def check(self, progress: ProgressCallback = no_progress) -> list[Finding]:
        """What is wrong on which host; empty: runs can start. Brings the package to the hosts on the way."""

    @abstractmethod
    def status(self, progress: ProgressCallback = no_progress) -> Status:
        """Hosts, ranks of ours on them, and cost so far."""

    @abstractmethod
    def down(self, progress: ProgressCallback = no_progress) -> None:
        """End what is ours on the hosts, and take away what was brought there; where there is nothing, do nothing."""

    @abstractmethod
    def run(self, command: Sequence[str], progress: ProgressCallback = no_progress) -> Outputs:
        """Run a command on every host."""
