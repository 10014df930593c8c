"""Real runs on engines of ipyparallel, so that a notebook can inspect every rank between two runs.

The engines are the ranks of one MPI world, with the master on rank 0. A run is one call to all of them, and works as on
the ranks of a pool. Messages use MPI, and followers read the run folder. The call (JSON and bytes) and the user's own
code before and after it are sent by ipyparallel.

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
LEAVE_TIMEOUT_S = 5.0  # max time in which ranks must leave a run that has ended, s


def interactive(workers: int, client: Any = None, progress: bool = True) -> Interactive:
    """Open engines for real runs whose ranks a notebook can inspect. Return once they are up.

    Parameters
    ----------
    workers
        Max number of workers of a run. One more engine is the master.
    client
        Existing engines: an ipyparallel Client, or a Cluster that has been started. All its engines have to be ranks
        of one MPI world of at least workers + 1, with rank 0 on this machine. They keep running at the end. The
        security of their connections is up to the user. By default, new engines are started.
    progress
        Show a progress bar during the start, which takes some seconds.

    Raises
    ------
    SettingError
        workers is not a positive number, or the client has no such engines.
    ClusterError
        The engines cannot be started: mpiexec is missing, memory or open files do not suffice, or an import fails.

    Notes
    -----
    Engines that are started here listen on this machine only, their connections are encrypted (CURVE), and they end
    with the notebook's kernel. An engine that dies counts as a dead worker. The run continues as far as its scheme
    tolerates it, but not without the master. Afterwards new engines are needed, as the error of `start` explains.

    Under a plain ``mpiexec``, which `ipyparallel.Cluster(engines="mpi")` calls by default, **the death of one engine
    ends all the others**. Pass ``--with-ft ulfm`` to mpiexec if runs are to survive it. The error of the run names the
    dead engine, and the run can be resumed on other processes.

    Examples
    --------
    >>> import workbench as wb
    >>> engines = wb.interactive(6)  # doctest: +SKIP
    >>> cr = wb.Experiment(scheme="CR", scheme_args={"children": 2, "layers": 2}, workers=6)
    >>> engines.start(cr).result().rounds  # doctest: +SKIP
    >>> engines.at(3)["part"].gradient  # what rank 3 computed last  # doctest: +SKIP
    >>> engines.close()  # doctest: +SKIP

    In a notebook, a cell that begins with ``%%px`` runs on all ranks. Its variable `part` is the state of the rank at
    the end of its last run (see `workbench.mpi.running.ipyparallel.snapshot.RankSnapshot`). Such cells wait until a run
    is over.
    """
    if not isinstance(workers, int) or workers < 1:
        raise SettingError(f"workers = {workers!r}: give a positive whole number")
    return Interactive(workers, client, progress)


class Interactive:
    """Engines that take one run after another, see `interactive`. A context manager that closes them.

    `client`: ipyparallel's client. `view`: its view of all ranks, in order. `places`: processes of the ranks.
    """

    def __init__(self, workers: int, client: Any, progress: bool) -> None:
        self.workers, self.borrowed = workers, client is not None
        self.engine_cluster: EngineCluster | None = None
        self.places: list[ProcessId] = []
        self.run: RealRun | None = None  # the newest run
        self.calls: Calls | None = None  # calls of the newest run
        self._closed: str | None = None  # why the engines are closed
        self._end, self._ending = contextlib.ExitStack(), threading.Lock()
        atexit.register(self.close)
        try:
            if client is None:  # new engines
                # made now, so that an error is raised before the engines start
                made_cache_folder("runs")
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
        """Make the engines ready for runs, in the order of their ranks."""
        ids, self.places = ranks_of(self.client, self.workers + 1)
        if self.places[MASTER].host != socket.gethostname():
            raise SettingError(f"client: rank 0 is {self.places[MASTER]}; it has to be on this machine")
        answers(call(self.client, ids, "init_rank"), patience(len(ids)))
        self.view = self.client.direct_view(ids)
        self.view.block = True
        if get_ipython() is not None:  # %%px then uses these engines
            self.view.activate()

    def start(self, experiment: Experiment, **options: Any) -> RealRun:
        """Start a run on the engines and return at once. Options as in `workbench.start` with engine = "mpi".

        Runs wait for earlier runs, and for other calls to the engines. Raises `SettingError` for an experiment that
        does not fit, `ClusterError` if the engines can no longer run experiments.
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
        """Return the view of one rank: ``at(3)["part"]`` fetches its `part`, ``at(3).apply_sync(f)`` calls f there."""
        if rank not in range(len(self.places)):
            raise SettingError(f"rank = {rank!r}: there are 0 to {len(self.places) - 1}")
        return self.client.direct_view(self.view.targets[rank])

    def unfit(self) -> str | None:
        """Return why the engines cannot take another run, in one sentence, or None if they can."""
        last = self.calls
        why = self._closed or died(self.places)
        if why is None and last is not None and last.over(0.0) and not last.clean:
            why = "the last run left something behind"
        if why is None:
            return None
        how = f"wb.interactive({self.workers}) opens new ones"
        return f"engines: {why}; {'start their cluster again' if self.borrowed else how}"

    def close(self) -> None:
        """Stop the current run, and end the engines if they were started here. May be called repeatedly."""
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
        """Wait for free engines.

        Raises `ClusterError` if they become unfit, and `RunCancelled` if the run is stopped.
        """
        while (why := self.unfit()) is None:
            if not run.wanted():
                raise RunCancelled
            if not self.client.outstanding:
                return
            run.note = "waiting for the engines, which are busy with your code"
            time.sleep(POLL_INTERVAL_S)
        raise ClusterError(why)

    def serve(self, run: RealRun, task: Task) -> Calls:
        """Call all engines to take part in a run."""
        self.run = run
        self.calls = Calls(self.client, self.view.targets, task.as_dict(), task.arrays, self.places)
        return self.calls

    def close_unfit(self) -> None:
        """Close the engines after a run that its ranks cannot complete, since they can take no further run."""
        self._closed = self._closed or "ended, because a run was aborted"
        self._leave()


class EngineRun(RealRun):
    """Real run on engines: it is handed in by calls instead of to a pool."""

    def __init__(self, experiment: Experiment, folder: Path, engines: Interactive) -> None:
        super().__init__(experiment, folder)
        self.engines = engines

    def hand_in(self, task: Task) -> None:
        """Hand the task to the engines, and follow it to its end."""
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
                self.engines.close_unfit()
                if is_alive(self.engines.places[MASTER].pid):  # without ENDED, the run would seem to go on
                    self.stop()
                    fields = {"state": "failed", "error": described(error, []), "clean": False}
                    write_json(self.home / ENDED, {**fields, "emulate": task.emulate, "first": task.first})
            raise
