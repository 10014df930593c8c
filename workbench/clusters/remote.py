"""Pools and runs on another machine, through its agent: what a client holds of them."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from workbench.base.errors import ClusterError
from workbench.clusters.base import Cluster, Finding, HostState, Status
from workbench.clusters.survey import unreached
from workbench.launch.client.gateway import Connection, Gateway, Lost
from workbench.launch.client.mirror import Mirror
from workbench.launch.client.pools import Pool, Said
from workbench.launch.task import Task
from workbench.problems.data.cache import root
from workbench.trace.layout import ENDED, STOP

LOOK_EVERY = 0.1  # s
AGAIN, GIVEN_UP = 3.0, 90.0  # s between attempts to connect anew, and after which a machine counts as lost
GREET_EVERY = 20.0  # s
CHUNK = 2**20  # bytes


def connect(cluster: Cluster, way: Gateway) -> Connection:
    """Start the agent of a cluster; raises `Lost`."""
    files = {name: Path(path).read_text() for name, path in cluster.files().items()}
    return way.connect(cluster=cluster.carried(), files=files, cache=cluster.cache)


def told(connection: Connection, job: str, said: Said, data: bytes = b"", **words: Any) -> dict[str, Any]:
    """Have the agent do something that takes a while; what came of it."""
    connection.ask("begin", data, job=job, **words)
    while True:
        answer, _ = connection.ask("progress")
        if answer["said"][0]:
            said(*answer["said"])
        if answer["result"] is not None:
            result: dict[str, Any] = answer["result"]
            return result
        time.sleep(LOOK_EVERY)


class Far:
    """A run on another machine: its folder there is followed here. Reconnects where the connection breaks."""

    def __init__(
        self, cluster: Cluster, way: Gateway, folder: str, words: dict[str, Any], mirror: Mirror
    ) -> None:
        self.cluster, self.way = cluster, way
        self.folder, self.words, self.mirror = folder, words, mirror
        self.connection: Connection | None = None
        self._there = True
        self._broken: float | None = None  # since when
        self._tried = 0.0
        self._why: str | None = None

    def look(self) -> None:
        """Fetch what is new; nothing where there was a look just now, or the machine cannot be reached."""
        if not self.mirror.due or (self.mirror.home / ENDED).exists():
            return
        try:
            while self._fetch():
                pass
            if not self._there:  # the last models and the checkpoint, whatever they take
                self.mirror.hurry()
                while self._fetch():
                    pass
            self._broken = None
        except Lost as error:
            self._lose(error)

    def _fetch(self) -> bool:
        """One question; True if there is more at once."""
        link = self._link()
        stop = (self.mirror.home / STOP).exists()
        news = self.mirror.question()
        answer, data = link.ask("news", folder=self.folder, words=self.words, news=news, stop=stop)
        self.mirror.take(answer, data)
        self._there = answer["there"]
        if (self.mirror.home / ENDED).exists():
            link.ask("forget", folder=self.folder)
            return False
        return bool(answer["more"]) and not self._there

    def _link(self) -> Connection:
        if self.connection is None:
            if time.monotonic() - self._tried < AGAIN:
                raise Lost(self._why or "not reached yet")
            self._tried = time.monotonic()
            self.connection = connect(self.cluster, self.way)
        return self.connection

    def _lose(self, error: Lost) -> None:
        self._why = str(error)
        if self.connection is not None:
            self.connection.close()
            self.connection = None
        self._broken = self._broken or time.monotonic()
        if time.monotonic() - self._broken > GIVEN_UP:
            self._there = False

    @property
    def there(self) -> bool:
        """See `Holder.there`: as far as was known at the last look."""
        return self._there

    def reason(self) -> str | None:
        """See `Holder.reason`."""
        home = str(self.mirror.home)
        if self._broken is not None:
            return (
                f"{self._why}; the run may go on there: wb.attach({home!r}) follows it once {self.way.host} is reached"
                " again"
            )
        pool = Path(self.words.get("pool", "")).name
        reason = self._link().ask("reason", words=self.words, pool=pool)[0]["reason"]
        return None if reason is None else f"{reason}; wb.resume({home!r}) goes on from the last checkpoint"

    def release(self) -> None:
        """See `Holder.release`."""
        if self.connection is not None:
            self.connection.close()
            self.connection = None


class RemotePool(Pool):
    """A pool that an agent has opened."""

    def __init__(self, cluster: Cluster, way: Gateway, link: Connection, name: str, ranks: int) -> None:
        self.cluster, self.way, self.link, self.name, self.ranks = cluster, way, link, name, ranks
        self.far: Far | None = None  # the newest run
        self.closed = False
        self._over = threading.Event()
        threading.Thread(target=self._greet, name="workbench-greeting", daemon=True).start()

    def _greet(self) -> None:
        """Let the agent know that somebody is still here: it takes silence for a client that is gone."""
        while not self._over.wait(GREET_EVERY):
            with contextlib.suppress(ClusterError):
                self.link.ask("name")

    def _state(self) -> dict[str, Any]:
        return self.link.ask("state", pool=self.name)[0]

    @property
    def alive(self) -> bool:
        """See `Pool.alive`."""
        try:
            return not self.closed and bool(self._state()["alive"])
        except ClusterError:
            return False

    @property
    def there(self) -> bool:
        """See `Pool.there`: as far as was known at the last look."""
        return self.far.there if self.far is not None else self.alive

    def reason(self) -> str | None:
        """See `Pool.reason`."""
        return None if self.far is None else self.far.reason()

    def lost(self) -> list[str]:
        """See `Pool.lost`."""
        try:
            return list(self.link.ask("lost", pool=self.name)[0]["lost"])
        except ClusterError:
            return []

    @property
    def places(self) -> list[tuple[int, str]]:
        """See `Pool.places`."""
        return [(pid, host) for pid, host in self.link.ask("places", pool=self.name)[0]["places"]]

    def await_ready(self, said: Said | None = None) -> None:
        """See `Pool.await_ready`; what is broken off leaves nothing, a job in a queue least of all."""
        say = said or (lambda what, done, total: None)
        try:
            self._await_ready(say)
        except BaseException:
            self.close()
            raise
        say("starting processes", self.ranks, self.ranks)

    def _await_ready(self, say: Said) -> None:
        until = time.monotonic() + self._state()["patience"]
        while not (state := self._state())["ready"]:
            if not state["alive"]:
                raise ClusterError(f"{self.cluster.name}: {self.link.ask('why', pool=self.name)[0]['why']}")
            if time.monotonic() > until:
                raise ClusterError(f"{self.cluster.name}: {self.ranks} processes: not up in time")
            say(state["note"], state["up"], self.ranks)
            time.sleep(LOOK_EVERY)

    def submit(self, task: Task, said: Said | None = None) -> None:
        """See `Pool.submit`."""
        say = said or (lambda what, done, total: None)
        if task.data is not None:
            ship(self.link, task.data, say)
        home = Path(task.folder)
        words = {name: value for name, value in task.words().items() if name != "folder"}
        done = told(self.link, "submit", say, task.arrays, pool=self.name, task=words)
        mirror = Mirror(home, Mirror.sizes(home))
        self.far = Far(self.cluster, self.way, done["folder"], done["words"], mirror)
        self.far.connection = self.link

    @property
    def waiting(self) -> bool:
        """See `Pool.waiting`."""
        try:
            return bool(self._state()["waiting"])
        except ClusterError:
            return False

    def words(self) -> dict[str, Any]:
        """See `Pool.words`."""
        assert self.far is not None
        there = {"folder": self.far.folder, "words": self.far.words, "bases": self.far.mirror.bases}
        return {"cluster": self.cluster.model_dump(mode="json"), "there": there}

    def look(self) -> None:
        """See `Pool.look`."""
        if self.far is not None:
            self.far.look()

    def close(self) -> None:
        """See `Pool.close`."""
        self.closed = True
        try:
            self.link.ask("close", pool=self.name)
        except ClusterError:  # the agent is gone, and the pool ends with it
            pass
        finally:
            self.release()

    def release(self) -> None:
        """See `Pool.release`: without its client the agent ends, and its pools with it."""
        self.closed = True
        self._over.set()
        self.link.close()
        if self.far is not None:
            self.far.release()


def ship(link: Connection, data: Any, said: Said) -> None:
    """Bring prepared data to a machine, unless they are there or can be made there."""
    if link.ask("have", **data)[0]["have"]:
        return
    files = sorted((root() / "data" / data["key"]).iterdir())
    total, done = sum(path.stat().st_size for path in files), 0
    pieces = [(path, at) for path in files for at in range(0, max(path.stat().st_size, 1), CHUNK)]
    for i, (path, at) in enumerate(pieces):
        with path.open("rb") as file:
            file.seek(at)
            text = file.read(CHUNK)
        ends = {"first": i == 0, "last": i == len(pieces) - 1}
        link.ask("put", text, key=data["key"], name=path.name, **ends)
        done += len(text)
        said("bringing data, KiB", done // 1024, total // 1024)


def open_there(cluster: Cluster, way: Gateway, ranks: int, said: Said) -> RemotePool:
    """See `Cluster.open_pool`."""
    said("connecting", 0, 1)
    link = connect(cluster, way)
    try:
        opened = told(link, "open", said, ranks=ranks)
        return RemotePool(cluster, way, link, opened["pool"], opened["ranks"])
    except BaseException:
        link.close()
        raise


def held_there(cluster: Cluster, way: Gateway, words: dict[str, Any], home: Path) -> Far:
    """See `Cluster.holder`."""
    there = words["there"]
    return Far(cluster, way, there["folder"], there["words"], Mirror(home, there["bases"]))


def check_there(cluster: Cluster, way: Gateway, said: Said) -> list[Finding]:
    """See `Cluster.check`; a machine that is not reached is a finding, too."""
    said("connecting", 0, 1)
    try:
        with connect(cluster, way) as link:
            return [Finding(**words) for words in told(link, "check", said)["findings"]]
    except ClusterError as error:
        return [unreached(cluster, way.host, str(error))]


def status_there(cluster: Cluster, way: Gateway, said: Said) -> Status:
    """See `Cluster.status`."""
    with connect(cluster, way) as link:
        words = told(link, "status", said)["status"]
    return Status(**{**words, "hosts": tuple(HostState(**host) for host in words["hosts"])})


def down_there(cluster: Cluster, way: Gateway, said: Said) -> None:
    """See `Cluster.down`."""
    with connect(cluster, way) as link:
        told(link, "down", said)


def run_there(
    cluster: Cluster, way: Gateway, command: Sequence[str], said: Said
) -> dict[str, tuple[int, str]]:
    """See `Cluster.run`."""
    with connect(cluster, way) as link:
        found = told(link, "run", said, command=list(command))["hosts"]
    return {host: (code, output) for host, (code, output) in found.items()}
