"""Real runs: handed to warm ranks, followed through the run folder, put together into a trace.

The run folder is all that connects a run with who watches it, so a restarted kernel or another notebook can follow it
(`attach`), and a run that broke off can go on from its last checkpoint (`resume`). Losses are evaluated here and not
at the master, only where somebody looks at them, and no more often than a share of the time allows: measuring is not to
slow down what is measured. Those that are missing at the end are made up for.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from workbench.core.base.blas import one_thread
from workbench.core.base.errors import ClusterError
from workbench.core.base.files import write_json
from workbench.core.base.locks import Lock
from workbench.core.base.settings import SettingError, check_kind
from workbench.core.base.text import read_json
from workbench.core.contract.adaptive import AdaptiveController, Change
from workbench.core.experiment import Experiment
from workbench.core.problems import Problem, Request
from workbench.core.problems.base import Evaluation
from workbench.core.running.precision import lost_digits
from workbench.core.running.run import Rows, Run, RunCancelled, State, failing, in_background, no_rows
from workbench.core.trace import records
from workbench.core.trace.assembled import diverged
from workbench.core.trace.checkpoint import read_checkpoint
from workbench.core.trace.folder import new_folder
from workbench.core.trace.layout import CHECKPOINT, ENDED, OWNER, RUN, RUN_LOCK, STOP, TASK
from workbench.core.trace.trace import Trace
from workbench.core.trace.trust import runnable, sign_holder
from workbench.mpi import clusters
from workbench.mpi.clusters import Cluster
from workbench.mpi.clusters.warm import POOLS
from workbench.mpi.engine.ledger import Ledger
from workbench.mpi.engine.rank import Emulate
from workbench.mpi.launch import task as tasks
from workbench.mpi.launch.site import Pool, RunOwner
from workbench.mpi.launch.task import Task, check_begun, data_of, not_finite, rebuilt, task_of
from workbench.mpi.running.assembled import changes_of, put_together
from workbench.mpi.running.ownership import (
    END,
    begun,
    check_options,
    check_whole,
    cluster_of,
    ended,
    locked_again,
    owner_of,
    real_folder,
    soon,
)

LOOK_EVERY, SOON, HASTY = 0.03, 0.005, 400  # s between looks; so many soon after a wish to stop
WRITERS = ("pandas", "pyarrow.parquet")  # what a trace is written with, imported while the run goes on
SHARE = 0.1  # of the time goes into losses while a run is under way
ATTEMPTS = 3  # pools that a run is given to

_turn = threading.Lock()  # real runs of one kernel go one after the other: they share the cores


class RealRun(Run):
    """A run on real processes, or one that somebody else has started and that is followed here."""

    lock: Lock | None = None  # to its folder; who merely follows a run has none
    trust = False  # is its cluster's word taken from its folder?

    def __init__(self, experiment: Experiment, folder: Path, cluster: Cluster | None = None) -> None:
        super().__init__(experiment, "mpi", folder)
        self.home, self.cluster = folder, cluster
        self.losses: dict[int, Evaluation] = {}  # by number of model: 0 is the first round's
        self._rows = np.zeros((0, len(records.LIVE)))
        self.pool: Pool | None = None  # whose ranks have it
        self._problem: Problem | None = None
        self._planned: AdaptiveController | None = None
        self._since = self._spent = 0.0  # when it was first looked at; s for losses, so far
        self._asked = False  # for rows, since the newest loss

    def _so_far(self, first: int) -> Rows:
        """Losses are NaN where they have not been evaluated yet."""
        self._asked, table = True, self._rows[first:]
        if not len(table):
            return no_rows()
        found = {name: table[:, i] for i, name in enumerate(records.LIVE)}
        known = [self.losses.get(k) for k in range(first, first + len(table))]
        found["loss"] = np.array([np.nan if e is None else e.loss for e in known])
        found["samples"] = np.full(len(table), np.nan)
        return found

    @property
    def rounds_done(self) -> int:
        """Rounds that are done; who counts them does not ask for losses."""
        return len(self._rows) if self._trace is None else super().rounds_done

    def watcher(self) -> Callable[[], Rows]:
        """As of any run; of ranks that share the run folder with the master: others' events come at its end."""
        return super().watcher() if self._trace is not None else records.LiveEventReader(self.home)

    def stop(self) -> None:
        """Ask the ranks to end the run; what was measured is kept."""
        super().stop()
        if self.home.is_dir():
            (self.home / STOP).touch()
        if self._state == "running":
            self.note = "stopping"

    def begin(self, work: Any) -> RealRun:
        """Do the work in a thread of its own."""

        def safely() -> None:
            with failing(self):
                try:
                    work()
                except RunCancelled:
                    self._unbegun()

        in_background(safely, "workbench-run")
        return self

    def launch(self, options: dict[str, Any]) -> None:
        """Prepare the task, hand it to warm ranks, follow it to its end."""
        with self._in_turn():
            self._begin("opening the data")
            e = self.experiment
            self.warnings = lost_digits(e.built_scheme, e.workers)
            task = task_of(e, self.home, data=self.data(), controller=self._controller_state([]), **options)
            self.hand_in(task)

    def _resume(self) -> None:
        """The same for what follows the last checkpoint."""
        with self._in_turn():
            self._begin("resuming")
            self.hand_in(self.rest(read_json(self.home / TASK)))

    @contextlib.contextmanager
    def _in_turn(self) -> Iterator[None]:
        """Wait until the runs before it are over; raises `RunCancelled` where it is stopped before."""
        while not _turn.acquire(timeout=LOOK_EVERY):
            self._still_wanted()
        try:
            self._still_wanted()
            yield
        finally:
            _turn.release()

    def _still_wanted(self) -> None:
        if not self.wanted():
            raise RunCancelled

    def _unbegun(self) -> None:
        """It was stopped before the ranks had it: end it as they would have, with the rounds that there are."""
        if ended(self.home) is None:
            task, committers = read_json(self.home / TASK), self.experiment.plan.committers
            books = [Ledger(rank, self.experiment.rounds).pack() for rank in committers]
            records.write_unstarted(self.home, task["emulate"], task["first"], committers, books)
        self._problem = self.experiment.build_problem()
        self._read()
        self._conclude()

    def _close(self, state: State, note: str) -> None:
        if self.lock is not None:  # the folder is anybody's again before the run says that it is over
            self.lock.release()
        super()._close(state, note)

    def hand_in(self, task: Task) -> None:
        """Give a task to a pool and follow it.

        A pool that turns out to be broken is replaced once. Where hosts have gone and taken mpiexec along, the run
        goes on without them.
        """
        self.describe(task)
        for attempt in range(ATTEMPTS):
            self.pool = pool = POOLS.get(self.experiment.workers + 1, self.cluster, self._said)
            pool.await_ready(self._said)
            holder = pool.submit(task, self._said)
            write_json(self.home / OWNER, words := pool.words())
            sign_holder(self.home, words)
            self.note, self.stage = "preparing the first round", None
            try:
                self.watch(holder)
                break
            except ClusterError as error:
                if attempt == ATTEMPTS - 1:
                    raise
                if attempt or not pool.waiting:  # else nobody has taken it: the ranks were about to leave
                    task = self._without(pool.lost(), error)

        if self.changing_scheme:
            self.hand_in(self.rest(read_json(self.home / TASK), at_once=True))
        else:
            self._finish()

    @property
    def changing_scheme(self) -> bool:
        """Has a stretch ended, after which the run goes on with another scheme?"""
        return (ended(self.home) or {}).get("state") == records.SCHEME_CHANGED

    @property
    def changes(self) -> list[Change]:
        """Changes of scheme so far."""
        return changes_of(self.home)

    def _controller_state(self, changes: Sequence[Mapping[str, Any]], left: float | None = None) -> Any:
        """What the master's rank needs to re-plan after these changes; None where the plan does not steer."""
        if not self.experiment.adaptive:
            return None
        self._planned = self._planned or self.experiment.adaptive_controller()
        return tasks.controller_state(self._planned, changes, left)

    def _without(self, lost: Sequence[str], error: ClusterError) -> Task:
        """The rest of a run whose hosts have gone, for those that are left; raises the error where there are none."""
        left = self.cluster.without(lost) if self.cluster is not None and lost else None
        if left is None or (self.home / ENDED).exists():
            raise error
        self.cluster = left
        again = self.rest(read_json(self.home / TASK))
        self._rows = self._rows[: again.first]
        gone = f"{', '.join(lost)} is gone"
        self.warnings += (f"{gone}; the run went on without it from round {again.first + 1} on",)
        self.describe(again)
        return again

    def rest(self, words: dict[str, Any], at_once: bool = False) -> Task:
        """What follows the last checkpoint, or all of the run where there is none; files are cut back to there.

        `at_once`: the checkpoint is the end of a stretch, and what follows goes on with another scheme.
        """
        done, model, state, begun = 0, None, None, None
        if (self.home / CHECKPOINT).is_file():
            check_whole(self.home, self.experiment, counted=False)
            last = read_checkpoint(self.home)
            check_begun(self.experiment, last.begun, words)
            done, model, state, begun = last.rounds, last.model, last.state, last.begun
        left = (ended(self.home) or {}).get("left") if at_once else None
        floats = self.experiment.build_problem().size
        records.reopen(self.home, done, floats)
        changes = records.note_change(self.home, done)
        offset = records.rewind(self.home, done, floats)
        names = ("emulate", "record", "gradients", "checkpoint_every", "patience")
        options = {**{name: words[name] for name in names}, "first": done, "offset": offset}
        e = self.experiment
        if changes:
            now = {name: changes[-1][name] for name in ("scheme", "scheme_args")}
            e = e.replace(**now, adaptive=False)
            options["begun"] = begun
        options["controller"] = self._controller_state(changes, left)
        return task_of(e, self.home, model, state, data=self.data(), **options)

    def data(self) -> dict[str, Any] | None:
        """Prepared data that the ranks are told of; None where they see this machine's files."""
        return data_of(self.experiment) if self.cluster is not None and self.cluster.elsewhere else None

    def describe(self, task: Task) -> None:
        """Write into the run folder how it is run."""
        apart = ("spec", "code", "controller")
        write_json(self.home / TASK, {k: v for k, v in task.as_dict().items() if k not in apart})

    def _said(self, what: str, done: int, total: int) -> None:
        self._still_wanted()  # its job may be in a queue, for instance
        # None: the bar moves to and fro, also while nobody is there yet.
        self.note, self.stage = (
            f"{what}: {done} of {total}" if total else what,
            done / total if done else None,
        )

    def follow(self, holder: RunOwner | None = None) -> None:
        """Read on until the run has ended, then put the trace together."""
        self.watch(holder)
        while self.changing_scheme and Lock(self.home / RUN_LOCK).held:  # its owner hands in the next stretch
            time.sleep(LOOK_EVERY)
            self.watch()
        self._finish()

    def watch(self, holder: RunOwner | None = None) -> None:
        """Read on until the run, or a stretch of it, has ended."""
        if self._state == "waiting":
            self._begin("following")
        self._problem = self._problem or self.experiment.build_problem()
        self._since = self._since or time.monotonic()
        hasty = HASTY
        with contextlib.ExitStack() as own:
            while not (self.home / ENDED).exists():
                if holder is None and (holder := owner_of(self.home, self.trust)) is not None:
                    own.callback(holder.release)
                self._look(holder)
                hasty = HASTY if self.wanted() else hasty - 1
                time.sleep(SOON if 0 < hasty < HASTY else LOOK_EVERY)

    def _finish(self) -> None:
        self._read()
        self._conclude()

    def _look(self, holder: RunOwner | None) -> None:
        """One look at the run; raises `ClusterError` where nobody will end it any more."""
        there = soon(self.home) if holder is None else holder.is_alive
        if holder is not None:
            holder.look()
        if not there and not (self.home / ENDED).exists():
            why, done = holder.reason() if holder else None, len(records.read_rows(self.home))
            if why and "wb." in why:  # what can be done has been said
                raise ClusterError(why)
            why = why or f"round {done}: the master's process, or mpiexec, is gone"
            raise ClusterError(f"{why}; wb.resume({str(self.home)!r}) goes on from the last checkpoint")
        self._read()
        if self.wanted():  # else the end would wait for it; what is missing then is made up for
            self._evaluate_newest()

    def _read(self) -> None:
        fresh = records.read_next(self.home, len(self._rows))
        if len(fresh):
            if not len(self._rows):  # what writes the trace, so that a stop need not wait for it
                in_background(lambda: [*map(import_module, WRITERS)], "workbench-imports")
            self._rows = np.concatenate([self._rows, fresh])
            row = dict(zip(records.LIVE, fresh[-1], strict=True))
            dropped = int(self._rows[:, records.LIVE.index("stale")].sum())
            done = f"round {int(row['round']) + 1} of {self.experiment.rounds}"
            if self.wanted():
                self.note = f"{done}, {dropped} late answers dropped"

    def _evaluate_newest(self) -> None:
        """The loss after the newest round, if somebody looks and there is time for it."""
        if self._problem is None or not self._asked:
            return
        newest = min(len(self._rows), records.models_kept(self.home, self._problem.size)) - 1
        if newest < 0 or newest in self.losses:
            return
        if self._spent > SHARE * (time.monotonic() - self._since):
            return
        self._asked, began = False, time.monotonic()
        models = records.read_models(self.home, self._problem.size, newest, 1)
        if len(models):
            # The other threads of a BLAS call go on spinning for a while, beside the ranks.
            with one_thread(), np.errstate(over="ignore", invalid="ignore"):
                self.losses[newest] = self._problem.evaluate([Request(models[0], gradient=False)])[0]
        self._spent += time.monotonic() - began

    def _conclude(self) -> None:
        """Make the trace of the rounds that there are; keep it in the run folder."""
        how = read_json(self.home / ENDED, **END)
        error = how["error"]
        if error is not None and not not_finite(error):
            raise rebuilt(error)
        check_whole(self.home, self.experiment)
        assert self._problem is not None

        def progress(done: int, total: int) -> None:
            self.note = f"evaluating losses: {done} of {total}"

        trace = put_together(self.experiment, self.home, how, self._problem, self.losses, progress)
        texts = tuple(diverged(trace))
        if error is not None and not texts:  # the losses are finite: somebody sent nonsense
            raise rebuilt(error)
        self._keep(trace)
        self.warnings += texts
        k, rounds = len(trace.columns["round"]), self.experiment.rounds
        state: State = "finished" if how["state"] == "finished" and k == rounds else "stopped"
        note = f"all {k} rounds" if state == "finished" else f"stopped after {k} of {rounds} rounds"
        note = note if error is None else texts[0]
        self._end(trace, state, note)

    def _keep(self, trace: Trace) -> None:
        """Write the trace into the run folder, unless it is there or another is about to, who has claimed the run."""
        lock = self.lock or Lock(self.home / RUN_LOCK)
        if self.lock is None and ((self.home / RUN).is_file() or not lock.take()):
            return
        try:
            records.unwatched(self.home)
            trace.write_into(self.home, records.kept(self.home))
        finally:
            lock.release()


def start_real(
    experiment: Experiment,
    cluster: str = "local",
    folder: str | Path | None = None,
    emulate: Emulate = "all",
    events: bool = True,
    gradients: bool = False,
    checkpoint_every: float = 2.0,
    patience: float = 600.0,
    message_faults: dict[str, Any] | None = None,
    make: Callable[[Experiment, Path], RealRun] | None = None,
) -> RealRun:
    """Start a run on real processes and return at once.

    Parameters
    ----------
    experiment
        What to run.
    cluster
        Where: a name of `workbench.mpi.clusters.names()`, or a cluster's .yaml file; "local" is this machine.
    folder
        Run folder, new or empty; by default one in the user's cache.
    emulate
        What is drawn and put on top of reality: "all" (computing times and links), "delays" (computing times),
        "nothing".
    events
        Keep the event table.
    gradients
        Keep every committed gradient in the run folder (gradients.f64), for checks.
    checkpoint_every
        Seconds between checkpoints.
    patience
        Seconds without a finished round after which the run is given up.

    Other Parameters
    ----------------
    message_faults
        Damage to messages, for tests; see `workbench.mpi.launch.rank.fault_injection`.
    make
        Makes the run; another kind hands itself to other processes than the warm ranks.

    Raises
    ------
    SettingError
        The cluster is unknown or its file is wrong, the folder is not empty. What goes wrong later is raised by
        `Run.result`.
    """
    where = clusters.load(cluster)
    options: dict[str, Any] = {"emulate": emulate, "record": events, "gradients": gradients}
    options |= {"checkpoint_every": checkpoint_every, "patience": patience}
    options["message_faults"] = message_faults or {}
    check_options(**options)
    if experiment.adaptive and make is not None:
        raise SettingError("adaptive = True: not on these engines; take wb.run(..., engine='mpi') for it")
    home = new_folder(folder)
    run = RealRun(experiment, home, where) if make is None else make(experiment, home)
    run.lock = begun(home, experiment, options)
    return run.begin(lambda: run.launch(options))


def attach(folder: str | Path, *, trust: bool = False) -> RealRun:
    """Follow a run by its folder: one of another kernel, or of this one before it was restarted.

    `trust`: run the code and use the cluster that a folder names which somebody else has written, or altered; it is
    asked for once.

    Raises `SettingError` where the folder holds no real run, or is to be trusted first. A run that has ended gives its
    trace at once.

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
            cluster_of(home, trust)  # now, and not once it is followed
        run.trust = trust
        return run.begin(run.follow)


def resume(folder: str | Path, *, trust: bool = False) -> RealRun:
    """Go on from the last checkpoint of a run that broke off or was stopped, in the same folder.

    A run that was stopped a moment ago is waited for; one that broke off before its first checkpoint begins anew.
    Schemes that remember earlier rounds (CADA, LAGC) ask everybody anew in the first round.
    `trust`: as in `attach`.

    Raises
    ------
    SettingError
        There is nothing to go on from, the folder is to be trusted first, or somebody else works on this run. That the
        spec or the data are not those of the checkpoint any more is raised by `Run.result`, and changes nothing.

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
    claim = locked_again(home, trust)
    try:
        if (ended(home) or {}).get("state") == "finished":
            with runnable(home, trust) as e:
                check_whole(home, e)
            why = "this run is complete, there is nothing to go on with"
            raise SettingError(f"folder = {str(folder)!r}: {why}")
        with runnable(home, trust) as e:
            run = RealRun(e, home, cluster)
            run.lock, run.trust = claim, trust
            return run.begin(run._resume)
    except BaseException:
        claim.release()
        raise
