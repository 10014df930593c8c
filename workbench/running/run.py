"""Runs that are under way: started at once, watched while they go on, stopped between rounds.

>>> import workbench as wb
>>> run = wb.start(wb.Experiment(scheme="UMW", workers=4, rounds=5))
>>> run.wait()
True
>>> run.state, len(run.rows()["loss"]), run.result().label
('finished', 5, 'UMW')
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from workbench.base.settings import SettingError, check_options, unknown_name
from workbench.experiment import Experiment
from workbench.trace.trace import Trace

State = Literal["waiting", "running", "finished", "stopped", "failed"]
Rows = dict[str, NDArray[Any]]


class Unwanted(Exception):
    """A run was stopped before it began."""


class Run(ABC):
    """A run that is under way. Every method may be called from any thread and at any time.

    `experiment`, `engine`; `folder`: its run folder, where the engine keeps one; `note`: what it is doing now, in
    words; `error`: what ended it, where it failed; `warnings`: what the user should know of it, in sentences.

    >>> import workbench as wb
    >>> run = start(wb.Experiment(scheme="UMW", workers=4, rounds=5))
    >>> len(run.result().rounds)
    5
    """

    def __init__(self, experiment: Experiment, engine: str, folder: Path | None = None) -> None:
        self.experiment, self.engine, self.folder = experiment, engine, folder
        self.note = "waiting"
        self.error: Exception | None = None
        self.warnings: tuple[str, ...] = ()
        self._state: State = "waiting"
        self._trace: Trace | None = None
        self._wanted, self._over = Event(), Event()
        self._wanted.set()

    @property
    def state(self) -> State:
        """Where it is: waiting, running, finished, stopped or failed."""
        return self._state

    @property
    def label(self) -> str:
        """What legends show."""
        return self.experiment.scheme

    @abstractmethod
    def rows(self, first: int = 0) -> Rows:
        """Columns of the rounds from `first` on, as far as they are done; the names are those of `Trace.rounds`.

        Arrays of equal length: round, time (s since start), loss (NaN: not evaluated yet), metrics, messages,
        bytes, samples, stale and others. Empty before the first round is done.
        """

    def stop(self) -> None:
        """Ask it to end after the round that it is in; returns at once."""
        self._wanted.clear()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is over, at most that many seconds; says whether it is."""
        return self._over.wait(timeout)

    def result(self) -> Trace:
        """Wait for its trace; raises the error of a run that failed. After a stop: the rounds that there were."""
        self.wait()
        if self.error is not None:
            raise self.error
        assert self._trace is not None
        return self._trace

    def __repr__(self) -> str:
        return f"<{self.label} on {self.engine}: {self.state}, {self.note}>"

    # ---------------------------------------------------------------- for engines

    def _begin(self, note: str) -> None:
        self.note, self._state = note, "running"

    def _end(self, trace: Trace, state: State, note: str) -> None:
        self._trace, self.note, self._state = trace, note, state
        self._over.set()

    def _fail(self, error: Exception) -> None:
        self.error, self.note, self._state = error, str(error), "failed"
        self._over.set()


def start(experiment: Experiment, engine: str = "sim", **options: Any) -> Run:
    """Start a run and return at once; the kernel stays free.

    `options` are the engine's own; "sim" knows `numeric` and `events`, as `wb.run` does.

    Raises
    ------
    SettingError
        The engine is unknown, or this is no experiment. What goes wrong later is raised by `Run.result`.

    Examples
    --------
    >>> import workbench as wb
    >>> start(wb.Experiment(scheme="UMW", workers=4, rounds=5)).result().engine
    'sim'
    """
    return start_all([experiment], engine, **options)[0]


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
    if engine not in list(STARTERS):  # a list has no hash
        raise unknown_name("engine", engine, list(STARTERS))
    return STARTERS[engine](checked(experiments), **options)


def checked(experiments: object) -> list[Experiment]:
    """Experiments as a list, one alone as well; raises `SettingError` for anything else."""
    alone = not isinstance(experiments, Iterable) or isinstance(experiments, Experiment | str | Mapping)
    found: list[Any] = [experiments] if alone else list(experiments)  # type: ignore[call-overload]
    for e in found:
        if not isinstance(e, Experiment):
            raise SettingError(
                f"experiment = {e!r:.60}: give a wb.Experiment (of a preset, preset['CR'] or another)"
            )
    return found


# ---------------------------------------------------------------- the virtual clock


def start_simulated(
    experiments: Sequence[Experiment], numeric: bool = False, events: bool = True
) -> list[Run]:
    """Simulate, then learn, in a thread; rows appear as the learning goes on."""
    from workbench.running.simulated import SimulatedRun, work

    runs = [SimulatedRun(e, numeric, events) for e in experiments]
    in_background(lambda: work(runs), "workbench-simulation")
    return list(runs)


def in_background(work: Callable[[], None], name: str) -> None:
    """Work in a thread of its own.

    plotly and scikit-learn both import narwhals, whose modules import one another in a circle. Where the thread reads a
    data set while the notebook draws its first figure, they may wait for each other, which Python ends with an error in
    one of them: so it is imported before.
    """
    with suppress(ImportError):
        import narwhals.stable.v1  # noqa: F401
    Thread(target=work, name=name, daemon=True).start()


def each(start_one: Callable[..., Run]) -> Callable[..., list[Run]]:
    """Make a starter of several runs from one that starts a single one."""

    def start_several(experiments: Sequence[Experiment], **options: Any) -> list[Run]:
        return [start_one(e, **options) for e in experiments]

    return start_several


def _start_simulated(experiments: Sequence[Experiment], **options: Any) -> list[Run]:
    """Start them together on the virtual clock."""
    check_options("sim", start_simulated, options)
    return start_simulated(experiments, **options)


def _start_real(experiments: Sequence[Experiment], **options: Any) -> list[Run]:
    """Start them one after the other on real processes."""
    from workbench.running.real import start_real

    check_options("mpi", start_real, options)
    return each(start_real)(experiments, **options)


STARTERS: dict[str, Callable[..., list[Run]]] = {  # engine -> starts several runs
    "sim": _start_simulated,
    "mpi": _start_real,
}


@contextmanager
def failing(run: Run) -> Iterator[None]:
    """Turn an error of a run's thread into the run's own."""
    try:
        yield
    except Exception as error:
        run._fail(error)


class Recorded(Run):
    """A run that is over: its trace, shown like one that is under way."""

    def __init__(self, trace: Trace) -> None:
        super().__init__(trace.experiment, trace.engine)
        rounds = len(trace.columns["time"])
        stopped = rounds < trace.experiment.rounds
        note = f"recorded, {rounds} of {trace.experiment.rounds} rounds" if stopped else "recorded"
        self._end(trace, "stopped" if stopped else "finished", note)

    def rows(self, first: int = 0) -> Rows:
        """See `Run.rows`."""
        return {name: np.asarray(column[first:]) for name, column in self.result().columns.items()}


def recorded(trace: Trace) -> Run:
    """A finished run of a trace that was kept, for plots that show runs."""
    return Recorded(trace)


def no_rows() -> Rows:
    """Rows of a run that has not begun."""
    return {name: np.zeros(0) for name in ("round", "time", "loss", "messages", "bytes", "samples", "stale")}


__all__ = [
    "STARTERS",
    "Run",
    "each",
    "failing",
    "no_rows",
    "recorded",
    "start",
    "start_all",
    "start_simulated",
]
