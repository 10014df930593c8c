"""Runs of a sweep on an executor: which ones to submit, how they ended, and which to do again because they were lost.

Queues and their order are the executor's. A task whose future fails was lost, with an engine or with the executor:
tasks themselves answer and do not raise. A lost run is submitted again, to a new executor where the old one is broken.
"""

from __future__ import annotations

import json
import secrets
import shutil
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from workbench.analysis.tables.status import Status, attempts
from workbench.core.base.bar import Bar
from workbench.core.base.errors import RunError
from workbench.core.base.files import write_file
from workbench.core.trace.layout import ATTEMPTS, ATTEMPTS_OWNER, STOP
from workbench.lab.batch.execution import INTERRUPTED
from workbench.lab.batch.page import write_script
from workbench.lab.batch.sweeps import Item
from workbench.lab.batch.task import Order, publish, run_notebook, unpack

MAX_SUBMITTED = (
    256  # tasks that the executor has at a time, more than engines, so that none waits for its next task
)
MAX_LOSSES = 5  # engines that a run may lose, before it counts as the reason
MAX_BROKEN = 3  # executors in a row that broke before a run was done
STOP_TIMEOUT_S = 20.0  # s that engines have for an answer, once the sweep is stopped
POLL_INTERVAL_S = 0.5

Open = Callable[[], Executor]  # returns an executor, and after the death of one, another


@dataclass
class Dispatcher:
    """Runs of one sweep on an executor.

    order: what all tasks share. connect: returns the executor. broken: returns why the executor can end no task any
    more, where that does not show in its futures.
    """

    order: Order
    connect: Open
    broken: Callable[[], str] = str
    progress: bool = True
    states: dict[str, Status] = field(default_factory=dict)
    _executor: Executor | None = None
    _todo: deque[Item] = field(default_factory=deque)
    _running: dict[Future[dict[str, Any]], Item] = field(default_factory=dict)
    _ended: SimpleQueue[Future[dict[str, Any]]] = field(default_factory=SimpleQueue)
    _losses: Counter[str] = field(default_factory=Counter)
    _deaths: int = 0  # executors that broke since the last run was done
    _longest: float = 0.0  # s

    @property
    def folder(self) -> Path:
        """Folder of the sweep."""
        return Path(self.order.folder)

    def work(self, todo: Sequence[Item], total: int) -> dict[str, Status]:
        """Run items, and return their states by name.

        Raises `KeyboardInterrupt` where the sweep is stopped, and `RunError` where no engine can run its tasks.
        """
        self.states, self._todo = {}, deque(todo)
        with suppress(FileNotFoundError):
            shutil.rmtree(self.folder / ATTEMPTS)
        (self.folder / ATTEMPTS).mkdir(mode=0o700)
        write_file(self.folder / ATTEMPTS / ATTEMPTS_OWNER, self.order.token)
        write_script(self.folder)
        try:
            with Bar("runs", "run", total, self.progress, done=total - len(todo)) as bar:
                self._loop(bar, total)
        except BaseException:
            self._stop()
            raise
        finally:
            shutil.rmtree(self.folder / ATTEMPTS, ignore_errors=True)
        return {item.name: self.states[item.name] for item in todo}

    def _loop(self, bar: Bar, total: int) -> None:
        bar.note("failed=0")
        while self._todo or self._running:
            if (self.folder / STOP).exists():
                raise KeyboardInterrupt
            self._fill()
            if why := self.broken():
                self._replace(RunError(why))
            with suppress(Empty):
                self._take(self._ended.get(timeout=POLL_INTERVAL_S))
                bar.note(f"failed={sum(status.state == 'failed' for status in self.states.values())}")
                bar.update(total - len(self._todo) - len(self._running))

    def _fill(self) -> None:
        """Submit runs, as many as the executor should have at a time."""
        while self._todo and len(self._running) < MAX_SUBMITTED:
            item = self._todo[0]
            fields = {
                "name": item.name,
                "engine": item.engine,
                "cluster": item.cluster,
                "expected": self._longest,
            }
            spec = item.experiment.model_dump(mode="json")
            final = self.folder / item.name
            if (status := Status.read(final)) is None or status.state != "done":
                shutil.rmtree(final, ignore_errors=True)  # of an earlier sweep, in which it did not succeed
            try:
                if self._executor is None:
                    self._executor = self.connect()
                order = json.dumps(asdict(self.order))
                future = self._executor.submit(run_notebook, order, json.dumps({**fields, "spec": spec}))
            except (BrokenExecutor, RuntimeError) as error:  # also of one that was shut down
                self._replace(error)
                return
            self._todo.popleft()
            self._running[future] = item
            future.add_done_callback(self._ended.put)

    def _take(self, future: Future[dict[str, Any]]) -> None:
        """Record how a task ended."""
        if (item := self._running.pop(future, None)) is None:
            return  # of an executor that was replaced
        try:
            answer = future.result()
        except BrokenExecutor as error:
            self._running[future] = item
            self._replace(error)
            return
        except Exception as error:  # whatever an executor raises for a lost task
            self._lost(item, error)
            return
        if why := answer.get("refused"):
            raise RunError(why)
        if why := answer.get("lost"):
            self._lost(item, RunError(why))
            return
        self._deaths = 0
        self.states[item.name] = self._ended_as(item, answer)

    def _ended_as(self, item: Item, answer: dict[str, Any]) -> Status:
        """Return the status of a run, after its files have got their place."""
        if "missing" in answer:
            return Status("missing", error=answer["missing"])
        status, final = Status(**answer["status"]), self.folder / item.name
        self._longest = max(self._longest, status.seconds or 0.0)
        if "folder" in answer:
            publish(Path(answer["folder"]), final)
        elif "files" in answer:
            arrived = self.folder / ATTEMPTS / secrets.token_hex(8) / item.name
            try:
                unpack(answer, arrived)
            except (OSError, RunError) as error:
                return Status("failed", error=str(error))
            publish(arrived, final)
        return status

    def _lost(self, item: Item, error: Exception) -> None:
        """Submit a lost run again, unless it has lost too many engines."""
        text = " ".join(str(error).split())[-300:] or type(error).__name__
        if "No module named 'workbench" in text:
            raise RunError(f"the engines have no workbench ({text}); install straggler-workbench there")
        self._losses[item.name] += 1
        if self._losses[item.name] < MAX_LOSSES:
            self._todo.appendleft(item)
            return
        why = f"was lost {MAX_LOSSES} times, the last time with: {text}"
        self.states[item.name] = status = Status(
            "failed", item.experiment.model_dump(mode="json"), item.engine, item.cluster, error=why
        )
        (self.folder / item.name).mkdir(exist_ok=True)
        status.write(self.folder / item.name)

    def _replace(self, error: Exception) -> None:
        """Give up an executor, and submit again what it had. Raises `RunError` where that does not help."""
        self._deaths += 1
        begun = attempts(self.folder)
        self._executor, lost = None, list(self._running.values())
        self._running.clear()
        for item in reversed(lost):
            if item.name in begun:
                self._lost(item, error)
            else:
                self._todo.appendleft(item)
        if self._deaths >= MAX_BROKEN:
            why = " ".join(str(error).split())[:300] or type(error).__name__
            again = f"workbench sweep {self.folder} resumes it"
            raise RunError(f"{self.folder}: the executor is broken again and again ({why}); {again}")

    def _stop(self) -> None:
        """Ask engines to stop by the file that they look for, and wait for those that answer."""
        if (self.folder / ATTEMPTS).is_dir():
            write_file(self.folder / STOP, "")
        for future in list(self._running):
            with suppress(Exception):
                future.cancel()
        until = time.monotonic() + STOP_TIMEOUT_S
        while self._running and time.monotonic() < until:
            with suppress(Empty, Exception):
                self._take(self._ended.get(timeout=POLL_INTERVAL_S))
        for item in self._running.values():
            self.states[item.name] = Status("interrupted", error=INTERRUPTED)
        for item in self._todo:
            self.states.setdefault(item.name, Status("missing"))
