"""The straight line: experiment -> plan -> engine -> trace."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from workbench.base.errors import PrecisionWarning
from workbench.base.settings import check_kind, check_options, unknown_name
from workbench.base.types import Array
from workbench.core.delays import DelayStream
from workbench.core.scheme import Scheme
from workbench.engines.timeline import Timeline
from workbench.engines.virtual.arithmetic import Coefficients, Numbers
from workbench.engines.virtual.sim import World, simulate
from workbench.experiment import Experiment
from workbench.problems import Problem, Request
from workbench.running.precision import lost_digits
from workbench.running.run import checked, start_simulated
from workbench.trace.learning import Commits, Learnt, Progress, learn
from workbench.trace.trace import Trace, run_info

ENGINES = ["sim", "mpi"]


def run(
    experiment: Experiment,
    engine: str = "sim",
    *,
    numeric: bool = False,
    events: bool = True,
    progress: bool = False,
    **options: Any,
) -> Trace:
    """Run one experiment; see `compare`.

    engine: "sim" or "mpi". numeric, events, progress, options: as there.

    >>> spec = {"scheme_args": {"children": 2, "layers": 2}, "workers": 6, "rounds": 3}
    >>> len(run(Experiment(**spec)).rounds)
    3
    """
    return compare([experiment], engine, numeric=numeric, events=events, progress=progress, **options)[0]


def compare(
    experiments: Sequence[Experiment],
    engine: str = "sim",
    *,
    numeric: bool = False,
    events: bool = True,
    progress: bool = False,
    **options: Any,
) -> list[Trace]:
    """Run several experiments on the same stragglers (same seed = same draws); one trace each, in order.

    engine: "sim", the virtual clock, or "mpi", real processes; what else "mpi" knows (cluster, folder, emulate, ...)
    is told by `workbench.running.real.start_real`.

    numeric: messages carry the real vectors, which checks a code's arithmetic and costs every worker's work;
    otherwise they carry coefficients and equal iterates are computed once for all. events: keep the event
    table. progress: show a bar once a run takes over a second.

    options: of the engine; "sim" has no others.

    Raises `SettingError` for an unknown engine or a code that keeps too few digits, `DataError` for data that
    cannot be had, `RunError` for a run that cannot go on.

    >>> pair = [Experiment(scheme=name, workers=4, rounds=5) for name in ("UMW", "RAR")]
    >>> one, other = compare(pair)
    >>> one.model.tolist() == other.model.tolist()  # both commit the full gradient
    True
    """
    if engine not in ENGINES:
        raise unknown_name("engine", engine, ENGINES)
    for name, flag in {"numeric": numeric, "events": events, "progress": progress}.items():
        check_kind(name, flag, bool)
    experiments = checked(experiments)
    for e in experiments:
        _warn(e.build_scheme(), e.workers)
    if engine == "mpi":
        from workbench.running.real import run_real

        return run_real(experiments, progress, events=events, **options)
    check_options(engine, start_simulated, options)
    needs_numbers = [numeric or e.build_scheme().numeric for e in experiments]
    cheap = [e for e, needs in zip(experiments, needs_numbers, strict=True) if not needs]
    traces = iter(_together(cheap, events, progress))
    return [
        _numeric(e, events) if needs else next(traces)
        for e, needs in zip(experiments, needs_numbers, strict=True)
    ]


def _warn(scheme: Scheme, workers: int) -> None:
    """Say that a code would lose too many digits; refuse one that would lose nearly all."""
    for text in lost_digits(scheme, workers):
        warnings.warn(f"{scheme.name}: {text}", PrecisionWarning, stacklevel=4)


def _together(experiments: Sequence[Experiment], events: bool, progress: bool) -> list[Trace]:
    """Simulate each, then learn all at once."""
    arithmetics = [Coefficients(e.plan) for e in experiments]
    lines = []
    with Bar("simulating", "scheme", len(experiments), progress) as bar:
        for i, (e, a) in enumerate(zip(experiments, arithmetics, strict=True)):
            lines.append(timeline(e, a, events))
            bar.update(i + 1)
    learnt = _learn(experiments, arithmetics, progress)
    return [
        _trace(e, line, known, numeric=False, events=events)
        for e, line, known in zip(experiments, lines, learnt, strict=True)
    ]


def timeline(
    e: Experiment,
    arithmetic: Coefficients | Numbers,
    events: bool,
    watch: Callable[[Timeline], None] | None = None,
) -> Timeline:
    """Simulate one experiment; what it commits stays in `arithmetic`. `watch`: called after every round."""
    _, floats = e.shape()
    world = World(
        rounds=e.rounds,
        floats=floats,
        delays=DelayStream(e.delays, e.seed, e.workers),
        link=e.link,
        decode_rate=e.decode_rate,
        deaths={fault.worker: fault.round for fault in e.faults},
        record=events,
        watch=watch,
    )
    return simulate(e.build_scheme(), e.plan, world, arithmetic)


def _learn(
    experiments: Sequence[Experiment], arithmetics: Sequence[Coefficients], progress: bool
) -> list[Learnt]:
    """Learn together what shares a problem."""
    problems = [e.build_problem() for e in experiments]
    runs = [
        Commits(e.build_optimiser(), a.weights, e.plan.sizes)
        for e, a in zip(experiments, arithmetics, strict=True)
    ]
    learnt: dict[int, Learnt] = {}
    for problem in {id(p): p for p in problems}.values():
        members = [i for i, p in enumerate(problems) if p is problem]
        with Bar("learning", "round", max(len(runs[i].weights) for i in members), progress) as bar:
            found = learn(problem, [runs[i] for i in members], bar.update)
        learnt.update(zip(members, found, strict=True))
    return [learnt[i] for i in range(len(experiments))]


def _numeric(e: Experiment, events: bool) -> Trace:
    problem = e.build_problem()
    numbers = Numbers(e.plan, problem, e.build_optimiser(), e.seed)
    line = timeline(e, numbers, events)
    return _trace(e, line, _evaluate(problem, numbers.models), numeric=True, events=events)


def _evaluate(problem: Problem, models: list[Array]) -> Learnt:
    found = [problem.evaluate([Request(model, gradient=False)])[0] for model in models]
    learnt = Learnt(models[0], found[0].loss, found[0].metrics)
    for before, after, evaluation in zip(models[:-1], models[1:], found[1:], strict=True):
        learnt.moved(before, after, problem.truth)
        learnt.add(evaluation)
    return learnt


def _trace(e: Experiment, line: Timeline, learnt: Learnt, **how: bool) -> Trace:
    trace = assemble(e, line, learnt, **how)
    for text in diverged(trace):
        warnings.warn(text, RuntimeWarning, stacklevel=4)
    return trace


def assemble(e: Experiment, line: Timeline, learnt: Learnt, **how: Any) -> Trace:
    """Trace of a simulated run: when its rounds ended, and what was learnt; both of equally many rounds."""
    columns: dict[str, Any] = {
        "round": np.arange(len(line.times)),
        "time": np.array(line.times),
        "loss": np.array(learnt.loss),
        **{name: np.array(values) for name, values in learnt.metrics.items()},
        **{k: np.array(getattr(line, k)) for k in ("messages", "bytes", "downloads", "samples", "started")},
        "residual": np.array(line.residuals),
        "stale": np.array(line.stale),
    }
    initial = {"loss": learnt.initial_loss, **learnt.initial_metrics}
    info = run_info(e, load=e.load, events_handled=line.handled, **how)
    return Trace(e, "sim", columns, line.events, learnt.model, initial, info)


def diverged(trace: Trace) -> list[str]:
    """Say where the loss stopped being a number, if it did."""
    e, bad = trace.experiment, np.flatnonzero(~np.isfinite(trace.columns["loss"]))
    what = f"take a smaller step than {e.optimiser_args}"
    return [f"{e.scheme}: the loss is not finite from round {bad[0]} on; {what}"] if len(bad) else []


class Bar:
    """A progress bar with the time left, which shows itself only after a second."""

    def __init__(self, what: str, unit: str, total: int, wanted: bool) -> None:
        self.what, self.unit, self.total, self.wanted = what, unit, total, wanted

    def __enter__(self) -> Bar:
        from tqdm.auto import tqdm

        self.bar = tqdm(total=self.total, desc=self.what, unit=self.unit, delay=1, disable=not self.wanted)
        return self

    def update(self, done: int) -> None:
        """Say how many are done."""
        self.bar.update(done - self.bar.n)

    def note(self, text: str) -> None:
        """Say beside the bar what is going on."""
        if self.wanted and text != self.bar.postfix:  # a bar that is off has none
            self.bar.set_postfix_str(text)

    def __exit__(self, *error: object) -> None:
        self.bar.close()


__all__ = ["ENGINES", "Bar", "Progress", "assemble", "compare", "diverged", "run", "timeline"]
