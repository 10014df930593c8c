"""Start of runs, in the background or while the caller waits: experiment -> plan -> engine -> trace.

>>> import workbench as wb
>>> run = wb.start(wb.Experiment(scheme="UMW", workers=4, rounds=5))
>>> run.wait()
True
>>> run.state, len(run.rows()["loss"]), run.result().label
('finished', 5, 'UMW')
"""

import inspect
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from workbench.core.base.errors import PrecisionWarning
from workbench.core.base.plugins import loaded, points
from workbench.core.base.settings import SettingError, check_kind, unknown_name
from workbench.core.experiment import Experiment
from workbench.core.running.precision import lost_digits
from workbench.core.running.run import Engine, Rows, Run, State, checked, in_background, no_rows, recorded
from workbench.core.running.simulated import run_simulated, start_simulated
from workbench.core.trace.trace import Trace

INTERNAL = ("substitutes", "make")  # parameters of engine functions that are not options
F = TypeVar("F", bound=Callable[..., Any])
# one entry of the section Parameters of a docstring
_ENTRY = re.compile(r"^(\w+)\n((?:    .*\n?)+)", re.MULTILINE)


_missing: dict[str, SettingError] = {}  # errors of registered engines that cannot be loaded


def _registered() -> dict[str, Engine]:
    """Return the engines that other layers and other packages have registered, by name."""
    found: dict[str, Engine] = {}
    for point in points("workbench.engines"):
        try:
            found[point.name] = loaded(point)
        except SettingError as error:
            _missing[point.name] = error
    return found


ENGINES = {"sim": Engine(start_simulated, start_simulated, run_simulated), **_registered()}


def _engine(name: str, options: dict[str, Any]) -> Engine:
    if name in list(_missing):  # a list, because names that cannot be hashed are compared too
        raise _missing[name]
    if name not in list(ENGINES):
        raise unknown_name("engine", name, list(ENGINES))
    check_options(name, ENGINES[name].options, options)
    return ENGINES[name]


def options_of(starter: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """Return the options of an engine: parameters of `starter` with a default, except those in `INTERNAL`.

    The options are not read from the docstring, because ``python -OO`` removes it.
    """
    known = inspect.signature(starter, eval_str=True).parameters
    return {name: p for name, p in known.items() if p.default is not p.empty and name not in INTERNAL}


def _entries(function: Callable[..., Any]) -> list[tuple[str, str]]:
    """Return the names and descriptions of the parameters in a docstring's list."""
    section = (inspect.getdoc(function) or "").partition("Parameters\n----------\n")[2]
    return _ENTRY.findall(re.split(r"\n\n\w[\w ]*\n-+\n", section)[0] + "\n")


def passes_on(**starters: Callable[..., Any]) -> Callable[[F], F]:
    """Decorate a function that has **options: add the options of these engines to its signature and docstring."""

    def shown(function: F) -> F:
        signature = inspect.signature(function, eval_str=True)
        shared = {name: p for name, p in signature.parameters.items() if p.kind is not p.VAR_KEYWORD}
        for starter in starters.values():
            named = options_of(starter).items()
            shared |= {name: p.replace(kind=p.KEYWORD_ONLY) for name, p in named if name not in shared}
        function.__signature__ = signature.replace(parameters=list(shared.values()))  # type: ignore[attr-defined]
        parts = [inspect.getdoc(function) or ""]
        for engine, starter in starters.items():
            known = options_of(starter)
            entries = [(name, text.rstrip()) for name, text in _entries(starter) if name in known]
            lines = [f"{name} : default {known[name].default!r}\n{text}" for name, text in entries]
            title = f'Options of engine = "{engine}"'
            parts.append("\n".join([title, "-" * len(title), *lines]))
        function.__doc__ = "\n\n".join(parts)
        return function

    return shown


def check_options(engine: str, starter: Callable[..., Any], options: Mapping[str, Any]) -> None:
    """Raise `SettingError` for unknown options of an engine, and for flags and numbers of the wrong type."""
    known = options_of(starter)
    for name, value in options.items():
        if name not in known:
            raise SettingError(
                f"{name} = {value!r:.60}: is not an option of engine = {engine!r}; leave it out, or take one of"
                f" {', '.join(known)}"
            )
        if type(default := known[name].default) in (bool, float):
            check_kind(name, value, type(default))


@passes_on(**{name: engine.options for name, engine in ENGINES.items()})
def run(experiment: Experiment, engine: str = "sim", *, progress: bool = False, **options: Any) -> Trace:
    """Run one experiment and return its trace (see `compare` for errors).

    `engine`: "sim" or "mpi". `progress`: show a progress bar for a run of more than a second.

    >>> spec = {"scheme_args": {"children": 2, "layers": 2}, "workers": 6, "rounds": 3}
    >>> len(run(Experiment(**spec)).rounds)
    3
    """
    return _compare([experiment], engine, progress, options)[0]


@passes_on(**{name: engine.options for name, engine in ENGINES.items()})
def compare(
    experiments: Sequence[Experiment], engine: str = "sim", *, progress: bool = False, **options: Any
) -> list[Trace]:
    """Run several experiments with the same stragglers (same seed = same draws), and return their traces, in order.

    `engine`: "sim", the virtual clock, or "mpi", real processes. `progress`: show a progress bar for a run of more than
    a second.

    Raises `SettingError` for an unknown engine or option, or a code that keeps too few digits. Raises `DataError` if
    the data cannot be loaded, and `RunError` if a run cannot continue.

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
        for text in lost_digits(e.built_scheme, e.workers, e.problem_spec.width):
            warnings.warn(f"{e.built_scheme.name}: {text}", PrecisionWarning, stacklevel=3)
    return [each.result() for each in chosen.run(experiments, progress=progress, **options)]


@passes_on(**{name: engine.options for name, engine in ENGINES.items()})
def start(experiment: Experiment, engine: str = "sim", **options: Any) -> Run:
    """Start a run in the background and return it at once.

    Raises
    ------
    SettingError
        The engine or an option is unknown, or `experiment` is not an experiment. `Run.result` raises later errors.

    Examples
    --------
    >>> start(Experiment(scheme="UMW", workers=4, rounds=5)).result().engine
    'sim'
    """
    return start_all([experiment], engine, **options)[0]


@passes_on(**{name: engine.options for name, engine in ENGINES.items()})
def start_all(experiments: Sequence[Experiment], engine: str = "sim", **options: Any) -> list[Run]:
    """Start several runs with the same stragglers, and return one `Run` for each experiment, in order.

    On the virtual clock, equal work of several runs is done once. If an engine can run only one experiment
    at a time, the others wait. `experiments`, `engine` and options: as in `wb.compare`.

    >>> import workbench as wb
    >>> runs = start_all([wb.Experiment(scheme=name, workers=4, rounds=5) for name in ("UMW", "SGD")])
    >>> [run.result().label for run in runs]
    ['UMW', 'SGD']
    """
    return _engine(engine, options).start(checked(experiments), **options)


__all__ = [
    "ENGINES", "Rows", "Run", "State", "compare", "in_background", "no_rows", "recorded", "run", "start",
    "start_all",
]  # fmt: skip


def __dir__() -> list[str]:
    return sorted(__all__)
