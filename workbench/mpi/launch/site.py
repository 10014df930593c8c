"""Interfaces between a run and its ranks: sites start ranks, pools contain them, and owners are the processes of a run.

A *pool* is a set of ranks that serves one run after another, so that only the first run waits for their start. On the
machine that starts them, it is a folder (`workbench.mpi.launch.poolfolder`) with one supervisor above one mpiexec. On
other machines, an agent serves it (`workbench.mpi.launch.client.remote`).
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from workbench.mpi.launch.processes import ProcessId
from workbench.mpi.launch.reports import Finding, Outputs, ProgressCallback, Status, no_progress
from workbench.mpi.launch.task import Task


class RunOwner(ABC):
    """Processes that work on a run. By default its ranks write into the run folder themselves."""

    @property
    @abstractmethod
    def is_alive(self) -> bool:
        """Whether the processes can still complete the run."""

    def look(self) -> None:
        """Copy what is new into the local run folder."""
        return

    def reason(self) -> str | None:
        """Return why no process is left that could complete the run, or None if that is unknown."""
        return None

    def release(self) -> None:
        """Release the connection to the run, which continues."""
        return


class Pool(ABC):
    """Ranks that take one run after another."""

    ranks: int  # number of ranks

    @property
    @abstractmethod
    def alive(self) -> bool:
        """Whether the pool can take a run."""

    @abstractmethod
    def lost(self) -> list[str]:
        """Return the lost hosts, as far as known once the pool has ended."""

    @property
    @abstractmethod
    def places(self) -> list[ProcessId]:
        """Process and host of each rank."""

    @abstractmethod
    def await_ready(self, progress: ProgressCallback = no_progress) -> None:
        """Wait until all ranks are up. Raises `ClusterError` with the reason if they do not come up."""

    @abstractmethod
    def submit(self, task: Task, progress: ProgressCallback = no_progress) -> RunOwner:
        """Submit a run, which begins when earlier ones are over. Return its owner."""

    @property
    @abstractmethod
    def waiting(self) -> bool:
        """Whether the newest run still waits, and no rank has taken it."""

    @abstractmethod
    def as_dict(self) -> dict[str, Any]:
        """Return the fields of owner.json for the newest run, with which `Site.owner` finds it from another process."""

    def release(self) -> None:
        """Release the connection to the pool, whose ranks end by themselves."""
        return

    def clear(self) -> None:
        """Remove what a pool that has ended by itself has left here."""
        return

    @abstractmethod
    def close(self) -> None:
        """End the ranks. Nothing is left when this returns."""


class Site(ABC):
    """Place where ranks are started: this machine, or a remote head with an agent."""

    @abstractmethod
    def open(self, ranks: int, progress: ProgressCallback = no_progress) -> Pool:
        """Start `ranks` ranks and return at once (`Pool.await_ready` waits).

        Raises `ClusterError` if that is impossible. Before anything starts, the hosts are checked and get everything
        that runs need.
        """

    @abstractmethod
    def owner(self, fields: dict[str, Any], home: Path) -> RunOwner:
        """Return the owner of a run. `fields`: fields of the folder's owner.json, see `Pool.as_dict`."""

    @abstractmethod
    def check(self, progress: ProgressCallback = no_progress) -> list[Finding]:
        """Return the problems of the hosts. Empty if runs can start. The package is copied to the hosts on the way."""

    @abstractmethod
    def status(self, progress: ProgressCallback = no_progress) -> Status:
        """Return hosts, the workbench's ranks on them, and cost so far."""

    @abstractmethod
    def down(self, progress: ProgressCallback = no_progress) -> None:
        """End the workbench's processes on the hosts, and remove what was copied there, except for prepared data."""

    @abstractmethod
    def run(self, command: Sequence[str], progress: ProgressCallback = no_progress) -> Outputs:
        """Run a command on every host. Return exit code and output by host."""
