"""The straight line: experiment -> plan -> engine -> trace; waited for, or under way.

>>> import workbench as wb
>>> run = wb.start(wb.Experiment(scheme="UMW", workers=4, rounds=5))
>>> run.wait()
True
>>> run.state, len(run.rows()["loss"]), run.result().label
('finished', 5, 'UMW')
"""

import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from workbench.base.errors import PrecisionWarning
from workbench.base.settings import check_kind, unknown_name
from workbench.experiment import Experiment
from workbench.running.options import check_options, passes_on
from workbench.running.precision import lost_digits
from workbench.running.real import run_real, start_real
from workbench.running.run import Rows, Run, State, checked, in_background, no_rows, recorded
from workbench.running.simulated import run_simulated, start_simulated
from workbench.trace.trace import Trace


class Engine(NamedTuple):
    """How an engine's runs are started, and how they are run while the caller waits."""

    options: Callable[..., Any]  # whose parameters are the engine's options
    start: Callable[..., list[Run]]
    run: Callable[..., list[Run]]


ENGINES = {
    "sim": Engine(start_simulated, start_simulated, run_simulated),
    "mpi": Engine(start_real, lambda every, **options: [start_real(e, **options) for e in every], run_real),
}


def _engine(name: str, options: dict[str, Any]) -> Engine:
    if name not in list(ENGINES):  # a list has no hash
        raise unknown_name("engine", name, list(ENGINES))
    check_options(name, ENGINES[name].options, options)
    return ENGINES[name]


@passes_on(sim=start_simulated, mpi=start_real)
def run(experiment: Experiment, engine: str = "sim", *, progress: bool = False, **options: Any) -> Trace:
    """Run one experiment and wait for its trace; see `compare`.

    engine: "sim" or "mpi". progress: show a bar once a run takes over a second.

    >>> spec = {"scheme_args": {"children": 2, "layers": 2}, "workers": 6, "rounds": 3}
    >>> len(run(Experiment(**spec)).rounds)
    3
    """
    return _compare([experiment], engine, progress, options)[0]


@passes_on(sim=start_simulated, mpi=start_real)
def compare(
    experiments: Sequence[Experiment], engine: str = "sim", *, progress: bool = False, **options: Any
) -> list[Trace]:
    """Run several experiments on the same stragglers (same seed = same draws); one trace each, in order.

    engine: "sim", the virtual clock, or "mpi", real processes. progress: show a bar once a run takes over a second.

    Raises `SettingError` for an unknown engine or option, or a code that keeps too few digits, `DataError` for data
    that cannot be had, `RunError` for a run that cannot go on.

    >>> pair = [Experiment(scheme=name, workers=4, rounds=5) for name in ("UMW", "RAR")]
    >>> one, other = compare(pair)
    >>> one.model.tolist() == other.model.tolist()  # both commit the full gradient
    True
    """
    return _compare(experiments, engine, progress, options)


def _compare(
    experiments: Sequence[Experiment], engine: str, progress: bool, options: dict[str, Any]
) -> list[Trace]:
    chosen = _engine(engine, options)
    check_kind("progress", progress, bool)
    experiments = checked(experiments)
    for e in experiments:
        for text in lost_digits(e.built_scheme, e.workers):
            warnings.warn(f"{e.built_scheme.name}: {text}", PrecisionWarning, stacklevel=3)
    return [each.result() for each in chosen.run(experiments, progress=progress, **options)]


@passes_on(sim=start_simulated, mpi=start_real)
def start(experiment: Experiment, engine: str = "sim", **options: Any) -> Run:
    """Start a run and return at once; the kernel stays free.

    Raises
    ------
    SettingError
        The engine or an option is unknown, or this is no experiment. What goes wrong later is raised by `Run.result`.

    Examples
    --------
    >>> start(Experiment(scheme="UMW", workers=4, rounds=5)).result().engine
    'sim'
    """
    return start_all([experiment], engine, **options)[0]


@passes_on(sim=start_simulated, mpi=start_real)
def start_all(experiments: Sequence[Experiment], engine: str = "sim", **options: Any) -> list[Run]:
    """Start several runs on the same stragglers; one `Run` each, in order.

    On the virtual clock they share all work that they have in common, as in `wb.compare`. An engine that serves
    one run at a time lets the others wait.

    `experiments`, `engine` and options: as in `wb.compare`.

    >>> import workbench as wb
    >>> runs = start_all([wb.Experiment(scheme=name, workers=4, rounds=5) for name in ("UMW", "SGD")])
    >>> [run.result().label for run in runs]
    ['UMW', 'SGD']
    """
    return _engine(engine, options).start(checked(experiments), **options)


__all__ = [
    "ENGINES", "Rows", "Run", "State", "compare", "in_background", "no_rows", "recorded", "run", "start", "start_all"
]  # fmt: skip
