"""A run that is under way, of whichever engine: watched while it goes on, stopped between rounds."""

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from contextvars import copy_context
from pathlib import Path
from threading import Event, Thread
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from workbench.core.base.arguments import kinds_checked
from workbench.core.base.bar import Bar
from workbench.core.base.errors import RunError, sentence_of
from workbench.core.base.settings import SettingError
from workbench.core.base.shadows import shadowed
from workbench.core.base.user_code import with_fault
from workbench.core.contract.adaptive import Change
from workbench.core.experiment import Experiment
from workbench.core.running.precision import lost_digits
from workbench.core.trace.trace import Trace, events_as_columns

State = Literal["waiting", "running", "finished", "stopped", "failed"]
Rows = dict[str, NDArray[Any]]


class Engine(NamedTuple):
    """How the runs of an engine are started, and how they are run while the caller waits.

    `start(experiments, **options)` and `run(experiments, progress=..., **options)` return one `Run` each. `options` is
    the function whose parameters are the engine's options. An engine is registered as an entry point.
    """

    options: Callable[..., Any]
    start: Callable[..., list["Run"]]
    run: Callable[..., list["Run"]]


class RunCancelled(Exception):
    """A run was stopped before it began."""


class Run:
    """A run that is under way. Every method may be called from any thread and at any time.

    `experiment`, `engine`; `folder`: its run folder, where the engine keeps one; `note`: what it is doing now, in
    words; `error`: what ended it, where it failed; `warnings`: what the user should know of it, in sentences.

    >>> import workbench as wb
    >>> run = wb.start(wb.Experiment(scheme="UMW", workers=4, rounds=5))
    >>> len(run.result().rounds)
    5
    """

    def __init__(self, experiment: Experiment, engine: str, folder: Path | None = None) -> None:
        self.experiment, self.engine, self.folder = experiment, engine, folder
        self.note = "waiting"
        # How much of what precedes the first round is done, where that is known.
        self.stage: float | None = None
        self.error: Exception | None = None
        self.warnings: tuple[str, ...] = ()
        self._state: State = "waiting"
        self._trace: Trace | None = None
        self._wanted, self._over = Event(), Event()
        self._wanted.set()
        self.wanted = self._wanted.is_set  # has nobody stopped it?
        self.resting: AbstractContextManager[Any] = (
            nullcontext()
        )  # within it, this process does nothing for the run

    @property
    def state(self) -> State:
        """Where it is: waiting, running, finished, stopped or failed."""
        return self._state

    @property
    def label(self) -> str:
        """What legends show."""
        return self.experiment.scheme

    def rows(self, first: int = 0) -> Rows:
        """Columns of the rounds from `first` on, as far as they are done; the names are those of `Trace.rounds`.

        Arrays of equal length: round, time (s since start), loss (NaN: not evaluated yet), metrics, messages,
        bytes, samples, stale and others. Empty before the first round is done.
        """
        if self._trace is None:
            return self._so_far(first)
        return {name: np.asarray(column[first:]) for name, column in self._trace.columns.items()}

    @property
    def rounds_done(self) -> int:
        """Rounds that are done."""
        return len(self.rows()["round"])

    @property
    def changes(self) -> list[Change]:
        """Changes of scheme so far, where scheme selection is adaptive (`adaptive = True`)."""
        return [] if self._trace is None else self._trace.changes

    def watcher(self) -> Callable[[], Rows]:
        """Begin to watch its events: a call of what this returns gives those that are new, as `Trace.events` has them.

        Of a run that is over: all of them, once. They come a moment late and not in order of time.
        """
        seen: list[Trace] = []

        def new() -> Rows:
            if self._trace is None or seen:
                return events_as_columns([])
            seen.append(self._trace)
            return events_as_columns(self._trace.event_rows)

        return new

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

    def _so_far(self, first: int) -> Rows:
        """Rows of a run that is not over."""
        return no_rows()

    def _begin(self, note: str) -> None:
        self.note, self._state = note, "running"

    def _end(self, trace: Trace, state: State, note: str) -> None:
        self._trace = trace
        self._close(state, note)

    def _fail(self, error: Exception) -> None:
        hidden = shadowed(error) if isinstance(error, ImportError | AttributeError) else ""
        sentence = sentence_of(error) if isinstance(error, OSError) else hidden
        self.error = RunError(sentence) if sentence else with_fault(error)
        self._close("failed", str(self.error))

    def _close(self, state: State, note: str) -> None:
        self.note, self._state = note, state
        self._over.set()


def checked(experiments: object) -> list[Experiment]:
    """Experiments as a list, one alone as well, as they are defined now; raises `SettingError` for anything else."""
    alone = not isinstance(experiments, Iterable) or isinstance(experiments, Experiment | str | Mapping)
    found: list[Any] = [experiments] if alone else list(experiments)  # type: ignore[call-overload]
    for e in found:
        if not isinstance(e, Experiment):
            wanted = "give a wb.Experiment (of a preset, preset['CR'] or another)"
            raise SettingError(f"experiment = {e!r:.60}: {wanted}")
    return [e.current() for e in found]


def in_background(work: Callable[[], object], name: str) -> None:
    """Work in a thread of its own.

    plotly and scikit-learn both import narwhals, whose modules import one another in a circle. Where the thread reads a
    data set while the notebook draws its first figure, they may wait for each other, which Python ends with an error in
    one of them: so it is imported before.
    """
    with suppress(ImportError):
        import narwhals.stable.v1  # noqa: F401
    # In this context: what may be run on behalf of a folder is limited there, too, see `base.trust`.
    Thread(target=copy_context().run, args=(work,), name=name, daemon=True).start()


@contextmanager
def failing(run: Run) -> Iterator[None]:
    """Turn an error of a run's thread into the run's own."""
    try:
        yield
    except Exception as error:
        run._fail(error)


@kinds_checked
def recorded(trace: Trace) -> Run:
    """A finished run of a trace that was kept, for plots that show runs."""
    run, rounds = Run(trace.experiment, trace.engine), len(trace.columns["time"])
    stopped = rounds < run.experiment.rounds
    note = f"recorded, {rounds} of {run.experiment.rounds} rounds" if stopped else "recorded"
    run._end(trace, "stopped" if stopped else "finished", note)
    return run


def tell(run: Run, level: int = 5) -> None:
    """Warn of what came up while it ran, but for its code's digits, of which `compare` has warned before."""
    known = lost_digits(run.experiment.built_scheme, run.experiment.workers)
    for text in run.warnings:
        if text not in known:
            warnings.warn(text, RuntimeWarning, stacklevel=level)


def no_rows() -> Rows:
    """Rows of a run that has not begun."""
    return {name: np.zeros(0) for name in ("round", "time", "loss", "messages", "bytes", "samples", "stale")}


def watched(run: Run, progress: bool, stop: bool = True, level: int = 4) -> Trace:
    """Wait for a run with a progress bar; Ctrl-C stops the run, or else only the watching. `level`: see `tell`."""
    try:
        with Bar(f"{run.label} on mpi", "round", run.experiment.rounds, progress) as bar:
            while not run.wait(0.1):
                bar.update(run.rounds_done)
                bar.note(run.note)
            bar.update(run.experiment.rounds if run.state == "finished" else run.rounds_done)
        trace = run.result()
        tell(run, level)
        return trace
    except KeyboardInterrupt:
        if stop:
            run.stop()
            run.wait(5.0)
        raise
