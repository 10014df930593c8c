"""Real runs on engines of ipyparallel, so that a notebook can look into every rank between two runs.

The engines are the ranks: one MPI world, the master on rank 0. A run is one call to all of them, and goes the same way
as on warm ranks: messages are MPI's, and who follows it follows its run folder. ipyparallel only carries the call (JSON
and bytes), and the user's own code before and after.

>>> import workbench as wb
>>> with wb.interactive(2, progress=False) as engines:  # doctest: +SKIP
...     run = engines.start(wb.Experiment(scheme="UMW", workers=2, rounds=5))
...     run.wait(), engines.view["part"]
"""

from __future__ import annotations

import atexit
import contextlib
import socket
import threading
import time
from pathlib import Path
from typing import Any

from IPython import get_ipython

from workbench.core.base.bar import Bar
from workbench.core.base.errors import ClusterError
from workbench.core.base.files import made_cache_folder, write_json
from workbench.core.base.settings import SettingError
from workbench.core.contract.plan import MASTER
from workbench.core.experiment import Experiment
from workbench.core.running.run import RunCancelled
from workbench.core.trace.layout import ENDED, OWNER
from workbench.mpi.launch.processes import ProcessId, is_alive
from workbench.mpi.launch.task import Task, described
from workbench.mpi.running.ipyparallel.calls import Calls, answers, call, client_of, died, patience, ranks_of
from workbench.mpi.running.ipyparallel.engines import EngineCluster
from workbench.mpi.running.real import RealRun, start_real

POLL_INTERVAL_S = 0.03  # s
LEAVE_TIMEOUT_S = 5.0  # s that the ranks have to get out of a run that has ended


def interactive(workers: int, client: Any = None, progress: bool = True) -> Interactive:
    """Open engines for real runs whose ranks a notebook can look into; returns once they are up.

    Parameters
    ----------
    workers
        How many workers a run may have at most; one more engine is the master.
    client
        Engines that are there already: an ipyparallel Client, or a Cluster that has been started. All its engines
        have to be ranks of one MPI world of at least workers + 1, rank 0 on this machine. They are left running at the
        end, and how safe their connections are is up to whoever started them. By default, engines of our own.
    progress
        Show a bar while they start, which takes some seconds.

    Raises
    ------
    SettingError
        workers is no positive number, or the client has no such engines.
    ClusterError
        The engines cannot be started: no mpiexec, no room, an import that fails.

    Notes
    -----
    Engines of our own listen on this machine only, their connections are encrypted (CURVE), and they end with the
    notebook's kernel. One that dies counts as a dead worker: the run goes on as far as its scheme tolerates (without
    the master it cannot), then new engines are needed, as the next `start` says.

    Under a plain ``mpiexec``, which `ipyparallel.Cluster(engines="mpi")` calls by default, **the death of one engine
    takes all the others along**; give it ``--with-ft ulfm`` if runs are to survive that. The run says in one sentence
    who died, and can be resumed on other processes.

    Examples
    --------
    >>> import workbench as wb
    >>> engines = wb.interactive(6)  # doctest: +SKIP
    >>> cr = wb.Experiment(scheme="CR", scheme_args={"children": 2, "layers": 2}, workers=6)
    >>> engines.start(cr).result().rounds  # doctest: +SKIP
    >>> engines.at(3)["part"].gradient  # what rank 3 computed last  # doctest: +SKIP
    >>> engines.close()  # doctest: +SKIP

    In a notebook, a cell that begins with ``%%px`` runs on all ranks, where `part` is what the rank held when its last
    run ended (see `workbench.mpi.running.ipyparallel.snapshot.RankSnapshot`). Cells like this wait until a run is over.
    """
    if not isinstance(workers, int) or workers < 1:
        raise SettingError(f"workers = {workers!r}: give a positive whole number")
    return Interactive(workers, client, progress)


class Interactive:
    """Engines that take run after run; see `interactive`. A context manager that closes them.

    `client`: ipyparallel's client; `view`: its view of all ranks, in their order; `places`: their processes.
    """

    def __init__(self, workers: int, client: Any, progress: bool) -> None:
        self.workers, self.borrowed = workers, client is not None
        self.engine_cluster: EngineCluster | None = None
        self.places: list[ProcessId] = []
        self.run: RealRun | None = None  # the newest that has begun
        self.calls: Calls | None = None  # its calls
        self._closed: str | None = None  # why
        self._end, self._ending = contextlib.ExitStack(), threading.Lock()
        atexit.register(self.close)
        try:
            if client is None:  # engines of our own
                made_cache_folder("runs")  # for the folders of its runs: now, not once the engines are up
                self.engine_cluster = keeper = EngineCluster(workers + 1)
                self._end.callback(keeper.close)
                with Bar("starting engines", "engine", workers + 1, progress) as bar:
                    self.client = keeper.await_up(bar.update)
            else:
                self.client, new = client_of(client)
                if new:
                    self._end.callback(self.client.close)
            self._init_ranks()
        except BaseException:
            self.close()
            raise

    def _init_ranks(self) -> None:
        """Have the engines get ready, in the order of their ranks."""
        ids, self.places = ranks_of(self.client, self.workers + 1)
        if self.places[MASTER].host != socket.gethostname():
            raise SettingError(f"client: rank 0 is {self.places[MASTER]}; it has to be on this machine")
        answers(call(self.client, ids, "init_rank"), patience(len(ids)))
        self.view = self.client.direct_view(ids)
        self.view.block = True
        if get_ipython() is not None:  # then %%px means these engines
            self.view.activate()

    def start(self, experiment: Experiment, **options: Any) -> RealRun:
        """Start a run on the engines and return at once; options as in `workbench.start` with engine = "mpi".

        Runs go one after the other, and after what the engines are busy with. Raises `SettingError` for an experiment
        that does not fit, `ClusterError` where the engines are no longer fit for runs.
        """
        if not isinstance(experiment, Experiment):
            raise SettingError(f"experiment = {experiment!r:.60}: give a wb.Experiment")
        if experiment.workers >= len(self.places):
            raise SettingError(
                f"workers = {experiment.workers}: there are engines for {len(self.places) - 1}; take fewer workers, or"
                f" open wb.interactive({experiment.workers})"
            )
        if (why := self.unfit()) is not None:
            raise ClusterError(why)
        return start_real(experiment, make=lambda e, home: EngineRun(e, home, self), **options)

    def at(self, rank: int) -> Any:
        """View of one rank: ``at(3)["part"]`` fetches its `part`, ``at(3).apply_sync(f)`` calls f there."""
        if rank not in range(len(self.places)):
            raise SettingError(f"rank = {rank!r}: there are 0 to {len(self.places) - 1}")
        return self.client.direct_view(self.view.targets[rank])

    def unfit(self) -> str | None:
        """Why the engines take no more runs, in one sentence; None: they do."""
        last = self.calls
        why = self._closed or died(self.places)
        if why is None and last is not None and last.over(0.0) and not last.clean:
            why = "the last run left something behind"
        if why is None:
            return None
        how = f"wb.interactive({self.workers}) opens new ones"
        return f"engines: {why}; {'start their cluster again' if self.borrowed else how}"

    def close(self) -> None:
        """Stop the run that is under way, and end the engines if they are our own. May be called again."""
        if self._closed is None:
            self._closed = "closed"
            if self.run is not None and self.run.state in ("waiting", "running"):
                self.run.stop()
                self.run.wait(LEAVE_TIMEOUT_S)
        self._leave()

    def _leave(self) -> None:
        atexit.unregister(self.close)
        with self._ending:
            self._end.close()

    def __enter__(self) -> Interactive:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<engines for {self.workers} workers: {self.unfit() or 'ready'}>"

    def await_turn(self, run: EngineRun) -> None:
        """Wait for free engines; raises `ClusterError` where they will not be, `RunCancelled` once it is stopped."""
        while (why := self.unfit()) is None:
            if not run.wanted():
                raise RunCancelled
            if not self.client.outstanding:
                return
            run.note = "waiting for the engines, which are busy with code of yours"
            time.sleep(POLL_INTERVAL_S)
        raise ClusterError(why)

    def serve(self, run: RealRun, task: Task) -> Calls:
        """Have all engines take their parts in a run."""
        self.run = run
        self.calls = Calls(self.client, self.view.targets, task.as_dict(), task.arrays, self.places)
        return self.calls

    def broke_off(self) -> None:
        """A run cannot be ended by its ranks any more, so neither can they take another."""
        self._closed = self._closed or "ended, as a run broke off"
        self._leave()


class EngineRun(RealRun):
    """A real run on engines: handed in by calls instead of to a pool, all else as any other."""

    def __init__(self, experiment: Experiment, folder: Path, engines: Interactive) -> None:
        super().__init__(experiment, folder)
        self.engines = engines

    def hand_in(self, task: Task) -> None:
        """Have the engines do it, and follow it to its end."""
        self.describe(task)
        self.engines.await_turn(self)
        local = {"kind": "local", "name": "local"}
        write_json(self.home / OWNER, {"cluster": local, "supervisor": self.engines.places[MASTER].pid})
        calls = self.engines.serve(self, task)
        self.note = "starting"
        try:
            self.follow(calls)
        except ClusterError as error:
            if not (self.home / ENDED).exists():
                self.engines.broke_off()
                if is_alive(self.engines.places[MASTER].pid):  # else the run would seem to be under way
                    self.stop()
                    fields = {"state": "failed", "error": described(error, []), "clean": False}
                    write_json(self.home / ENDED, {**fields, "emulate": task.emulate, "first": task.first})
            raise
