"""Real runs that are followed through their run folder: rows and losses during the run, the trace at its end.

Losses are evaluated here and not at the master. They are evaluated only when their values are read. This takes a
limited share of the time, so that the measured run is not slowed down. Missing losses are evaluated at the end.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, Self

import numpy as np

from workbench.core.base.blas import one_thread
from workbench.core.base.errors import ClusterError
from workbench.core.base.locks import Lock
from workbench.core.base.text import read_json
from workbench.core.contract.adaptive import Change
from workbench.core.contract.plan import MASTER
from workbench.core.experiment import Experiment
from workbench.core.problems import Problem, Request
from workbench.core.problems.base import Evaluation
from workbench.core.running.run import (
    STOPPED_EARLY,
    Rows,
    Run,
    RunCancelled,
    State,
    failing,
    in_background,
    no_rows,
    without_rounds,
)
from workbench.core.trace import records
from workbench.core.trace.assembled import diverged
from workbench.core.trace.layout import ENDED, RUN, RUN_LOCK, STOP, TASK
from workbench.core.trace.trace import Trace
from workbench.mpi.engine.ledger import Ledger
from workbench.mpi.launch.site import RunOwner
from workbench.mpi.launch.task import not_finite, rebuilt
from workbench.mpi.running.assembled import changes_of, put_together
from workbench.mpi.running.ownership import (
    check_whole,
    ended,
    may_be_submitted,
    owner_of,
    read_end,
)

POLL_INTERVAL_S, STOPPING_INTERVAL_S = 0.03, 0.005  # s between polls; the second one after a request to stop
MAX_STOPPING_POLLS = 400  # max polls at the shorter interval
TRACE_WRITERS = ("pandas", "pyarrow.parquet")  # modules imported during the run, for the trace at its end
LOSS_TIME_SHARE = 0.1  # max share of the time for losses during a run


class FollowedRun(Run):
    """Run on real processes that is followed through its folder. Any process may have started it."""

    lock: Lock | None = None  # lock of the run folder, or None if this process only follows the run
    trust = False  # whether code and cluster of a foreign folder are trusted

    def __init__(self, experiment: Experiment, folder: Path) -> None:
        super().__init__(experiment, "mpi", folder)
        self.home = folder
        # Number of the model -> evaluation; 0 is the model of the first round
        self.losses: dict[int, Evaluation] = {}
        self._rows = np.zeros((0, len(records.LIVE_COLUMNS)))
        self._problem: Problem | None = None
        self._since = self._spent = 0.0  # time of the first poll; s spent on losses so far
        self._asked = False  # whether rows were read since the newest loss was evaluated

    def _so_far(self, first: int) -> Rows:
        """Return the rows from `first` on. Losses are NaN until they are evaluated."""
        self._asked, table = True, self._rows[first:]
        if not len(table):
            return no_rows()
        found = {name: table[:, i] for i, name in enumerate(records.LIVE_COLUMNS)}
        known = [self.losses.get(k) for k in range(first, first + len(table))]
        found["loss"] = np.array([np.nan if e is None else e.loss for e in known])
        for name in {name: None for e in list(self.losses.values()) for name in e.metrics}:
            found[name] = np.array([np.nan if e is None else e.metrics[name] for e in known])
        found["samples"] = np.full(len(table), np.nan)
        return found

    @property
    def rounds_done(self) -> int:
        """Number of finished rounds. Reading it does not request losses."""
        return len(self._rows) if self._trace is None else super().rounds_done

    def watcher(self) -> Callable[[], Rows]:
        """Return a reader of the live events of ranks that share the run folder with the master.

        Events of other ranks follow at the end of the run.
        """
        return super().watcher() if self._trace is not None else records.LiveEventReader(self.home)

    def stop(self) -> None:
        """Ask the ranks to stop after the current round. All results so far are kept."""
        super().stop()
        if self.home.is_dir():
            (self.home / STOP).touch()
        if self._state == "running":
            self.note = "stopping"

    def begin(self, work: Any) -> Self:
        """Run `work` in a background thread."""

        def safely() -> None:
            with failing(self):
                try:
                    work()
                except RunCancelled:
                    self._write_unstarted()

        in_background(safely, "workbench-run")
        return self

    def _write_unstarted(self) -> None:
        """End a run that was stopped before the ranks received it, and keep its earlier rounds."""
        early = self._problem is None and not len(records.read_next(self.home, 0))
        if ended(self.home) is None:
            task = read_json(self.home / TASK)
            committers = [MASTER] if early else self.experiment.plan.committers  # the plan needs the data
            ledgers = [Ledger(rank, self.experiment.rounds).pack() for rank in committers]
            records.write_unstarted(self.home, task["emulate"], task["first"], committers, ledgers)
        if early:
            trace = without_rounds(self.experiment, "mpi")
            self._keep(trace)
            self._end(trace, "stopped", STOPPED_EARLY)
            return
        self._problem = self.experiment.build_problem()
        self._read()
        self._conclude()

    def _close(self, state: State, note: str) -> None:
        if self.lock is not None:  # release the lock before the run is reported as over
            self.lock.release()
        super()._close(state, note)

    @property
    def changing_scheme(self) -> bool:
        """Whether a segment has ended, after which the run continues with another scheme."""
        return (ended(self.home) or {}).get("state") == records.SCHEME_CHANGED

    @property
    def changes(self) -> list[Change]:
        """Changes of scheme so far."""
        return changes_of(self.home)

    def follow(self, owner: RunOwner | None = None) -> None:
        """Follow the run until it has ended, then make the trace."""
        self.watch(owner)
        while self.changing_scheme and Lock(self.home / RUN_LOCK).locked:  # wait for the next segment
            time.sleep(POLL_INTERVAL_S)
            self.watch()
        self._finish()

    def watch(self, owner: RunOwner | None = None) -> None:
        """Follow the run until it, or one of its segments, has ended."""
        if self._state == "waiting":
            self._begin("following")
        self._problem = self._problem or self.experiment.build_problem()
        self._since = self._since or time.monotonic()
        hasty = MAX_STOPPING_POLLS
        with contextlib.ExitStack() as own:
            while not (self.home / ENDED).exists():
                if owner is None and (owner := owner_of(self.home, self.trust)) is not None:
                    own.callback(owner.release)
                self._look(owner)
                hasty = MAX_STOPPING_POLLS if self.wanted() else hasty - 1
                time.sleep(STOPPING_INTERVAL_S if 0 < hasty < MAX_STOPPING_POLLS else POLL_INTERVAL_S)

    def _finish(self) -> None:
        self._read()
        self._conclude()

    def _look(self, owner: RunOwner | None) -> None:
        """Poll the run once. Raises `ClusterError` if no process is left that could complete it."""
        there = may_be_submitted(self.home) if owner is None else owner.is_alive
        if owner is not None:
            owner.look()
        if not there and not (self.home / ENDED).exists():
            why, done = owner.reason() if owner else None, len(records.read_rows(self.home))
            if why and "wb." in why:  # the reason contains the advice already
                raise ClusterError(why)
            why = why or f"round {done}: the master's process, or mpiexec, is gone"
            raise ClusterError(f"{why}; wb.resume({str(self.home)!r}) resumes it from the last checkpoint")
        self._read()
        if self.wanted():  # a stopped run should end soon, so missing losses are evaluated at the end
            self._evaluate_newest()

    def _read(self) -> None:
        fresh = records.read_next(self.home, len(self._rows))
        if len(fresh):
            # import the modules for the trace early, so that a stop need not wait for them
            if not len(self._rows):
                in_background(lambda: [*map(import_module, TRACE_WRITERS)], "workbench-imports")
            self._rows = np.concatenate([self._rows, fresh])
            row = dict(zip(records.LIVE_COLUMNS, fresh[-1], strict=True))
            dropped = int(self._rows[:, records.LIVE_COLUMNS.index("stale")].sum())
            done = f"round {int(row['round']) + 1} of {self.experiment.rounds}"
            if self.wanted():
                self.note = f"{done}, {dropped} late answers dropped"

    def _evaluate_newest(self) -> None:
        """Evaluate the loss after the newest round, if its value was read before and the time budget allows it."""
        if self._problem is None or not self._asked:
            return
        newest = min(len(self._rows), records.models_kept(self.home, self._problem.size)) - 1
        began = time.monotonic()
        if newest < 0 or newest in self.losses or self._spent > LOSS_TIME_SHARE * (began - self._since):
            return
        self._asked = False
        models = records.read_models(self.home, self._problem.size, newest, 1)
        if len(models):
            # The other threads of a BLAS call would keep spinning for a while, and disturb the ranks.
            with one_thread(), np.errstate(over="ignore", invalid="ignore"):
                request = Request(models[0], gradient=False, test=True)
                (self.losses[newest],) = self._problem.evaluate([request])
        self._spent += time.monotonic() - began

    def _conclude(self) -> None:
        """Make the trace of the finished rounds, and save it in the run folder."""
        how = read_end(self.home / ENDED)
        error = how["error"]
        if error is not None and not not_finite(error):
            raise rebuilt(error)
        check_whole(self.home, self.experiment)
        assert self._problem is not None

        def progress(done: int, total: int) -> None:
            self.note = f"evaluating losses: {done} of {total}"

        trace = put_together(self.experiment, self.home, how, self._problem, self.losses, progress)
        texts = tuple(diverged(trace))
        if error is not None and not texts:  # all losses are finite, so the invalid values came from a rank
            raise rebuilt(error)
        self._keep(trace)
        self.warnings += texts
        k, rounds = len(trace.columns["round"]), self.experiment.rounds
        state: State = "finished" if how["state"] == "finished" and k == rounds else "stopped"
        note = f"all {k} rounds" if state == "finished" else f"stopped after {k} of {rounds} rounds"
        note = note if error is None else texts[0]
        self._end(trace, state, note)

    def _keep(self, trace: Trace) -> None:
        """Write the trace into the run folder, unless it is there or the owner of the lock is about to write it."""
        lock = self.lock or Lock(self.home / RUN_LOCK)
        if self.lock is None and ((self.home / RUN).is_file() or not lock.take()):
            return
        try:
            records.unwatched(self.home)
            trace.write_into(self.home, records.kept(self.home))
        finally:
            lock.release()
