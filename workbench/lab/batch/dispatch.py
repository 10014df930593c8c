"""Runs of a sweep on an executor: submit them, record how they ended, and submit lost ones again.

The executor has the queues and their order. Tasks return errors as results. So if a future raises, its task was lost,
because a process of the executor or the whole executor died. The task is submitted again, to a new executor if the old
one is broken. "Engine" means a process of the executor here, not `sim` or `mpi`.
"""

from __future__ import annotations

import json
import secrets
import shutil
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from itertools import chain
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any

from workbench.analysis.tables.status import Status, attempts
from workbench.core.base.bar import Bar
from workbench.core.base.errors import RunError
from workbench.core.base.files import write_file, write_json
from workbench.core.trace.layout import ATTEMPTS, ATTEMPTS_OWNER, HOSTS, LINK, STOP
from workbench.lab.batch.execution import INTERRUPTED
from workbench.lab.batch.executors import Connection, size
from workbench.lab.batch.page import write_script
from workbench.lab.batch.sweeps import Item
from workbench.lab.batch.task import Order, publish, remove_attempts, run_notebook, unpack

Answer = dict[str, Any]
MIN_SUBMITTED = 256  # min number of runs with notebooks that are submitted at a time
MAX_LOSSES = 5  # after this number of losses of a run, the run is assumed to cause them
# A run that was under way when this number of executors broke is done last, while no other run is under way.
SUSPECT_LOSSES = 2
# The sweep ends after this number of host errors per process, if all processes had some and no task was done meanwhile.
MAX_HOST_ERRORS = 5
USUAL_ENGINES = 16  # assumed number of processes of an executor if it is unknown
# Max number of successive executors that broke before a task was done. An executor that broke while no run is known to
# have been under way counts as MAX_LOSSES executors.
MAX_BROKEN = 3 * MAX_LOSSES
STOP_TIMEOUT_S = 20.0  # s in which tasks must end once the sweep is stopped
POLL_INTERVAL_S = 0.5
RECORD_INTERVAL_S = 2.0  # s between two records of what the hosts have done
SIZE_INTERVAL_S = 5.0  # s between two requests for the executor's size, which a scheduler answers


class Task(ABC):
    """Unit of work of a process of the executor: a run in its notebook, or many runs without notebooks."""

    name = ""  # name of the run, by which its attempt is found in the sweep's folder; empty for a task of many runs
    losses = 0  # number of times that a process died during the run

    @abstractmethod
    def submit(self, executor: Executor, order: str) -> Future[Answer]:
        """Submit the task to the executor. `order`: fields that all tasks of the sweep share, as JSON."""

    @abstractmethod
    def ended(self, answer: Answer) -> Iterable[Task]:
        """Record how the task ended, and return tasks for its remaining runs.

        Raises `RunError`, and records nothing, if the answer was damaged on its way.
        """

    @abstractmethod
    def lost(self, why: str, begun: bool) -> Iterable[Task]:
        """Return the tasks to submit in place of this one, after its process or the whole executor died."""

    def interrupted(self) -> None:  # noqa: B027, since runs without a record count as missing
        """Record that the sweep was stopped during the task."""


@dataclass
class Dispatcher:
    """Tasks of one sweep on an executor.

    order: fields that all tasks share. connection: connection to the executor. counts: returns the number of runs so
    far by state. per_engine: max number of submitted tasks for each process of the executor. min_submitted: their max
    number in all, where that is less.
    """

    order: Order
    connection: Connection
    progress: bool = True
    counts: Callable[[], Counter[str]] = Counter
    per_engine: int = 2
    min_submitted: int = MIN_SUBMITTED
    _executor: Executor | None = None
    _todo: Iterator[Task] = field(default_factory=lambda: iter(()))
    _suspects: list[Task] = field(default_factory=list)  # runs that may kill their process
    _running: dict[Future[Answer], Task] = field(default_factory=dict)
    _ended: SimpleQueue[Future[Answer]] = field(default_factory=SimpleQueue)
    _text: str = ""  # the order as JSON
    _counts: Counter[str] = field(default_factory=Counter)  # those before the newest answer
    _deaths: int = 0  # executors that broke since a task was done
    _host_errors: Counter[str] = field(default_factory=Counter)  # by process, since a task was done
    _trouble: str = ""  # last of these errors
    _ended_by: Counter[str] = field(default_factory=Counter)  # runs that have ended, by host
    # sum of `_ended_by` when it was last written, and the time of writing, s of the monotonic clock
    _recorded: tuple[int, float] = (0, 0.0)
    # the executor, its size when it was last asked for, and the time from which on it is asked again
    _sized: tuple[Executor | None, int, float] = (None, 0, 0.0)

    @property
    def folder(self) -> Path:
        """Folder of the sweep."""
        return Path(self.order.folder)

    def work(self, tasks: Iterable[Task], before: int, total: int) -> None:
        """Do all tasks. before: number of runs that are done already. total: number of runs of the sweep.

        Raises `KeyboardInterrupt` if the sweep is stopped, and `RunError` if no process of the executor can do tasks.
        """
        self._todo, self._text = iter(tasks), json.dumps(asdict(self.order))
        # processes of a killed client may still write there
        self._clear()
        (self.folder / ATTEMPTS).mkdir(mode=0o700, exist_ok=True)
        write_file(self.folder / ATTEMPTS / ATTEMPTS_OWNER, self.order.token)
        try:
            with Bar("runs", "run", total, self.progress, done=before) as bar:
                self._loop(bar, before)
        except BaseException:
            self._stop()
            raise
        finally:
            self._clear()

    def _clear(self) -> None:
        remove_attempts(self.folder)
        shutil.rmtree(self.folder / ATTEMPTS, ignore_errors=True)

    def _loop(self, bar: Bar, before: int) -> None:
        bar.note("failed=0")
        while self._fill() or self._running:
            if why := self.connection.broken():
                self._replace(RunError(why))
            with suppress(Empty):
                self._take(self._ended.get(timeout=POLL_INTERVAL_S))
                self._counts = self.counts()
                bar.note(f"failed={self._counts['failed']}{self._trouble}")
                bar.update(before + _over(self._counts))
            self._record()
            # at the end, because tasks that end at a stop may be the last ones
            if (self.folder / STOP).exists():
                raise KeyboardInterrupt

    def _fill(self) -> bool:
        """Submit tasks up to the limit. Return False if no further task is left to submit."""
        while len(self._running) < max(self.min_submitted, self.per_engine * self._engines()):
            if (task := self._next()) is None:
                return bool(self._suspects)
            try:
                if self._executor is None:
                    self._executor = self.connection.connect()
                    write_file(self.folder / ATTEMPTS / LINK, self.connection.link)
                future = task.submit(self._executor, self._text)
            except (BrokenExecutor, RuntimeError) as error:  # RuntimeError: the executor was shut down
                self._again([task])
                self._replace(error)
                return True
            self._running[future] = task
            future.add_done_callback(self._ended.put)
        return True

    def _engines(self) -> int:
        """Return the number of processes of the executor, which may be some seconds old."""
        known, number, until = self._sized
        if known is not self._executor or time.monotonic() >= until:
            number = size(self._executor) or self.connection.engines or USUAL_ENGINES
            self._sized = self._executor, number, time.monotonic() + SIZE_INTERVAL_S
        return number

    def _next(self) -> Task | None:
        """Return the next task to submit. Runs that may kill their process are last, and one at a time."""
        if (task := next(self._todo, None)) is None and self._suspects and not self._running:
            return self._suspects.pop()
        return task

    def _again(self, tasks: Iterable[Task]) -> None:
        """Put tasks at the front of the queue of tasks that are not submitted yet."""
        self._todo = chain(list(tasks), self._todo)

    def _take(self, future: Future[Answer]) -> None:
        """Record how a task ended."""
        if (task := self._running.pop(future, None)) is None:
            return  # this future belongs to an executor that was replaced
        try:
            answer = future.result()
        except BrokenExecutor as error:
            self._running[future] = task
            self._replace(error)
            return
        except Exception as error:  # executors raise different exceptions for lost tasks
            answer = {"lost": _one_line(error)}
        if why := answer.get("refused"):
            raise RunError(why)
        if why := answer.get("lost"):
            self._again([task] if self._is_host_error(answer) else task.lost(why, True))
            return
        try:
            self._again(task.ended(answer))
        except RunError as error:  # the answer was damaged on its way
            self._again(task.lost(_one_line(error), True))
            return
        except OSError as error:
            raise self._end(f"this machine cannot keep a run ({_one_line(error)})") from error
        self._deaths, self._trouble = 0, ""
        self._host_errors.clear()
        self._ended_by[str(answer.get("host", ""))] += _over(self.counts()) - _over(self._counts)

    def _is_host_error(self, answer: Answer) -> bool:
        """Return whether a task was lost by an error of its host. Raises `RunError` if all hosts have too many."""
        if not answer.get("host_error"):
            return False
        self._host_errors[answer.get("engine", "")] += 1
        self._trouble = f", waits after {answer['lost']}"
        engines = min(self._engines(), len(self._running) + 1)
        useless = len(self._host_errors)
        if useless >= engines and self._host_errors.total() >= MAX_HOST_ERRORS * useless:
            raise self._end(f"no engine can do its runs ({answer['lost']})")
        return True

    def _end(self, why: str) -> RunError:
        return RunError(f"{self.folder}: {why}; workbench sweep {self.folder} resumes it")

    def _record(self) -> None:
        """Write the number of runs that have ended, by host, for observers."""
        now, before = (self._ended_by.total(), time.monotonic()), self._recorded
        if now[0] != before[0] and now[1] - before[1] > RECORD_INTERVAL_S:
            self._recorded = now
            with suppress(OSError):  # such as a full disk
                write_json(self.folder / ATTEMPTS / HOSTS, dict(self._ended_by))

    def _replace(self, error: Exception) -> None:
        """Replace an executor, and submit its tasks again. Raises `RunError` after too many broken executors."""
        begun, why = attempts(self.folder), _one_line(error)
        self._executor, lost = None, list(self._running.values())
        self._running.clear()
        again = [each for task in lost for each in task.lost(why, task.name in begun)]
        self._suspects += [task for task in again if task.losses >= SUSPECT_LOSSES]
        self._again(task for task in again if task.losses < SUSPECT_LOSSES)
        given_up = bool(lost) and not again
        self._deaths += 1 if given_up or any(task.losses for task in again) else MAX_LOSSES
        if given_up and self._ended_by:  # the executor could do another run
            self._deaths = 0
        if self._deaths >= MAX_BROKEN:
            raise self._end(f"the executor is broken again and again ({why})")

    def _stop(self) -> None:
        """Ask tasks to stop, by a file that they check, and wait for their results for a limited time."""
        write_file(self.folder / STOP, "")
        self._todo = iter(())
        waiting = list(self._running)
        Thread(target=_cancel, args=(waiting,), name="workbench-cancel", daemon=True).start()
        until = time.monotonic() + STOP_TIMEOUT_S
        while self._running and time.monotonic() < until:
            with suppress(Empty, Exception):
                self._take(self._ended.get(timeout=POLL_INTERVAL_S))
        begun = attempts(self.folder)
        for task in self._running.values():
            if task.name in begun:
                task.interrupted()


def _over(counts: Counter[str]) -> int:
    """Return the number of runs that have ended."""
    return counts.total() - counts["missing"]


def _one_line(error: Exception) -> str:
    """Return an error of an executor on one line. Raises `RunError` if its processes lack the package."""
    text = " ".join(str(error).split())[-300:] or type(error).__name__
    if "No module named 'workbench" in text:
        raise RunError(f"the engines have no workbench ({text}); install straggler-workbench there")
    return text


def _cancel(futures: Iterable[Future[Answer]]) -> None:
    """Take tasks that no process has begun from the executor's queue."""
    for future in futures:
        with suppress(Exception):
            # method of ipyparallel's futures, which cancels the task in the scheduler
            abort = getattr(future, "abort", None)
            future.cancel() if abort is None else abort()


@dataclass(eq=False)
class NotebookTask(Task):
    """One run in its notebook. `states`: name of a run -> how it ended. `longest`: s of the longest run so far."""

    item: Item
    folder: Path
    states: dict[str, Status]
    longest: list[float]
    losses: int = 0

    @property
    def name(self) -> str:  # type: ignore[override]
        """Name of the run."""
        return self.item.name

    def submit(self, executor: Executor, order: str) -> Future[Answer]:
        """Submit the run to the executor, after removing the folder of an earlier attempt."""
        item = self.item
        if Status.done(self.folder / self.name) is None:
            shutil.rmtree(self.folder / self.name, ignore_errors=True)
        fields: dict[str, Any] = {"name": item.name, "engine": item.engine, "cluster": item.cluster}
        fields |= {"expected": self.longest[0], "spec": item.experiment.model_dump(mode="json")}
        return executor.submit(run_notebook, order, json.dumps(fields))

    def ended(self, answer: Answer) -> Iterable[Task]:
        """Record the run's status, after its files are in place."""
        self.states[self.name] = self._status(answer)
        return ()

    def _status(self, answer: Answer) -> Status:
        if "missing" in answer:
            return Status("missing", error=answer["missing"])
        status = Status(**answer["status"])
        self.longest[0] = max(self.longest[0], status.seconds or 0.0)
        if "folder" in answer:
            publish(Path(answer["folder"]), self.folder / self.name)
        elif "files" in answer:
            arrived = self.folder / ATTEMPTS / secrets.token_hex(8) / self.name
            unpack(answer, arrived)
            publish(arrived, self.folder / self.name)
        return Status.done(self.folder / self.name) or status

    def lost(self, why: str, begun: bool) -> Iterable[Task]:
        """Return the task itself, unless it was lost too often."""
        if status := Status.done(self.folder / self.name):
            self.states[self.name] = status
            return []
        remove_attempts(self.folder, self.name)  # else the run would count as under way
        self.losses += begun
        if self.losses < MAX_LOSSES:
            return [self]
        item = self.item
        why = f"was lost {MAX_LOSSES} times, the last time with: {why}"
        spec = item.experiment.model_dump(mode="json")
        status = Status("failed", spec, item.engine, item.cluster, error=why)
        with suppress(OSError):
            (self.folder / self.name).mkdir(exist_ok=True)
            status.write(self.folder / self.name)
        self.states[self.name] = status
        return []

    def interrupted(self) -> None:
        """Record the run as interrupted."""
        done = Status.done(self.folder / self.name)
        self.states[self.name] = done or Status("interrupted", error=INTERRUPTED)


def run_notebooks(
    dispatcher: Dispatcher, todo: Sequence[Item], total: int, states: dict[str, Status]
) -> None:
    """Run items in their notebooks, and record their states by name. Raises the errors of `Dispatcher.work`."""
    longest = [0.0]
    write_script(dispatcher.folder)
    dispatcher.counts = lambda: Counter(status.state for status in states.values())
    tasks = (NotebookTask(item, dispatcher.folder, states, longest) for item in todo)
    dispatcher.work(tasks, total - len(todo), total)
