"""What `workbench cluster` does with a cluster under Slurm, on a machine that takes jobs."""

from __future__ import annotations

import json
import shutil
import socket
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from workbench.base.errors import ClusterError
from workbench.base.settings import SettingError
from workbench.clusters.base import Finding, HostState, Said, Status
from workbench.clusters.slurm.job import Job, script
from workbench.clusters.slurm.kind import Slurm
from workbench.clusters.slurm.pool import CANCELLING, LOOK_EVERY, NUMBER, SCRIPT, last_line, numbered, sbatch
from workbench.clusters.slurm.queue import Ticket, look_up, node_names, ours
from workbench.launch.client.pools import SETTINGS
from workbench.launch.head.supervisor import LOG

EACH = '"$@"; echo "$?" > "$0/$SLURMD_NODENAME.code"'  # for bash, with a folder and a command behind it


def status(cluster: Slurm) -> Status:
    """Nodes of our jobs, and what is in the queue; node-hours of the jobs that run now."""
    found, ranks = ours(cluster.label), ranks_of(cluster.pools)
    hours = sum(job.used * job.nodes for job in found) / 3600
    cost = None if cluster.price is None else hours * cluster.price
    rows = tuple(row for job in found for row in rows_of(job, ranks.get(job.number, 0)))
    return Status(rows, hours, cost, "" if rows else "no job of ours is there")


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


def ranks_of(pools: Path) -> dict[str, int]:
    """Ranks of each job that has a folder here."""
    return {
        path.read_text(): int(json.loads((path.parent / SETTINGS).read_text())["ranks"])
        for path in pools.glob(f"*/{NUMBER}")
    }


def cancel_all(cluster: Slurm, said: Said) -> None:
    """Cancel this user's jobs of a cluster and take their folders away; raises `ClusterError` for one that stays."""
    found = ours(cluster.label)
    for i, job in enumerate(found):
        said("cancelling jobs", i, len(found))
        Ticket(job.number).cancel(CANCELLING)
    for path in cluster.pools.glob(f"*/{NUMBER}"):
        if look_up(path.read_text()).final:
            shutil.rmtree(path.parent, ignore_errors=True)


def findings(cluster: Slurm) -> list[Finding]:
    """What would keep a job from starting: the shared folder, the Python, or what Slurm says to a trial."""
    host = socket.gethostname()
    try:
        cluster.pools.mkdir(parents=True, exist_ok=True, mode=0o700)
        folder = Path(tempfile.mkdtemp(dir=cluster.pools))
    except OSError as error:
        return [Finding(host, "folder", f"{cluster.folder}: {error.strerror}", "one that can be written")]
    found = []
    if shutil.which(cluster.interpreter) is None:
        found.append(Finding(host, "python", f"{cluster.interpreter}: not there", "the path of a Python"))
    try:
        (folder / SCRIPT).write_text(
            script(cluster.wish((cluster.nodes or 1) * cluster.tasks_per_node, folder))
        )
        sbatch(cluster, folder / SCRIPT, "--test-only")
    except (SettingError, ClusterError) as error:
        found.append(Finding(host, "a trial job", str(error), "settings that Slurm takes"))
    finally:
        shutil.rmtree(folder)
    return found


def run_on_nodes(cluster: Slurm, command: Sequence[str], said: Said) -> dict[str, tuple[int, str]]:
    """Run a command once on each node of a job of its own; exit code and output by node. Ctrl-C cancels the job."""
    cluster.pools.mkdir(parents=True, exist_ok=True, mode=0o700)
    folder = Path(tempfile.mkdtemp(dir=cluster.pools))
    srun = ("srun", f"--output={folder}/%N.out", "bash", "-c", EACH, str(folder), *command)
    wish = cluster.wish((cluster.nodes or 1) * cluster.tasks_per_node, folder)
    (folder / SCRIPT).write_text(script(replace(wish, tasks=1, command=srun)))
    try:
        job = Ticket(numbered(sbatch(cluster, folder / SCRIPT)))
        _await_over(job, said)
        codes = {path.stem: int(path.read_text()) for path in sorted(folder.glob("*.code"))}
        if not codes:
            raise ClusterError(f"{job.job().ending()}: {last_line(folder / LOG)}")
        return {
            node: (code, (folder / f"{node}.out").read_text(errors="replace")) for node, code in codes.items()
        }
    finally:
        shutil.rmtree(folder, ignore_errors=True)


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
