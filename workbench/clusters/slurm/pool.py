"""Ranks inside a Slurm job."""

import contextlib
import os
import shutil
import time
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from typing_extensions import override

from workbench.base.errors import ClusterError
from workbench.clusters.slurm.job import Wish, refusal, script, submitted
from workbench.clusters.slurm.queue import Refused, Ticket, call
from workbench.clusters.slurm.settings import SlurmSettings
from workbench.launch import mpiexec
from workbench.launch.head.pools import FolderPool, make_folder
from workbench.launch.poolfolder import PoolFolder
from workbench.launch.processes import here, is_alive
from workbench.launch.reports import Said, quiet
from workbench.launch.site import Holder
from workbench.launch.task import Task
from workbench.trace.layout import ENDED

# Files in a pool's folder besides its own: the script, the job's number, the path of the newest run's folder.
SCRIPT, NUMBER, RUN = "job.sh", "job", "run"
CACHES = ("WORKBENCH_CACHE", "XDG_CACHE_HOME")  # where ranks find prepared data
CANCELLING = 90.0  # s: Slurm gives a job's processes some time (KillWait), and then cleans up
LOOK_EVERY = 0.2  # s between looks into the pool's folder while the job is in the queue
OLD = 86400.0  # s after which a folder that nobody has cleared away is


@dataclass
class SlurmPool(FolderPool):
    """A pool whose supervisor is a Slurm job; `ranks` is 0 where only the job is known."""

    ticket: Ticket = field(kw_only=True)

    @property
    @override
    def running(self) -> bool:
        return not self.ticket.job().over

    @override
    def wait(self, seconds: float) -> bool:
        return self.ticket.await_end(seconds)

    @override
    def kill(self) -> None:
        self.ticket.cancel(CANCELLING)

    def close(self) -> None:
        """See `FolderPool.close`. A job that is still in the queue is cancelled at once."""
        if self.ticket.job(fresh=True).waits:
            self.kill()
        super().close()

    @override
    def submit(self, task: Task, said: Said = quiet) -> Holder:
        holder = super().submit(task, said)
        (self.folder / RUN).write_text(task.folder)
        return holder

    def leave(self) -> None:
        """See `FolderPool.leave`: a job that has a run goes on with it; another gives its nodes back."""
        if idle(self.folder):
            self.close()

    @override
    def words(self) -> dict[str, Any]:
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
    @override
    def up_note(self) -> str:
        job = self.ticket.job()
        return self.ticket.trouble or (job.waiting() if job.waits else super().up_note)

    def await_ready(self, said: Said = quiet) -> None:
        """See `Pool.await_ready`; however long the job is in the queue, unless it could never start.

        When it is broken off (`said` raises, Ctrl-C), the job is cancelled.
        """
        try:
            while self.alive and self.ticket.job().waits and not self.files.log.exists():
                said(self.up_note, 0, 0)
                time.sleep(LOOK_EVERY)
            self.ticket.job(fresh=True)  # the log is there before Slurm is asked again
            super().await_ready(said)
        except BaseException:
            if not self.files.ready:
                with contextlib.suppress(ClusterError):
                    self.ticket.cancel(CANCELLING)
            raise

    def reason(self) -> str | None:
        """See `Holder.reason`: the ranks' own, else what Slurm says became of the job."""
        return super().reason() or self._ending()

    def _ending(self) -> str | None:
        job = self.ticket.job(fresh=True)
        return job.ending() if job.over and job.state != "COMPLETED" else None

    def why_not(self) -> str:
        """See `FolderPool.why_not`: Slurm's word, and the end of the log. Withdraws a job that could never start."""
        if (never := self.ticket.never) is not None:
            self.close()
            return never
        own = super().reason()
        why = own or self._ending() or f"job {self.ticket.number}: it ended before its ranks were up"
        return f"{why} ({last_line(self.files)}); see {self.files.log}"


def last_line(files: PoolFolder) -> str:
    """What a job's log ends with."""
    return (files.logged() or ["nothing in the log"])[-1]


def open_job(cluster: SlurmSettings, ranks: int) -> SlurmPool:
    """Submit a job for so many ranks; raises `SettingError` for what Slurm refuses, `ClusterError` without Slurm."""
    nodes, tasks = cluster.shape(ranks)
    cluster.pools.mkdir(parents=True, exist_ok=True, mode=0o700)
    sweep(cluster.pools)
    free(cluster.pools)
    more: dict[str, Any] = {
        "keep": 60.0 * cluster.idle,
        "within": cluster.pools,
        "mark": cluster.mark,
        "by": here(),
    }
    caches = {name: os.environ[name] for name in CACHES if name in os.environ}
    more["environment"] = mpiexec.settings("self,sm,tcp") | caches
    folder = make_folder(nodes * tasks, partial(cluster.mpiexec, nodes * tasks, tasks), None, **more)
    try:
        number = numbered(submit(cluster, folder, cluster.wish(ranks, folder)))
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    (folder / NUMBER).write_text(number)
    return SlurmPool(cluster.model_dump(mode="json"), folder, nodes * tasks, ticket=Ticket(number))


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
        pid, host = PoolFolder(path.parent).settings()["by"]
        if host == here().host and not is_alive(pid) and idle(path.parent):
            with contextlib.suppress(ClusterError):
                call("scancel", path.read_text())
                shutil.rmtree(path.parent, ignore_errors=True)


def submit(cluster: SlurmSettings, folder: Path, wish: Wish, *options: str) -> str:
    """Hand a job in; what sbatch answers. Raises `SettingError` with the field that it does not like."""
    (folder / SCRIPT).write_text(script(wish))
    try:
        return call("sbatch", "--parsable", *options, str(folder / SCRIPT))
    except Refused as refused:
        raise refusal(refused.said, cluster.model_dump()) from None


def numbered(said: str) -> str:
    """The new job's number."""
    if (number := submitted(said)) is None:
        raise ClusterError(f"sbatch: told no job's number ({said.strip()[:200]})")
    return number


def sweep(pools: Path) -> None:
    """Remove the folders of jobs that ended long ago."""
    for folder in pools.iterdir():
        with contextlib.suppress(OSError):
            if PoolFolder(folder).gone() is not None and time.time() - folder.stat().st_mtime > OLD:
                shutil.rmtree(folder)
