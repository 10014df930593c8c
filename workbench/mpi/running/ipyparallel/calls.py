"""Engines of ipyparallel as ranks of one MPI world: who is which rank, what they are asked, and what becomes of it.

JSON and bytes go there, JSON and truth values come back.
"""

import contextlib
import json
import logging
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from workbench.core.base.errors import ClusterError
from workbench.core.base.settings import SettingError
from workbench.core.contract.plan import MASTER
from workbench.core.trace.layout import CHECKPOINT
from workbench.mpi.launch.processes import ProcessId, awaited, is_alive
from workbench.mpi.launch.site import RunOwner

MAX_ENGINE_DELAY_S = 10.0  # s between the first and the last engine of a set that is there already


def patience(engines: int) -> int:
    """Seconds after which a start is given up: generous, as all of them share this machine's cores."""
    return 60 + 3 * engines


def client_of(given: Any) -> tuple[Any, bool]:
    """Client of engines that are there already, and whether it is a new one. Raises `SettingError`."""
    import ipyparallel

    if isinstance(given, ipyparallel.Client):
        return given, False
    if not isinstance(given, ipyparallel.Cluster) or given.controller is None:
        wanted = "give an ipyparallel Client, or a Cluster that has been started"
        raise SettingError(f"client = {given!r:.60}: {wanted}")
    with unsigned():
        client = given.connect_client_sync()
    engines = given.n or 0
    awaited(lambda: len(client.ids) >= engines, patience(engines))
    return client, True


def ranks_of(client: Any, needed: int) -> tuple[list[int], list[ProcessId]]:
    """Numbers of the engines and their processes, in the order of the ranks.

    Raises `SettingError` where they are fewer than needed, or not all the ranks of one world.
    """
    first = _ids(client, needed)[:1]
    world = _ask(client, first)[0][1]
    ids = _ids(client, world)
    answers = zip(ids, _ask(client, ids), strict=True)
    found = {rank: (id, ProcessId(pid, host)) for id, (rank, _, pid, host) in answers}
    if sorted(found) != list(range(len(ids))) or len(ids) < needed:
        raise SettingError(
            f"client: {len(ids)} engines, {world} in the MPI world of the first; {needed} in one world are needed, as"
            f" ipyparallel.Cluster(engines='mpi', n={needed}) starts them"
        )
    return [found[rank][0] for rank in range(len(ids))], [found[rank][1] for rank in range(len(ids))]


def _ids(client: Any, engines: int) -> list[int]:
    """Numbers of the engines, once so many are there; fewer, where they do not come."""
    awaited(lambda: len(client.ids) >= engines, MAX_ENGINE_DELAY_S)
    ids = list(client.ids)
    if not ids:
        raise SettingError("client: has no engines yet; start them first")
    return ids


def _ask(client: Any, ids: list[int]) -> list[Any]:
    """Rank, size of the world, process and host of each."""
    return [json.loads(answer) for answer in answers(call(client, ids, "where"), patience(len(ids)))]


@contextlib.contextmanager
def unsigned() -> Iterator[None]:
    """Without the warning that messages are not signed: CURVE does that, and ipyparallel therefore does not."""
    from traitlets.log import get_logger

    log = get_logger()
    log = log.logger if isinstance(log, logging.LoggerAdapter) else log
    others = lambda record: "signing is disabled" not in record.getMessage()  # noqa: E731
    log.addFilter(others)
    try:
        yield
    finally:
        log.removeFilter(others)


def on_engine(what: str, *args: Any) -> Any:
    """Runs on an engine: only there may MPI be started."""
    from workbench.mpi.running.ipyparallel import engine_side

    return getattr(engine_side, what)(*args)


def call(client: Any, ids: Sequence[int], what: str, *args: Any) -> list[Any]:
    """Have several engines do something at the same time; their results, in this order, come later."""
    return [client.direct_view(id).apply_async(on_engine, what, *args) for id in ids]


def answers(results: list[Any], patience: float) -> list[Any]:
    """Wait for results; raises `ClusterError` where an engine failed, or is silent for so many seconds."""
    if not awaited(lambda: all(result.ready() for result in results), patience):
        raise ClusterError(f"engines: no answer for {patience:g} s; are they busy with something else?")
    for result in results:
        if (error := failure(result)) is not None:
            raise ClusterError(f"engines: cannot take part in runs ({error})")
    return [result.get() for result in results]


def failure(result: Any) -> str | None:
    """What went wrong with a call that is over."""
    try:
        result.get(0)
    except Exception as error:
        name, text = getattr(error, "ename", type(error).__name__), getattr(error, "evalue", str(error))
        return f"{name}: {text}"
    return None


def died(places: Sequence[ProcessId]) -> str | None:
    """Who of this machine's ranks is not there any more."""
    host = socket.gethostname()
    gone = [rank for rank, place in enumerate(places) if place.host == host and not is_alive(place.pid)]
    if len(gone) == len(places) > 1:
        return f"all ranks died (rank 0: {places[MASTER]})"
    return ", ".join(f"rank {rank} ({places[rank]})" for rank in gone) + " died" if gone else None


class Calls(RunOwner):
    """One run's calls, one to each engine, in the order of the ranks."""

    def __init__(
        self, client: Any, ids: Sequence[int], fields: dict[str, Any], arrays: bytes, places: list[ProcessId]
    ):
        self.places, self.folder = places, fields["folder"]
        self.results = call(client, ids, "serve", json.dumps(fields), arrays, json.dumps(places))

    @property
    def is_alive(self) -> bool:
        """Can the run still end by itself? Not without the master, nor after a part broke off."""
        master = self.results[MASTER]
        return is_alive(self.places[MASTER].pid) and not master.ready() and self._broken() is None

    def reason(self) -> str:
        """Who died, or broke off, and what would help."""
        why = self._broken() or died(self.places) or "the master said no last word; is the disk full?"
        resume = f", and wb.resume({self.folder!r}) goes on from the last checkpoint on processes of its own"
        saved = (Path(self.folder) / CHECKPOINT).is_file()
        return f"{why}; wb.interactive opens new engines{resume if saved else ''}"

    def _broken(self) -> str | None:
        """A part that ended otherwise than by the run's end or its rank's death."""
        for rank, result in enumerate(self.results):
            if result.ready() and (error := failure(result)) and not error.startswith("EngineError"):
                return f"rank {rank} ({self.places[rank]}) broke off ({error})"
        return None

    def over(self, patience: float) -> bool:
        """Wait until all are; says whether they are."""
        return awaited(lambda: all(result.ready() for result in self.results), patience)

    @property
    def clean(self) -> bool:
        """Are all parts over, and the ranks as good as new?"""
        return self.over(0.0) and not any(map(failure, self.results)) and all(r.get() for r in self.results)
