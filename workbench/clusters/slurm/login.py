"""What is done on a machine that takes jobs."""

import os
import shutil
import socket
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from typing_extensions import override

from workbench.base.errors import ClusterError
from workbench.base.settings import SettingError
from workbench.clusters.slurm.job import Job, Wish
from workbench.clusters.slurm.pool import (
    CANCELLING,
    LOOK_EVERY,
    NUMBER,
    SlurmPool,
    last_line,
    numbered,
    open_job,
    submit,
)
from workbench.clusters.slurm.queue import Ticket, look_up, node_names, ours, ticket
from workbench.clusters.slurm.settings import SlurmSettings
from workbench.launch.hosts.host import Host
from workbench.launch.poolfolder import PoolFolder
from workbench.launch.reports import Finding, HostState, Outputs, Said, Status, quiet
from workbench.launch.site import Site

EACH = '"$@"; echo "$?" > "$0/$SLURMD_NODENAME.code"'  # for bash, with a folder and a command behind it


@dataclass(frozen=True)
class Login(Site):
    """One mpiexec inside a job."""

    cluster: SlurmSettings

    @override
    def open(self, ranks: int, said: Said = quiet) -> SlurmPool:
        return open_job(self.cluster, ranks)

    @override
    def holder(self, words: dict[str, Any], home: Path) -> SlurmPool:
        settings = self.cluster.model_dump(mode="json")
        return SlurmPool(settings, Path(words["pool"]), 0, ticket=ticket(str(words["job"])))

    def status(self, said: Said = quiet) -> Status:
        """Nodes of our jobs, and what is in the queue; node-hours of the jobs that run now."""
        found, price = ours(self.cluster.label), self.cluster.price
        pools = self.cluster.pools.glob(f"*/{NUMBER}")
        ranks = {path.read_text(): int(PoolFolder(path.parent).settings()["ranks"]) for path in pools}
        hours = sum(job.used * job.nodes for job in found) / 3600
        rows = tuple(row for job in found for row in rows_of(job, ranks.get(job.number, 0)))
        cost = None if price is None else hours * price
        return Status(rows, hours, cost, "" if rows else "no job of ours is there")

    def down(self, said: Said = quiet) -> None:
        """Cancel our jobs, also those of other notebooks, and take their folders away.

        Raises `ClusterError` for a job that stays.
        """
        found = ours(self.cluster.label)
        for i, job in enumerate(found):
            said("cancelling jobs", i, len(found))
            Ticket(job.number).cancel(CANCELLING)
        for path in self.cluster.pools.glob(f"*/{NUMBER}"):
            if look_up(path.read_text()).final:
                shutil.rmtree(path.parent, ignore_errors=True)
        # Asked from elsewhere, which has brought things?
        if os.environ.get("XDG_CACHE_HOME") == self.cluster.folder:
            Host().do_clear(b"")

    def check(self, said: Said = quiet) -> list[Finding]:
        """What would keep a job from starting: the shared folder, the Python, or what Slurm says to a trial."""
        host, found = socket.gethostname(), []
        try:
            folder = self._folder()
        except OSError as error:
            what = f"{self.cluster.folder}: {error.strerror}"
            return [Finding(host, "folder", what, "one that can be written")]
        if shutil.which(python := self.cluster.interpreter) is None:
            found.append(Finding(host, "python", f"{python}: not there", "the path of a Python"))
        try:
            submit(self.cluster, folder, self._all_nodes(folder), "--test-only")
        except (SettingError, ClusterError) as error:
            found.append(Finding(host, "a trial job", str(error), "settings that Slurm takes"))
        finally:
            shutil.rmtree(folder)
        return found

    def run(self, command: Sequence[str], said: Said = quiet) -> Outputs:
        """Run a command once on each node of a job of its own. Ctrl-C cancels the job."""
        folder = self._folder()
        srun = ("srun", f"--output={folder}/%N.out", "bash", "-c", EACH, str(folder), *command)
        try:
            wish = replace(self._all_nodes(folder), tasks=1, command=srun)
            job = Ticket(numbered(submit(self.cluster, folder, wish)))
            _await_over(job, said)
            codes = {path.stem: int(path.read_text()) for path in sorted(folder.glob("*.code"))}
            if not codes:
                raise ClusterError(f"{job.job().ending()}: {last_line(PoolFolder(folder))}")
            said_by = {node: (folder / f"{node}.out").read_text(errors="replace") for node in codes}
            return {node: (code, said_by[node]) for node, code in codes.items()}
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _folder(self) -> Path:
        """A folder of its own for a job that is none of a pool."""
        self.cluster.pools.mkdir(parents=True, exist_ok=True, mode=0o700)
        return Path(tempfile.mkdtemp(dir=self.cluster.pools))

    def _all_nodes(self, folder: Path) -> Wish:
        return self.cluster.wish((self.cluster.nodes or 1) * self.cluster.tasks_per_node, folder)


def rows_of(job: Job, ranks: int) -> list[HostState]:
    """What `workbench cluster status` shows of a job: a line a node."""
    if job.waits:
        return [HostState("(queue)", job.state.lower(), note=job.waiting())]
    names, state = node_names(job.names), job.state.lower()
    note = f"job {job.number}, {clock(job.left)} left"
    each = max(len(names), 1)
    return [HostState(name, state, ranks // each, job.cores // each, note=note) for name in names]


def clock(seconds: float) -> str:
    """As Slurm writes it: hours:minutes:seconds.

    >>> clock(3723)
    '1:02:03'
    """
    if seconds == float("inf"):
        return "unlimited time"
    return f"{int(seconds) // 3600}:{int(seconds) // 60 % 60:02d}:{int(seconds) % 60:02d}"


def _await_over(ticket: Ticket, said: Said) -> None:
    try:
        while not (job := ticket.job()).final and ticket.never is None:
            said(job.waiting() if job.waits else "running", 0, 0)
            time.sleep(LOOK_EVERY)
    except BaseException:
        ticket.cancel(CANCELLING)
        raise
    if ticket.never is not None:
        ticket.cancel(CANCELLING)
        raise ClusterError(ticket.never)
