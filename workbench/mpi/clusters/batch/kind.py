"""Cluster with the queue of a batch system: one job holds the ranks, and mpiexec starts them inside its allocation.

The job's script starts the same supervisor that starts ranks elsewhere, with the same files. Only the batch system
decides when and where the job runs. A job serves one run after another. It ends when it has been idle for a while,
when it is cancelled, and at its time limit. A run that ends with its job is resumed from its checkpoint
(`wb.resume`).

A kind is a subclass of `BatchCluster` with four methods. `workbench.mpi.clusters.pbs` is the shortest example.
"""

import os
import re
import shutil
import socket
import sys
import tempfile
import time
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

from pydantic import AfterValidator, BeforeValidator
from typing_extensions import override

from workbench.core.base.errors import ClusterError, quoted
from workbench.core.base.files import private_folder
from workbench.core.base.reading import read_text
from workbench.core.base.settings import SettingError, setting
from workbench.core.trace.layout import OWNER
from workbench.mpi.clusters.base import Cluster, HostName, Word, matching
from workbench.mpi.clusters.batch import pool as jobs
from workbench.mpi.clusters.batch.job import TIME_PATTERN, Job, JobSpec, clock, refusal, script
from workbench.mpi.clusters.batch.pool import CANCEL_TIMEOUT_S, NUMBER_PATTERN, SCRIPT, BatchPool
from workbench.mpi.clusters.batch.queue import CommandRejected, JobStatusCache, call
from workbench.mpi.clusters.ssh import Ssh
from workbench.mpi.launch import mpiexec
from workbench.mpi.launch.gateway import Gateway
from workbench.mpi.launch.head.pools import make_folder
from workbench.mpi.launch.hosts.host import Host
from workbench.mpi.launch.package import package_root
from workbench.mpi.launch.poolfolder import PoolFolder
from workbench.mpi.launch.processes import RANKS_MODULE, SUPERVISOR_MODULE, this_process
from workbench.mpi.launch.reports import Finding, HostState, Outputs, ProgressCallback, Status, no_progress
from workbench.mpi.launch.site import Site

# environment variables by which ranks find the folder of prepared data
CACHE_VARIABLES = ("WORKBENCH_CACHE", "XDG_CACHE_HOME")
# Script for bash, followed by a folder and a command. It writes the command's output on this node, then its exit code.
HOST_COMMAND = 'n=$(uname -n); "$@" >"$0/$n.out" 2>&1; echo "$?" >"$0/$n.code"'


def _time(value: object) -> str:
    """Return a time limit as text. Minutes may be given as a number."""
    if not re.fullmatch(TIME_PATTERN, str(value)):
        raise ValueError(f"{value!r}: write minutes, hours:minutes:seconds or days-hours, e.g. 1:30:00")
    return str(value)


def _shared(text: str) -> str:
    if not text.startswith("/") or re.search(r"[^\w/.,:+@=~-]", text):
        wanted = "give an absolute path without blanks, quotes, % or \\ (batch systems give them a meaning)"
        raise ValueError(f"{text!r}: {wanted}")
    return text.rstrip("/") or "/"


Folder = Annotated[str, AfterValidator(_shared)]
Time = Annotated[str, BeforeValidator(_time)]
_USE = "use letters, digits and _ . , : + / @ = -, with no hyphen at the beginning"
Name = Annotated[str, matching(r"[A-Za-z0-9_][A-Za-z0-9_.,:+/@=-]*", _USE)]
_SSH = ("identity", "config", "known_hosts")  # fields of `Ssh` with which ssh reaches login


class BatchCluster(Cluster):
    """Cluster with a queue. Nodes are allocated when a run starts, and not before.

    A kind sets `system`, `submit_command` and `cancel_command`. It defines four methods: `options`, `number_in`,
    `look_up` and `listed`.
    """

    system: ClassVar[str]  # name of the batch system
    submit_command: ClassVar[tuple[str, ...]]  # command line to which the path of the script is appended
    trial_options: ClassVar[tuple[str, ...]] = ()  # options of the submit command that only check the script
    cancel_command: ClassVar[str]  # command to which the number of the job is appended
    # pairs of a message's pattern and the field to change, see `job.refusal`
    refusals: ClassVar[tuple[tuple[str, str], ...]] = ()
    longest_name: ClassVar[int] = 200  # max characters of a job's name

    folder: Folder = setting(
        ..., "folder on a file system that all nodes share; jobs and their users exchange files there"
    )
    tasks_per_node: int = setting(..., "ranks on each node, usually as many as the node has cores", ge=1)
    nodes: int | None = setting(None, "nodes of a job; by default as many as the run needs", ge=1)
    time: Time = setting("1:00:00", "time limit of a job: 90 (minutes), 1:30:00")
    account: Name | None = setting(None, "account to charge; by default the user's own")
    modules: tuple[Name, ...] = setting((), "modules that the job loads first")
    python: Word = setting(
        "", "Python of the job, with straggler-workbench[mpi]; by default the Python that submits the job"
    )
    login: HostName | None = setting(
        None, "host where jobs are submitted, reached by ssh; by default this machine"
    )
    identity: Word | None = setting(None, "file of the private key for the host `login`")
    config: Word | None = setting(None, "configuration file of ssh; by default ~/.ssh/config")
    known_hosts: Word | None = setting(
        None,
        "file with the key of the host `login`; by default NAME.known_hosts beside the cluster's file, or without it"
        " ssh's own file",
    )
    idle: float = setting(15.0, "minutes without a run after which a job ends by itself", "min", gt=0)

    elsewhere: ClassVar[bool] = True
    alone: ClassVar[bool] = True

    @abstractmethod
    def options(self, spec: JobSpec) -> list[str]:
        """Return the lines of a job's script for the batch system, such as ``#SBATCH --nodes=2``."""

    @abstractmethod
    def number_in(self, output: str) -> str | None:
        """Return the new job's number in the output of the submit command, or None if there is none."""

    @abstractmethod
    def look_up(self, number: str) -> Job:
        """Return one job, even after its end. Raises `CommandRejected` if the batch system refuses the query."""

    @abstractmethod
    def listed(self) -> list[Job]:
        """Return this user's jobs with the name `label` that wait or run."""

    def submit(self, path: Path, *options: str) -> str:
        """Submit a script. Return the job's number. Raises `SettingError` with the field that is refused."""
        output = self._submitted(*options, str(path))
        if (number := self.number_in(output)) is None:
            printed = quoted(output, 200) or "nothing"
            raise ClusterError(f"{self.submit_command[0]}: answered without a job's number ({printed})")
        return number

    def try_submit(self, path: Path) -> None:
        """Let the batch system check a script, without a job. Raises as `submit` does."""
        self._submitted(*self.trial_options, str(path))

    def _submitted(self, *text: str) -> str:
        try:
            return call(*self.submit_command, *text)
        except CommandRejected as refused:
            raise refusal(self.system, refused.answer, self.refusals, self.model_dump()) from None

    def cancel(self, number: str) -> None:
        """Cancel a job."""
        call(self.cancel_command, number)

    def node_names(self, job: Job) -> list[str]:
        """Return the names of a job's nodes."""
        return job.names.split(",")

    def launch_settings(self) -> dict[str, str]:
        """Return variables for mpiexec that only this kind needs."""
        return {}

    def environment(self) -> dict[str, str]:
        """Return the variables for mpiexec and the ranks in a job."""
        caches = {name: os.environ[name] for name in CACHE_VARIABLES if name in os.environ}
        return mpiexec.settings("self,sm,tcp") | self.launch_settings() | caches

    def with_variables(self, command: Sequence[str]) -> tuple[str, ...]:
        """Return a command line of a job with these variables."""
        return ("env", *(f"{name}={value}" for name, value in self.environment().items()), *command)

    @override
    def located(self, folder: Path) -> Self:
        if self.login is None:
            return self
        found = self.head.located(folder)
        return self.replace(**{name: getattr(found, name) for name in _SSH})

    @property
    def head(self) -> Ssh:
        """Login host, as a cluster of kind ssh with one host."""
        same = {name: getattr(self, name) for name in ("name", *_SSH)}
        return Ssh(hosts=(self.login,), python=self.python or "python3", **same)

    def fits(self, ranks: int, there: int) -> bool:
        """Return whether a pool has enough ranks. A large existing job is better than a new one in the queue."""
        return ranks <= there

    @property
    def gateway(self) -> Gateway | None:
        """Connection to the login host."""
        return None if self.login is None else self.head.gateway_to(self.login)

    @property
    def cache(self) -> str | None:
        """Shared folder, if there is a login host: it has package, data and runs."""
        return None if self.login is None else self.folder

    def carried(self) -> dict[str, Any]:
        """Return the settings for use on the login host."""
        return self.model_dump(mode="json") | dict.fromkeys(("login", *_SSH))

    @property
    def label(self) -> str:
        """Name of the cluster's jobs in the queue. A name that would be too long ends with a checksum."""
        name = "workbench-" + re.sub(r"[^A-Za-z0-9_.-]", "-", self.name)
        if len(name) <= self.longest_name:
            return name
        return name[: self.longest_name - 6] + sha256(self.name.encode()).hexdigest()[:6]

    @property
    def pools(self) -> Path:
        """Folder with the folders of the jobs."""
        return Path(self.folder) / "pools"

    def shape(self, ranks: int) -> tuple[int, int]:
        """Return nodes, and tasks on each, of a job for `ranks` ranks. Raises `ClusterError` if they do not fit.

        >>> from workbench.mpi.clusters.slurm import Slurm
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
        """Return the job for `ranks` ranks."""
        nodes, tasks = self.shape(ranks)
        command = (self.interpreter, "-P", "-m", SUPERVISOR_MODULE, str(folder))
        return JobSpec(self.label, str(folder), command, nodes, tasks, package_root())

    @property
    def interpreter(self) -> str:
        """Python of the job."""
        return self.python or sys.executable

    def mpiexec(self, ranks: int, tasks: int, *command: str) -> list[str]:
        """Return the command line of mpiexec inside the job.

        It is the mpiexec beside the job's Python, or else the first one on the job's path. Where ssh starts MPI's
        daemons, only the variables named here reach the other nodes.
        """
        beside = Path(self.interpreter).with_name("mpiexec")
        names = [name for name in mpiexec.settings() if not name.startswith(("OMPI_", "PRTE_"))]
        names += ["PATH", *["PYTHONPATH"] * bool(package_root()), *["LD_LIBRARY_PATH"] * bool(self.modules)]
        names += [name for name in CACHE_VARIABLES if name in os.environ]
        return [
            str(beside) if beside.is_file() else "mpiexec",
            *("--with-ft", "ulfm", "-n", str(ranks), "--map-by", f"ppr:{tasks}:node:oversubscribe"),
            *(word for name in names for word in ("-x", name)),
            *command,
        ]

    @override
    def here(self) -> Site:
        return Login(self)


@cache
def status_of(cluster: BatchCluster, number: str) -> JobStatusCache:
    """Return the status of a job: one object per process, so that all callers share its queries."""
    return JobStatusCache(number, cluster.look_up, cluster.cancel)


@dataclass(frozen=True)
class Login(Site):
    """Site on a login host. It submits jobs, each with one mpiexec and all ranks."""

    cluster: BatchCluster

    @override
    def open(self, ranks: int, progress: ProgressCallback = no_progress) -> BatchPool:
        cluster = self.cluster
        nodes, tasks = cluster.shape(ranks)
        private_folder(cluster.pools)
        jobs.remove_stale(cluster.pools)
        jobs.free(cluster.pools, cluster.cancel)
        more: dict[str, Any] = {"within": cluster.pools, "mark": cluster.mark, "by": this_process()}
        more |= {"keep": 60.0 * cluster.idle, "environment": self.cluster.environment()}
        rank = (cluster.interpreter, "-P", "-m", RANKS_MODULE)
        command = partial(cluster.mpiexec, nodes * tasks, tasks, *rank)
        folder = make_folder(nodes * tasks, command, None, **more)
        try:
            number = cluster.submit(self._script(folder, cluster.job_spec(ranks, folder)))
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        (folder / NUMBER_PATTERN).write_text(number)
        return self._pool(folder, nodes * tasks, number)

    def _script(self, folder: Path, spec: JobSpec) -> Path:
        """Write a job's script, and return its path."""
        text = script(spec, self.cluster.options(spec), self.cluster.modules)
        (folder / SCRIPT).write_text(text)
        return folder / SCRIPT

    def _pool(self, folder: Path, ranks: int, number: str) -> BatchPool:
        settings = self.cluster.model_dump(mode="json")
        return BatchPool(settings, folder, ranks, job_status=status_of(self.cluster, number))

    @override
    def owner(self, fields: dict[str, Any], home: Path) -> BatchPool:
        job = str(fields["job"])
        # checked, because the number becomes an argument of command lines
        if not re.fullmatch(r"[0-9][\w.-]*", job):
            raise SettingError(f"{home / OWNER}: job = {job!r}: is not the number of a job")
        return self._pool(Path(fields["pool"]), 0, job)

    def status(self, progress: ProgressCallback = no_progress) -> Status:
        """Return the nodes of the cluster's jobs, the jobs in the queue, and node-hours of the running jobs."""
        found, price = self.cluster.listed(), self.cluster.price
        pools = self.cluster.pools.glob(f"*/{NUMBER_PATTERN}")
        ranks = {read_text(path): int(PoolFolder(path.parent).settings()["ranks"]) for path in pools}
        hours = sum(job.used * job.nodes for job in found) / 3600
        rows = tuple(row for job in found for row in self._rows(job, ranks.get(job.number, 0)))
        cost = None if price is None else hours * price
        return Status(rows, hours, cost, "" if rows else "the workbench has no job there")

    def _rows(self, job: Job, ranks: int) -> list[HostState]:
        """Return the lines of `workbench cluster status` for a job: one per node."""
        state = job.state.lower()
        if job.waits:
            return [HostState("(queue)", state, note=job.waiting())]
        names, note = self.cluster.node_names(job), f"job {job.number}, {clock(job.left)} left"
        each = max(len(names), 1)
        return [HostState(name, state, ranks // each, job.cores // each, note=note) for name in names]

    def down(self, progress: ProgressCallback = no_progress) -> None:
        """Cancel the cluster's jobs, also those of other notebooks, and remove their folders.

        Raises `ClusterError` for a job that does not end.
        """
        found = self.cluster.listed()
        for i, job in enumerate(found):
            progress("cancelling jobs", i, len(found))
            status_of(self.cluster, job.number).cancel(CANCEL_TIMEOUT_S)
        for path in self.cluster.pools.glob(f"*/{NUMBER_PATTERN}"):
            if self.cluster.look_up(read_text(path)).final:
                shutil.rmtree(path.parent, ignore_errors=True)
        # remove package and runs that a client on another machine has copied to the shared folder
        if os.environ.get("XDG_CACHE_HOME") == self.cluster.folder:
            Host().do_clear(b"")

    def check(self, progress: ProgressCallback = no_progress) -> list[Finding]:
        """Return what would keep a job from starting: shared folder, Python, or the refusal of a trial job."""
        host, found = socket.gethostname(), []
        try:
            folder = self._folder()
        except OSError as error:
            what = f"{self.cluster.folder}: {error.strerror}"
            return [Finding(host, "folder", what, "a writable folder")]
        if shutil.which(python := self.cluster.interpreter) is None:
            found.append(Finding(host, "python", f"{python}: not there", "the path of a Python"))
        try:
            self.cluster.try_submit(self._script(folder, self._all_nodes(folder)))
        except (SettingError, ClusterError) as error:
            wanted = f"settings that {self.cluster.system} takes"
            found.append(Finding(host, "a trial job", str(error), wanted))
        finally:
            shutil.rmtree(folder)
        return found

    def run(self, command: Sequence[str], progress: ProgressCallback = no_progress) -> Outputs:
        """Run a command once on each node, in a separate job. Ctrl-C cancels the job."""
        folder, cluster = self._folder(), self.cluster
        try:
            spec = replace(self._all_nodes(folder), tasks=1)
            each = cluster.mpiexec(spec.nodes, 1, "bash", "-c", HOST_COMMAND, str(folder), *command)
            text = cluster.with_variables(each)
            job = status_of(cluster, cluster.submit(self._script(folder, replace(spec, command=text))))
            _await_over(job, progress)
            written = {path.stem: read_text(path).strip() for path in sorted(folder.glob("*.code"))}
            codes = {node: int(code) for node, code in written.items() if code.isdigit()}
            if not codes:
                raise ClusterError(f"{job.job().ending()}: {jobs.last_line(PoolFolder(folder))}")
            outputs = {node: read_text(folder / f"{node}.out", errors="replace") for node in codes}
            return {node: (code, outputs[node]) for node, code in codes.items()}
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _folder(self) -> Path:
        """Create a folder for a job that does not belong to a pool."""
        private_folder(self.cluster.pools)
        return Path(tempfile.mkdtemp(dir=self.cluster.pools))

    def _all_nodes(self, folder: Path) -> JobSpec:
        return self.cluster.job_spec((self.cluster.nodes or 1) * self.cluster.tasks_per_node, folder)


def _await_over(status: JobStatusCache, progress: ProgressCallback) -> None:
    try:
        while not (job := status.job()).final and status.never is None:
            progress(job.waiting() if job.waits else "running", 0, 0)
            time.sleep(jobs.POLL_INTERVAL_S)
    except BaseException:
        status.cancel(CANCEL_TIMEOUT_S)
        raise
    if status.never is not None:
        status.cancel(CANCEL_TIMEOUT_S)
        raise ClusterError(status.never)
