"""Pools whose ranks run inside a job of a batch system."""

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

# additional files in a pool's folder: the script, the job's number, the path of the newest run's folder
SCRIPT, NUMBER_PATTERN, RUN = "job.sh", "job", "run"
CANCEL_TIMEOUT_S = 90.0  # s; the batch system waits for a job's processes to end, and then cleans up
POLL_INTERVAL_S = 0.2  # s between checks of the pool's folder while the job waits in the queue
STALE_AFTER_S = 86400.0  # s after which a leftover folder is removed


@dataclass
class BatchPool(FolderPool):
    """Pool whose supervisor is a job. `ranks` is 0 if only the job is known."""

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
        """Close the pool (see `FolderPool.close`). A job that still waits in the queue is cancelled at once."""
        if self.job_status.job(fresh=True).waits:
            self.kill()
        super().close()

    @override
    def submit(self, task: Task, progress: ProgressCallback = no_progress) -> RunOwner:
        owner = super().submit(task, progress)
        (self.folder / RUN).write_text(task.folder)
        return owner

    def leave(self) -> None:
        """Leave the pool. A job with a run finishes it. An idle job is ended, which frees its nodes."""
        if idle(self.folder):
            self.close()

    @override
    def as_dict(self) -> dict[str, Any]:
        return {**super().as_dict(), "job": self.job_status.number}

    @property
    def alive(self) -> bool:
        """Whether the pool can take runs (see `Pool.alive`). A job that can never start counts as dead."""
        return super().alive and self.job_status.never is None

    @property
    def start_patience(self) -> float:
        """Seconds to wait for the start; infinite while the job is in the queue."""
        return float("inf") if self.job_status.job().waits else super().start_patience

    @property
    @override
    def up_note(self) -> str:
        job = self.job_status.job()
        return self.job_status.trouble or (job.waiting() if job.waits else super().up_note)

    def await_ready(self, progress: ProgressCallback = no_progress) -> None:
        """Wait for the ranks (see `Pool.await_ready`), however long the job waits in the queue.

        Stops waiting if the job can never start. If the wait is interrupted (`progress` raises, Ctrl-C), the job is
        cancelled.
        """
        try:
            while self.alive and self.job_status.job().waits and not self.files.log.exists():
                progress(self.up_note, 0, 0)
                time.sleep(POLL_INTERVAL_S)
            # queried again, because the log may exist before the cached status is renewed
            self.job_status.job(fresh=True)
            super().await_ready(progress)
        except BaseException:
            if not self.files.ready:
                with contextlib.suppress(ClusterError):
                    self.job_status.cancel(CANCEL_TIMEOUT_S)
            raise

    def reason(self) -> str | None:
        """Return why a run ended early: the reason of its ranks, or else the end of the job."""
        return super().reason() or self._ending()

    def _ending(self) -> str | None:
        job = self.job_status.job(fresh=True)
        return job.ending() if job.over and job.state != "COMPLETED" else None

    def why_not(self) -> str:
        """Return why the pool did not start: the end of the job, and the last line of the log.

        Cancels a job that could never start.
        """
        if (never := self.job_status.never) is not None:
            self.close()
            return never
        own = super().reason()
        why = own or self._ending() or f"job {self.job_status.number}: it ended before its ranks were up"
        return f"{why} ({last_line(self.files)}){self.files.kept_log()}"


def last_line(files: PoolFolder) -> str:
    """Return the last line of a job's log."""
    return (files.logged() or ["nothing in the log"])[-1]


def idle(folder: Path) -> bool:
    """Return whether a pool has neither a waiting nor a current run."""
    try:
        home = Path(read_text(folder / RUN))
    except OSError:
        return True
    return not home.is_dir() or (home / ENDED).exists()


def free(pools: Path, cancel: Callable[[str], object]) -> None:
    """Cancel idle jobs whose client process, on this host, has ended. They may occupy nodes that are needed now."""
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
