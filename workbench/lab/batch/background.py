"""Sweeps in their own process: start, watch, stop and resume them from any kernel, by their folder.

`python -m workbench.lab.batch.background` reads one JSON object from its input (see `_begin`), runs the sweep and
ends. All state is in the folder: observers read `sweep.json` and the runs' `status.json`, and a stop request is a
file there.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from workbench.analysis.tables import shards
from workbench.analysis.tables.status import Status, attempts, is_running, read_plan, run_names
from workbench.analysis.tables.table import Runs, runs
from workbench.core.base.by_value import register
from workbench.core.base.errors import RunError
from workbench.core.base.files import write_file
from workbench.core.base.plugins import registered
from workbench.core.base.reading import read_text
from workbench.core.base.settings import SettingError, check_writable, path_of
from workbench.core.base.text import duration, read_json
from workbench.core.base.trust import limit_to
from workbench.core.trace.layout import ATTEMPTS, HOSTS, LINK, PLAN, SEARCH_STATE, STOP, SWEEP_LOG
from workbench.lab.batch.executors import ExecutorSettings, executor_of
from workbench.lab.batch.folders import allowed, opened, own_of
from workbench.lab.batch.run import NOTEBOOK, check_options, named, note, room, sweep
from workbench.lab.batch.sharded import wanted
from workbench.lab.batch.sweeps import Sweep

MAX_SHOWN_RUNS = 3  # max number of active runs that are named for each host


@dataclass(frozen=True)
class Progress:
    """State of a sweep.

    `state`: starting, running, drawing (the notebooks' pictures), stopping, done (all runs are), failed (some runs,
    or the sweep itself) or stopped (runs are missing). `counts`: state -> number of runs. `total`: number of runs; for
    a search, the max number. `left`: estimated s until the end, NaN if unknown. `failures`: name of a run -> reason.
    `found`: findings of a search. `hosts`: host -> names of its runs under way, if hosts share the folder. `ended_by`:
    host -> number of runs that have ended since the start. `link`: address of the executor's own dashboard, or "".

    >>> print(Progress("running", {"done": 3, "running": 1}, 10, 12.0))
    running: 3 of 10 runs done, 1 running; about 12 s left
    """

    state: str
    counts: Mapping[str, int]
    total: int
    left: float = math.nan
    failures: Mapping[str, str] = field(default_factory=dict)
    found: str = ""
    hosts: Mapping[str, list[str]] = field(default_factory=dict)
    link: str = ""
    ended_by: Mapping[str, int] = field(default_factory=dict)

    @property
    def share(self) -> float:
        """Share of the runs that have ended. It is 1 if a search is complete."""
        over = self.counts.get("done", 0) + self.counts.get("failed", 0)
        return 1.0 if self.state == "done" else over / max(self.total, 1)

    def __str__(self) -> str:
        texts = [f"{self.counts.get('done', 0)} of {'at most ' * bool(self.found)}{self.total} runs done"]
        texts += [
            f"{n} {state}" for state, n in self.counts.items() if n and state not in ("done", "missing")
        ]
        left = f"; about {duration(self.left)} left" if math.isfinite(self.left) else ""
        return f"{self.state}: {', '.join(texts)}{left}"


class SweepRun:
    """Sweep in its own process, running or ended. As a cell's value, it is shown live.

    `folder`: folder of the sweep. Every method may be called from any kernel that can read the folder.

    >>> import tempfile
    >>> SweepRun(Path(tempfile.mkdtemp())).state
    'done'
    """

    def __init__(self, folder: Path, process: subprocess.Popen[bytes] | None = None) -> None:
        self.folder, self._process = folder, process
        self._done: set[str] = set()

    def progress(self) -> Progress:
        """Read the current state from the folder."""
        noted, alive = read_plan(self.folder), self._alive()
        counted, failures = shards.counts(self.folder)
        states, hosts = Counter[str](counted), dict[str, list[str]]()
        begun = attempts(self.folder) if alive else {}
        for name in run_names(self.folder):
            if name in self._done:
                states["done"] += 1
                continue
            status = Status.read(self.folder / name) or begun.get(name) or Status("missing")
            state = "unfinished" if status.state == "running" and not alive else status.state
            states[state] += 1
            if state == "running":
                hosts.setdefault(str(status.host.get("name", "")), []).append(name)
            if state == "done":
                self._done.add(name)
            elif state == "failed":
                failures[name] = status.error
        total = max(int(noted.get("total", 0)), sum(states.values()))
        if counted and total > sum(states.values()):
            states["missing"] = total - sum(states.values())
        found = self.found
        state = self._state(alive, states, bool(found.get("over")))
        if state == "failed" and not failures:
            failures[self.folder.name] = self._last_line()
        left = _left(noted, states, total) if state == "running" else math.nan
        text = str(found.get("text", found.get("words", "")))
        link, ended_by = (self._link(), self._ended_by()) if alive else ("", {})
        return Progress(state, dict(states), total, left, failures, text, hosts, link, ended_by)

    def _ended_by(self) -> dict[str, int]:
        found = _fields(self.folder / ATTEMPTS / HOSTS)
        return {host: runs for host, runs in found.items() if isinstance(runs, int)}

    def _link(self) -> str:
        with suppress(OSError):
            return read_text(self.folder / ATTEMPTS / LINK)
        return ""

    def _alive(self) -> bool:
        begins = self._process is not None and self._process.poll() is None
        return begins or is_running(self.folder)

    def _state(self, alive: bool, states: Mapping[str, int], over: bool) -> str:
        if alive and (self.folder / STOP).exists():
            return "stopping"
        if alive and not is_running(self.folder):
            return "starting"
        if alive:
            ended = states and set(states) <= {"done", "failed"} and not (self.folder / SEARCH_STATE).exists()
            return "drawing" if over or ended else "running"
        if states.get("failed") or (self._process is not None and self._process.poll() == 2):
            return "failed"
        missing = sum(n for state, n in states.items() if state != "done")
        searching = (self.folder / SEARCH_STATE).exists() and not over
        return "stopped" if missing or searching else "done"

    def _last_line(self) -> str:
        """Return the last line of the log of the sweep's process. Errors of single runs are stored with the runs."""
        log = self.folder / SWEEP_LOG
        lines = read_text(log, errors="replace").split("\n") if log.is_file() else []
        return next((line for line in reversed(lines) if line.strip()), "it ended without a word")

    @property
    def state(self) -> str:
        """State of the sweep, one of those of `Progress`."""
        return self.progress().state

    @property
    def found(self) -> dict[str, Any]:
        """Findings of a search so far: text, whether it is complete, and numbers. Empty without a search."""
        return _fields(self.folder / SEARCH_STATE)

    def stop(self) -> None:
        """Ask the sweep to stop, and return at once. Unfinished runs are marked as interrupted."""
        if self._alive():
            # with the process id, the request is obeyed even by a process that has not begun yet (see `run._meant`)
            whom = "" if self._process is None else str(self._process.pid)
            write_file(self.folder / STOP, whom)

    def resume(self, jobs: int | None = None, pictures: bool = True, trust: bool = False) -> SweepRun:
        """Run missing, interrupted and failed runs. Raises `SettingError` if the sweep is running.

        `trust`: as in `wb.batch.sweep`.
        """
        if self._alive():
            raise SettingError(
                f"folder = {str(self.folder)!r}: the sweep is under way; stop it, or wait for its end"
            )
        jobs = jobs or int(read_plan(self.folder).get("jobs", 1))
        again = start(self.folder, jobs=jobs, pictures=pictures, trust=trust)
        self._process = again._process
        return self

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the sweep has ended, at most `timeout` seconds. Return whether it has ended."""
        until = math.inf if timeout is None else time.monotonic() + timeout
        while self._alive() and time.monotonic() < until:
            time.sleep(0.1)
        return not self._alive()

    def runs(self, target: float | None = None, metric: str = "loss") -> Runs:
        """Read the table of all runs that are done, like `wb.runs`."""
        return runs(self.folder, target=target, metric=metric, progress=False)

    def __repr__(self) -> str:
        p = self.progress()
        lines = [f"{self.folder}: {p}", *([p.found] if p.found else [])]
        lines += [f"  {text}" for text in host_lines(p)]
        lines += [f"  dashboard of the executor: {p.link}"] if p.link else []
        return "\n".join(lines + [f"  {text}" for text in reasons(p.failures)])

    def _ipython_display_(self) -> None:
        from IPython.display import display

        display(registered("workbench.displays", "SweepRun")(self))  # type: ignore[no-untyped-call]


def reasons(failures: Mapping[str, str]) -> list[str]:
    """Return why runs failed, each reason once: with its run, or with the number of its runs.

    >>> reasons({"a": "QuorumLost", "b": "Diverged", "c": "Diverged"})
    ['a: QuorumLost', '2 runs, such as b: Diverged']
    """
    names: dict[str, list[str]] = {}
    for name, why in failures.items():
        names.setdefault(why, []).append(name)
    return [f"{f'{len(n):,} runs, such as ' * (len(n) > 1)}{n[0]}: {why}" for why, n in names.items()]


def _fields(path: Path) -> dict[str, Any]:
    with suppress(OSError, SettingError):
        return read_json(path)
    return {}


def host_lines(progress: Progress) -> list[str]:
    """Return one sentence for each host, if there are several: its runs under way, and how many have ended.

    >>> host_lines(Progress("running", {}, 9, hosts={"w1": ["seed=1"]}, ended_by={"w1": 3, "w2": 4}))
    ['w1: 1 run under way (seed=1), 3 ended', 'w2: 4 ended']
    """
    names = sorted({*progress.hosts, *progress.ended_by})
    return [f"{host}: {', '.join(_does(progress, host))}" for host in names] if len(names) > 1 else []


def _does(progress: Progress, host: str) -> Iterator[str]:
    if runs := progress.hosts.get(host):
        more = ", ..." if len(runs) > MAX_SHOWN_RUNS else ""
        yield f"{len(runs)} run{'s' * (len(runs) > 1)} under way ({', '.join(runs[:MAX_SHOWN_RUNS])}{more})"
    if host in progress.ended_by:
        yield f"{progress.ended_by[host]} ended"


def _left(noted: Mapping[str, Any], states: Mapping[str, int], total: int) -> float:
    """Return the estimated remaining seconds, at the average speed since the sweep's process began."""
    over = states.get("done", 0) + states.get("failed", 0)
    since, ended = time.time() - float(noted.get("begun", math.nan)), over - int(noted.get("before", 0))
    return (total - over) * since / ended if ended > 0 else math.nan


def start(
    plan: Sweep | Mapping[str, Any] | str | Path,
    folder: str | Path | None = None,
    *,
    jobs: int = 1,
    timeout: float | None = None,
    fresh: bool = False,
    notebook: str | Path = NOTEBOOK,
    pictures: bool = True,
    trust: bool = False,
    walltime: float | None = None,
) -> SweepRun:
    """Start a sweep in its own process and return at once. The sweep continues if this kernel ends.

    `plan`, `folder`, `jobs`, `timeout`, `fresh`, `notebook`, `pictures`, `trust`, `walltime`: as in `wb.batch.sweep`.
    As a cell's value the sweep is shown live: means with bands, the time left, failures, Stop and Resume.

    Raises `SettingError` if a run of the plan is invalid, or if a sweep is running in the folder.

    >>> import tempfile
    >>> where = tempfile.mkdtemp() + "/two"
    >>> two = {"base": {"rounds": 3, "workers": 4}, "grid": {"scheme": ["UMW", "SGD"]}}
    >>> sweep = start(two, where, pictures=False)
    >>> sweep.wait(300), sweep.progress().counts
    (True, {'done': 2})
    """
    limits, flags = {"timeout": timeout, "walltime": walltime}, {"fresh": fresh, "pictures": pictures}
    check_options(jobs, limits, flags)
    options = {"jobs": jobs, "notebook": str(path_of(notebook, "notebook").resolve()), **limits, **flags}
    with opened(plan, folder, trust) as (chosen, target):
        use = executor_of(chosen.executor)
        if chosen.notebooks and isinstance(use, ExecutorSettings) and use.kind == "local":
            room(use.engines or jobs)
        runs = None if chosen.notebooks else wanted(chosen, target, ())
        items = named(chosen.items(), target) if runs is None else []
        own = own_of(items if runs is None else runs.own)
        order = {"own": own, "allowed": allowed(), "folder": str(target), "options": options}
        check_writable(target, "folder", target)
        if is_running(target):
            why = "a sweep is running in it; wb.batch.attach follows it"
            raise SettingError(f"folder = {str(target)!r}: {why}")
        (target / STOP).unlink(missing_ok=True)
        counts = () if runs is None else (runs.before, runs.total)
        note(chosen, target, items, jobs, *counts)  # observers that attach now see the list of runs
        order["plan"] = chosen.model_dump(mode="json", by_alias=True, exclude_unset=True)
        return SweepRun(target, _begin(order, target))


def _begin(order: Mapping[str, Any], folder: Path) -> subprocess.Popen[bytes]:
    """Start the sweep's process in its own session, so that it survives this kernel, and Ctrl-C does not reach it."""
    command = [sys.executable, "-P", "-m", "workbench.lab.batch.background"]
    with (folder / SWEEP_LOG).open("wb") as log:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True
        )
    assert process.stdin is not None
    with process.stdin as pipe:
        pipe.write(json.dumps(order).encode())
    return process


def attach(folder: str | Path) -> SweepRun:
    """Return the sweep of a folder, to watch or stop it. It may be running or over, and started anywhere.

    Raises `SettingError` if the folder has no sweep, or if its plan is damaged.

    >>> attach("no-sweep-here")
    Traceback (most recent call last):
    ...
    workbench.core.base.settings.SettingError: folder = 'no-sweep-here': holds no sweep; give the folder of one
    """
    path = path_of(folder, "folder")
    if not (path / PLAN).is_file() and not is_running(path):
        raise SettingError(f"folder = {str(folder)!r}: holds no sweep; give the folder of one")
    read_plan(path)
    return SweepRun(path)


def main() -> int:
    """Run the sweep that is described on the standard input."""
    order = json.load(sys.stdin)
    try:
        if order["own"]:
            register(order["own"])
        if order["allowed"] is not None:
            limit_to(order["allowed"])
        print(sweep(Sweep(**order["plan"]), order["folder"], progress=False, **order["options"]))
    except KeyboardInterrupt:
        return 130
    except (RunError, ValueError, OSError) as error:
        print(error)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
