"""What a user says about a cluster with Slurm's queue, and the job that follows from it."""

import re
import sys
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

from pydantic import AfterValidator, BeforeValidator
from typing_extensions import override

from workbench.base.errors import ClusterError
from workbench.base.settings import setting
from workbench.clusters.base import Cluster, HostName, Word
from workbench.clusters.slurm.job import TIME, Wish, check_directive
from workbench.clusters.ssh import Ssh
from workbench.launch.gateway import Gateway
from workbench.launch.processes import RANKS, SUPERVISOR


def _name(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.,:+/@=-]*", text):
        wanted = "use letters, digits and _ . , : + / @ = -, with no hyphen at the beginning"
        raise ValueError(f"{text!r}: {wanted}")
    return text


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
Name = Annotated[str, AfterValidator(_name)]
Directive = Annotated[str, AfterValidator(check_directive)]
_SSH = ("identity", "config", "known_hosts")  # how ssh reaches login: fields of `Ssh` as well


class SlurmSettings(Cluster):
    """The fields of kind slurm."""

    folder: Folder = setting(..., "folder on a file system that all nodes share; jobs meet their users there")
    tasks_per_node: int = setting(..., "ranks on each node, usually its cores", ge=1)
    nodes: int | None = setting(None, "nodes of a job; by default as many as the run needs", ge=1)
    time: Time = setting("1:00:00", "a job's longest life: 90 (minutes), 1:30:00")
    partition: Name | None = setting(None, "partition; by default Slurm's own choice")
    account: Name | None = setting(None, "account that pays; by default the user's own")
    modules: tuple[Name, ...] = setting((), "modules that the job loads first")
    directives: tuple[Directive, ...] = setting((), "further options of sbatch, e.g. '--qos=high'")
    python: Word = setting("", "the cluster's Python that has the workbench; by default the one that submits")
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

        >>> from workbench.clusters.slurm.kind import Slurm
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

    def wish(self, ranks: int, folder: Path) -> Wish:
        """The job for so many ranks."""
        nodes, tasks = self.shape(ranks)
        command = (self.interpreter, "-m", SUPERVISOR, str(folder))
        same = {n: getattr(self, n) for n in ("time", "partition", "account", "modules", "directives")}
        root = (
            Path(__file__).resolve().parents[3]
        )  # no path is needed where a Python has the package by itself
        path = "" if root.name in ("site-packages", "dist-packages") else str(root)
        return Wish(self.label, str(folder), command, nodes=nodes, tasks=tasks, path=path, **same)

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
            *(self.interpreter, "-m", RANKS, pool),
        ]
