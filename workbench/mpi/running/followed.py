"""Real runs that are followed through their run folder: rows and losses while they go on, the trace at their end.

Losses are evaluated here and not at the master, only where somebody looks at them, and in a limited share of the time:
measuring is not to slow down what is measured. Those that are missing at the end are evaluated then.
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
from workbench.core.experiment import Experiment
from workbench.core.problems import Problem, Request
from workbench.core.problems.base import Evaluation
from workbench.core.running.run import Rows, Run, RunCancelled, State, failing, in_background, no_rows
from workbench.core.trace import records
from workbench.core.trace.assembled import diverged
from workbench.core.trace.layout import ENDED, RUN, RUN_LOCK, STOP, TASK
from workbench.core.trace.trace import Trace
from workbench.mpi.engine.ledger import Ledger
from workbench.mpi.launch.site import RunOwner
from workbench.mpi.launch.task import not_finite, rebuilt
from workbench.mpi.running.assembled import changes_of, put_together
from workbench.mpi.running.ownership import (
    END,
    check_whole,
    ended,
    owner_of,
    soon,
)

POLL_INTERVAL_S, STOPPING_INTERVAL_S = 0.03, 0.005  # between looks; the second after a request to stop
MAX_STOPPING_POLLS = 400
TRACE_WRITERS = ("pandas", "pyarrow.parquet")  # imported while the run goes on
LOSS_TIME_SHARE = 0.1  # of the time goes into losses while a run is under way


class FollowedRun(Run):
    """A run on real processes that is followed through its folder, whoever started it."""

    lock: Lock | None = None  # to its folder; who merely follows a run has none
    trust = False  # is its cluster's word taken from its folder?

    def __init__(self, experiment: Experiment, folder: Path) -> None:
        super().__init__(experiment, "mpi", folder)
        self.home = folder
        self.losses: dict[int, Evaluation] = {}  # by number of model: 0 is the first round's
        self._rows = np.zeros((0, len(records.LIVE_COLUMNS)))
        self._problem: Problem | None = None
        self._since = self._spent = 0.0  # when it was first looked at; s for losses, so far
        self._asked = False  # for rows, since the newest loss

    def _so_far(self, first: int) -> Rows:
        """Losses are NaN where they have not been evaluated yet."""
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

    def begin(self, work: Any) -> Self:
        """Do the work in a thread of its own."""

        def safely() -> None:
            with failing(self):
                try:
                    work()
                except RunCancelled:
                    self._write_unstarted()

        in_background(safely, "workbench-run")
        return self

    def _write_unstarted(self) -> None:
        """It was stopped before the ranks had it: end it as they would have, with the rounds that there are."""
        if ended(self.home) is None:
            task, committers = read_json(self.home / TASK), self.experiment.plan.committers
            ledgers = [Ledger(rank, self.experiment.rounds).pack() for rank in committers]
            records.write_unstarted(self.home, task["emulate"], task["first"], committers, ledgers)
        self._problem = self.experiment.build_problem()
        self._read()
        self._conclude()

    def _close(self, state: State, note: str) -> None:
        if self.lock is not None:  # the folder is anybody's again before the run says that it is over
            self.lock.release()
        super()._close(state, note)

    @property
    def changing_scheme(self) -> bool:
        """Has a stretch ended, after which the run goes on with another scheme?"""
        return (ended(self.home) or {}).get("state") == records.SCHEME_CHANGED

    @property
    def changes(self) -> list[Change]:
        """Changes of scheme so far."""
        return changes_of(self.home)

    def follow(self, holder: RunOwner | None = None) -> None:
        """Read on until the run has ended, then put the trace together."""
        self.watch(holder)
        while self.changing_scheme and Lock(self.home / RUN_LOCK).locked:  # until the next segment
            time.sleep(POLL_INTERVAL_S)
            self.watch()
        self._finish()

    def watch(self, holder: RunOwner | None = None) -> None:
        """Read on until the run, or a stretch of it, has ended."""
        if self._state == "waiting":
            self._begin("following")
        self._problem = self._problem or self.experiment.build_problem()
        self._since = self._since or time.monotonic()
        hasty = MAX_STOPPING_POLLS
        with contextlib.ExitStack() as own:
            while not (self.home / ENDED).exists():
                if holder is None and (holder := owner_of(self.home, self.trust)) is not None:
                    own.callback(holder.release)
                self._look(holder)
                hasty = MAX_STOPPING_POLLS if self.wanted() else hasty - 1
                time.sleep(STOPPING_INTERVAL_S if 0 < hasty < MAX_STOPPING_POLLS else POLL_INTERVAL_S)

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
                in_background(lambda: [*map(import_module, TRACE_WRITERS)], "workbench-imports")
            self._rows = np.concatenate([self._rows, fresh])
            row = dict(zip(records.LIVE_COLUMNS, fresh[-1], strict=True))
            dropped = int(self._rows[:, records.LIVE_COLUMNS.index("stale")].sum())
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
        if self._spent > LOSS_TIME_SHARE * (time.monotonic() - self._since):
            return
        self._asked, began = False, time.monotonic()
        models = records.read_models(self.home, self._problem.size, newest, 1)
        if len(models):
            # The other threads of a BLAS call go on spinning for a while, beside the ranks.
            with one_thread(), np.errstate(over="ignore", invalid="ignore"):
                self.losses[newest] = self._problem.evaluate([Request(models[0], gradient=False, test=True)])[
                    0
                ]
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
