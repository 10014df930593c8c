"""Executors of a sweep's runs: processes of this machine, engines of ipyparallel, workers of Dask.

Any `concurrent.futures.Executor` can be used. Executors that a SWEEP file names are opened here, and closed at the end
of the sweep.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import BrokenExecutor, Executor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Literal, NoReturn, Self

from pydantic import model_validator

from workbench.core.base.extras import needs
from workbench.core.base.settings import SettingError, Settings, setting
from workbench.mpi import clusters

Given = Executor | Callable[[], Executor]
ANSWER_TIMEOUT_S = 2.0  # max time until a scheduler of Dask answers, s


class ExecutorSettings(Settings):
    """Fields of `executor:` in a SWEEP file.

    >>> ExecutorSettings(kind="processes", engines=4).engines
    4
    """

    kind: Literal["local", "processes", "ipyparallel", "dask"] = setting(
        "local",
        "local: kernels of this process; processes: workers of this machine; ipyparallel: engines on a cluster;"
        " dask: workers of Dask",
    )
    engines: int | None = setting(None, "number of runs at a time; empty = the value of -j (--jobs)", ge=1)
    cluster: str = setting(clusters.LOCAL, "for ipyparallel: cluster on which engines are started")
    listen: str = setting(
        "127.0.0.1", "for ipyparallel in a batch system: address at which the nodes reach this machine"
    )
    address: str = setting("", "for dask: address of the scheduler; empty = workers on this machine")

    @model_validator(mode="after")
    def _of_kind(self) -> Self:
        for name, kind in (("cluster", "ipyparallel"), ("listen", "ipyparallel"), ("address", "dask")):
            if self.kind != kind and name in self.model_fields_set:
                raise SettingError(f"{name}: belongs to kind: {kind}; drop it, or choose that kind")
        return self


@dataclass
class Connection:
    """Open executor of a sweep.

    connect: returns the executor or, after its death, a new one. broken: returns why tasks can no longer end, or "".
    engines: number of runs at a time, None if unknown. link: address of the executor's dashboard, or "".
    """

    connect: Callable[[], Executor]
    broken: Callable[[], str] = str
    engines: int | None = None
    link: str = ""


@contextmanager
def connected(given: Given | ExecutorSettings, jobs: int) -> Iterator[Connection]:
    """Open the executor of a sweep within a block. An executor that the user has passed stays open.

    `jobs`: number of runs at a time. An executor that a user's function has made is closed if it was not used.
    """
    if not isinstance(given, ExecutorSettings):
        left = [_made(given)]
        try:
            yield Connection(_again(given, left))
        finally:
            if not isinstance(given, Executor):
                for unused in left:
                    unused.shutdown(wait=False)
        return
    with ExitStack() as stack:
        # None: Dask's scheduler has the number of its workers
        engines = jobs if given.engines or not given.address else None
        found = Connection(lambda: None, engines=engines)  # type: ignore[arg-type,return-value]
        current = ExitStack()
        stack.callback(lambda: current.close())

        def connect() -> Executor:
            current.close()  # closes what a broken executor has left
            return _OPEN[given.kind](given, jobs, current, found)

        found.connect = connect
        yield found


def size(executor: Any) -> int | None:
    """Return how many tasks an executor does at a time, or None if it is unknown."""
    with suppress(Exception):  # no answer of a scheduler
        if (view := getattr(executor, "view", None)) is not None:  # of ipyparallel
            return len(view.client.ids)
        if (client := getattr(executor, "_client", None)) is not None:  # of Dask
            return int(sum(client.sync(client.scheduler.ncores, callback_timeout=ANSWER_TIMEOUT_S).values()))
        return int(getattr(executor, "_max_workers", None) or executor.num_workers)  # the latter: of mpi4py
    return None


def _again(given: Given, left: list[Executor]) -> Callable[[], Executor]:
    """Return a function that returns an executor: first the one in `left`.

    A given executor is returned once. A given function is called again for each further executor.
    """

    def connect() -> Executor:
        if not left and isinstance(given, Executor):
            raise BrokenExecutor("it was given as an object; a function could have made another")
        return left.pop() if left else _made(given)

    return connect


def _made(given: Given) -> Executor:
    """Return the given executor, or the one that the given function makes."""
    made = given if isinstance(given, Executor) else given()
    return made if isinstance(made, Executor) else _refuse(f"{given!r:.60} returned {made!r:.40}")


def _processes(given: ExecutorSettings, engines: int, stack: ExitStack, found: Connection) -> Executor:
    """Return an executor of joblib's loky.

    Unlike multiprocessing's, its processes do not run the user's main script again.
    """
    from joblib.externals.loky.backend.context import get_context
    from joblib.externals.loky.process_executor import ProcessPoolExecutor

    # Ctrl-C reaches all processes of a terminal; these complete their tasks
    ignore = {"initializer": signal.signal, "initargs": (signal.SIGINT, signal.SIG_IGN)}
    pool: Executor = ProcessPoolExecutor(engines, context=get_context("loky"), **ignore)
    stack.callback(_shut, pool)
    return pool


def _shut(pool: Any) -> None:
    with suppress(Exception):
        pool.shutdown(wait=False, kill_workers=True)


def _ipyparallel(given: ExecutorSettings, engines: int, stack: ExitStack, found: Connection) -> Executor:
    from workbench.lab.batch.engines import started

    running = stack.enter_context(started(given.cluster, engines, given.listen))
    found.broken = running.broken
    executor: Executor = running.client.executor()
    return executor


def _dask(given: ExecutorSettings, engines: int, stack: ExitStack, found: Connection) -> Executor:
    from distributed import Client, LocalCluster

    where: Any = given.address
    if not where:
        options = {"threads_per_worker": 1, "host": "127.0.0.1", "dashboard_address": "127.0.0.1:0"}
        where = stack.enter_context(LocalCluster(n_workers=engines, **options))
    client = stack.enter_context(Client(where))
    found.link = str(client.dashboard_link)
    executor: Executor = client.get_executor(pure=False)
    return executor


_OPEN: Mapping[str, Callable[[ExecutorSettings, int, ExitStack, Connection], Executor]] = {
    "local": _processes,
    "processes": _processes,
    "ipyparallel": _ipyparallel,
    "dask": _dask,
}


def executor_of(given: Any) -> Given | ExecutorSettings:
    """Return the user's executor; None and its fields as settings.

    Raises `SettingError` for other values, and if the cluster does not exist or Dask is not installed.
    """
    if given is None or isinstance(given, Mapping):
        given = ExecutorSettings(**{str(name): value for name, value in (given or {}).items()})
    if isinstance(given, ExecutorSettings):
        if given.kind == "ipyparallel":
            clusters.load(given.cluster)
        if given.kind == "dask" and find_spec("distributed") is None:
            raise SettingError(needs("executor.kind = 'dask'", "the package distributed", "dask"))
        return given
    return given if isinstance(given, Executor) or callable(given) else _refuse(f"{given!r:.60}")


def _refuse(what: str) -> NoReturn:
    wanted = "give a concurrent.futures.Executor, a function that makes one, or {kind: processes}"
    raise SettingError(f"executor = {what}: {wanted}")
