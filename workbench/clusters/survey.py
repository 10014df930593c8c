"""A look at all hosts of a cluster at the same time: what is wrong where, and what runs need to know of them."""

from __future__ import annotations

import ipaddress
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from workbench.base.errors import ClusterError
from workbench.clusters.base import Cluster, Finding, HostState, Said, quiet
from workbench.launch.client.gateway import Connection
from workbench.launch.head.mpiexec import MEGABYTES_PER_RANK
from workbench.launch.hosts.host import Host

if TYPE_CHECKING:
    from workbench.clusters.ssh import Ssh

SKEW = 2.0  # s that wall clocks may differ by
EXCHANGES = 3
LEAST = 0.25  # GiB that have to be free on every host
Facts = dict[str, Any]  # see `Host.do_facts`; with `skew`, s


@dataclass(frozen=True)
class Survey:
    """What was found; `facts` by the hosts' names in the cluster's file, the head's first."""

    facts: dict[str, Facts]
    findings: list[Finding] = field(default_factory=list)

    @property
    def subnets(self) -> str:
        """The networks in which the head reaches the others, for MPI; empty: unknown, or nobody else is there."""
        found = {subnet for facts in self.facts.values() for subnet in _reached(facts)}
        return ",".join(sorted(found))

    def room(self, places: Sequence[str]) -> list[Finding]:
        """Hosts without memory for the ranks that go there."""
        found = []
        known = Counter(place for place in places if place in self.facts)
        for host, ranks in known.items():
            need, free = ranks * MEGABYTES_PER_RANK / 1024, float(self.facts[host]["free"])
            if need > free:
                fit = int(free * 1024 // MEGABYTES_PER_RANK)
                found.append(
                    Finding(
                        host, "memory", f"{free:.1f} GiB free", f"{need:.1f} GiB for {ranks} ranks; {fit} fit"
                    )
                )
        return found


def survey(cluster: Ssh, said: Said = quiet) -> Survey:
    """Look at all hosts; bring the package to those that lack it."""
    head = {**Host().do_facts(b""), "skew": 0.0}
    answers = cluster.fleet.visit(_facts, said, "checking hosts")
    facts: dict[str, Facts] = {cluster.first: head}
    findings = [*_wrong(cluster.first, head, head)]
    for host, answer in answers.items():
        if isinstance(answer, ClusterError):
            findings.append(unreached(cluster, host, str(answer)))
        else:
            facts[host] = answer
            findings += _wrong(host, answer, head)
    return Survey(facts, findings + _twice(facts))


def _facts(link: Connection) -> Facts:
    facts, _ = link.ask("facts")
    skews = []
    for _ in range(EXCHANGES):
        before = time.time()
        theirs = link.ask("time")[0]["time"]
        after = time.time()
        skews.append((after - before, theirs - (before + after) / 2))
    return {**facts, "skew": min(skews)[1]}


def _wrong(host: str, facts: Facts, head: Facts) -> list[Finding]:
    """What differs from the head, or is not enough."""
    found = []
    if facts["python"].rsplit(".", 1)[0] != head["python"].rsplit(".", 1)[0]:
        found.append(Finding(host, "Python", facts["python"], f"{head['python']}, as on the head"))
    for name, version in head["versions"].items():
        if (theirs := facts["versions"][name]) != version or version == "missing":
            wanted = "installed" if version == "missing" else f"{version}, as on the head"
            found.append(Finding(host, name, theirs, wanted))
    if abs(facts["skew"]) > SKEW:
        found.append(Finding(host, "clock", f"{facts['skew']:+.1f} s", f"within {SKEW:g} s of the head's"))
    if facts["free"] < LEAST:
        found.append(Finding(host, "memory", f"{facts['free']:.2f} GiB free", f"{LEAST:g} GiB"))
    return found


def _twice(facts: dict[str, Facts]) -> list[Finding]:
    """Hosts with the same name for themselves: ranks could not tell them apart."""
    counts = Counter(known["name"] for known in facts.values())
    return [
        Finding(host, "name", known["name"], "a host name of its own, and each host named once")
        for host, known in facts.items()
        if counts[known["name"]] > 1
    ]


def unreached(cluster: Cluster, host: str, said: str) -> Finding:
    """Why a host could not be talked to, from the last words of ssh or Python."""
    text = said.removeprefix(f"{host}: ")
    if "verification failed" in text or "host key" in text.lower():
        return Finding(
            host, "host key", text, f"its key in {cluster.files().get('known_hosts', '~/.ssh/known_hosts')}"
        )
    if "Permission denied" in text:
        return Finding(host, "login", text, "a key that opens it without a question")
    if "not found" in text or "No such file" in text:
        return Finding(host, "Python", text, "the path of its Python, under python in the cluster's file")
    if "Error" in text:
        return Finding(
            host, "packages", text, "the workbench's environment, see python in the cluster's file"
        )
    return Finding(host, "connection", text, "reached by ssh")


def _reached(facts: Facts) -> list[str]:
    """The network of the address at which a host was reached."""
    words = facts["came"].split()
    for network in facts["networks"]:
        found = ipaddress.ip_interface(network)
        if len(words) == 4 and str(found.ip) == words[2]:
            return [str(found.network)]
    return []


def states(cluster: Ssh, said: Said) -> tuple[HostState, ...]:
    """Each host as it is now."""
    here = Host()
    head = _state(cluster.first, here.do_facts(b""), here.do_ranks(b"", cluster.mark)["ranks"])
    answers = cluster.fleet.visit(
        lambda link: (link.ask("facts")[0], link.ask("ranks", pool=cluster.mark)[0]), said, "asking hosts"
    )
    rows = [
        HostState(host, "unreached", note=unreached(cluster, host, str(answer)).found)
        if isinstance(answer, ClusterError)
        else _state(host, answer[0], answer[1]["ranks"])
        for host, answer in answers.items()
    ]
    return (head, *rows)


def _state(host: str, facts: Facts, ranks: int) -> HostState:
    return HostState(host, "up", ranks, facts["cores"], facts["free"], facts["name"])
