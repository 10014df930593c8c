"""Several hosts, to which work is sent in parallel: find problems, collect facts that runs need, copy data."""

import ipaddress
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from typing import Any

from workbench.core.base.errors import ClusterError
from workbench.mpi.launch.gateway import HOST, Connection, Gateway
from workbench.mpi.launch.hosts.host import Host
from workbench.mpi.launch.mpiexec import MEGABYTES_PER_RANK, files_needed
from workbench.mpi.launch.prepared import has, send
from workbench.mpi.launch.reports import Finding, ProgressCallback, no_progress, unreached

MAX_OPENING_CONNECTIONS = 32  # max number of connections that are opened at the same time
MAX_CLOCK_SKEW_S = 2.0  # max difference of wall clocks, s
EXCHANGES = 3
MIN_FREE_GIB = 0.25  # min free disk space on every host, GiB
Facts = dict[str, Any]  # result of `Host.do_facts`, with `skew` in s


@dataclass(frozen=True)
class Fleet:
    """Hosts and their gateways. `cache`: their cache folder, if it is not the default one."""

    gateways: dict[str, Gateway]
    cache: str | None = None

    def visit(
        self, work: Callable[[Connection], Any], progress: ProgressCallback, what: str
    ) -> dict[str, Any]:
        """Connect to each host and call `work` there. Return its result, or the `ClusterError`, by host."""
        found: dict[str, Any] = dict.fromkeys(self.gateways)
        progress(what, 0, len(found))
        with ThreadPoolExecutor(MAX_OPENING_CONNECTIONS) as threads:
            waiting = {
                threads.submit(self._one, gateway, work): host for host, gateway in self.gateways.items()
            }
            for done, future in enumerate(as_completed(waiting), 1):
                found[waiting[future]] = future.result()
                progress(what, done, len(found))
        return found

    def _one(self, gateway: Gateway, work: Callable[[Connection], Any]) -> Any:
        try:
            with gateway.connect(HOST, cache=self.cache) as link:
                return work(link)
        except ClusterError as error:
            return error

    def each(
        self, question: str, progress: ProgressCallback, what: str, **arguments: Any
    ) -> dict[str, dict[str, Any]]:
        """Ask each host the same question. Return the answers of the hosts that were reached."""
        found = self.visit(lambda link: link.ask(question, **arguments)[0], progress, what)
        return {host: answer for host, answer in found.items() if not isinstance(answer, ClusterError)}

    def bring(self, data: Any, progress: ProgressCallback) -> None:
        """Copy prepared data from this host to all others. Raises `ClusterError`."""
        if not has(**data):
            why = "they should have been brought here"
            raise ClusterError(f"the data are not on this host ({data['key']}); {why}")
        found = self.visit(lambda link: send(link, data, no_progress), progress, "bringing data to hosts")
        for host, error in found.items():
            if isinstance(error, ClusterError):
                raise ClusterError(f"the data could not be brought to {host} ({error})")


@dataclass(frozen=True)
class Survey:
    """Findings of a survey. `facts`: facts of each host by its name in the cluster's file, the head first."""

    facts: dict[str, Facts]
    findings: list[Finding] = field(default_factory=list)

    @property
    def subnets(self) -> str:
        """Networks in which the head reaches the others, for MPI. Empty if unknown, or if there are no others."""
        found = {subnet for facts in self.facts.values() for subnet in _reached(facts)}
        return ",".join(sorted(found))

    def room(self, places: Sequence[str]) -> list[Finding]:
        """Return the hosts that lack memory or open files for their ranks."""
        found = []
        known = Counter(place for place in places if place in self.facts)
        for host, ranks in known.items():
            need, free = ranks * MEGABYTES_PER_RANK / 1024, float(self.facts[host]["free"])
            if need > free:
                fit = int(free * 1024 // MEGABYTES_PER_RANK)
                wanted = f"{need:.1f} GiB for {ranks} ranks; {fit} fit"
                found.append(Finding(host, "memory", f"{free:.1f} GiB free", wanted))
        return found + self.open_files(places)

    def open_files(self, places: Sequence[str]) -> list[Finding]:
        """Return the hosts whose limit of open files is too low for their ranks."""
        found = []
        known = Counter(place for place in places if place in self.facts)
        for host, ranks in known.items():
            # the head's mpiexec keeps a connection to one daemon on each other host
            daemons = len(known) - 1 if host == places[0] else 0
            files, limit = files_needed(ranks, daemons), self.facts[host]["files"]
            if limit is not None and limit < files:
                wanted = f"{files} for {ranks} ranks: raise ulimit -n there"
                found.append(Finding(host, "open files", f"{limit} at most", wanted))
        return found


def survey(fleet: Fleet, first: str, progress: ProgressCallback, known_hosts: str | None) -> Survey:
    """Survey all hosts, and bring the package to those that lack it."""
    head = {**Host().do_facts(b""), "skew": 0.0}
    answers = fleet.visit(_facts, progress, "checking hosts")
    facts: dict[str, Facts] = {first: head}
    findings = [*_wrong(first, head, head)]
    for host, answer in answers.items():
        if isinstance(answer, ClusterError):
            findings.append(unreached(host, str(answer), known_hosts))
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
    """Return the facts of a host that differ from the head's, or are insufficient."""
    found = []
    if facts["python"].rsplit(".", 1)[0] != head["python"].rsplit(".", 1)[0]:
        found.append(Finding(host, "Python", facts["python"], f"{head['python']}, as on the head"))
    for name, version in head["versions"].items():
        if (theirs := facts["versions"][name]) != version or version == "missing":
            wanted = "installed" if version == "missing" else f"{version}, as on the head"
            found.append(Finding(host, name, theirs, wanted))
    if abs(facts["skew"]) > MAX_CLOCK_SKEW_S:
        found.append(
            Finding(host, "clock", f"{facts['skew']:+.1f} s", f"within {MAX_CLOCK_SKEW_S:g} s of the head's")
        )
    if facts["free"] < MIN_FREE_GIB:
        found.append(Finding(host, "memory", f"{facts['free']:.2f} GiB free", f"{MIN_FREE_GIB:g} GiB"))
    return found


def _twice(facts: dict[str, Facts]) -> list[Finding]:
    """Return findings for hosts with equal host names, which ranks could not distinguish."""
    names = {host: known["name"] for host, known in facts.items()}
    counts, wanted = Counter(names.values()), "a unique host name, and each host listed once"
    return [Finding(host, "name", name, wanted) for host, name in names.items() if counts[name] > 1]


def _reached(facts: Facts) -> list[str]:
    """Return the network of the address at which a host was reached."""
    addresses = facts["came"].split()
    for network in facts["networks"]:
        found = ipaddress.ip_interface(network)
        if len(addresses) == 4 and str(found.ip) == addresses[2]:
            return [str(found.network)]
    return []
