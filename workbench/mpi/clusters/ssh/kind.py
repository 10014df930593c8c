"""Hosts that are reached by ssh: one mpiexec over all of them, started on the head.

The head (the first host, another one, or this machine) has rank 0 and the supervisor. It is reached through one ssh
connection. It reaches the other hosts itself, so hosts behind the head need not be reachable from here. Host keys are
checked strictly. Nothing has to be shared: package and data are copied to each host once, into the user's cache. If
the hosts have a file system in common, `shared` names a folder on it. Package and data are then copied there once.

ssh gets a configuration file with the strict options first, followed by the user's own file.
"""

import contextlib
import ipaddress
import os
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

from platformdirs import user_state_path
from pydantic import AfterValidator, field_validator, model_validator
from typing_extensions import override

from workbench.core.base.errors import ClusterError
from workbench.core.base.files import private_folder, writable_folder, write_json
from workbench.core.base.reading import read_text
from workbench.core.base.settings import SettingError, Settings, setting, user_path
from workbench.core.base.text import read_json
from workbench.mpi.clusters.base import Cluster, HostName, Word, placed
from workbench.mpi.clusters.ssh.fleet import Fleet, survey
from workbench.mpi.launch import mpiexec
from workbench.mpi.launch.gateway import Connection, Gateway
from workbench.mpi.launch.head.pools import AttachedPool, ChildPool, make_folder, remove_stale, supervised
from workbench.mpi.launch.hosts.host import Host
from workbench.mpi.launch.package import START_CODE, Package, packed
from workbench.mpi.launch.processes import RANKS_MODULE
from workbench.mpi.launch.reports import (
    Finding,
    HostState,
    Outputs,
    ProgressCallback,
    Status,
    no_progress,
    table,
    unreached,
)
from workbench.mpi.launch.site import RunOwner, Site
from workbench.mpi.launch.task import Task

THIS_HOST = "here"  # name of a head that is this machine
HOSTFILE = "hosts"  # file in a pool's folder
_LINE = re.compile(r"(?P<host>\S+)(?:\s+slots\s*=?\s*(?P<slots>\d+))?")


def _subnet(text: str) -> str:
    ipaddress.ip_network(text)  # raises a ValueError with the message
    return text


def _quoted(path: str) -> str:
    """Return a path as ssh's configuration takes it."""
    return '"' + path.replace('"', "") + '"' if " " in path else path


class HostSpec(Settings):
    """One host and its share of the workers."""

    host: HostName = setting(..., "host name or address")
    slots: int = setting(1, "weight of the host's share of the workers; 0: the master alone", ge=0)


class Ssh(Cluster):
    """Cluster of hosts that are reached by ssh."""

    kind = "ssh"
    hosts: tuple[HostSpec, ...] = setting((), "names of the hosts, or {host: NAME, slots: NUMBER}")
    hostfile: str | None = setting(
        None, "file with the hosts, in place of `hosts`, with lines such as 'NAME slots=4'"
    )
    head: HostName | None = setting(
        None, "host of the master; by default the first of hosts; 'here' is this machine"
    )
    user: Word | None = setting(None, "login name on the hosts")
    port: int | None = setting(None, "port of sshd", ge=1, le=65535)
    identity: Word | None = setting(None, "file of the private key that opens the head")
    config: Word | None = setting(None, "configuration file of ssh; by default ~/.ssh/config")
    known_hosts: Word | None = setting(
        None,
        "file with the hosts' keys; by default NAME.known_hosts beside the cluster's file, or without it ssh's own"
        " file",
    )
    python: Word = setting("python3", "Python of the hosts, with the packages of straggler-workbench[mpi]")
    path: Word | None = setting(
        None, "folder on the hosts that holds the package; by default the package is copied to the hosts"
    )
    shared: Word | None = setting(
        None, "folder on a file system that all hosts share, for package, data and runs"
    )
    subnet: Annotated[str, AfterValidator(_subnet)] | None = setting(
        None,
        "network of MPI's messages, e.g. 10.0.0.0/24; by default the one in which the head reaches the hosts",
    )
    timeout: float = setting(10.0, "time to wait for a host", "s", gt=0)

    elsewhere: ClassVar[bool] = True

    @field_validator("hosts", mode="before")
    @classmethod
    def _members(cls, given: Any) -> Any:
        """Turn a plain name into a host with one slot."""
        if not isinstance(given, list | tuple | None):
            raise ValueError(f"write a list, e.g. [node1, node2], not {given!r:.60}")
        return [{"host": one} if isinstance(one, str) else one for one in given or ()]

    @model_validator(mode="after")
    def _some(self) -> Self:
        if not self.hosts and self.hostfile is None:
            raise SettingError("hosts: is missing; name at least one host, or a hostfile")
        if self.hosts and self.hostfile is not None:
            raise SettingError(f"hostfile = {self.hostfile!r}: hosts are given as well; keep one of them")
        twice = {m.host for m in self.hosts if [n.host for n in self.hosts].count(m.host) > 1}
        if twice:
            raise SettingError(f"hosts = {min(twice)!r}: is named twice; give it slots: 2 instead")
        if self.hosts and not any(member.slots for member in self.hosts):
            raise SettingError("hosts.slots = 0: no host has slots for workers; give one of them slots: 1")
        return self

    def located(self, folder: Path) -> Self:
        """Read the host file, and resolve paths against the folder of the cluster's file."""
        changes: dict[str, Any] = {}
        for name in ("identity", "config", "known_hosts"):
            if (value := getattr(self, name)) is not None:
                changes[name] = str(folder / user_path(value, name))
                if not Path(changes[name]).is_file():
                    raise SettingError(f"{name} = {value!r}: no such file")
        beside = folder / f"{self.name}.known_hosts"
        if self.known_hosts is None and beside.is_file():
            changes["known_hosts"] = str(beside)
        if self.hostfile is not None:
            changes["hosts"] = read_hostfile(folder / user_path(self.hostfile, "hostfile"))
            changes["hostfile"] = None
        return self.replace(**changes) if changes else self

    @property
    def first(self) -> str:
        """Name of the head."""
        return self.head or self.hosts[0].host

    @property
    def others(self) -> tuple[HostSpec, ...]:
        """Hosts other than the head."""
        return tuple(member for member in self.hosts if member.host != self.first)

    @property
    def cache(self) -> str | None:
        """Cache folder of the hosts, if it is not the default one."""
        return self.shared

    @property
    def package(self) -> Package:
        """Package on the hosts: an archive to copy there, or the folder `path`."""
        return packed() if self.path is None else Package(self.path)

    @property
    def gateway(self) -> Gateway | None:
        """Connection to the head."""
        return None if self.first == THIS_HOST else self.gateway_to(self.first)

    def gateway_to(self, host: str) -> Gateway:
        """Return the connection to a host from this machine."""
        command = ("ssh", "-T", "-F", str(self.ssh_config()), "--", host)
        return Gateway(host, command, self.python, self.package, 3 * self.timeout)

    def ssh_config(self) -> Path:
        """Return the configuration file for ssh, written if needed. Its options precede the user's."""
        # BatchMode means that ssh never asks the user
        lines = ["BatchMode yes", "StrictHostKeyChecking yes", "UpdateHostKeys no"]
        lines += [f"ConnectTimeout {max(int(self.timeout), 1)}", "LogLevel ERROR"]
        # s between keep-alive messages; max number without an answer
        lines += ["ServerAliveInterval 5", "ServerAliveCountMax 4"]
        lines += ["ClearAllForwardings yes", "ForwardAgent no"]
        lines += [f"User {self.user}"] * bool(self.user) + [f"Port {self.port}"] * bool(self.port)
        if self.known_hosts is not None:
            lines += [f"UserKnownHostsFile {_quoted(self.known_hosts)}", "GlobalKnownHostsFile /dev/null"]
        if self.identity is not None:
            lines += [f"IdentityFile {_quoted(self.identity)}", "IdentitiesOnly yes"]
        lines.append(f"Include {_quoted(self.config or '~/.ssh/config')}")
        return placed("ssh", "".join(f"{line}\n" for line in lines))

    def files(self) -> dict[str, str]:
        """Return the files that the head needs besides the settings."""
        return {} if self.known_hosts is None else {"known_hosts": self.known_hosts}

    def carried(self) -> dict[str, Any]:
        """Return the settings for the head, which has its own keys."""
        return {**self.model_dump(mode="json"), "identity": None, "config": None}

    def without(self, hosts: Sequence[str]) -> Self | None:
        """Return the cluster without some hosts. None if the head is lost, or no workers are left."""
        left = tuple(member for member in self.hosts if member.host not in hosts)
        if len(left) == len(self.hosts) or self.first in hosts or not any(member.slots for member in left):
            return None
        return self.replace(hosts=left, head=self.first)

    def placed(self, ranks: int) -> list[str]:
        """Return the host of each rank.

        The master is on the head, and each worker on the host with the fewest ranks per slot.

        >>> from workbench.mpi.clusters.ssh import Ssh
        >>> Ssh(hosts=["a", {"host": "b", "slots": 2}]).placed(6)
        ['a', 'b', 'b', 'b', 'a', 'b']
        """
        slots = {member.host: member.slots for member in self.hosts if member.slots}
        counts = dict.fromkeys(slots, 0)
        counts[self.first] = counts.get(self.first, 0) + 1
        found = [self.first]
        for _ in range(ranks - 1):
            host = min(slots, key=lambda name: (counts[name] + 1) / slots[name])
            counts[host] += 1
            found.append(host)
        return found

    @override
    def here(self) -> Site:
        return Head(self)

    def up(self, progress: ProgressCallback = no_progress) -> None:
        """Check all hosts and bring the package there."""
        opened = self._since is None
        writable_folder(self._noted.parent, "XDG_STATE_HOME")
        try:
            super().up(progress)
            if opened:
                private_folder(self._noted.parent)
                write_json(self._noted, {"since": time.time()})
        except BaseException:
            if opened:
                with contextlib.suppress(ClusterError):
                    self.down(progress)
            raise

    @override
    def down(self, progress: ProgressCallback = no_progress) -> None:
        super().down(progress)
        self._noted.unlink(missing_ok=True)

    @override
    def status(self, progress: ProgressCallback = no_progress) -> Status:
        found = super().status(progress)
        if (since := self._since) is None:
            return replace(found, note="is not up: nothing is counted")
        hours = len(found.hosts) * max(time.time() - since, 0.0) / 3600
        return replace(found, hours=hours, cost=None if self.price is None else hours * self.price)

    @property
    def _noted(self) -> Path:
        """Path of the file that stores the time of `up`."""
        return user_state_path("straggler-workbench") / "up" / f"{self.name}.json"

    @property
    def _since(self) -> float | None:
        """Time of `up`, s since 1970, or None if the cluster is not up."""
        try:
            return float(read_json(self._noted)["since"])
        except (OSError, ValueError, KeyError, TypeError):
            return None


def read_hostfile(path: Path) -> list[dict[str, str | int]]:
    r"""Read hosts and slots from a file in Open MPI's format.

    Each line has a name, with optional ``slots=4`` or ``slots 4``. ``#`` begins a comment. A host that is listed
    several times has as many slots.

    Raises `SettingError` for a file that cannot be read, or a line in another format.

    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "hosts"
    >>> _ = file.write_text("# mine\nnode1 slots=4\nnode2\nnode2\n")
    >>> read_hostfile(file)
    [{'host': 'node1', 'slots': 4}, {'host': 'node2', 'slots': 2}]
    """
    try:
        lines = read_text(path).splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise SettingError(f"hostfile = {str(path)!r}: cannot be read ({error})") from None
    slots: dict[str, int] = {}
    for number, line in enumerate(lines, 1):
        text = line.partition("#")[0].strip()
        if not text:
            continue
        if (match := _LINE.fullmatch(text)) is None:
            why = f"line {number} is {text!r}; write a name, perhaps with slots=4 behind it"
            raise SettingError(f"hostfile = {str(path)!r}: {why}")
        slots[match["host"]] = slots.get(match["host"], 0) + int(match["slots"] or 1)
    return [{"host": host, "slots": count} for host, count in slots.items()]


@dataclass
class SpreadPool(ChildPool):
    """Pool over several hosts, with its supervisor on this one."""

    fleet: Fleet = field(kw_only=True)
    brought: set[str] = field(default_factory=set)  # keys of data that all hosts have

    def submit(self, task: Task, progress: ProgressCallback = no_progress) -> RunOwner:
        """Submit a run (see `Pool.submit`), after copying its data to all hosts."""
        if task.data is not None and task.data["key"] not in self.brought:
            self.fleet.bring(task.data, progress)
            self.brought.add(task.data["key"])
        return super().submit(task)


@dataclass(frozen=True)
class Head(Site):
    """Site on the host of rank 0: one mpiexec over all hosts."""

    cluster: Ssh

    @cached_property
    def fleet(self) -> Fleet:
        """All hosts except this one (the head), with the gateways to them."""
        cluster = self.cluster
        return Fleet(
            {member.host: cluster.gateway_to(member.host) for member in cluster.others}, cluster.cache
        )

    @override
    def open(self, ranks: int, progress: ProgressCallback = no_progress) -> SpreadPool:
        cluster = self.cluster
        found = survey(self.fleet, cluster.first, progress, cluster.known_hosts)
        places = cluster.placed(ranks)
        if findings := [*found.findings, *found.room(places)]:
            raise ClusterError(f"{cluster.name}: runs cannot start\n{table(findings)}")
        remove_stale()
        gateways = {host: gateway for host, gateway in self.fleet.gateways.items() if host in places}
        more: dict[str, Any] = {"environment": mpiexec.settings("self,sm,tcp"), "mark": cluster.mark}
        more["ways"] = [
            {"gateway": gateway.as_dict(), "cache": cluster.cache} for gateway in gateways.values()
        ]
        command = partial(self._mpiexec, ranks, cluster.subnet or found.subnets)
        folder = make_folder(ranks, command, os.getpid(), **more)
        # One line per rank: mpiexec then has enough slots, and places each rank as listed.
        lines = ["localhost" if host == cluster.first else host.rpartition("@")[2] for host in places]
        (folder / HOSTFILE).write_text("".join(f"{line}\n" for line in lines))
        settings = cluster.model_dump(mode="json")
        return SpreadPool(settings, folder, ranks, supervisor=supervised(folder), fleet=self.fleet)

    def _mpiexec(self, ranks: int, subnets: str, pool: str) -> list[str]:
        """Return the command line of mpiexec over the hosts of a pool's host file."""
        cluster = self.cluster
        # mpiexec ends a run when one of its ssh processes ends. They must therefore outlast a silent host: the host
        # monitor decides when a host is lost.
        ssh = f"-T -F {cluster.ssh_config()} -o ServerAliveInterval=0 -o TCPKeepAlive=no"
        # Variables that mpiexec passes to ranks on other hosts. It passes those of Open MPI by itself.
        names = [name for name in mpiexec.settings() if not name.startswith(("OMPI_", "PRTE_"))]
        names += ["XDG_CACHE_HOME"] if cluster.cache else []
        nets = ["--mca", "btl_tcp_if_include", subnets, "--prtemca", "prte_if_include", subnets]
        return [
            mpiexec.find_mpiexec(),
            *("--with-ft", "ulfm", "-n", str(ranks)),
            *("--hostfile", str(Path(pool) / HOSTFILE), "--map-by", "seq"),
            # no tree of daemons, so that every host is reached from the head, with the head's ssh settings
            *("--prtemca", "plm_ssh_args", ssh, "--prtemca", "plm_ssh_no_tree_spawn", "1"),
            # so that a silent connection does not end a run
            *("--prtemca", "oob_tcp_keepalive_time", "0"),
            *(nets if subnets else []),
            *(word for name in names for word in ("-x", name)),
            *(cluster.python, "-c", START_CODE, cluster.package.key, RANKS_MODULE, pool),
        ]

    @override
    def owner(self, fields: dict[str, Any], home: Path) -> AttachedPool:
        return AttachedPool.of(fields)

    @override
    def check(self, progress: ProgressCallback = no_progress) -> list[Finding]:
        found = survey(self.fleet, self.cluster.first, progress, self.cluster.known_hosts)
        every_core = [host for host, facts in found.facts.items() for _ in range(facts["cores"])]
        return found.findings + found.open_files(every_core)

    def status(self, progress: ProgressCallback = no_progress) -> Status:
        """Return each host with its number of ranks of this cluster."""
        here, mark = Host(), self.cluster.mark

        def ask(link: Connection) -> tuple[Any, Any]:
            return link.ask("facts")[0], link.ask("ranks", pool=mark)[0]

        answers = self.fleet.visit(ask, progress, "asking hosts")
        mine, rows = (here.do_facts(b""), here.do_ranks(b"", mark)), []
        for host, answer in {self.cluster.first: mine, **answers}.items():
            if isinstance(answer, ClusterError):
                rows.append(HostState(host, "unreached", note=unreached(host, str(answer)).found))
            else:
                facts, ranks = answer
                seen = (facts["cores"], facts["free"], facts["name"])
                rows.append(HostState(host, "up", ranks["ranks"], *seen))
        return Status(tuple(rows))

    def down(self, progress: ProgressCallback = no_progress) -> None:
        """End the workbench's processes on all hosts, then remove the package and runs there, but not prepared data."""
        here, mark = Host(), self.cluster.mark
        here.do_sweep(b"", mark)
        self.fleet.each("sweep", progress, "ending processes", pool=mark)
        self.fleet.each("clear", progress, "clearing up")
        here.do_clear(b"")

    @override
    def run(self, command: Sequence[str], progress: ProgressCallback = no_progress) -> Outputs:
        found = self.fleet.each("run", progress, "running", command=list(command))
        here = Host().do_run(b"", list(command))
        results = {self.cluster.first: here, **found}
        return {host: (answer["code"], answer["output"]) for host, answer in results.items()}
