"""Work on several hosts at the same time, and pools whose ranks are spread over them."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.base.errors import ClusterError
from workbench.launch.client.gateway import Connection, Gateway
from workbench.launch.client.package import START
from workbench.launch.client.pools import ChildPool, Said, make_folder, supervised, sweep
from workbench.launch.client.sshconfig import for_mpiexec
from workbench.launch.head import mpiexec
from workbench.launch.hosts.host import Host
from workbench.launch.task import Task

if TYPE_CHECKING:
    from workbench.clusters.ssh import Ssh

AT_ONCE = 32  # connections that are opened at the same time
HOSTFILE = "hosts"


@dataclass(frozen=True)
class Fleet:
    """Hosts and how each is reached; `cache`: their cache folder, where it is not the usual one."""

    ways: dict[str, Gateway]
    cache: str | None = None

    def visit(self, work: Callable[[Connection], Any], said: Said, what: str) -> dict[str, Any]:
        """Connect to each host and do something there; its result, or the `ClusterError` that came of it, by host."""
        found: dict[str, Any] = dict.fromkeys(self.ways)
        said(what, 0, len(found))
        with ThreadPoolExecutor(AT_ONCE) as threads:
            waiting = {threads.submit(self._one, way, work): host for host, way in self.ways.items()}
            for done, future in enumerate(as_completed(waiting), 1):
                found[waiting[future]] = future.result()
                said(what, done, len(found))
        return found

    def _one(self, way: Gateway, work: Callable[[Connection], Any]) -> Any:
        try:
            with way.connect("workbench.launch.hosts.host", cache=self.cache) as link:
                return work(link)
        except ClusterError as error:
            return error

    def each(self, question: str, said: Said, what: str, **words: Any) -> dict[str, dict[str, Any]]:
        """Ask each host the same; answers of those that are reached."""
        found = self.visit(lambda link: link.ask(question, **words)[0], said, what)
        return {host: answer for host, answer in found.items() if not isinstance(answer, ClusterError)}


@dataclass
class SpreadPool(ChildPool):
    """A pool over several hosts, with its supervisor on this one."""

    brought: set[str] = field(default_factory=set)  # keys of data that all hosts have

    def submit(self, task: Task, said: Said | None = None) -> None:
        """See `Pool.submit`; the data are brought to all hosts first."""
        if task.data is not None and task.data["key"] not in self.brought:
            spread(self.cluster.fleet, task.data, said or (lambda what, done, total: None))  # type: ignore[attr-defined]
            self.brought.add(task.data["key"])
        super().submit(task)


def spread(fleet: Fleet, data: Any, said: Said) -> None:
    """Have prepared data on this host and on all others; raises `ClusterError`."""
    from workbench.clusters.remote import ship

    if not Host().do_have(b"", **data)["have"]:
        raise ClusterError(
            f"the data are not on this host ({data['key']}); they should have been brought here"
        )
    found = fleet.visit(
        lambda link: ship(link, data, lambda what, done, total: None), said, "bringing data to hosts"
    )
    failed = {host: answer for host, answer in found.items() if isinstance(answer, ClusterError)}
    for host, error in failed.items():
        raise ClusterError(f"the data could not be brought to {host} ({error})")


def open_over(cluster: Ssh, ranks: int, subnets: str) -> SpreadPool:
    """Start mpiexec over the hosts, under a supervisor on this one, which is the head."""
    sweep()
    places = cluster.placed(ranks)
    ways = [
        {
            "host": m.host,
            "command": list(w.command),
            "python": w.python,
            "key": w.package.key,
            "cache": cluster.cache,
        }
        | {"patience": w.patience}
        for m in cluster.others
        if m.host in places
        for w in (cluster.way(m.host),)
    ]
    folder = make_folder(
        ranks,
        lambda pool: command(cluster, ranks, subnets, pool),
        os.getpid(),
        mark=cluster.mark,
        environment=mpiexec.settings("self,sm,tcp"),
        ways=ways,
    )
    # A line a rank: mpiexec then has as much room as it needs, and puts each where it is told to.
    lines = ["localhost" if host == cluster.first else host.rpartition("@")[2] for host in places]
    (folder / HOSTFILE).write_text("".join(f"{line}\n" for line in lines))
    return SpreadPool(cluster, folder, ranks, supervisor=supervised(folder))


def command(cluster: Ssh, ranks: int, subnets: str, pool: str) -> list[str]:
    """Command line of mpiexec over the hosts of a pool's host file."""
    passed = [word for name in exported(cluster) for word in ("-x", name)]
    nets = (
        ["--mca", "btl_tcp_if_include", subnets, "--prtemca", "prte_if_include", subnets] if subnets else []
    )
    return [
        mpiexec.find_mpiexec(),
        *("--with-ft", "ulfm", "-n", str(ranks)),
        *("--hostfile", str(Path(pool) / HOSTFILE), "--map-by", "seq"),
        # No tree of daemons: every host is reached from the head, with the head's own settings.
        *("--prtemca", "plm_ssh_args", for_mpiexec(cluster), "--prtemca", "plm_ssh_no_tree_spawn", "1"),
        # A connection on which nothing is said is no reason to end a run.
        *("--prtemca", "oob_tcp_keepalive_time", "0"),
        *nets,
        *passed,
        *(cluster.python, "-c", START, cluster.package.key, "workbench.launch.rank.main", pool),
    ]


def exported(cluster: Ssh) -> list[str]:
    """Variables that mpiexec hands on to ranks on other hosts; those of Open MPI it hands on by itself."""
    own = [name for name in mpiexec.settings() if not name.startswith(("OMPI_", "PRTE_"))]
    return [*own, "XDG_CACHE_HOME"] if cluster.cache else own
