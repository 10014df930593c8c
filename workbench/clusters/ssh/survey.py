"""A look at all hosts of a cluster at the same time: what is wrong where, and what runs need to know of them."""

import ipaddress
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from workbench.base.errors import ClusterError
from workbench.clusters.ssh.settings import SshSettings
from workbench.launch.gateway import Connection
from workbench.launch.head.fleet import Fleet
from workbench.launch.hosts.host import Host
from workbench.launch.mpiexec import MEGABYTES_PER_RANK
from workbench.launch.reports import Finding, Said, unreached

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
                wanted = f"{need:.1f} GiB for {ranks} ranks; {fit} fit"
                found.append(Finding(host, "memory", f"{free:.1f} GiB free", wanted))
        return found


def survey(cluster: SshSettings, fleet: Fleet, said: Said) -> Survey:
    """Look at all hosts; bring the package to those that lack it."""
    head = {**Host().do_facts(b""), "skew": 0.0}
    answers = fleet.visit(_facts, said, "checking hosts")
    facts: dict[str, Facts] = {cluster.first: head}
    findings = [*_wrong(cluster.first, head, head)]
    for host, answer in answers.items():
        if isinstance(answer, ClusterError):
            findings.append(unreached(host, str(answer), cluster.known_hosts))
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
    names = {host: known["name"] for host, known in facts.items()}
    counts, wanted = Counter(names.values()), "a host name of its own, and each host named once"
    return [Finding(host, "name", name, wanted) for host, name in names.items() if counts[name] > 1]


def _reached(facts: Facts) -> list[str]:
    """The network of the address at which a host was reached."""
    words = facts["came"].split()
    for network in facts["networks"]:
        found = ipaddress.ip_interface(network)
        if len(words) == 4 and str(found.ip) == words[2]:
            return [str(found.network)]
    return []
