"""Runs on the virtual clock: runs are simulated, and models of runs with equal problems are computed together.

Models of watched runs are computed during the simulation, so that rows appear at once. Each simulation has its own
thread, and only one of them runs at a time, up to a number of rounds. Then the models of these rounds are computed, for
all runs together. The results are the same as if all rounds were simulated first.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextvars import copy_context
from dataclasses import replace
from threading import Event, Lock, Thread
from typing import Any

from workbench.core.base.bar import Bar
from workbench.core.base.types import Array
from workbench.core.base.user_code import with_fault
from workbench.core.contract.adaptive import Change
from workbench.core.contract.batches import key_of
from workbench.core.engine.timeline import SchemeChanged, Timeline
from workbench.core.engine.virtual.arithmetic import Coefficients, Numbers
from workbench.core.engine.virtual.sim import SimSetup, simulate
from workbench.core.experiment import Experiment
from workbench.core.problems.base import Evaluation, Problem, Request
from workbench.core.running.memory import check_memory, check_trajectories
from workbench.core.running.run import (
    STOPPED_EARLY,
    Rows,
    Run,
    RunCancelled,
    failing,
    in_background,
    no_rows,
    tell,
    warnings_before,
    without_rounds,
)
from workbench.core.trace.assembled import assemble, columns_of, diverged
from workbench.core.trace.learning import Commits, Learnt, Trajectories, evaluated, follow
from workbench.core.trace.records import EVENTS_PER_BATCH
from workbench.core.trace.trace import events_as_columns

Arithmetic = Coefficients | Numbers
Look = Callable[[Timeline], None]  # called after every simulated round
TURN_S = 0.1  # target time in which all runs are simulated before their models are computed, s


def start_simulated(
    experiments: Sequence[Experiment], numeric: bool = False, events: bool = True
) -> list[Run]:
    """Start a thread that simulates the runs and computes their models. Rows appear round by round.

    Parameters
    ----------
    experiments
        Experiments to run.
    numeric
        Messages carry the real vectors. This checks a code's arithmetic, but computes the gradients of all workers. By
        default messages carry coefficients, and equal models of several runs are computed once.
    events
        Store the event table.
    """
    runs = [SimulatedRun(e, numeric, events) for e in experiments]
    in_background(lambda: work(runs), "workbench-simulation")
    return list(runs)


def run_simulated(
    experiments: Sequence[Experiment], numeric: bool = False, events: bool = True, progress: bool = False
) -> list[Run]:
    """Run experiments as `start_simulated` does, but in this thread and with progress bars."""
    runs = [_AwaitedRun(e, numeric, events) for e in experiments]
    work(runs, progress)
    for run in runs:
        tell(run)
    return list(runs)


def timeline(e: Experiment, arithmetic: Arithmetic, events: bool, watch: Look | None = None) -> Timeline:
    """Simulate one experiment and store its commits in `arithmetic`. `watch`: called after every round.

    An adaptive run is simulated in segments, each with one scheme.
    """
    _, floats = e.shape()
    controller = e.adaptive_controller() if e.adaptive else None
    timeline, scheme, plan = Timeline(), e.built_scheme, e.plan

    def look(now: Timeline) -> None:
        if watch is not None:
            watch(now)
        k = len(now.times)
        change = None if controller is None else controller.committed(k - 1, now.times[-1], e.rounds - k)
        if change is not None:
            raise SchemeChanged(change)

    world = SimSetup(
        rounds=e.rounds,
        floats=floats,
        delays=e.delay_stream(),
        link=e.line,
        decode_rate=e.decode_rate,
        faults=e.faults,
        record=events,
        watch=watch if controller is None else look,
        controller=controller,
    )
    while True:
        try:
            return simulate(scheme, plan, world, arithmetic, timeline)
        except SchemeChanged as turn:
            assert controller is not None
            timeline.changes.append(turn.change)
            scheme, plan = controller.now.scheme, controller.now.plan
            world = replace(world, start=turn.change.time + turn.change.seconds)
            arithmetic.turn(plan)


class SimulatedRun(Run):
    """Run of one experiment on the virtual clock. Its rows are the rounds whose loss is known."""

    def __init__(self, experiment: Experiment, numeric: bool, events: bool) -> None:
        super().__init__(experiment, "sim")
        wrong = any(fault.changes_answers for fault in experiment.faults)
        # then messages carry vectors, because one weighted pass would have no statistics of single workers
        inexact = bool(experiment.problem_spec.inexact)
        self.numeric = numeric or wrong or inexact or experiment.built_scheme.numeric
        self.events = events
        self.resting = Lock()
        self._entry, self._simulating = Lock(), False  # lock of the flag: whether the simulation has begun
        self.timeline = Timeline()
        self._learnt: Learnt | None = None
        self._model: Array | None = None  # model after the last round whose loss is known
        self._done = 0  # number of rounds whose loss is known

    def _so_far(self, first: int) -> Rows:
        learnt, k = self._learnt, self._done
        return no_rows() if learnt is None or not k else columns_of(self.timeline, learnt, k, first)

    @property
    def changes(self) -> list[Change]:
        """Changes of scheme in rounds whose loss is known."""
        return [change for change in self.timeline.changes if change.round <= max(self._done, 1)]

    def watcher(self) -> Callable[[], Rows]:
        """Return a function that returns new events (see `Run.watcher`).

        Events of a round come before its loss is known.
        """
        seen = 0

        def new() -> Rows:
            nonlocal seen
            # at most this number of events, which is more than occur between two calls
            rows = self.timeline.events[seen : seen + 2 * EVENTS_PER_BATCH]
            seen += len(rows)
            return events_as_columns(rows)

        return new

    def stop(self) -> None:
        """Ask the run to end after the current round. It ends at once if the simulation has not begun."""
        super().stop()
        with self._entry:
            if not self._simulating and not self.wait(0):
                self._end(without_rounds(self.experiment, "sim"), "stopped", STOPPED_EARLY)

    def prepare(self) -> Problem:
        """Check the digits of the code and the memory, open the data, and return the problem.

        Raises `RunCancelled` if the run was stopped before.
        """
        with self._entry:
            if self.wait(0):
                raise RunCancelled
            self._begin("opening the data")
        e = self.experiment
        self.warnings = warnings_before(e)
        check_memory(e, carried=self.numeric)
        return e.build_problem()

    def simulate(self, arithmetic: Arithmetic) -> bool:
        """Simulate all rounds, and return False if the run was stopped before the last one."""
        with self._entry:
            self._simulating = not self.wait(0)
        if not self._simulating:
            return False
        try:
            self.timeline = timeline(self.experiment, arithmetic, self.events, self.watch(arithmetic))
        except _Halt:
            return False
        return True

    def watch(self, arithmetic: Arithmetic) -> Look | None:
        """Return the function to call after each simulated round, or None."""

        def look(timeline: Timeline) -> None:
            self.timeline = timeline
            if not self._done:
                self.note = f"simulating round {len(timeline.times)} of {self.experiment.rounds}"
                self.stage = len(timeline.times) / self.experiment.rounds
            if isinstance(arithmetic, _Evaluating):
                k = len(timeline.times)
                self.publish(arithmetic.learnt, arithmetic.models[-1], k)
            if isinstance(arithmetic, Simulation):
                arithmetic.pause(timeline)
            if not self.wanted():
                raise _Halt
            # Pause while another thread reads the run. Otherwise each of its NumPy calls would wait for the GIL.
            with self.resting:
                pass

        return look

    @property
    def grows(self) -> bool:
        """Whether models can be computed during the simulation, which needs commits without older models."""
        return self.experiment.plan.versions == 1

    def publish(self, learnt: Learnt, model: Array, rounds: int) -> None:
        """Publish the first `rounds` rounds; `model`: model after the last of them."""
        self._learnt, self._model, self._done = learnt, model, rounds
        self.note = f"round {rounds} of {self.experiment.rounds}"

    def conclude(self, problem: Problem) -> None:
        """Make the trace of the published rounds, and mark the run as ended, unless it has ended."""
        if self.wait(0):
            return
        k, rounds = self._done, self.experiment.rounds
        model = problem.start() if self._model is None else self._model
        every = self.experiment.evaluation_interval
        if self._learnt is not None and 0 < k < rounds and not evaluated(k - 1, rounds, every):
            self._learnt.amend(k - 1, problem.evaluate([Request(model, gradient=False, test=True)])[0])
        how = {"numeric": self.numeric, "events": self.events, **({} if k == rounds else {"stopped": True})}
        learnt = replace(self._learnt or Learnt(model), model=model)
        trace = assemble(self.experiment, self.timeline.until(k), learnt, **how)
        self.warnings += tuple(diverged(trace))
        if k == rounds:
            self._end(trace, "finished", f"all {k} rounds done")
        else:
            self._end(trace, "stopped", f"stopped after {k} of {rounds} rounds")


class Simulation(Coefficients):
    """Arithmetic of a run that is simulated in a thread, up to a requested round."""

    def __init__(self, run: SimulatedRun, problem: Problem) -> None:
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


class _AwaitedRun(SimulatedRun):
    """Run whose caller waits: it is not watched during simulation, and errors are raised at once."""

    grows = False

    def watch(self, arithmetic: Arithmetic) -> Look | None:
        return super().watch(arithmetic) if isinstance(arithmetic, _Evaluating) else None

    def _fail(self, error: Exception) -> None:
        error = with_fault(error)
        raise error from error.__cause__


class _Halt(Exception):
    """Signal that the user stopped the run."""


class _Evaluating(Numbers):
    """Arithmetic with real vectors that evaluates each new model at once."""

    def __init__(self, e: Experiment, problem: Problem) -> None:
        super().__init__(e.plan, problem, e.build_optimiser(), e.seed, keep=False)
        self.rounds, self.every = e.rounds, e.evaluation_interval
        self.learnt = Learnt(self.models[0], self._evaluate(self.models[0]))

    def _evaluate(self, model: Array) -> Evaluation:
        return self.problem.evaluate([Request(model, gradient=False, test=True)])[0]

    def commit(self, round: int, gradient: Any, residual: float, share: float = 1.0) -> tuple[Array, float]:
        """Update the model, then evaluate it."""
        new = round == self.rounds_done
        answer = super().commit(round, gradient, residual, share)
        if new:
            self.learnt.moved(self.models[-2], self.models[-1], self.problem.truth)
            due = evaluated(round, self.rounds, self.every)
            self.learnt.add(self._evaluate(self.models[-1]) if due else None)
        return answer


def work(runs: Sequence[SimulatedRun], progress: bool = False) -> None:
    """Simulate all runs, and compute the models of runs with equal problems together.

    Models of watched runs are computed during the simulation. Runs with real vectors come last.
    """
    growing: list[SimulatedRun] = []
    together: list[SimulatedRun] = []
    for run in runs:
        if not run.numeric:
            with failing(run):
                (growing if run.grows else together).append(run)
    if growing:
        _grow(growing)
    ready: list[tuple[SimulatedRun, Problem, Commits]] = []
    with Bar("simulating", "scheme", len(together), progress) as bar:
        for i, run in enumerate(together):
            with failing(run):
                problem, e = run.prepare(), run.experiment
                arithmetic = Coefficients(e.plan, e.sampler)
                if run.simulate(arithmetic):
                    optimiser, every = e.build_optimiser(), e.evaluation_interval
                    commits = Commits(optimiser, arithmetic.weights, e.plan.sizes, every, arithmetic.shares)
                    ready.append((run, problem, commits))
                    run.note = "waiting for the other schemes' simulation"
                else:
                    run.conclude(problem)
            bar.update(i + 1)
    for key, problem in {key_of(p): p for _, p, _ in ready}.items():
        _learn_together(problem, [(r, c) for r, p, c in ready if key_of(p) == key], progress)
    for run in [r for r in runs if r.numeric]:  # these compute models during the simulation
        with failing(run):
            problem, e = run.prepare(), run.experiment
            run.simulate(_Evaluating(e, problem))
            run.conclude(problem)


def _grow(runs: Sequence[SimulatedRun]) -> None:
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
            if not each.run.wait(0):
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


def _learn_together(
    problem: Problem, members: Sequence[tuple[SimulatedRun, Commits]], progress: bool
) -> None:
    """Compute the models of some runs, round by round. A run ends after its last round, or when it is stopped."""
    going, together = [run for run, _ in members], [commits for _, commits in members]
    try:
        old = max(run.experiment.plan.versions for run in going) - 1
        check_trajectories(problem.size, together, Commits.key, old)
        with Bar("learning", "round", max(run.experiment.rounds for run in going), progress) as bar:
            models = [problem.start()] * len(members)  # models after the last round whose loss is known
            for t, learnt in enumerate(follow(problem, together)):
                for (run, _), known, model in zip(members, learnt, models, strict=True):
                    if run not in going:
                        continue
                    if done := len(known.loss):
                        run.publish(known, model, done)
                    if done == run.experiment.rounds or not run.wanted():
                        going.remove(run)
                        run.conclude(problem)
                if progress:
                    bar.update(t)
                if not going:
                    return
                models = [known.model for known in learnt]
    except Exception as error:
        for run in going:
            run._fail(error)
