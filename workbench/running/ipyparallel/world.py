"""Engines of ipyparallel as ranks of one MPI world: how a client reaches them, and which engine is which rank."""

import contextlib
import json
import logging
import time
from collections.abc import Iterator
from typing import Any

from workbench.base.settings import SettingError
from workbench.launch.processes import Place
from workbench.running.ipyparallel.calls import answers, call

LOOK_EVERY = 0.03  # s
STRAGGLING = 10.0  # s between the first and the last engine of a set that is there already


def patience(engines: int) -> int:
    """Seconds after which a start is given up: generous, as all of them share this machine's cores."""
    return 60 + 3 * engines


def client_of(given: Any) -> tuple[Any, bool]:
    """Client of engines that are there already, and whether it is a new one. Raises `SettingError`."""
    import ipyparallel

    if isinstance(given, ipyparallel.Client):
        return given, False
    if not isinstance(given, ipyparallel.Cluster) or given.controller is None:
        raise SettingError(
            f"client = {given!r:.60}: give an ipyparallel Client, or a Cluster that has been started"
        )
    with unsigned():
        client = given.connect_client_sync()
    engines = given.n or 0
    _await(client, engines, patience(engines))
    return client, True


def ranks_of(client: Any, needed: int) -> tuple[list[int], list[Place]]:
    """Numbers of the engines and their processes, in the order of the ranks.

    Raises `SettingError` where they are fewer than needed, or not all the ranks of one world.
    """
    first = _ids(client, needed)[:1]
    world = _ask(client, first)[0][1]
    ids = _ids(client, world)
    answers = zip(ids, _ask(client, ids), strict=True)
    found = {rank: (id, Place(pid, host)) for id, (rank, _, pid, host) in answers}
    if sorted(found) != list(range(len(ids))) or len(ids) < needed:
        raise SettingError(
            f"client: {len(ids)} engines, {world} in the MPI world of the first; {needed} in one world are needed, as"
            f" ipyparallel.Cluster(engines='mpi', n={needed}) starts them"
        )
    return [found[rank][0] for rank in range(len(ids))], [found[rank][1] for rank in range(len(ids))]


def _ids(client: Any, engines: int) -> list[int]:
    """Numbers of the engines, once so many are there; fewer, where they do not come."""
    _await(client, engines, STRAGGLING)
    ids = list(client.ids)
    if not ids:
        raise SettingError("client: has no engines yet; start them first")
    return ids


def _await(client: Any, engines: int, patience: float) -> None:
    until = time.monotonic() + patience
    while len(client.ids) < engines and time.monotonic() < until:
        time.sleep(LOOK_EVERY)


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
