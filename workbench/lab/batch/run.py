"""Run a sweep: missing and failed runs, several at a time, with a progress bar and a summary."""

import logging
import os
import secrets
import shlex
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Semaphore
from typing import Any

from workbench.analysis.tables import shards
from workbench.analysis.tables.rows import Place, read
from workbench.analysis.tables.status import Status, alone, another_sweep, write_plan
from workbench.analysis.tables.table import Runs, runs
from workbench.core.base.bar import Bar
from workbench.core.base.files import write_json
from workbench.core.base.reading import read_text
from workbench.core.base.settings import SettingError, check_kind, check_writable, path_of
from workbench.core.trace.layout import NOTEBOOK as EXECUTED
from workbench.core.trace.layout import PLAN, SEARCH_STATE, STOP, TRACE
from workbench.core.trace.trust import sign_code
from workbench.lab.batch.cores import check as check_cores
from workbench.lab.batch.dispatch import Dispatcher, run_notebooks
from workbench.lab.batch.execution import NotebookRunner, literal
from workbench.lab.batch.executors import ExecutorSettings, Given, connected, executor_of
from workbench.lab.batch.folders import allowed, elsewhere, noted, opened, own_of, signed
from workbench.lab.batch.jobs import OTHER_PARAMETERS
from workbench.lab.batch.kernels import Kernels
from workbench.lab.batch.page import illustrate, preload, write_script
from workbench.lab.batch.sharded import Tally, Wanted, restored, run_chunks, wanted
from workbench.lab.batch.sweeps import KEY_DIGITS, Item, Sweep
from workbench.lab.batch.task import Order
from workbench.lab.notebooks import grammar_put_off, shipped
from workbench.mpi.launch.mpiexec import system_limit

# numbers of open files in this process: for each active run (sockets of its kernel), and for everything else
FILES_PER_RUN, SPARE_FILES = 28, 40
NOTEBOOK = shipped("notebooks/run.ipynb")
Work = Callable[[list[Item], int], dict[str, Status]]  # runs to do, and the total number of runs


@dataclass(frozen=True)
class Summary:
    """Result of a sweep.

    before: number of runs that were done already. states: state of every other run, by name. folder: folder of the
    sweep. found: result of a search as text. It also has the reason if requested pictures are missing. counts: number
    of runs in shards by state. Of these runs, `states` has only those that failed.

    >>> Summary(Path("runs"), before=3, states={}).failed
    []
    """

    folder: Path
    before: int
    states: Mapping[str, Status]
    found: str = ""
    counts: Mapping[str, int] = field(default_factory=dict)

    def named(self, *states: str) -> list[str]:
        """Return the names of the runs in one of these states."""
        return [name for name, status in self.states.items() if status.state in states]

    @property
    def failed(self) -> list[str]:
        """Names of the runs that failed."""
        return self.named("failed")

    def runs(self) -> Runs:
        """Read the table of all runs in the folder."""
        return runs(self.folder)

    def __str__(self) -> str:
        """Return counts, then for every failure its name, its reason and how to run it alone."""
        counts = self.counts or Counter(status.state for status in self.states.values())
        texts = [f"{counts[s]} {s}" for s in ("done", "failed", "interrupted", "missing") if counts.get(s)]
        texts += [f"{self.before} done before"] if self.before else []
        lines = [f"{self.folder}: {', '.join(texts) or 'nothing to do'}"]
        for name in self.failed:
            alone = f"workbench sweep {shlex.quote(str(self.folder))} --only {shlex.quote(name)}"
            lines += [f"  {name}", f"    why: {self.states[name].error}", f"    alone: {alone}"]
        if self.named("interrupted", "missing") or self.counts.get("missing"):
            lines.append(f"resume: workbench sweep {shlex.quote(str(self.folder))}")
        lines += [self.found] if self.found else []
        return "\n".join(lines)

    __repr__ = __str__


def sweep(
    plan: Sweep | Mapping[str, Any] | str | Path,
    folder: str | Path | None = None,
    *,
    jobs: int = 1,
    only: str | Sequence[str] = (),
    timeout: float | None = None,
    fresh: bool = False,
    progress: bool = True,
    notebook: str | Path = NOTEBOOK,
    pictures: bool = False,
    trust: bool = False,
    executor: Any = None,
    walltime: float | None = None,
) -> Summary:
    """Run every experiment of a sweep that is not done yet, each in its own notebook unless `notebooks` is false.

    - `plan`: a `Sweep`, a dict of its fields, a SWEEP file, or the folder of an earlier sweep, to resume it.
    - `folder`: folder of the run folders; default: runs/ and the file's name.
    - `jobs`: number of runs at a time.
    - `only`: names of runs, or the digits at their ends; the others are not run.
    - `timeout`: seconds that one cell may take.
    - `fresh`: start every kernel instead of forking it from a preloaded one (Linux only).
    - `progress`: show a bar.
    - `notebook`: notebook to run; it must declare the parameters that `notebooks/run.ipynb` does.
    - `pictures`: put a PNG beside every figure once all runs are over, which takes about a second per run.
    - `trust`: run code that an earlier sweep's folder names and that somebody else has written or changed; needed once.
    - `executor`: a `concurrent.futures.Executor`, a function that makes one, or the fields of `executor:` in a SWEEP
      file. It replaces the plan's executor. Without any executor, kernels of this process run `jobs` runs at a time.
    - `walltime`: seconds from now. A run that is expected to end later is not begun.

    Raises `SettingError` before the first run, if a run of the plan is invalid, or if too few files may be open.
    KeyboardInterrupt: finished runs are kept, unfinished ones are marked, and the summary is printed.

    >>> sweep({"grid": {"scheme": ["UMW"]}}, jobs=0)
    Traceback (most recent call last):
    ...
    workbench.core.base.settings.SettingError: jobs = 0: at least one must run at a time
    """
    flags = {"fresh": fresh, "progress": progress, "pictures": pictures}
    check_options(jobs, {"timeout": timeout, "walltime": walltime}, flags)
    names = [only] if isinstance(only, str) else only
    if not isinstance(names, Sequence) or not all(isinstance(name, str) for name in names):
        raise SettingError(f"only = {only!r:.60}: give names of runs, in quotes")
    notebook = path_of(notebook, "notebook")
    with opened(plan, folder, trust) as (chosen, target):
        use = executor_of(chosen.executor if executor is None else executor)
        local = isinstance(use, ExecutorSettings) and use.kind == "local"
        if not local and fresh:
            raise SettingError("fresh = True: kernels of an executor are forked; drop one of the two")
        jobs = (use.engines or jobs) if isinstance(use, ExecutorSettings) else jobs
        batch = Batch(chosen, target, names, notebook, jobs, timeout, fresh, progress, pictures, walltime)
        if not chosen.notebooks:
            return _sharded(batch, use)
        return _swept(batch) if local else _dispatched(batch, use)


@dataclass(frozen=True)
class Batch:
    """Sweep with its folder and the options of `sweep`, checked."""

    plan: Sweep
    folder: Path
    only: Sequence[str]
    notebook: Path
    jobs: int
    timeout: float | None
    fresh: bool
    progress: bool
    pictures: bool
    walltime: float | None

    def items(self) -> tuple[list[Item], list[Item]]:
        """Return all runs, and those that `only` selects."""
        items = named(self.plan.items(), self.folder)
        return items, _chosen(items, self.only)

    def order(self, own: list[Item]) -> Order:
        """Return the fields that all tasks of the sweep share. `own`: runs with user-defined code."""
        until = None if self.walltime is None else time.time() + self.walltime
        where = (str(self.folder.resolve()), secrets.token_hex(16), str(Path.cwd()))
        limits: dict[str, Any] = {"cores": self.plan.cores, "timeout": self.timeout, "until": until}
        return Order(*where, own=own_of(own), allowed=allowed(), **limits)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Lock the folder against a second sweep. A request to stop an earlier one is removed."""
        check_writable(self.folder, "folder", self.folder)
        with alone(self.folder):
            if not _meant(self.folder / STOP):
                (self.folder / STOP).unlink(missing_ok=True)
            yield


def _swept(batch: Batch) -> Summary:
    """Run a sweep in kernels of this process."""
    if batch.plan.cores is not None:
        check_cores(batch.plan.cores)
    getting_ready, limit = room(batch.jobs), Semaphore(batch.jobs)
    if batch.walltime is not None:
        getting_ready = batch.jobs  # a kernel that waited for its turn could begin its run too late
    threads = max(1, (os.cpu_count() or 1) // batch.jobs)
    items, chosen = batch.items()
    order = batch.order(chosen)
    with Kernels(threads, batch.fresh, order.own, order.allowed) as kernels:
        if not all(Status.done(batch.folder / item.name) for item in chosen):
            kernels.warm()
            _check(batch.notebook, {name for item in chosen for name in item.spec})
        where = batch.notebook.resolve(), batch.folder.resolve()
        runner = NotebookRunner(*where, kernels, limit, batch.timeout, batch.plan.cores)
        work = partial(_work, runner, order, getting_ready=getting_ready, progress=batch.progress)
        return _at_work(batch, items, chosen, work)


def _dispatched(batch: Batch, executor: Given | ExecutorSettings) -> Summary:
    """Run a sweep on an executor."""
    items, chosen = batch.items()
    _check(batch.notebook, {name for item in chosen for name in item.spec})
    order = replace(
        batch.order(chosen), notebook=read_text(batch.notebook), path=str(batch.notebook.resolve())
    )
    with connected(executor, batch.jobs) as connection:
        dispatcher = Dispatcher(order, connection, batch.progress)

        def work(todo: list[Item], total: int) -> dict[str, Status]:
            states = dict.fromkeys((item.name for item in todo), Status("missing"))
            try:
                if todo:
                    run_notebooks(dispatcher, todo, total, states)
            except KeyboardInterrupt:
                print(Summary(batch.folder, total - len(todo), states))
                raise
            return states

        return _at_work(replace(batch, jobs=connection.engines or batch.jobs), items, chosen, work)


def _sharded(batch: Batch, executor: Given | ExecutorSettings) -> Summary:
    """Run a sweep without notebooks."""
    if batch.timeout is not None or batch.pictures:
        name = "timeout" if batch.timeout is not None else "pictures"
        raise SettingError(f"{name}: is of notebooks, and notebooks = False; drop one of the two")
    plan, target = batch.plan, batch.folder
    with connected(executor, batch.jobs) as connection, batch.alone():
        runs = wanted(plan, target, batch.only)
        note(plan, target, [], connection.engines or batch.jobs, runs.before, runs.total)
        dispatcher = Dispatcher(batch.order(runs.own), connection, batch.progress)
        tally = Tally()
        try:
            if runs.todo:
                run_chunks(dispatcher, plan, runs, tally)
        except KeyboardInterrupt:
            print(_tallied(target, runs, tally))
            raise
    return _tallied(target, runs, tally)


def _tallied(target: Path, runs: Wanted, tally: Tally) -> Summary:
    states = {name: Status("failed", error=why) for name, why in tally.failed.items()}
    missing = len(runs.todo) - tally.done - len(states)
    counts = {"done": tally.done, "failed": len(states), "missing": missing}
    return Summary(target, runs.before, states, counts=counts)


def restore(run: str | Path, trust: bool = False) -> Path:
    """Write the folder, the notebook and the page of one run of a sweep without notebooks. Return the folder.

    The run is executed again from its settings. `run`: path of its folder, as in the table of runs. `trust`: as in
    `sweep`. Raises `SettingError` if the run does not exist or its sweep is running, and `RunError` if its rounds
    differ from the sweep's.

    >>> restore("results/first")
    Traceback (most recent call last):
    workbench.core.base.settings.SettingError: run = 'results/first': is not in a sweep's folder; give FOLDER/RUN
    """
    path = path_of(run, "run")
    if not (path.parent / PLAN).is_file():
        raise SettingError(f"run = {str(run)!r}: is not in a sweep's folder; give FOLDER/RUN")
    with opened(path.parent, None, trust) as (plan, _):
        return path if (path / TRACE).is_dir() else restored(path, plan, NOTEBOOK)


def _at_work(batch: Batch, items: list[Item], chosen: list[Item], work: Work) -> Summary:
    """Run all runs that are not done, while no other sweep uses the folder."""
    with batch.alone():
        if batch.plan.search is not None and not batch.only:
            summary = _searched(batch, work)
        else:
            todo = [item for item in chosen if not Status.done(batch.folder / item.name)]
            before = len(chosen) - len(todo)
            note(batch.plan, batch.folder, items, batch.jobs, before, len(items))
            summary = Summary(batch.folder, before, work(todo, len(chosen)))
        why = illustrate(sorted(batch.folder.glob(f"*/{EXECUTED}"))) if batch.pictures else ""
        return replace(summary, found="\n".join(filter(None, (summary.found, why))))


def named(items: Iterable[Item], target: Path) -> list[Item]:
    """Return the items. A run with a folder in `target` keeps its name, even if runs are named otherwise now."""
    known = {path.name[-KEY_DIGITS:]: path.name for path in target.iterdir()} if target.is_dir() else {}
    return [replace(item, known_as=known.get(item.key, "")) for item in items]


def note(plan: Sweep, target: Path, items: Sequence[Item], jobs: int, *counts: int) -> None:
    """Write the list of runs, and the data from which the remaining time is estimated.

    `counts`: numbers of runs that are done already, and of all runs; without them, 0 and the length of the list, or
    the budget of a search. Raises `SettingError` if the folder has only runs of another sweep.
    """
    if items and shards.files(target) and shards.states(target).keys().isdisjoint(item.key for item in items):
        raise another_sweep(target)
    before, total = counts or (0, len(items) if plan.search is None else plan.search.budget)
    now = {"begun": time.time(), "before": before, "total": total, "jobs": jobs}
    write_plan(target, noted(plan), [item.name for item in items], **now)
    sign_code("sweep", target, signed(plan), needed=bool(elsewhere(plan)))


def _searched(batch: Batch, work: Work) -> Summary:
    """Run the requests of a search, until it is complete, or a run that it needs has failed."""
    plan, target = batch.plan, batch.folder
    assert plan.search is not None
    values, states, before = Values(plan, target), dict[str, Status](), None
    while True:
        step = plan.next(values)
        items = [plan.item(changes) for changes in step.runs]
        todo = [item for item in items if not Status.done(target / item.name)]
        before = len(items) - len(todo) if before is None else before
        note(plan, target, items, batch.jobs, before, plan.search.budget)
        fields = {"text": step.text, "over": step.over, **step.numbers}
        write_json(target / SEARCH_STATE, fields)
        if step.over or not todo:
            return Summary(target, before, states, step.text)
        states |= work(todo, len(items))
        if failed := [item.name for item in todo if states[item.name].state != "done"]:
            why = f"{step.text}; the search waits for {len(failed)} of its runs, which did not come to their end"
            write_json(target / SEARCH_STATE, {**fields, "text": why})
            return Summary(target, before, states, why)


class Values:
    """Results of the runs in a sweep's folder, each read once."""

    def __init__(self, plan: Sweep, folder: Path) -> None:
        assert plan.search is not None
        self.search, self.folder = plan.search, folder
        self._known: dict[str, float] = {}

    def __call__(self, item: Item) -> float | None:
        """Return a run's result, or None if the run is not done."""
        if item.key not in self._known:
            if not Status.done(self.folder / item.name):
                return None
            s = self.search
            home = self.folder / item.name
            row = read(Place(item.name, home, home / TRACE), s.target, s.metric)
            if s.of not in row.results:
                why = row.error or f"it has {', '.join(row.results)}"
                raise SettingError(f"search.of = {s.of!r}: {item.name} has no such result; {why}")
            self._known[item.key] = float(row.results[s.of])
        return self._known[item.key]


def check_options(jobs: int, limits: Mapping[str, float | None], flags: Mapping[str, bool]) -> None:
    """Raise `SettingError` for invalid options."""
    check_kind("jobs", jobs, int)
    if jobs < 1:
        raise SettingError(f"jobs = {jobs}: at least one must run at a time")
    for name, limit in limits.items():
        check_kind(name, 1.0 if limit is None else limit, float)
        if limit is not None and not limit > 0:
            raise SettingError(f"{name} = {limit}: take more than 0 s, or None for as long as it takes")
    for name, flag in flags.items():
        check_kind(name, flag, bool)


def room(jobs: int) -> int:
    """Return how many runs may be active at a time: twice `jobs`, if enough files may be open.

    One kernel starts while another computes. Raises `SettingError` if even `jobs` runs need more files than allowed,
    because libzmq would end this process.
    """
    if (limit := system_limit()) is None:
        return 2 * jobs
    there = sum(1 for _ in Path("/dev/fd").iterdir())
    most = (limit - there - SPARE_FILES) // FILES_PER_RUN
    if most < jobs:
        needed = there + SPARE_FILES + FILES_PER_RUN * jobs
        fewer = f"take jobs = {most}, or " if most > 0 else ""
        raise SettingError(
            f"jobs = {jobs}: needs {needed} open files and {limit} are allowed; {fewer}raise it: ulimit -n {needed}"
        )
    return min(2 * jobs, most)


def _check(notebook: Path, needed: set[str]) -> None:
    if missing := sorted({*needed, *OTHER_PARAMETERS} - set(parameters(notebook))):
        raise SettingError(
            f"notebook = {str(notebook)!r}: declares no parameter {', '.join(missing)}; give them defaults in its"
            " cell with the tag 'parameters'"
        )


def parameters(notebook: Path) -> list[str]:
    """Return the names that a notebook declares in its parameters cell."""
    with grammar_put_off():
        import papermill

    if not notebook.is_file():
        raise SettingError(
            f"notebook = {str(notebook)!r}: no such file; sweeps run from a clone of the repository"
        )
    return list(papermill.inspect_notebook(literal(notebook)))


def _meant(stop: Path) -> bool:
    """Return whether a request to stop is meant for this process. Requests for earlier processes are ignored."""
    with suppress(OSError):
        return read_text(stop) == str(os.getpid())
    return False


def _chosen(items: list[Item], only: Iterable[str]) -> list[Item]:
    """Return all items, or those selected by full name or by final digits."""
    by_name = {name: item for item in items for name in (item.name, item.key)}
    for name in only:
        if name not in by_name:
            close = get_close_matches(name, [item.name for item in items], n=1)
            guess = f"did you mean {close[0]!r}? " if close else ""
            raise SettingError(f"only = {name!r}: the sweep has no such run; {guess}`--dry-run` lists them")
    return list({by_name[name].key: by_name[name] for name in only}.values()) or items


def _work(
    runner: NotebookRunner, order: Order, todo: list[Item], total: int, getting_ready: int, progress: bool
) -> dict[str, Status]:
    """Run items, a limited number at a time. On Ctrl-C, end the running ones, mark them, and report the state."""
    from papermill.iorw import local_file_io_cwd

    if not todo:
        return {}
    write_script(runner.folder)
    # errors that papermill logs would disturb the progress bar
    logging.getLogger("papermill").addHandler(logging.NullHandler())
    bar = Bar("runs", "run", total, progress, done=total - len(todo))
    # Papermill changes the working folder while it reads and writes files. This context restores it.
    with bar, local_file_io_cwd(), ThreadPoolExecutor(getting_ready, "workbench-run") as pool:
        futures: dict[str, Future[Status]] = {}
        try:
            if not runner.kernels.fresh:  # the fork server imports in the meantime
                with suppress(Exception):  # errors of pages are reported with each run
                    preload(runner.notebook)
            for item in todo:
                futures[item.name] = pool.submit(_timely, runner, order, item)
            _watch(futures.values(), bar, total - len(todo), runner.folder / STOP)
        except KeyboardInterrupt:
            pool.shutdown(wait=False, cancel_futures=True)
            runner.kernels.stop()
            pool.shutdown()
            bar.close()
            states = {item.name: _state(futures.get(item.name)) for item in todo}
            print(Summary(runner.folder, total - len(todo), states))
            raise
    return {name: _state(future) for name, future in futures.items()}


def _timely(runner: NotebookRunner, order: Order, item: Item) -> Status:
    """Run an item, unless it would end too late."""
    if late := order.too_late():
        return Status("missing", error=late)
    status = runner.run(item)
    order.took(status.seconds or 0.0)
    return status


def _state(future: Future[Status] | None) -> Status:
    return Status("missing") if future is None or future.cancelled() else future.result()


def _watch(futures: Collection[Future[Status]], bar: Bar, before: int, stop: Path) -> None:
    failed, ended = 0, SimpleQueue[Future[Status]]()
    for future in futures:
        future.add_done_callback(ended.put)
    left = len(futures)
    bar.note("failed=0")  # shown at once, before any run is over
    while left:
        if stop.exists():  # a request to stop, from any process
            raise KeyboardInterrupt
        # With a time limit, because a Ctrl-C just before the thread sleeps is noticed only when it wakes up.
        with suppress(Empty):
            failed += ended.get(timeout=0.5).result().state == "failed"
            left -= 1
            bar.note(f"failed={failed}")
            bar.update(before + len(futures) - left)
