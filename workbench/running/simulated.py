"""A run on the virtual clock while it is under way: simulate first, then learn, round by round (see `live`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from workbench.base.types import Array
from workbench.core.optimisers import Optimiser
from workbench.core.plan import Plan
from workbench.engines.timeline import COUNTS, Timeline
from workbench.engines.virtual.arithmetic import Coefficients, Numbers
from workbench.experiment import Experiment
from workbench.problems.base import Evaluation, Problem, Request
from workbench.running.precision import lost_digits
from workbench.running.run import Rows, Run, failing, no_rows
from workbench.running.start import assemble, diverged, timeline
from workbench.trace.learning import Commits, Learnt, follow


class SimulatedRun(Run):
    """One experiment on the virtual clock. Its rows are those rounds of which the loss is known."""

    def __init__(self, experiment: Experiment, numeric: bool, events: bool) -> None:
        super().__init__(experiment, "sim")
        self.numeric = numeric or experiment.build_scheme().numeric
        self.events = events
        self._line = Timeline()
        self._learnt: Learnt | None = None
        self._model: Array | None = None  # after the last round whose loss is known
        self._done = 0  # rounds whose loss is known

    def rows(self, first: int = 0) -> Rows:
        """See `Run.rows`."""
        if self._trace is not None:
            return {name: np.asarray(column[first:]) for name, column in self._trace.columns.items()}
        learnt, line, k = self._learnt, self._line, self._done
        if learnt is None or not k:
            return no_rows()
        known = {"loss": learnt.loss, **dict(list(learnt.metrics.items()))}
        costs = {name: getattr(line, name) for name in COUNTS}
        columns: dict[str, Any] = {"time": line.times, **known, **costs, "residual": line.residuals}
        return {
            "round": np.arange(min(first, k), k),
            **{name: np.array(c[first:k]) for name, c in columns.items()},
        }

    # ---------------------------------------------------------------- the thread's side

    @property
    def wanted(self) -> bool:
        """Has nobody stopped it?"""
        return self._wanted.is_set()

    def prepare(self) -> Problem:
        """Open the data; looks at the code as well."""
        self._begin("opening the data")
        self.warnings = lost_digits(self.experiment.build_scheme(), self.experiment.workers)
        return self.experiment.build_problem()

    def simulate(self) -> Coefficients | None:
        """Go through the virtual clock; None: stopped on the way."""
        arithmetic = Coefficients(self.experiment.plan)
        return arithmetic if self._timeline(arithmetic) else None

    def learn_apart(self, problem: Problem) -> None:
        """Learn while simulating, where messages carry numbers."""
        e = self.experiment
        numbers = _Evaluating(e.plan, problem, e.build_optimiser(), e.seed)

        def publish() -> None:
            k = len(self._line.times)
            self.publish(numbers.learnt, numbers.models[k], k)

        self._timeline(numbers, publish)

    def _timeline(self, arithmetic: Coefficients | Numbers, after: Callable[[], None] | None = None) -> bool:
        def watch(line: Timeline) -> None:
            self._line = line
            self.note = f"simulating round {len(line.times)} of {self.experiment.rounds}"
            if after:
                after()
            if not self.wanted:
                raise _Halt

        try:
            self._line = timeline(self.experiment, arithmetic, self.events, watch)
        except _Halt:
            return False
        return True

    def publish(self, learnt: Learnt, model: Array, rounds: int) -> None:
        """So many rounds are known; `model` is the one after the last of them."""
        self._learnt, self._model, self._done = learnt, model, rounds
        self.note = f"round {rounds} of {self.experiment.rounds}"

    def conclude(self, problem: Problem) -> None:
        """Make the trace of the rounds that there are."""
        k, rounds = self._done, self.experiment.rounds
        model = problem.start() if self._model is None else self._model
        how = {"numeric": self.numeric, "events": self.events, **({} if k == rounds else {"stopped": True})}
        learnt = _cut(self._learnt or Learnt(model), k, model)
        trace = assemble(self.experiment, self._line.until(k), learnt, **how)
        self.warnings += tuple(diverged(trace))
        if k == rounds:
            self._end(trace, "finished", f"all {k} rounds done")
        else:
            self._end(trace, "stopped", f"stopped after {k} of {rounds} rounds")


class _Halt(Exception):
    """The user stopped the run."""


class _Evaluating(Numbers):
    """Numbers that evaluate every new model at once."""

    def __init__(self, plan: Plan, problem: Problem, optimiser: Optimiser, seed: int) -> None:
        super().__init__(plan, problem, optimiser, seed)
        first = self._evaluate(self.models[0])
        self.learnt = Learnt(self.models[0], first.loss, first.metrics)

    def _evaluate(self, model: Array) -> Evaluation:
        return self.problem.evaluate([Request(model, gradient=False)])[0]

    def commit(self, round: int, gradient: Any, residual: float) -> tuple[Array, float]:
        """Update the model, then evaluate it."""
        new = round + 1 == len(self.models)
        answer = super().commit(round, gradient, residual)
        if new:
            self.learnt.moved(self.models[-2], self.models[-1], self.problem.truth)
            self.learnt.add(self._evaluate(self.models[-1]))
        return answer


def _cut(learnt: Learnt, k: int, model: Array) -> Learnt:
    metrics = {name: values[:k] for name, values in learnt.metrics.items()}
    return replace(learnt, model=model, loss=learnt.loss[:k], metrics=metrics)


# ---------------------------------------------------------------- several runs in one thread


def work(runs: Sequence[SimulatedRun]) -> None:
    """Simulate each run, learn together what shares a problem, then those whose messages carry numbers."""
    ready: list[tuple[SimulatedRun, Problem, Commits]] = []
    for run in [r for r in runs if not r.numeric]:
        with failing(run):
            problem = run.prepare()
            arithmetic = run.simulate()
            if arithmetic is None:
                run.conclude(problem)
                continue
            e = run.experiment
            ready.append((run, problem, Commits(e.build_optimiser(), arithmetic.weights, e.plan.sizes)))
            run.note = "waiting for the other schemes' simulation"
    for problem in {id(p): p for _, p, _ in ready}.values():
        _learn_together(problem, [(r, c) for r, p, c in ready if p is problem])
    for run in [r for r in runs if r.numeric]:
        with failing(run):
            problem = run.prepare()
            run.learn_apart(problem)
            run.conclude(problem)


def _learn_together(problem: Problem, members: Sequence[tuple[SimulatedRun, Commits]]) -> None:
    """Follow all; a run leaves when its rounds are done or when it is stopped."""
    going = [run for run, _ in members]
    try:
        models = [problem.start()] * len(members)  # of the last round whose loss is known
        for learnt in follow(problem, [commits for _, commits in members]):
            for (run, _), known, model in zip(members, learnt, models, strict=True):
                if run in going and len(known.loss):
                    run.publish(known, model, len(known.loss))
                if run in going and (not run.wanted or len(known.loss) == run.experiment.rounds):
                    going.remove(run)
                    run.conclude(problem)
            if not going:
                return
            models = [known.model for known in learnt]
    except Exception as error:
        for run in going:
            run._fail(error)
