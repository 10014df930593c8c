"""What is done on the head of hosts that are reached by ssh."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from typing_extensions import override

from workbench.base.errors import ClusterError
from workbench.clusters.ssh.settings import SshSettings
from workbench.clusters.ssh.survey import survey
from workbench.launch import mpiexec
from workbench.launch.gateway import Connection
from workbench.launch.head.fleet import Fleet, SpreadPool
from workbench.launch.head.pools import Supervised, make_folder, supervised, sweep
from workbench.launch.hosts.host import Host
from workbench.launch.package import START
from workbench.launch.processes import RANKS
from workbench.launch.reports import Finding, HostState, Outputs, Said, Status, quiet, table, unreached
from workbench.launch.site import Site

HOSTFILE = "hosts"  # in a pool's folder


@dataclass(frozen=True)
class Head(Site):
    """One mpiexec over all hosts, on the one of rank 0."""

    cluster: SshSettings

    @cached_property
    def fleet(self) -> Fleet:
        """The other hosts."""
        cluster = self.cluster
        return Fleet({member.host: cluster.way(member.host) for member in cluster.others}, cluster.cache)

    @override
    def open(self, ranks: int, said: Said = quiet) -> SpreadPool:
        cluster = self.cluster
        found, places = survey(cluster, self.fleet, said), cluster.placed(ranks)
        if findings := [*found.findings, *found.room(places)]:
            raise ClusterError(f"{cluster.name}: runs cannot start\n{table(findings)}")
        sweep()
        ways = {host: way for host, way in self.fleet.ways.items() if host in places}
        more: dict[str, Any] = {"environment": mpiexec.settings("self,sm,tcp"), "mark": cluster.mark}
        more["ways"] = [{"gateway": way.words(), "cache": cluster.cache} for way in ways.values()]
        command = partial(self._mpiexec, ranks, cluster.subnet or found.subnets)
        folder = make_folder(ranks, command, os.getpid(), **more)
        # A line a rank: mpiexec then has as much room as it needs, and puts each where it is told to.
        lines = ["localhost" if host == cluster.first else host.rpartition("@")[2] for host in places]
        (folder / HOSTFILE).write_text("".join(f"{line}\n" for line in lines))
        settings = cluster.model_dump(mode="json")
        return SpreadPool(settings, folder, ranks, supervisor=supervised(folder), fleet=self.fleet)

    def _mpiexec(self, ranks: int, subnets: str, pool: str) -> list[str]:
        """Command line of mpiexec over the hosts of a pool's host file."""
        cluster = self.cluster
        # It ends a run when its ssh ends, so a host that has become silent is not reported by that: guards do it.
        ssh = f"-T -F {cluster.ssh_config()} -o ServerAliveInterval=0 -o TCPKeepAlive=no"
        # Variables that it hands on to ranks on other hosts; those of Open MPI it hands on by itself.
        names = [name for name in mpiexec.settings() if not name.startswith(("OMPI_", "PRTE_"))]
        names += ["XDG_CACHE_HOME"] if cluster.cache else []
        nets = ["--mca", "btl_tcp_if_include", subnets, "--prtemca", "prte_if_include", subnets]
        return [
            mpiexec.find_mpiexec(),
            *("--with-ft", "ulfm", "-n", str(ranks)),
            *("--hostfile", str(Path(pool) / HOSTFILE), "--map-by", "seq"),
            # No tree of daemons: every host is reached from the head, with the head's own settings.
            *("--prtemca", "plm_ssh_args", ssh, "--prtemca", "plm_ssh_no_tree_spawn", "1"),
            # A connection on which nothing is said is no reason to end a run.
            *("--prtemca", "oob_tcp_keepalive_time", "0"),
            *(nets if subnets else []),
            *(word for name in names for word in ("-x", name)),
            *(cluster.python, "-c", START, cluster.package.key, RANKS, pool),
        ]

    @override
    def holder(self, words: dict[str, Any], home: Path) -> Supervised:
        return Supervised(words)

    @override
    def check(self, said: Said = quiet) -> list[Finding]:
        return survey(self.cluster, self.fleet, said).findings

    def status(self, said: Said = quiet) -> Status:
        """Each host and how many ranks of ours it has."""
        here, mark = Host(), self.cluster.mark

        def ask(link: Connection) -> tuple[Any, Any]:
            return link.ask("facts")[0], link.ask("ranks", pool=mark)[0]

        answers = self.fleet.visit(ask, said, "asking hosts")
        mine, rows = (here.do_facts(b""), here.do_ranks(b"", mark)), []
        for host, answer in {self.cluster.first: mine, **answers}.items():
            if isinstance(answer, ClusterError):
                rows.append(HostState(host, "unreached", note=unreached(host, str(answer)).found))
            else:
                facts, ranks = answer
                rows.append(
                    HostState(host, "up", ranks["ranks"], facts["cores"], facts["free"], facts["name"])
                )
        return Status(tuple(rows))

    def down(self, said: Said = quiet) -> None:
        """End our processes on all hosts, then take away what was brought there."""
        here, mark = Host(), self.cluster.mark
        here.do_sweep(b"", mark)
        self.fleet.each("sweep", said, "ending processes", pool=mark)
        self.fleet.each("clear", said, "clearing up")
        here.do_clear(b"")

    @override
    def run(self, command: Sequence[str], said: Said = quiet) -> Outputs:
        found = self.fleet.each("run", said, "running", command=list(command))
        here = Host().do_run(b"", list(command))
        results = {self.cluster.first: here, **found}
        return {host: (answer["code"], answer["output"]) for host, answer in results.items()}
