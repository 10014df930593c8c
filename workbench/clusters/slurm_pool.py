"""Ranks inside a Slurm job."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.clusters.base import Finding
from workbench.clusters.slurm_job import refusal, script, submitted
from workbench.clusters.slurm_queue import Refused, Ticket, call, look_up, ours
from workbench.errors import ClusterError
from workbench.launch import mpiexec
from workbench.launch.places import is_alive
from workbench.launch.pools import SETTINGS, FolderPool, Said, make_folder
from workbench.launch.records import ENDED
from workbench.launch.supervisor import GONE, LOG
from workbench.settings import SettingError

if TYPE_CHECKING:
    from workbench.clusters.slurm import Slurm
    from workbench.launch.tasks import Task

SCRIPT, NUMBER, RUN = (
    "job.sh",
    "job",
    "run",
)  # in a pool's folder: the script, the job, the newest run's folder
CACHES = ("WORKBENCH_CACHE", "XDG_CACHE_HOME")  # where ranks find prepared data
CANCELLING = 90.0  # s: Slurm gives a job's processes some time (KillWait), and then cleans up
EACH = '"$@"; echo "$?" > "$0/$SLURMD_NODENAME.code"'  # for bash, with a folder and a command behind it
LOOK_EVERY = 0.2  # s between looks into the pool's folder while the job is in the queue
OLD = 86400.0  # s after which a folder that nobody has cleared away is


@dataclass
class SlurmPool(FolderPool):
    """A pool whose supervisor is a Slurm job; `ranks` is 0 where only the job is known."""

    ticket: Ticket = field(kw_only=True)

    @property
    def running(self) -> bool:
        """See `FolderPool.running`."""
        return not self.ticket.job().over

    def wait(self, seconds: float) -> bool:
        """See `FolderPool.wait`."""
        return self.ticket.await_end(seconds)

    def kill(self) -> None:
        """See `FolderPool.kill`; raises `ClusterError` unless squeue says that the job has gone."""
        self.ticket.cancel(CANCELLING)

    def close(self) -> None:
        """See `FolderPool.close`. A job that is still in the queue is cancelled at once."""
        if self.ticket.job(fresh=True).waits:
            self.kill()
        super().close()

    def submit(self, task: Task, said: Said | None = None) -> None:
        """See `Pool.submit`."""
        super().submit(task, said)
        (self.folder / RUN).write_text(task.folder)

    def leave(self) -> None:
        """See `FolderPool.leave`: a job that has a run goes on with it; another gives its nodes back."""
        if idle(self.folder):
            self.close()

    def words(self) -> dict[str, Any]:
        """See `Pool.words`."""
        return {**super().words(), "job": self.ticket.number}

    @property
    def alive(self) -> bool:
        """See `Pool.alive`; a job that will never start is not."""
        return super().alive and self.ticket.never is None

    @property
    def start_patience(self) -> float:
        """See `FolderPool.start_patience`: endless while the job is in the queue."""
        return float("inf") if self.ticket.job().waits else super().start_patience

    @property
    def up_note(self) -> str:
        """See `FolderPool.up_note`."""
        job = self.ticket.job()
        return self.ticket.trouble or (job.waiting() if job.waits else super().up_note)

    def await_ready(self, said: Said | None = None) -> None:
        """See `Pool.await_ready`; however long the job is in the queue, unless it could never start.

        When it is broken off (`said` raises, Ctrl-C), the job is cancelled.
        """
        try:
            while self.alive and self.ticket.job().waits:
                if said is not None:
                    said(self.up_note, 0, 0)
                time.sleep(LOOK_EVERY)
            super().await_ready(said)
        except BaseException:
            if not self.ready:
                with contextlib.suppress(ClusterError):
                    self.ticket.cancel(CANCELLING)
            raise

    def reason(self) -> str | None:
        """See `Pool.reason`: the ranks' own, else what Slurm says became of the job."""
        return super().reason() or self._ending()

    def _ending(self) -> str | None:
        job = self.ticket.job(fresh=True)
        return job.ending() if job.over and job.state != "COMPLETED" else None

    def why_not(self) -> str:
        """See `FolderPool.why_not`: Slurm's word, and the end of the log. Withdraws a job that could never start."""
        if (never := self.ticket.never) is not None:
            self.close()
            return never
        own, log = super().reason(), self.folder / LOG
        why = own or self._ending() or f"job {self.ticket.number}: it ended before its ranks were up"
        return f"{why} ({_last_line(log)}); see {log}"


def _last_line(log: Path) -> str:
    text = log.read_text(errors="replace") if log.exists() else ""
    lines = [line.strip() for line in text.splitlines() if line.strip(" -")]
    return lines[-1] if lines else "nothing in the log"


def open_job(cluster: Slurm, ranks: int) -> SlurmPool:
    """Submit a job for so many ranks; raises `SettingError` for what Slurm refuses, `ClusterError` without Slurm."""
    nodes, tasks = cluster.shape(ranks)
    cluster.pools.mkdir(parents=True, exist_ok=True, mode=0o700)
    sweep(cluster.pools)
    free(cluster.pools)
    folder = make_folder(
        nodes * tasks,
        lambda pool: cluster.mpiexec(nodes * tasks, tasks, pool),
        owner=None,
        keep=60.0 * cluster.idle,
        within=cluster.pools,
        by=[socket.gethostname(), os.getpid()],
        environment=mpiexec.settings("self,sm,tcp") | {n: os.environ[n] for n in CACHES if n in os.environ},
    )
    path = folder / SCRIPT
    path.write_text(script(cluster.wish(ranks, folder)))
    try:
        number = numbered(sbatch(cluster, path))
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    (folder / NUMBER).write_text(number)
    return SlurmPool(cluster, folder, nodes * tasks, ticket=Ticket(number))


def idle(folder: Path) -> bool:
    """Has a pool no run, waiting or under way?"""
    try:
        home = Path((folder / RUN).read_text())
    except OSError:
        return True
    return not home.is_dir() or (home / ENDED).exists()


def free(pools: Path) -> None:
    """Cancel idle jobs whose users on this host are gone: they might have the nodes that are wanted."""
    for path in pools.glob(f"*/{NUMBER}"):
        host, pid = json.loads((path.parent / SETTINGS).read_text())["by"]
        if host == socket.gethostname() and not is_alive(pid) and idle(path.parent):
            with contextlib.suppress(ClusterError):
                call("scancel", path.read_text())
                shutil.rmtree(path.parent, ignore_errors=True)


def sbatch(cluster: Slurm, path: Path, *options: str) -> str:
    """Hand a script in; what sbatch answers. Raises `SettingError` with the field that it does not like."""
    try:
        return call("sbatch", "--parsable", *options, str(path))
    except Refused as refused:
        raise refusal(refused.said, cluster.model_dump()) from None


def numbered(said: str) -> str:
    """The new job's number."""
    if (number := submitted(said)) is None:
        raise ClusterError(f"sbatch: told no job's number ({said.strip()[:200]})")
    return number


def sweep(pools: Path) -> None:
    """Remove the folders of jobs that ended long ago."""
    for gone in pools.glob(f"*/{GONE}"):
        with contextlib.suppress(OSError):
            if time.time() - gone.stat().st_mtime > OLD:
                shutil.rmtree(gone.parent)


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
    folder = Path(tempfile.mkdtemp(dir=cluster.pools))
    srun = ("srun", f"--output={folder}/%N.out", "bash", "-c", EACH, str(folder), *command)
    wish = cluster.wish((cluster.nodes or 1) * cluster.tasks_per_node, folder)
    (folder / SCRIPT).write_text(script(replace(wish, tasks=1, command=srun)))
    try:
        job = Ticket(numbered(sbatch(cluster, folder / SCRIPT)))
        _await_over(job, said)
        codes = {path.stem: int(path.read_text()) for path in sorted(folder.glob("*.code"))}
        if not codes:
            raise ClusterError(f"{job.job().ending()}: {_last_line(folder / LOG)}")
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
