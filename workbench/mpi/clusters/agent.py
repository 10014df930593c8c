"""Agent on the machine that starts ranks. It executes the methods of a site for a client on another machine.

It is at the other end of the client's connection (see `gateway`), and ends when the connection closes. The pools that
it opened then end after their current runs. A run's folder stays, and another agent can find it.
"""

import shutil
from pathlib import Path
from typing import IO, Any

from workbench.core.base.files import cache_folder
from workbench.core.trace.folder import new_folder
from workbench.core.trace.layout import ENDED, STOP
from workbench.mpi.clusters.base import placed, rebuilt
from workbench.mpi.launch.gateway import AGENT
from workbench.mpi.launch.head.pools import FolderPool
from workbench.mpi.launch.hosts.host import Host, answer
from workbench.mpi.launch.mirror import DeltaRequest
from workbench.mpi.launch.processes import ProcessId, end_one, this_process
from workbench.mpi.launch.reports import REPORTS
from workbench.mpi.launch.site import RunOwner, Site
from workbench.mpi.launch.task import Task

# s without a message after which the client counts as lost, even if the connection is open
SILENCE_TIMEOUT_S = 120.0


def main(input: IO[bytes], output: IO[bytes], fields: dict[str, Any]) -> None:
    """Answer questions until the client is gone. `fields`: the cluster's settings, and the files that they name."""
    files = {name: str(placed(name, text)) for name, text in fields["files"].items()}
    agent = Agent(rebuilt({**fields["cluster"], **files}).here())
    try:
        answer(agent, input, output, SILENCE_TIMEOUT_S)
    finally:  # the client has gone
        for pool in agent.pools.values():
            pool.leave()


class Agent(Host):
    """Server of a client's questions. Each `do_...` method answers one kind of question."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.pools: dict[str, FolderPool] = {}

    def do_open(self, data: bytes, ranks: int) -> dict[str, Any]:
        """Start a pool (see `Site.open`). Return the name of the pool's folder, its number of ranks, and more fields.

        The fields `fields` (see `Pool.as_dict`) and `agent` (this process) are the arguments of `do_inherit`.
        """
        pool = self.site.open(ranks, self.progress)
        assert isinstance(pool, FolderPool)
        self.pools[pool.folder.name] = pool
        return {
            "pool": pool.folder.name,
            "ranks": pool.ranks,
            "fields": pool.as_dict(),
            "agent": this_process(),
        }

    def do_inherit(self, data: bytes, fields: dict[str, Any], agent: tuple[int, str]) -> dict[str, Any]:
        """Take over a pool of an agent that the client has lost, and end that agent."""
        pool = self.site.owner(fields, Path(fields["pool"]))
        assert isinstance(pool, FolderPool)
        self.pools[pool.folder.name] = pool
        if (was := ProcessId(*agent)).host == this_process().host:
            end_one(was.pid, AGENT)
        return {}

    def do_submit(self, data: bytes, pool: str, task: dict[str, Any]) -> dict[str, Any]:
        """Submit a run to a pool. Return the run's folder and the fields that find its owner."""
        handed = self.pools[pool]
        home = new_folder(None)
        handed.submit(Task(**{**task, "folder": str(home)}, arrays=data), self.progress)
        return {"folder": str(home), "fields": handed.as_dict()}

    def do_report(self, data: bytes, report: str, **fields: Any) -> dict[str, Any]:
        """Call the method of `Site` that `report` names. Return its result, one of the `REPORTS`."""
        found = getattr(self.site, report)(**fields, progress=self.progress)
        return {"report": REPORTS[report].dump_python(found, mode="json")}

    def do_state(self, data: bytes, pool: str) -> dict[str, Any]:
        """Return the state of a pool. `places` is empty until all ranks are up."""
        p, files = self.pools[pool], self.pools[pool].files
        state = {"alive": p.alive, "waiting": p.waiting, "lost": p.lost(), "up": files.up, "note": p.up_note}
        return {**state, "patience": p.start_patience, "places": p.places if files.ready else []}

    def do_why(self, data: bytes, pool: str) -> dict[str, Any]:
        """Return the reason why a pool did not start."""
        return {"why": self.pools[pool].why_not()}

    def do_reason(self, data: bytes, folder: str, fields: dict[str, Any]) -> dict[str, Any]:
        """Return why the owner of a run has ended."""
        return {"reason": self._owner(folder, fields).reason()}

    def _owner(self, folder: str, fields: dict[str, Any]) -> RunOwner:
        """Return the owner of a run: a pool of this agent, or of an earlier one."""
        mine = self.pools.get(Path(fields.get("pool", "")).name)
        return mine if mine is not None else self.site.owner(fields, Path(folder))

    def do_close(self, data: bytes, pool: str) -> dict[str, Any]:
        """Close a pool."""
        if (pool_of := self.pools.pop(pool, None)) is not None:
            pool_of.close()
        return {}

    def do_news(
        self, data: bytes, folder: str, fields: dict[str, Any], news: dict[str, Any], stop: bool
    ) -> tuple[dict[str, Any], bytes]:
        """Return what is new in a run's folder, and whether its owner is alive. With `stop`, request the run's stop."""
        there, home = self._owner(folder, fields).is_alive, Path(folder)
        if stop and home.is_dir():
            (home / STOP).touch()
        answer, more = DeltaRequest(**news).read(home)
        return {**answer, "there": there}, more

    def do_forget(self, data: bytes, folder: str) -> dict[str, Any]:
        """Remove the folder of a run that has ended and was copied to the client."""
        home = Path(folder).resolve()  # only a run folder in the cache may be removed
        if home.parent == cache_folder("runs").resolve() and (home / ENDED).exists():
            shutil.rmtree(folder, ignore_errors=True)
        return {}
