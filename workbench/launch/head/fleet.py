"""Work on several hosts at the same time, and pools whose ranks are spread over them."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from typing import Any

from workbench.base.errors import ClusterError
from workbench.launch.gateway import HOST, Connection, Gateway
from workbench.launch.head.pools import ChildPool
from workbench.launch.prepared import have, ship
from workbench.launch.reports import Said, quiet
from workbench.launch.site import Holder
from workbench.launch.task import Task

AT_ONCE = 32  # connections that are opened at the same time


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
            with way.connect(HOST, cache=self.cache) as link:
                return work(link)
        except ClusterError as error:
            return error

    def each(self, question: str, said: Said, what: str, **words: Any) -> dict[str, dict[str, Any]]:
        """Ask each host the same; answers of those that are reached."""
        found = self.visit(lambda link: link.ask(question, **words)[0], said, what)
        return {host: answer for host, answer in found.items() if not isinstance(answer, ClusterError)}

    def bring(self, data: Any, said: Said) -> None:
        """Have prepared data on this host and on all others; raises `ClusterError`."""
        if not have(**data):
            raise ClusterError(
                f"the data are not on this host ({data['key']}); they should have been brought here"
            )
        found = self.visit(lambda link: ship(link, data, quiet), said, "bringing data to hosts")
        for host, error in found.items():
            if isinstance(error, ClusterError):
                raise ClusterError(f"the data could not be brought to {host} ({error})")


@dataclass
class SpreadPool(ChildPool):
    """A pool over several hosts, with its supervisor on this one."""

    fleet: Fleet = field(kw_only=True)
    brought: set[str] = field(default_factory=set)  # keys of data that all hosts have

    def submit(self, task: Task, said: Said = quiet) -> Holder:
        """See `Pool.submit`; the data are brought to all hosts first."""
        if task.data is not None and task.data["key"] not in self.brought:
            self.fleet.bring(task.data, said)
            self.brought.add(task.data["key"])
        return super().submit(task)
