"""Ranks inside a job of a batch system."""

import contextlib
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from typing_extensions import override

from workbench.core.base.errors import ClusterError
from workbench.core.base.reading import read_text
from workbench.core.trace.layout import ENDED
from workbench.mpi.clusters.batch.queue import JobStatusCache
from workbench.mpi.launch.head.pools import FolderPool
from workbench.mpi.launch.poolfolder import PoolFolder
from workbench.mpi.launch.processes import is_alive, this_process
from workbench.mpi.launch.reports import ProgressCallback, no_progress
from workbench.mpi.launch.site import RunOwner
from workbench.mpi.launch.task import Task

# Files in a pool's folder besides its own: the script, the job's number, the path of the newest run's folder.
SCRIPT, NUMBER_PATTERN, RUN = "job.sh", "job", "run"
CANCEL_TIMEOUT_S = 90.0  # the batch system gives a job's processes some time, and then cleans up
POLL_INTERVAL_S = 0.2  # between looks into the pool's folder while the job is in the queue
STALE_AFTER_S = 86400.0  # age of a folder that nobody has cleared away


@dataclass
class BatchPool(FolderPool):
    """A pool whose supervisor is a job; `ranks` is 0 where only the job is known."""

    job_status: JobStatusCache = field(kw_only=True)

    @property
    @override
    def running(self) -> bool:
        return not self.job_status.job().over

    @override
    def wait(self, seconds: float) -> bool:
        return self.job_status.await_end(seconds)

    @override
    def kill(self) -> None:
        self.job_status.cancel(CANCEL_TIMEOUT_S)

    def close(self) -> None:
        """See `FolderPool.close`. A job that is still in the queue is cancelled at once."""
        if self.job_status.job(fresh=True).waits:
            self.kill()
        super().close()

    @override
    def submit(self, task: Task, progress: ProgressCallback = no_progress) -> RunOwner:
        holder = super().submit(task, progress)
        (self.folder / RUN).write_text(task.folder)
        return holder

    def leave(self) -> None:
        """See `FolderPool.leave`: a job that has a run goes on with it; another gives its nodes back."""
        if idle(self.folder):
            self.close()

    @override
    def as_dict(self) -> dict[str, Any]:
        return {**super().as_dict(), "job": self.job_status.number}

    @property
    def alive(self) -> bool:
        """See `Pool.alive`; a job that will never start is not."""
        return super().alive and self.job_status.never is None

    @property
    def start_patience(self) -> float:
        """See `FolderPool.start_patience`: endless while the job is in the queue."""
        return float("inf") if self.job_status.job().waits else super().start_patience

    @property
    @override
    def up_note(self) -> str:
        job = self.job_status.job()
        return self.job_status.trouble or (job.waiting() if job.waits else super().up_note)

    def await_ready(self, progress: ProgressCallback = no_progress) -> None:
        """See `Pool.await_ready`; however long the job is in the queue, unless it could never start.

        When it is broken off (`progress` raises, Ctrl-C), the job is cancelled.
        """
        try:
            while self.alive and self.job_status.job().waits and not self.files.log.exists():
                progress(self.up_note, 0, 0)
                time.sleep(POLL_INTERVAL_S)
            self.job_status.job(fresh=True)  # the log is there before the queue is asked again
            super().await_ready(progress)
        except BaseException:
            if not self.files.ready:
                with contextlib.suppress(ClusterError):
                    self.job_status.cancel(CANCEL_TIMEOUT_S)
            raise

    def reason(self) -> str | None:
        """See `RunOwner.reason`: the ranks' own, else what became of the job."""
        return super().reason() or self._ending()

    def _ending(self) -> str | None:
        job = self.job_status.job(fresh=True)
        return job.ending() if job.over and job.state != "COMPLETED" else None

    def why_not(self) -> str:
        """See `FolderPool.why_not`: why the job ended, and the end of the log.

        Cancels a job that could never start.
        """
        if (never := self.job_status.never) is not None:
            self.close()
            return never
        own = super().reason()
        why = own or self._ending() or f"job {self.job_status.number}: it ended before its ranks were up"
        return f"{why} ({last_line(self.files)}){self.files.kept_log()}"


def last_line(files: PoolFolder) -> str:
    """What a job's log ends with."""
    return (files.logged() or ["nothing in the log"])[-1]


def idle(folder: Path) -> bool:
    """Has a pool no run, waiting or under way?"""
    try:
        home = Path(read_text(folder / RUN))
    except OSError:
        return True
    return not home.is_dir() or (home / ENDED).exists()


def free(pools: Path, cancel: Callable[[str], object]) -> None:
    """Cancel idle jobs whose users on this host are gone: they might have the nodes that are wanted."""
    for path in pools.glob(f"*/{NUMBER_PATTERN}"):
        pid, host = PoolFolder(path.parent).settings()["by"]
        if host == this_process().host and not is_alive(pid) and idle(path.parent):
            with contextlib.suppress(ClusterError):
                cancel(read_text(path))
                shutil.rmtree(path.parent, ignore_errors=True)


def remove_stale(pools: Path) -> None:
    """Remove the folders of jobs that ended long ago."""
    for folder in pools.iterdir():
        with contextlib.suppress(OSError):
            if PoolFolder(folder).gone() is not None and time.time() - folder.stat().st_mtime > STALE_AFTER_S:
                shutil.rmtree(folder)
