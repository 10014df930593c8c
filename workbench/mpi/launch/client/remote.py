"""Client side of pools and runs on another machine, which an agent serves."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from typing_extensions import override

from workbench.core.base.errors import ClusterError
from workbench.core.base.reading import read_text
from workbench.core.trace.layout import ENDED, STOP
from workbench.mpi.launch.gateway import AGENT, Connection, ConnectionLost, Gateway
from workbench.mpi.launch.mirror import Mirror, file_sizes
from workbench.mpi.launch.prepared import send
from workbench.mpi.launch.processes import ProcessId
from workbench.mpi.launch.reports import (
    REPORTS,
    Finding,
    Outputs,
    ProgressCallback,
    Status,
    no_progress,
    unreached,
)
from workbench.mpi.launch.site import Pool, RunOwner, Site
from workbench.mpi.launch.task import Task

POLL_INTERVAL_S = 0.1  # s
RETRY_INTERVAL_S = 3.0  # s between attempts to reconnect
GIVE_UP_AFTER_S = 90.0  # s without a connection after which a machine counts as lost
GREETING_INTERVAL_S = 20.0  # s between messages that keep the agent alive


@dataclass(frozen=True)
class RemoteSite(Site):
    """Site on another machine, where an agent executes the methods of that machine's own site."""

    name: str  # name of the cluster, for messages
    gateway: Gateway  # connection to the machine
    settings: dict[str, Any]  # settings of the cluster, for owner.json
    carried: dict[str, Any]  # settings for use on that machine
    files: dict[str, str]  # files that the machine needs: field -> path here
    cache: str | None  # folder for all caches there, or None for the default one

    def connect(self) -> Connection:
        """Start the agent. Raises `ConnectionLost`."""
        files = {name: read_text(path) for name, path in self.files.items()}
        return self.gateway.connect(AGENT, cluster=self.carried, files=files, cache=self.cache)

    @override
    def open(self, ranks: int, progress: ProgressCallback = no_progress) -> RemotePool:
        progress("connecting", 0, 1)
        link = self.connect()
        try:
            opened, _ = link.ask("open", progress=progress, ranks=ranks)
            return RemotePool(self, link, opened)
        except BaseException:
            link.close()
            raise

    @override
    def owner(self, fields: dict[str, Any], home: Path) -> RemoteRun:
        there = fields["there"]
        return RemoteRun(self, there["folder"], there["fields"], Mirror(home, there["bases"]))

    def check(self, progress: ProgressCallback = no_progress) -> list[Finding]:
        """Return the findings of the machine. An unreachable machine is a finding as well."""
        try:
            return self._reported("check", progress)
        except ClusterError as error:
            return [unreached(self.gateway.host, str(error), self.files.get("known_hosts"))]

    @override
    def status(self, progress: ProgressCallback = no_progress) -> Status:
        return self._reported("status", progress)

    @override
    def down(self, progress: ProgressCallback = no_progress) -> None:
        self._reported("down", progress)

    @override
    def run(self, command: Sequence[str], progress: ProgressCallback = no_progress) -> Outputs:
        return self._reported("run", progress, command=list(command))

    def _reported(self, what: str, progress: ProgressCallback, **arguments: Any) -> Any:
        progress("connecting", 0, 1)
        with self.connect() as link:
            found, _ = link.ask("report", progress=progress, report=what, **arguments)
            return REPORTS[what].validate_python(found["report"])


class RemoteRun(RunOwner):
    """Run on another machine, whose run folder is copied here. A connection that breaks is made again."""

    def __init__(
        self,
        site: RemoteSite,
        folder: str,
        fields: dict[str, Any],
        mirror: Mirror,
        link: Connection | None = None,
    ) -> None:
        self.site, self.folder, self.fields, self.mirror, self.connection = site, folder, fields, mirror, link
        self._there = True
        self._broken: float | None = None  # time at which the connection broke, or None
        self._tried = 0.0
        self._why: str | None = None

    def look(self) -> None:
        """Fetch new data, unless they were fetched just now or the machine cannot be reached."""
        if not self.mirror.due or (self.mirror.home / ENDED).exists():
            return
        try:
            while self._fetch():
                pass
            # the run has ended there: fetch the last models and the checkpoint, without a limit of time
            if not self._there:
                self.mirror.hurry()
                while self._fetch():
                    pass
            self._broken = None
        except ConnectionLost as error:
            self._why = str(error)
            self.release()
            self._broken = self._broken or time.monotonic()
            self._there = time.monotonic() - self._broken <= GIVE_UP_AFTER_S and self._there

    def _fetch(self) -> bool:
        """Fetch one answer. Return whether more should be fetched at once, because the run has ended there."""
        link = self._link()
        stop = (self.mirror.home / STOP).exists()
        news = self.mirror.question()
        answer, data = link.ask("news", folder=self.folder, fields=self.fields, news=news, stop=stop)
        self.mirror.take(answer, data)
        self._there = answer["there"]
        if (self.mirror.home / ENDED).exists():
            link.ask("forget", folder=self.folder)
            return False
        return bool(answer["more"]) and not self._there

    def _link(self) -> Connection:
        if self.connection is None:
            if time.monotonic() - self._tried < RETRY_INTERVAL_S:
                raise ConnectionLost(self._why or "not reached yet")
            self._tried = time.monotonic()
            self.connection = self.site.connect()
        return self.connection

    @property
    @override
    def is_alive(self) -> bool:  # as of the last poll
        return self._there

    @override
    def reason(self) -> str | None:
        home = str(self.mirror.home)
        if self._broken is not None:
            host = self.site.gateway.host
            return f"{self._why}; the run may continue there: wb.attach({home!r}) follows it once {host} is reachable"
        reason = self._link().ask("reason", folder=self.folder, fields=self.fields)[0]["reason"]
        advice = f"wb.resume({home!r}) resumes it from the last checkpoint"
        return None if reason is None else f"{reason}; {advice}"

    @override
    def release(self) -> None:
        if self.connection is not None:
            self.connection.close()
            self.connection = None


class RemotePool(Pool):
    """Pool that an agent has opened. `opened`: the agent's answer."""

    def __init__(self, site: RemoteSite, link: Connection, opened: dict[str, Any]) -> None:
        self.site, self.link, self.opened = site, link, opened
        self.name, self.ranks = opened["pool"], opened["ranks"]
        self.run_links: RemoteRun | None = None  # the newest run
        self.closed = False
        self._over = threading.Event()
        threading.Thread(target=self._greet, name="workbench-greeting", daemon=True).start()

    def _greet(self) -> None:
        """Send a message that keeps the agent alive, because a silent client counts as lost."""
        while not self._over.wait(GREETING_INTERVAL_S):
            with contextlib.suppress(ClusterError):
                self.link.ask("name")

    def _state(self) -> dict[str, Any]:
        return self.link.ask("state", pool=self.name)[0]

    def _known(self, what: str, otherwise: Any) -> Any:
        """Return one field of the pool's state, or `otherwise` if the agent is gone."""
        try:
            return self._state()[what]
        except ClusterError:
            return otherwise

    @property
    @override
    def alive(self) -> bool:
        return not self.closed and bool(self._known("alive", False))

    @override
    def lost(self) -> list[str]:
        return list(self._known("lost", []))

    @property
    @override
    def places(self) -> list[ProcessId]:
        return [ProcessId(*place) for place in self._state()["places"]]

    def await_ready(self, progress: ProgressCallback = no_progress) -> None:
        """Wait for the ranks (see `Pool.await_ready`).

        If the wait fails, the pool is closed, with any job in a queue.
        """
        try:
            up, until = -1, 0.0
            while not (state := self._state())["places"]:
                if not state["alive"]:
                    raise ClusterError(f"{self.site.name}: {self.link.ask('why', pool=self.name)[0]['why']}")
                if state["up"] > up:
                    up, until = state["up"], time.monotonic() + state["patience"]
                if time.monotonic() > until:
                    raise ClusterError(f"{self.site.name}: {self.ranks} processes: not up in time")
                progress(state["note"], state["up"], self.ranks)
                time.sleep(POLL_INTERVAL_S)
        except BaseException:
            self.close()
            raise
        progress("starting processes", self.ranks, self.ranks)

    @override
    def submit(self, task: Task, progress: ProgressCallback = no_progress) -> RemoteRun:
        if task.data is not None:
            send(self.link, task.data, progress)
        home = Path(task.folder)
        fields = {name: value for name, value in task.as_dict().items() if name != "folder"}
        done, _ = self.link.ask("submit", task.arrays, progress, pool=self.name, task=fields)
        self.run_links = RemoteRun(
            self.site, done["folder"], done["fields"], Mirror(home, file_sizes(home)), self.link
        )
        return self.run_links

    @property
    @override
    def waiting(self) -> bool:
        return bool(self._known("waiting", False))

    @override
    def as_dict(self) -> dict[str, Any]:
        assert self.run_links is not None
        there = {
            "folder": self.run_links.folder,
            "fields": self.run_links.fields,
            "bases": self.run_links.mirror.bases,
        }
        return {"cluster": self.site.settings, "there": there}

    @override
    def close(self) -> None:
        self.closed = True
        try:
            with contextlib.suppress(ClusterError):
                self._end()
        finally:
            self.release()

    def _end(self) -> None:
        """Close the pool, through another agent if this one is lost. A lost agent may still wait for this client."""
        try:
            self.link.ask("close", pool=self.name)
        except ConnectionLost:
            with self.site.connect() as link:
                link.ask("inherit", fields=self.opened["fields"], agent=self.opened["agent"])
                link.ask("close", pool=self.name)

    def release(self) -> None:
        """Close the connection. Without its client the agent ends, and its pools with it."""
        self.closed = True
        self._over.set()
        self.link.close()
        if self.run_links is not None:
            self.run_links.release()
