"""Engines of ipyparallel as ranks of one MPI world: their ranks, the calls to them, and the results.

Calls carry JSON and bytes. Results are JSON and truth values.
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

MAX_ENGINE_DELAY_S = 10.0  # max time until all existing engines are registered, s


def patience(engines: int) -> int:
    """Return the seconds after which a start fails. They are generous, since all engines share this machine's cores."""
    return 60 + 3 * engines


def client_of(given: Any) -> tuple[Any, bool]:
    """Return the client of existing engines, and whether it is a new one. Raises `SettingError`."""
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
    """Return the ids of the engines and their processes, in the order of the ranks.

    Raises `SettingError` if they are too few, or are not all ranks of one world.
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
    """Return the ids of the engines once `engines` are there, or fewer after a timeout."""
    awaited(lambda: len(client.ids) >= engines, MAX_ENGINE_DELAY_S)
    ids = list(client.ids)
    if not ids:
        raise SettingError("client: has no engines yet; start them first")
    return ids


def _ask(client: Any, ids: list[int]) -> list[Any]:
    """Return rank, size of the world, process and host of each engine."""
    return [json.loads(answer) for answer in answers(call(client, ids, "where"), patience(len(ids)))]


@contextlib.contextmanager
def unsigned() -> Iterator[None]:
    """Suppress the warning that messages are not signed. CURVE protects them, so ipyparallel does not sign them."""
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
    """Run a function of `engine_side` on an engine, since MPI may be started only there."""
    from workbench.mpi.running.ipyparallel import engine_side

    return getattr(engine_side, what)(*args)


def call(client: Any, ids: Sequence[int], what: str, *args: Any) -> list[Any]:
    """Call a function on several engines at the same time. Return their pending results, in this order."""
    return [client.direct_view(id).apply_async(on_engine, what, *args) for id in ids]


def answers(results: list[Any], patience: float) -> list[Any]:
    """Wait for results. Raises `ClusterError` if an engine failed, or is silent for `patience` seconds."""
    if not awaited(lambda: all(result.ready() for result in results), patience):
        raise ClusterError(f"engines: no answer for {patience:g} s; are they busy with something else?")
    for result in results:
        if (error := failure(result)) is not None:
            raise ClusterError(f"engines: cannot take part in runs ({error})")
    return [result.get() for result in results]


def failure(result: Any) -> str | None:
    """Return the error of a finished call, or None."""
    try:
        result.get(0)
    except Exception as error:
        name, text = getattr(error, "ename", type(error).__name__), getattr(error, "evalue", str(error))
        return f"{name}: {text}"
    return None


def died(places: Sequence[ProcessId]) -> str | None:
    """Return which of this machine's ranks have died, as text, or None."""
    host = socket.gethostname()
    gone = [rank for rank, place in enumerate(places) if place.host == host and not is_alive(place.pid)]
    if len(gone) == len(places) > 1:
        return f"all ranks died (rank 0: {places[MASTER]})"
    return ", ".join(f"rank {rank} ({places[rank]})" for rank in gone) + " died" if gone else None


class Calls(RunOwner):
    """Calls of one run, one to each engine, in the order of the ranks."""

    def __init__(
        self, client: Any, ids: Sequence[int], fields: dict[str, Any], arrays: bytes, places: list[ProcessId]
    ):
        self.places, self.folder = places, fields["folder"]
        self.results = call(client, ids, "serve", json.dumps(fields), arrays, json.dumps(places))

    @property
    def is_alive(self) -> bool:
        """Whether the run can still be completed: the master is alive, and no rank was aborted."""
        master = self.results[MASTER]
        return is_alive(self.places[MASTER].pid) and not master.ready() and self._broken() is None

    def reason(self) -> str:
        """Return which ranks died or were aborted, and what would help."""
        why = self._broken() or died(self.places) or "the master ended without a message; is the disk full?"
        resume = f", and wb.resume({self.folder!r}) resumes from the last checkpoint on other processes"
        saved = (Path(self.folder) / CHECKPOINT).is_file()
        return f"{why}; wb.interactive opens new engines{resume if saved else ''}"

    def _broken(self) -> str | None:
        """Return the rank whose call ended too early although its process is alive, as text, or None."""
        for rank, result in enumerate(self.results):
            if result.ready() and (error := failure(result)) and not error.startswith("EngineError"):
                return f"rank {rank} ({self.places[rank]}) was aborted ({error})"
        return None

    def over(self, patience: float) -> bool:
        """Wait until all calls are over. Return whether they are."""
        return awaited(lambda: all(result.ready() for result in self.results), patience)

    @property
    def clean(self) -> bool:
        """Whether all calls are over and the ranks can take another run."""
        return self.over(0.0) and not any(map(failure, self.results)) and all(r.get() for r in self.results)
