"""Real runs: submitted to a pool of ranks, and resumed from their last checkpoint.

Only the run folder connects a run with its followers. A restarted kernel or another notebook can therefore follow the
run (`attach`), and a broken run can be resumed (`resume`). See `workbench.mpi.running.followed`.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from pathlib import Path
from typing import Any

from workbench.core.base.by_value import sent
from workbench.core.base.errors import ClusterError
from workbench.core.base.files import write_json
from workbench.core.base.settings import SettingError, check_kind
from workbench.core.base.text import read_json
from workbench.core.contract.adaptive import AdaptiveController
from workbench.core.experiment import Experiment
from workbench.core.problems.base import Problem
from workbench.core.running.memory import check_memory
from workbench.core.running.run import RunCancelled, in_background, warnings_before
from workbench.core.trace import records
from workbench.core.trace.checkpoint import read_checkpoint
from workbench.core.trace.folder import new_folder
from workbench.core.trace.layout import CHECKPOINT, ENDED, OWNER, TASK
from workbench.core.trace.trust import runnable, sign_owner
from workbench.mpi import clusters
from workbench.mpi.clusters import Cluster
from workbench.mpi.clusters.warm import POOLS
from workbench.mpi.engine.setup import Emulate
from workbench.mpi.launch import task as tasks
from workbench.mpi.launch.site import Pool
from workbench.mpi.launch.task import Task, check_begun, data_of, task_of
from workbench.mpi.running.followed import POLL_INTERVAL_S, FollowedRun
from workbench.mpi.running.ownership import (
    begun,
    check_options,
    check_whole,
    cluster_of,
    ended,
    locked_again,
    real_folder,
)

MAX_ATTEMPTS = 3  # max number of pools to which a run is submitted

_turn = threading.Lock()  # real runs of one kernel run one after the other, since they share the cores


class RealRun(FollowedRun):
    """Run on real processes that this process submits to a pool, and to another pool if the first one breaks."""

    def __init__(self, experiment: Experiment, folder: Path, cluster: Cluster | None = None) -> None:
        super().__init__(experiment, folder)
        self.cluster = cluster
        self.pool: Pool | None = None  # pool that has the run
        self._planned: AdaptiveController | None = None

    def launch(self, options: dict[str, Any]) -> None:
        """Prepare the task, submit it to a pool, and follow it to its end."""
        with self._in_turn():
            self._begin("opening the data")
            e = self.experiment
            self.warnings = warnings_before(e)
            self._open()
            task = task_of(e, self.home, data=self.data(), controller=self._controller_state([]), **options)
            self.hand_in(task)

    def _resume(self) -> None:
        """Submit the rounds after the last checkpoint, and follow them to their end."""
        with self._in_turn():
            self._begin("resuming")
            self._open()
            self.hand_in(self.rest(read_json(self.home / TASK)))

    @contextlib.contextmanager
    def _in_turn(self) -> Iterator[None]:
        """Wait until earlier runs are over. Raises `RunCancelled` if this one is stopped first."""
        while not _turn.acquire(timeout=POLL_INTERVAL_S):
            self._still_wanted()
        try:
            self._still_wanted()
            yield
        finally:
            _turn.release()

    def _open(self) -> None:
        """Check the memory and open the data in another thread, so that a stop need not wait for it.

        Raises `RunCancelled` on a stop.
        """
        found: Future[Problem] = Future()

        def opened() -> None:
            try:
                if self.cluster is not None and self.cluster.kind == "local":
                    check_memory(self.experiment, ranks=True)
                found.set_result(self.experiment.build_problem())
            except Exception as error:
                found.set_exception(error)

        in_background(opened, "workbench-data")
        while not wait([found], POLL_INTERVAL_S).done:
            self._still_wanted()
        self._problem = found.result()

    def _still_wanted(self) -> None:
        if not self.wanted():
            raise RunCancelled

    def hand_in(self, task: Task) -> None:
        """Give a task to a pool and follow it.

        A pool that breaks before it takes the run is replaced once. If hosts are lost, the run continues without them.
        """
        self.describe(task)
        for attempt in range(MAX_ATTEMPTS):
            self.pool = pool = POOLS.get(self.experiment.workers + 1, self.cluster, self._on_progress)
            pool.await_ready(self._on_progress)
            owner = pool.submit(task, self._on_progress)
            write_json(self.home / OWNER, fields := pool.as_dict())
            sign_owner(self.home, fields)
            self.note, self.stage = "preparing the first round", None
            try:
                self.watch(owner)
                break
            except ClusterError as error:
                if attempt == MAX_ATTEMPTS - 1:
                    raise
                # if it is still waiting, no rank has begun the run, because the pool was about to end
                if attempt or not pool.waiting:
                    task = self._without(pool.lost(), error)

        if self.changing_scheme:
            self.hand_in(self.rest(read_json(self.home / TASK), at_once=True))
        else:
            self._finish()

    def _controller_state(self, changes: Sequence[Mapping[str, Any]], left: float | None = None) -> Any:
        """Return the state of the adaptive controller after these changes, or None if the run is not adaptive."""
        if not self.experiment.adaptive:
            return None
        self._planned = self._planned or self.experiment.adaptive_controller()
        return tasks.controller_state(self._planned, changes, left)

    def _without(self, lost: Sequence[str], error: ClusterError) -> Task:
        """Return the task for the rest of a run, on the hosts that are left. Raises `error` if no host is left."""
        left = self.cluster.without(lost) if self.cluster is not None and lost else None
        if left is None or (self.home / ENDED).exists():
            raise error
        self.cluster = left
        again = self.rest(read_json(self.home / TASK))
        self._rows = self._rows[: again.first]
        gone = f"{', '.join(lost)} is gone"
        self.warnings += (f"{gone}; the run continued without it from round {again.first + 1} on",)
        self.describe(again)
        return again

    def rest(self, fields: dict[str, Any], at_once: bool = False) -> Task:
        """Return the task after the last checkpoint, or the whole run if there is none. Files are truncated to match.

        `at_once`: the checkpoint is the end of a segment, and the run continues with another scheme.
        """
        done, model, state, begun, steps = 0, None, None, None, tuple[int, ...]()
        if (self.home / CHECKPOINT).is_file():
            check_whole(self.home, self.experiment, counted=False)
            last = read_checkpoint(self.home)
            check_begun(self.experiment, last.begun, fields)
            done, model, state, begun, steps = last.rounds, last.model, last.state, last.begun, last.steps
        left = (ended(self.home) or {}).get("left") if at_once else None
        floats = self.experiment.build_problem().size
        records.reopen(self.home, done, floats)
        changes = records.note_change(self.home, done)
        offset = records.rewind(self.home, done, floats)
        names = ("emulate", "record", "gradients", "checkpoint_every", "patience")
        options = {**{name: fields[name] for name in names}, "first": done, "steps": steps, "offset": offset}
        e = self.experiment
        if changes:
            now = {name: changes[-1][name] for name in ("scheme", "scheme_args")}
            e = e.replace(**now, adaptive=False)
            options["begun"] = begun
        options["controller"] = self._controller_state(changes, left)
        return task_of(e, self.home, model, state, data=self.data(), **options)

    def data(self) -> dict[str, Any] | None:
        """Return the prepared data that the ranks need, or None if they see this machine's files."""
        return data_of(self.experiment) if self.cluster is not None and self.cluster.elsewhere else None

    def describe(self, task: Task) -> None:
        """Write the fields of the task into the run folder, except for those that are made again to resume the run."""
        apart = ("spec", "code", "controller", "substitutes")
        write_json(self.home / TASK, {k: v for k, v in task.as_dict().items() if k not in apart})

    def _on_progress(self, what: str, done: int, total: int) -> None:
        # raises if the run was stopped in the meantime, for example while its job waited in a queue
        self._still_wanted()
        # with the stage None, the bar is animated without a length, even before any process has started
        self.note = f"{what}: {done} of {total}" if total else what
        self.stage = done / total if done else None


def start_real(
    experiment: Experiment,
    cluster: str = "local",
    folder: str | Path | None = None,
    emulate: Emulate = "all",
    events: bool = True,
    gradients: bool = False,
    checkpoint_every: float = 2.0,
    patience: float = 600.0,
    substitutes: Callable[[type, int], type] | None = None,
    make: Callable[[Experiment, Path], RealRun] | None = None,
) -> RealRun:
    """Start a run on real processes and return at once.

    Parameters
    ----------
    experiment
        Experiment to run.
    cluster
        Name of a cluster (`workbench.mpi.clusters.names()`) or its .yaml file. "local" is this machine.
    folder
        Run folder, new or empty; by default one in the user's cache.
    emulate
        What is emulated on top of real times: "all" (computing times and links), "delays" (computing times) or
        "nothing".
    events
        Keep the event table.
    gradients
        Keep every committed gradient in the run folder (gradients.f64), for checks.
    checkpoint_every
        Seconds between checkpoints.
    patience
        Seconds without a finished round after which the run fails.

    Other Parameters
    ----------------
    substitutes
        Function that returns, for a class (`Transport`, `RunRecorder`) and a rank, the class to use instead. For tests.
    make
        Function that makes the run. By default, a `RealRun` on the ranks of a pool.

    Raises
    ------
    SettingError
        The cluster is unknown or its file is wrong, an option is invalid, or the folder is not empty. Later errors are
        raised by `Run.result`.
    """
    where = clusters.load(cluster)
    options: dict[str, Any] = {"emulate": emulate, "record": events, "gradients": gradients}
    options |= {"checkpoint_every": checkpoint_every, "patience": patience}
    options["substitutes"] = sent([substitutes]) if substitutes else ""
    check_options(**options)
    if experiment.adaptive and make is not None:
        raise SettingError(
            "adaptive = True: is not available on these engines; take wb.run(..., engine='mpi') for it"
        )
    home = new_folder(folder)
    run = RealRun(experiment, home, where) if make is None else make(experiment, home)
    run.lock = begun(home, experiment, options)
    return run.begin(lambda: run.launch(options))


def attach(folder: str | Path, *, trust: bool = False) -> RealRun:
    """Follow a run by its folder: one of another kernel, or of this kernel before it was restarted.

    A run that has ended returns its trace at once.

    `trust`: run the code and use the cluster of a folder that another user has written or changed. `trust` is needed
    only once per folder.

    Raises `SettingError` if the folder is not that of a real run, or has to be trusted first.

    >>> attach("no-run-here")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    workbench.core.base.settings.SettingError: folder = 'no-run-here': holds no run on real processes; ...
    """
    check_kind("trust", trust, bool)
    home = real_folder(folder, follow=True)
    with runnable(home, trust) as e:
        run = RealRun(e, home)
        if ended(home) is None:
            cluster_of(home, trust)  # checked now, and not only when the run is followed
        run.trust = trust
        return run.begin(run.follow)


def resume(folder: str | Path, *, trust: bool = False) -> RealRun:
    """Resume a stopped or broken run from its last checkpoint, in the same folder.

    A run that is still stopping is waited for. A run without a checkpoint starts from the beginning. Schemes that use
    gradients of earlier rounds (CADA, LAGC) request all gradients in the first round. `trust`: as in `attach`.

    Raises
    ------
    SettingError
        There is nothing to resume, the folder has to be trusted first, or the run is still under way. If spec or data
        differ from those of the checkpoint, `Run.result` raises the error, and nothing is changed.

    Examples
    --------
    >>> resume("no-run-here")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    workbench.core.base.settings.SettingError: folder = 'no-run-here': holds no run on real processes; ...
    """
    check_kind("trust", trust, bool)
    home = real_folder(folder)
    cluster = cluster_of(home, trust)
    lock = locked_again(home, trust)
    try:
        if (ended(home) or {}).get("state") == "finished":
            with runnable(home, trust) as e:
                check_whole(home, e)
            why = "this run is complete; there is nothing to resume"
            raise SettingError(f"folder = {str(folder)!r}: {why}")
        with runnable(home, trust) as e:
            run = RealRun(e, home, cluster)
            run.lock, run.trust = lock, trust
            return run.begin(run._resume)
    except BaseException:
        lock.release()
        raise
