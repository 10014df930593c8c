"""Sweeps without notebooks: many runs in one task, with rows and curves in shards.

Folders of single runs are made later, on request.
"""

from __future__ import annotations

import json
import math
import secrets
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Semaphore
from typing import Any, NamedTuple

import numpy as np

from workbench.analysis.tables import shards
from workbench.analysis.tables.status import Status, alone, another_sweep
from workbench.core.base.errors import RunError
from workbench.core.base.files import write_file
from workbench.core.base.reading import read_text
from workbench.core.base.settings import SettingError
from workbench.core.experiment import Experiment
from workbench.core.trace.definitions import sources_of
from workbench.core.trace.layout import ATTEMPTS, SHARDS, TRACE
from workbench.core.trace.trace import Trace
from workbench.lab.batch.chunk import run_chunk, unpack_shard
from workbench.lab.batch.dispatch import MAX_LOSSES, Answer, Dispatcher, Task
from workbench.lab.batch.execution import NotebookRunner
from workbench.lab.batch.folders import allowed, own_of
from workbench.lab.batch.kernels import Kernels
from workbench.lab.batch.page import write_script
from workbench.lab.batch.searches import Changes
from workbench.lab.batch.sweeps import KEY_DIGITS, Item, Sweep, cluster_of, make_item
from workbench.lab.batch.task import publish, renamed

# target time of a task, s: shorter tasks make more files, and longer ones lose more work if a process of the executor
# dies
CHUNK_SECONDS = 5.0
# number of runs of a task: while the time of a run is unknown, and the max number
FIRST_CHUNK, MAX_CHUNK = 8, 1000
TASKS_PER_ENGINE = 3  # tasks submitted at a time, per process of the executor
TASKS_PER_MERGE = 200  # number of tasks after which shards are merged, because many files are slow to read


@dataclass
class Tally:
    """Counts of a sweep without notebooks. `mean`: mean time of a run in the task that ended last, s.

    `longest`: time of the longest run, s. `failed`: errors of runs that failed, by name.
    """

    done: int = 0
    mean: float = math.nan
    longest: float = 0.0
    failed: dict[str, str] = field(default_factory=dict)

    def chunk(self) -> int:
        """Return how many runs the next task should have."""
        if math.isnan(self.mean):
            return FIRST_CHUNK
        return min(max(int(CHUNK_SECONDS / max(self.mean, 1e-9)), 1), MAX_CHUNK)


@dataclass(eq=False)
class ChunkTask(Task):
    """Task of several runs of a sweep. `changes`: changes of the base, one entry for each run.

    `mark`: name of the file in which its process writes the number of the run under way.
    """

    plan: Sweep
    folder: Path
    changes: Sequence[Changes]
    tally: Tally
    losses: int = 0
    mark: str = ""

    def submit(self, executor: Executor, order: str) -> Future[Answer]:
        """Submit the task to the executor."""
        self.mark = secrets.token_hex(8)
        plan = {"base": self.plan.base, "engine": self.plan.engine, "cluster": self.plan.cluster}
        fields = {**plan, "changes": self.changes, "mark": self.mark, "expected": self.tally.longest}
        return executor.submit(run_chunk, order, json.dumps(fields))

    def ended(self, answer: Answer) -> Iterable[Task]:
        """Count the runs, after the shard is in place. Return tasks for the runs that were not begun in time."""
        if "shard" in answer:
            name, content = unpack_shard(answer)
            write_file(self.folder / SHARDS / name, content)
        self._under_way()
        self.tally.done += answer.get("done", 0)
        self.tally.failed |= answer.get("failed", {})
        if begun := answer.get("done", 0) + len(answer.get("failed", {})):
            self.tally.mean = answer["seconds"] / begun
            self.tally.longest = max(self.tally.longest, answer["longest"])
        left, size = self.changes[begun:], self.tally.chunk()
        if answer.get("late", "missing" in answer):
            return ()
        return [replace(self, changes=left[at : at + size]) for at in range(0, len(left), size)]

    def lost(self, why: str, begun: bool) -> Iterable[Task]:
        """Return a task of the run under way and one of the others, or a task of each half if that run is unknown.

        A task of one run is returned, unless it was lost too often.
        """
        if (at := self._under_way()) is None and not begun:
            return [self]
        if (size := len(self.changes)) > 1 and at is not None:
            others = [each for number, each in enumerate(self.changes) if number != at]
            return [replace(self, changes=others), replace(self, changes=self.changes[at : at + 1], losses=1)]
        if size > 1:
            parts = self.changes[: size // 2], self.changes[size // 2 :]
            return [replace(self, changes=part) for part in parts]
        self.losses += 1
        if self.losses < MAX_LOSSES:
            return [self]
        item = make_item(self.plan.base, self.changes[0], self.plan.engine, self.plan.cluster)
        why = f"was lost {MAX_LOSSES} times, the last time with: {why}"
        spec = json.dumps(item.experiment.model_dump(mode="json"))
        row = shards.ShardRow(item.name, item.key, "failed", why, 0.0, "", spec)
        content = shards.encoded(shards.table_of([row]))
        write_file(self.folder / SHARDS / f"{secrets.token_hex(8)}{shards.SUFFIX}", content)
        self.tally.failed[item.name] = why
        return []

    def _under_way(self) -> int | None:
        """Return the number of the run that was under way when the process died, or None if it is unknown.

        Its file is removed, because a folder with a file for each task of a sweep is slow to read.
        """
        mark = self.folder / ATTEMPTS / self.mark
        with suppress(OSError, ValueError):
            text = read_text(mark)
            mark.unlink()
            return int(text)
        return None


class Wanted(NamedTuple):
    """Chosen runs of a sweep."""

    todo: array[int]  # numbers of the runs that remain
    before: int  # number of chosen runs that are done
    total: int  # number of all chosen runs
    own: list[Item]  # an example run for each combination of user-defined code


def wanted(plan: Sweep, folder: Path, only: Sequence[str]) -> Wanted:
    """Check every run, without storing it. Return which runs are to be done.

    Raises `SettingError` for the first run that cannot start, and for a folder with the runs of another sweep.
    """
    states = shards.states(folder) | {path.name[-KEY_DIGITS:]: "done" for path in folder.glob(f"*/{TRACE}")}
    todo, before, chosen, left, known = array("l"), 0, 0, set(only), not states
    own: dict[tuple[str, ...], Item] = {}
    for number, item in plan.numbered():
        known = known or item.key in states
        if only and not {item.name, item.key} & set(only):
            continue
        left -= {item.name, item.key}
        chosen += 1
        if names := tuple(source.name for source in sources_of(item.experiment)):
            own.setdefault(names, item)
        if states.get(item.key) == "done":
            before += 1
        else:
            todo.append(number)
    if left:
        raise SettingError(f"only = {min(left)!r}: the sweep has no such run; `--dry-run` lists them")
    if not known:
        raise another_sweep(folder)
    return Wanted(todo, before, chosen, list(own.values()))


def _changes(plan: Sweep, numbers: array[int]) -> Iterator[Changes]:
    """Yield the changes of the runs with these numbers. `numbers`: ascending."""
    every, at = plan.combinations(), 0
    for number in numbers:
        yield next(islice(every, number - at, None))
        at = number + 1


def run_chunks(dispatcher: Dispatcher, plan: Sweep, runs: Wanted, tally: Tally) -> None:
    """Run a sweep without notebooks, count its runs, and merge its shards at the end.

    Raises the errors of `Dispatcher.work`.
    """
    (dispatcher.folder / SHARDS).mkdir(exist_ok=True)
    dispatcher.per_engine, dispatcher.min_submitted = TASKS_PER_ENGINE, 1
    dispatcher.counts = lambda: Counter(done=tally.done, failed=len(tally.failed))
    left = _changes(plan, runs.todo)

    def tasks() -> Iterator[Task]:
        for number, part in enumerate(iter(lambda: list(islice(left, tally.chunk())), []), 1):
            yield ChunkTask(plan, dispatcher.folder, part, tally)
            if number % TASKS_PER_MERGE == 0:
                shards.merge(dispatcher.folder)

    try:
        dispatcher.work(tasks(), runs.before, runs.total)
    finally:
        shards.merge(dispatcher.folder)


def restored(path: Path, plan: Sweep, notebook: Path) -> Path:
    """Repeat a run of a sweep without notebooks, and write its folder, notebook and page. Return the folder.

    `path`: FOLDER/NAME. `plan`: the sweep. Its engine and cluster are used, since shards are not signed. Raises
    `SettingError` if the run does not exist or is of another engine or cluster, and `RunError` if its rounds differ
    from the sweep's in any bit.
    """
    folder, name = path.parent.resolve(), path.name
    if (row := shards.find(folder, name)) is None:
        raise SettingError(
            f"run = {str(path)!r}: is not a run of a sweep without notebooks; `workbench runs` lists them"
        )
    used = plan.engine, cluster_of(plan.engine, plan.cluster)
    if (row.get("engine") or "sim", row.get("cluster") or "") != used:
        raise SettingError(
            f"run = {str(path)!r}: its engine or cluster is not that of the sweep; run it again"
        )
    item = Item({}, Experiment(**row["spec"]), *used, name)
    if item.key != row["key"]:
        raise SettingError(f"run = {str(path)!r}: its user-defined code has changed since; run it again")
    (folder / ATTEMPTS).mkdir(exist_ok=True)
    # a sweep deletes the attempts in its folder
    with alone(folder), TemporaryDirectory(dir=folder / ATTEMPTS, ignore_cleanup_errors=True) as made:
        attempt = Path(made)
        write_script(folder)
        with Kernels(1, code=own_of([item]), allowed=allowed()) as kernels:
            status = NotebookRunner(notebook, attempt, kernels, Semaphore()).run(item)
        _check(status, attempt / name, row)
        renamed(status, attempt / name, folder / name)
        publish(attempt / name, folder / name)
    return folder / name


def _check(status: Status, made: Path, row: dict[str, Any]) -> None:
    """Raise `RunError` if state or rounds of a run differ from those in its shard."""
    if status.state != "done":
        raise RunError(f"{made.name}: {status.error}")
    again, known = Trace.load(made / TRACE).columns, row["curves"]
    other = [name for name in known if not _same(np.asarray(again.get(name, ())), known[name])]
    if other:
        raise RunError(
            f"{made.name}: {other[0]} differs from the sweep's; it ran with other versions, or on another CPU"
        )


def _same(one: Any, other: Any) -> bool:
    return one.dtype == other.dtype and one.tobytes() == other.tobytes()
