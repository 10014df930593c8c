"""Watched runs on the virtual clock: models are computed during the simulation, so that rows appear at once.

Each simulation has its own thread, and only one of them runs at a time, up to a number of rounds. Then the models of
these rounds are computed, for all runs together. The results are the same as if all rounds were simulated first.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextvars import copy_context
from threading import Event, Thread

from workbench.core.base.types import Array
from workbench.core.contract.batches import key_of
from workbench.core.engine.timeline import Timeline
from workbench.core.engine.virtual.arithmetic import Coefficients
from workbench.core.problems.base import Problem
from workbench.core.running.memory import check_trajectories
from workbench.core.running.run import Run, failing
from workbench.core.trace.learning import Commits, Learnt, Trajectories

TURN_S = 0.1  # target time in which all runs are simulated before their models are computed, s


class GrowingRun(Run):
    """Run whose simulation can pause, so that its first rounds are learned before its last."""

    @abstractmethod
    def prepare(self) -> Problem:
        """Open the data, and return the problem."""

    @abstractmethod
    def simulate(self, arithmetic: Simulation) -> bool:
        """Simulate all rounds; return False if the run was stopped before the last one."""

    @abstractmethod
    def publish(self, learnt: Learnt, model: Array, rounds: int) -> None:
        """Publish the first `rounds` rounds; `model`: model after the last of them."""

    @abstractmethod
    def conclude(self, problem: Problem) -> None:
        """Make the trace of the published rounds, and mark the run as ended."""


class Simulation(Coefficients):
    """Arithmetic of a run that is simulated in a thread, up to a requested round."""

    def __init__(self, run: GrowingRun, problem: Problem) -> None:
        e = run.experiment
        super().__init__(e.plan, e.sampler)
        self.run, self.problem, self.over = run, problem, False
        self.commits = Commits(
            e.build_optimiser(), self.weights, e.plan.sizes, e.evaluation_interval, self.shares, e.rounds
        )
        self.model: Array = problem.start()  # model after the last round whose loss is known
        self._goal, self._begun = 0, False
        self._go, self._rests = Event(), Event()

    def advance(self, rounds: int) -> None:
        """Simulate up to that number of rounds, or to the end."""
        if self.over or len(self.weights) >= rounds:
            return
        self._goal = rounds
        self._rests.clear()
        if self._begun:
            self._go.set()
        else:
            self._begun = True
            Thread(
                target=copy_context().run, args=(self._work,), name="workbench-simulation", daemon=True
            ).start()
        self._rests.wait()

    def pause(self, timeline: Timeline) -> None:
        """Wait in the simulation's thread once the goal is reached."""
        if len(timeline.times) < self._goal:
            return
        self._go.clear()
        self._rests.set()
        self._go.wait()

    def close(self) -> None:
        """End the thread of a run that was stopped, or has failed. The thread ends at its next round."""
        if self.run.error is not None:
            self.run.stop()
        if self._begun:
            self.advance(self.commits.total + 1)

    def _work(self) -> None:
        try:
            with failing(self.run):
                self.run.simulate(self)
        finally:
            self.over = True
            self._rests.set()


def grow(runs: Sequence[GrowingRun]) -> None:
    """Simulate runs in turn and compute their models meanwhile, those with equal problems together."""
    made: list[Simulation] = []
    for run in runs:
        with failing(run):
            made.append(Simulation(run, run.prepare()))
    keys = dict.fromkeys(key_of(each.problem) for each in made)
    turns = [_together([each for each in made if key_of(each.problem) == key]) for key in keys]
    while turns:
        turns = [turn for turn in turns if next(turn, False)]


def _together(members: Sequence[Simulation]) -> Iterator[bool]:
    """Simulate runs of one problem and compute their models. Yield True after each block of rounds."""
    going = dict(enumerate(members))
    try:
        check_trajectories(members[0].problem.size, members, id, 0)  # all models may differ
        trajectories = Trajectories(members[0].problem, [each.commits for each in members])
        goal = step = 1
        while going:
            began = time.monotonic()
            for each in going.values():
                each.advance(goal)
            _leave(going, trajectories)
            while going and trajectories.ready() and time.monotonic() - began < 2 * TURN_S:
                _publish(going, trajectories)
                _leave(going, trajectories)
            step = max(1, step * 2 if time.monotonic() - began < TURN_S else step // 2)
            goal = max(goal, trajectories.rounds_done + step)
            yield True
    except Exception as error:
        for each in going.values():
            each.run._fail(error)
            each.close()


def _publish(going: dict[int, Simulation], trajectories: Trajectories) -> None:
    """Compute one round, and publish the rounds whose loss is known."""
    for each, learnt in zip(going.values(), trajectories.step(), strict=True):
        if done := len(learnt.loss):
            each.run.publish(learnt, each.model, done)
        each.model = learnt.model


def _leave(going: dict[int, Simulation], trajectories: Trajectories) -> None:
    """Conclude the runs that are done or stopped. Failed runs are left out."""
    for i, each in list(going.items()):
        run, done = each.run, trajectories.rounds_done > each.commits.total
        if run.error is None and not done and run.wanted():
            continue
        del going[i]
        trajectories.drop(i)
        each.close()
        if run.error is None:
            with failing(run):
                run.conclude(each.problem)
