"""A cluster with Slurm's queue: one job holds the ranks, mpiexec starts them inside its allocation.

The job's script starts the very supervisor that starts ranks elsewhere, so a run meets the same files; Slurm alone
decides when and where the job runs. A job serves run after run, ends when it has been idle for a while, at scancel, and
at its time limit; a run that it takes along goes on from its checkpoint (`wb.resume`).
"""

import os
import re
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, BeforeValidator
from typing_extensions import override

from workbench.core.base.errors import ClusterError, quoted
from workbench.core.base.files import private_folder
from workbench.core.base.reading import read_text
from workbench.core.base.settings import SettingError, setting
from workbench.core.trace.layout import OWNER
from workbench.mpi.clusters.base import Cluster, HostName, Word, matching
from workbench.mpi.clusters.slurm import pool as jobs
from workbench.mpi.clusters.slurm.job import TIME, Job, JobSpec, check_directive, refusal, script, submitted
from workbench.mpi.clusters.slurm.pool import CANCELLING, NUMBER, SCRIPT, SlurmPool
from workbench.mpi.clusters.slurm.queue import (
    CommandRejected,
    JobStatusCache,
    call,
    look_up,
    node_names,
    ours,
    status_of_job,
)
from workbench.mpi.clusters.ssh import Ssh
from workbench.mpi.launch import mpiexec
from workbench.mpi.launch.gateway import Gateway
from workbench.mpi.launch.head.pools import make_folder
from workbench.mpi.launch.hosts.host import Host
from workbench.mpi.launch.poolfolder import PoolFolder
from workbench.mpi.launch.processes import RANKS, SUPERVISOR, this_process
from workbench.mpi.launch.reports import Finding, HostState, Outputs, ProgressCallback, Status, no_progress
from workbench.mpi.launch.site import Site

CACHES = ("WORKBENCH_CACHE", "XDG_CACHE_HOME")  # where ranks find prepared data
EACH = '"$@"; echo "$?" > "$0/$SLURMD_NODENAME.code"'  # for bash, with a folder and a command behind it


def _time(value: object) -> str:
    """Minutes may be a number."""
    if not re.fullmatch(TIME, str(value)):
        raise ValueError(f"{value!r}: write minutes, hours:minutes:seconds or days-hours, e.g. 1:30:00")
    return str(value)


def _shared(text: str) -> str:
    if not text.startswith("/") or re.search(r"[^\w/.,:+@=~-]", text):
        wanted = "give an absolute path without blanks, quotes, % or \\ (Slurm reads them its own way)"
        raise ValueError(f"{text!r}: {wanted}")
    return text.rstrip("/") or "/"


Folder = Annotated[str, AfterValidator(_shared)]
Time = Annotated[str, BeforeValidator(_time)]
_USE = "use letters, digits and _ . , : + / @ = -, with no hyphen at the beginning"
Name = Annotated[str, matching(r"[A-Za-z0-9_][A-Za-z0-9_.,:+/@=-]*", _USE)]
Directive = Annotated[str, AfterValidator(check_directive)]
_SSH = ("identity", "config", "known_hosts")  # how ssh reaches login: fields of `Ssh` as well


class Slurm(Cluster):
    """A cluster with Slurm's queue. Nodes are taken when a run starts, and not before."""

    kind: Literal["slurm"] = setting("slurm", "a cluster with Slurm's queue")
    folder: Folder = setting(..., "folder on a file system that all nodes share; jobs meet their users there")
    tasks_per_node: int = setting(..., "ranks on each node, usually its cores", ge=1)
    nodes: int | None = setting(None, "nodes of a job; by default as many as the run needs", ge=1)
    time: Time = setting("1:00:00", "a job's longest life: 90 (minutes), 1:30:00")
    partition: Name | None = setting(None, "partition; by default Slurm's own choice")
    account: Name | None = setting(None, "account that pays; by default the user's own")
    modules: tuple[Name, ...] = setting((), "modules that the job loads first")
    directives: tuple[Directive, ...] = setting((), "further options of sbatch, e.g. '--qos=high'")
    python: Word = setting("", "the job's Python; it needs straggler-workbench[mpi]; by default the one that submits")
    login: HostName | None = setting(None, "host that takes jobs, reached by ssh; by default this machine")
    identity: Word | None = setting(None, "file of the private key that opens login")
    config: Word | None = setting(None, "a configuration file of ssh; by default ~/.ssh/config")
    known_hosts: Word | None = setting(
        None, "file with login's key; by default NAME.known_hosts beside the cluster's file, else ssh's own"
    )
    idle: float = setting(15.0, "minutes without a run after which a job ends by itself", "min", gt=0)

    elsewhere: ClassVar[bool] = True
    alone: ClassVar[bool] = True

    @override
    def located(self, folder: Path) -> Self:
        if self.login is None:
            return self
        found = self.head.located(folder)
        return self.replace(**{name: getattr(found, name) for name in _SSH})

    @property
    def head(self) -> Ssh:
        """The login host, as a cluster of one."""
        same = {name: getattr(self, name) for name in ("name", *_SSH)}
        return Ssh(hosts=(self.login,), python=self.python or "python3", **same)

    def fits(self, ranks: int, there: int) -> bool:
        """See `Cluster.fits`: a job that is there is better than one that has to queue."""
        return ranks <= there

    @property
    def gateway(self) -> Gateway | None:
        """To the login host."""
        return None if self.login is None else self.head.way(self.login)

    @property
    def cache(self) -> str | None:
        """With a login host: package, data and runs lie in the shared folder."""
        return None if self.login is None else self.folder

    def carried(self) -> dict[str, Any]:
        """The settings as they hold on the login host."""
        return self.model_dump(mode="json") | dict.fromkeys(("login", *_SSH))

    @property
    def label(self) -> str:
        """Name of our jobs in the queue."""
        return "workbench-" + re.sub(r"[^A-Za-z0-9_.-]", "-", self.name)

    @property
    def pools(self) -> Path:
        """Where the jobs' folders are."""
        return Path(self.folder) / "pools"

    def shape(self, ranks: int) -> tuple[int, int]:
        """Nodes, and tasks on each, of a job for so many ranks; raises `ClusterError` where they do not fit.

        >>> from workbench.mpi.clusters.slurm.kind import Slurm
        >>> Slurm(folder="/shared", tasks_per_node=8).shape(13)
        (2, 7)
        >>> Slurm(folder="/shared", tasks_per_node=8, nodes=3).shape(13)
        (3, 8)
        """
        if self.nodes is None:
            nodes = -(-ranks // self.tasks_per_node)
            return nodes, -(-ranks // nodes)
        room = self.nodes * self.tasks_per_node
        if ranks > room:
            raise ClusterError(
                f"workers = {ranks - 1}: cluster {self.name!r} has {self.nodes} nodes of {self.tasks_per_node} tasks,"
                f" room for {room - 1} workers and the master; raise nodes, or leave it out"
            )
        return self.nodes, self.tasks_per_node

    def job_spec(self, ranks: int, folder: Path) -> JobSpec:
        """The job for so many ranks."""
        nodes, tasks = self.shape(ranks)
        command = (self.interpreter, "-P", "-m", SUPERVISOR, str(folder))
        same = {n: getattr(self, n) for n in ("time", "partition", "account", "modules", "directives")}
        root = Path(__file__).resolve().parents[4]
        installed = root.name in ("site-packages", "dist-packages")  # then a Python has it by itself
        path = "" if installed else str(root)
        return JobSpec(self.label, str(folder), command, nodes=nodes, tasks=tasks, path=path, **same)

    @property
    def interpreter(self) -> str:
        """The job's Python."""
        return self.python or sys.executable

    def mpiexec(self, ranks: int, tasks: int, pool: str) -> list[str]:
        """Command line of mpiexec inside the job. The mpiexec beside the job's Python, else the first on its path."""
        beside = Path(self.interpreter).with_name("mpiexec")
        return [
            str(beside) if beside.is_file() else "mpiexec",
            *("--with-ft", "ulfm", "-n", str(ranks), "--map-by", f"ppr:{tasks}:node:oversubscribe"),
            *(self.interpreter, "-P", "-m", RANKS, pool),
        ]

    @override
    def here(self) -> Site:
        return Login(self)


@dataclass(frozen=True)
class Login(Site):
    """One mpiexec inside a job."""

    cluster: Slurm

    @override
    def open(self, ranks: int, progress: ProgressCallback = no_progress) -> SlurmPool:
        cluster = self.cluster
        nodes, tasks = cluster.shape(ranks)
        private_folder(cluster.pools)
        jobs.remove_stale(cluster.pools)
        jobs.free(cluster.pools)
        more: dict[str, Any] = {"within": cluster.pools, "mark": cluster.mark, "by": this_process()}
        caches = {name: os.environ[name] for name in CACHES if name in os.environ}
        more |= {"keep": 60.0 * cluster.idle, "environment": mpiexec.settings("self,sm,tcp") | caches}
        command = partial(cluster.mpiexec, nodes * tasks, tasks)
        folder = make_folder(nodes * tasks, command, None, **more)
        try:
            number = numbered(self._submit(folder, cluster.job_spec(ranks, folder)))
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        (folder / NUMBER).write_text(number)
        return SlurmPool(
            cluster.model_dump(mode="json"), folder, nodes * tasks, job_status=JobStatusCache(number)
        )

    def _submit(self, folder: Path, wish: JobSpec, *options: str) -> str:
        """Hand a job in; what sbatch answers. Raises `SettingError` with the field that it does not like."""
        (folder / SCRIPT).write_text(script(wish))
        try:
            return call("sbatch", "--parsable", *options, str(folder / SCRIPT))
        except CommandRejected as refused:
            raise refusal(refused.said, self.cluster.model_dump()) from None

    @override
    def owner(self, words: dict[str, Any], home: Path) -> SlurmPool:
        settings, job = self.cluster.model_dump(mode="json"), str(words["job"])
        if not job.replace("_", "").isalnum():  # it becomes a word of squeue's and scancel's command lines
            raise SettingError(f"{home / OWNER}: job = {job!r}: is not the number of a job")
        return SlurmPool(settings, Path(words["pool"]), 0, job_status=status_of_job(job))

    def status(self, progress: ProgressCallback = no_progress) -> Status:
        """Nodes of our jobs, and what is in the queue; node-hours of the jobs that run now."""
        found, price = ours(self.cluster.label), self.cluster.price
        pools = self.cluster.pools.glob(f"*/{NUMBER}")
        ranks = {read_text(path): int(PoolFolder(path.parent).settings()["ranks"]) for path in pools}
        hours = sum(job.used * job.nodes for job in found) / 3600
        rows = tuple(row for job in found for row in rows_of(job, ranks.get(job.number, 0)))
        cost = None if price is None else hours * price
        return Status(rows, hours, cost, "" if rows else "no job of ours is there")

    def down(self, progress: ProgressCallback = no_progress) -> None:
        """Cancel our jobs, also those of other notebooks, and take their folders away.

        Raises `ClusterError` for a job that stays.
        """
        found = ours(self.cluster.label)
        for i, job in enumerate(found):
            progress("cancelling jobs", i, len(found))
            JobStatusCache(job.number).cancel(CANCELLING)
        for path in self.cluster.pools.glob(f"*/{NUMBER}"):
            if look_up(read_text(path)).final:
                shutil.rmtree(path.parent, ignore_errors=True)
        # Asked from elsewhere, which has brought things?
        if os.environ.get("XDG_CACHE_HOME") == self.cluster.folder:
            Host().do_clear(b"")

    def check(self, progress: ProgressCallback = no_progress) -> list[Finding]:
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
            self._submit(folder, self._all_nodes(folder), "--test-only")
        except (SettingError, ClusterError) as error:
            found.append(Finding(host, "a trial job", str(error), "settings that Slurm takes"))
        finally:
            shutil.rmtree(folder)
        return found

    def run(self, command: Sequence[str], progress: ProgressCallback = no_progress) -> Outputs:
        """Run a command once on each node of a job of its own. Ctrl-C cancels the job."""
        folder = self._folder()
        srun = ("srun", f"--output={folder}/%N.out", "bash", "-c", EACH, str(folder), *command)
        try:
            wish = replace(self._all_nodes(folder), tasks=1, command=srun)
            job = JobStatusCache(numbered(self._submit(folder, wish)))
            _await_over(job, progress)
            written = {path.stem: read_text(path).strip() for path in sorted(folder.glob("*.code"))}
            codes = {node: int(code) for node, code in written.items() if code.isdigit()}
            if not codes:
                raise ClusterError(f"{job.job().ending()}: {jobs.last_line(PoolFolder(folder))}")
            said_by = {node: read_text(folder / f"{node}.out", errors="replace") for node in codes}
            return {node: (code, said_by[node]) for node, code in codes.items()}
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _folder(self) -> Path:
        """A folder of its own for a job that is none of a pool."""
        private_folder(self.cluster.pools)
        return Path(tempfile.mkdtemp(dir=self.cluster.pools))

    def _all_nodes(self, folder: Path) -> JobSpec:
        return self.cluster.job_spec((self.cluster.nodes or 1) * self.cluster.tasks_per_node, folder)


def numbered(output: str) -> str:
    """The new job's number."""
    if (number := submitted(output)) is None:
        raise ClusterError(f"sbatch: answered without a job's number ({quoted(output, 200) or 'nothing'})")
    return number


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


def _await_over(ticket: JobStatusCache, progress: ProgressCallback) -> None:
    try:
        while not (job := ticket.job()).final and ticket.never is None:
            progress(job.waiting() if job.waits else "running", 0, 0)
            time.sleep(jobs.POLL_INTERVAL_S)
    except BaseException:
        ticket.cancel(CANCELLING)
        raise
    if ticket.never is not None:
        ticket.cancel(CANCELLING)
        raise ClusterError(ticket.never)
