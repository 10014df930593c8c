"""Reports on hosts: progress, findings, and current state."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter

ProgressCallback = Callable[[str, int, int], None]  # current step, number done, total number


def no_progress(what: str, done: int, total: int) -> None:
    """Ignore the progress."""


@dataclass(frozen=True)
class Finding:
    """One problem of a host: what was checked, what was found, and what is wanted."""

    host: str
    what: str
    found: str
    wanted: str


def table(findings: Sequence[Finding]) -> str:
    """Return findings as lines of text in columns."""
    rows = [("host", "what", "found", "wanted"), *((f.host, f.what, f.found, f.wanted) for f in findings)]
    return "\n".join(aligned(rows, "<<<<"))


def aligned(rows: Sequence[Sequence[str]], how: str) -> list[str]:
    """Return rows of cells as lines of text in columns. `how`: < (left) or > (right) for each column."""
    columns = list(zip(how, (max(map(len, column)) for column in zip(*rows, strict=True)), strict=True))
    padded = [[f"{cell:{h}{width}}" for cell, (h, width) in zip(row, columns, strict=True)] for row in rows]
    return ["  ".join(cells).rstrip() for cells in padded]


@dataclass(frozen=True)
class HostState:
    """State of one host, as `Cluster.status` returns it."""

    host: str
    state: str  # "up", or why it is not
    ranks: int = 0  # number of the workbench's ranks
    cores: int | None = None
    free: float | None = None  # available memory, GiB
    note: str = ""


@dataclass(frozen=True)
class Status:
    """Current state of a cluster. `hours`: host-hours since its start. `cost`: their price."""

    hosts: tuple[HostState, ...] = ()
    hours: float | None = None
    cost: float | None = None
    note: str = ""

    @property
    def ranks(self) -> int:
        """Number of the workbench's ranks on all hosts."""
        return sum(host.ranks for host in self.hosts)


Outputs = dict[str, tuple[int, str]]  # host -> exit code and output of a command

REPORTS: dict[str, TypeAdapter[Any]] = {  # method of `Site` -> type of its result, for the transfer as JSON
    "check": TypeAdapter(list[Finding]),
    "status": TypeAdapter(Status),
    "down": TypeAdapter(None),
    "run": TypeAdapter(Outputs),
}


def unreached(host: str, answer: str, known_hosts: str | None = None) -> Finding:
    """Return a finding on an unreachable host, from the last output of ssh or Python."""
    text = answer.removeprefix(f"{host}: ")
    if "shells without a terminal" in text:
        return Finding(host, "login shell", text, "a login that writes and reads nothing")
    if "on this machine's PATH" in text:
        return Finding(host, "connection", text, "the program that connects, on the PATH here")
    if "[Errno" in text:
        return Finding(host, "files", text, "a writable cache folder, see shared or XDG_CACHE_HOME there")
    if "verification failed" in text or "host key" in text.lower():
        return Finding(host, "host key", text, f"its key in {known_hosts or '~/.ssh/known_hosts'}")
    if "Permission denied" in text:
        return Finding(host, "login", text, "a key that opens it without a question")
    if "not found" in text or "No such file" in text:
        return Finding(host, "Python", text, "the path of its Python, under python in the cluster's file")
    if "Error" in text:
        wanted = "the workbench's environment, see python in the cluster's file"
        return Finding(host, "packages", text, wanted)
    return Finding(host, "connection", text, "reached by ssh")
