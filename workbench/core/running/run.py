"""A run of any engine, which can be watched while it runs and stopped between rounds."""

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
from workbench.core.trace.trace import Trace, events_as_columns, name_of_run

State = Literal["waiting", "running", "finished", "stopped", "failed"]
Rows = dict[str, NDArray[Any]]
STOPPED_EARLY = "stopped before the first round"  # note of a run that was stopped while its data were opened


class Engine(NamedTuple):
    """Functions of an engine: one starts runs in the background, the other runs them while the caller waits.

    `start(experiments, **options)` and `run(experiments, progress=..., **options)` return one `Run` per experiment.
    The parameters of the function `options` are the engine's options. An engine is registered as an entry point.
    """

    options: Callable[..., Any]
    start: Callable[..., list["Run"]]
    run: Callable[..., list["Run"]]


class RunCancelled(Exception):
    """Error: a run was stopped before it began."""


class Run:
    """Run of an experiment, finished or not. Every method may be called from any thread and at any time.

    `experiment`, `engine`: its experiment, and the name of its engine. `folder`: its run folder, or None. `note`: text
    on its current activity. `error`: the error that ended it, or None. `warnings`: sentences for the user.

    >>> import workbench as wb
    >>> run = wb.start(wb.Experiment(scheme="UMW", workers=4, rounds=5))
    >>> len(run.result().rounds)
    5
    """

    def __init__(self, experiment: Experiment, engine: str, folder: Path | None = None) -> None:
        self.experiment, self.engine, self.folder = experiment, engine, folder
        self.note = "waiting"
        # Finished share of the work before the first round, or None if unknown.
        self.stage: float | None = None
        self.error: Exception | None = None
        self.warnings: tuple[str, ...] = ()
        self._state: State = "waiting"
        self._trace: Trace | None = None
        self._wanted, self._over = Event(), Event()
        self._wanted.set()
        self.wanted = self._wanted.is_set  # function that returns False once the run was stopped
        # context manager within which this process pauses its simulation
        self.resting: AbstractContextManager[Any] = nullcontext()

    @property
    def state(self) -> State:
        """State of the run: waiting, running, finished, stopped or failed."""
        return self._state

    @property
    def label(self) -> str:
        """Name of the run in titles and legends."""
        return name_of_run(self.experiment, self.changes)

    def rows(self, first: int = 0) -> Rows:
        """Return the columns of the finished rounds from `first` on, with the names of `Trace.rounds`.

        Arrays of equal length: round, time (s since start), loss (NaN: not evaluated yet), metrics, messages, bytes,
        samples, stale and others. They are empty before the first round is finished.
        """
        if self._trace is None:
            return self._so_far(first)
        return {name: np.asarray(column[first:]) for name, column in self._trace.columns.items()}

    @property
    def rounds_done(self) -> int:
        """Number of finished rounds."""
        return len(self.rows()["round"])

    @property
    def changes(self) -> list[Change]:
        """Changes of scheme so far, in an adaptive run (`adaptive = True`)."""
        return [] if self._trace is None else self._trace.changes

    def watcher(self) -> Callable[[], Rows]:
        """Return a function that returns the events since its last call, in the form of `Trace.events`.

        For a finished run, the first call returns all events. Events come with a short delay and not in order of time.
        """
        seen: list[Trace] = []

        def new() -> Rows:
            if self._trace is None or seen:
                return events_as_columns([])
            seen.append(self._trace)
            return events_as_columns(self._trace.event_rows)

        return new

    def stop(self) -> None:
        """Ask the run to end after the current round, and return at once."""
        self._wanted.clear()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the run has ended, for at most `timeout` seconds. Return whether it has."""
        return self._over.wait(timeout)

    def result(self) -> Trace:
        """Wait for the trace and return it. A stopped run has fewer rounds. Raises the error of a failed run."""
        self.wait()
        if self.error is not None:
            raise self.error
        assert self._trace is not None
        return self._trace

    def __repr__(self) -> str:
        return f"<{self.label} on {self.engine}: {self.state}, {self.note}>"

    def _so_far(self, first: int) -> Rows:
        """Return the rows of a run that has not ended, from round `first` on."""
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


def without_rounds(e: Experiment, engine: str) -> Trace:
    """Return the trace of a run that was stopped before its data were open. It has no rounds and no parameters."""
    return Trace(e, engine, no_rows(), [], np.zeros(0), info={"stopped": True})


def checked(experiments: object) -> list[Experiment]:
    """Return one experiment or several as a list, with their newest classes. Raises `SettingError` for other values."""
    alone = not isinstance(experiments, Iterable) or isinstance(experiments, Experiment | str | Mapping)
    found: list[Any] = [experiments] if alone else list(experiments)  # type: ignore[call-overload]
    for e in found:
        if not isinstance(e, Experiment):
            wanted = "give a wb.Experiment (of a preset, preset['CR'] or another)"
            raise SettingError(f"experiment = {e!r:.60}: {wanted}")
    return [e.current() for e in found]


def in_background(work: Callable[[], object], name: str) -> None:
    """Run a function in a new thread.

    plotly and scikit-learn both import narwhals, whose modules have circular imports. The thread may read a data set
    while the notebook draws its first figure. Their imports could then deadlock, which Python turns into an error.
    Therefore narwhals is imported first.
    """
    with suppress(ImportError):
        import narwhals.stable.v1  # noqa: F401
    # The context is copied, so that the limits of `base.trust` hold in the thread as well.
    Thread(target=copy_context().run, args=(work,), name=name, daemon=True).start()


@contextmanager
def failing(run: Run) -> Iterator[None]:
    """Store an exception of the block as the error of a run, unless the run has ended."""
    try:
        yield
    except Exception as error:
        if not run.wait(0):
            run._fail(error)


@kinds_checked
def recorded(trace: Trace) -> Run:
    """Return a finished run that shows a saved trace, for plots that take runs."""
    run, rounds = Run(trace.experiment, trace.engine), len(trace.columns["time"])
    stopped = rounds < run.experiment.rounds
    note = f"recorded, {rounds} of {run.experiment.rounds} rounds" if stopped else "recorded"
    run._end(trace, "stopped" if stopped else "finished", note)
    return run


def warnings_before(e: Experiment) -> tuple[str, ...]:
    """Return the warnings that are known before a run.

    The warnings are about digits that decoding loses, and about a problem for which no scheme is exact. Raises
    `SettingError` if a code keeps too few digits.
    """
    inexact = e.problem_spec.inexact
    return lost_digits(e.built_scheme, e.workers, e.problem_spec.width) + ((inexact,) if inexact else ())


def tell(run: Run, level: int = 5) -> None:
    """Issue the warnings of a run, except those on its code's digits, which `compare` has issued before."""
    e = run.experiment
    known = lost_digits(e.built_scheme, e.workers, e.problem_spec.width)
    for text in run.warnings:
        if text not in known:
            warnings.warn(text, RuntimeWarning, stacklevel=level)


def no_rows() -> Rows:
    """Return the rows of a run that has not begun: columns of length 0."""
    return {name: np.zeros(0) for name in ("round", "time", "loss", "messages", "bytes", "samples", "stale")}


def watched(run: Run, progress: bool, stop: bool = True, level: int = 4) -> Trace:
    """Wait for a run with a progress bar, and return its trace.

    `stop`: Ctrl-C stops the run. Without `stop`, Ctrl-C ends the wait and the run continues. `level`: stack level of
    the warnings.
    """
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
