"""Disturbances of a sweep's engines at random moments, and comparison of a sweep with an undisturbed one."""

from __future__ import annotations

import json
import random
import re
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

import psutil
import pyarrow.parquet as pq

import workbench as wb
from workbench.analysis.tables import shards
from workbench.core.trace.layout import NOTEBOOK, PAGE, STATUS

WAIT_S = (0.3, 2.5)  # s between two disturbances, least and most
PAUSE_S = (0.5, 8.0)  # s of a short pause, and of one after which the controller counts the engine as dead
DEAD_AFTER_BEATS = 4  # heartbeats of 1 s
# columns of a table of runs that differ from sweep to sweep
UNEQUAL_COLUMNS = ("folder", "when", "seconds", "host")


def engines() -> list[psutil.Process]:
    """Return the engines of ipyparallel below this process."""
    return _with("ipyparallel.engine")


def workers() -> list[psutil.Process]:
    """Return the workers of joblib's loky below this process."""
    return _with("joblib.externals.loky.backend.popen_loky_posix")


def _with(word: str) -> list[psutil.Process]:
    return [one for one in psutil.Process().children(recursive=True) if word in _command(one)]


def _command(process: psutil.Process) -> list[str]:
    with suppress(psutil.Error):
        return process.cmdline()
    return []


class Disturber:
    """Thread that kills and pauses processes at random moments, while its block runs.

    `processes`: function that returns the existing ones. `times`: max number of disturbances. `done`: disturbances so
    far, as text. `attempts`: returns whether a process is in a run.
    `hits`: number of disturbances during a run.
    """

    def __init__(
        self,
        processes: Callable[[], list[psutil.Process]],
        times: int,
        seed: int,
        kills: float = 0.5,
        attempts: Callable[[int], bool] = lambda pid: False,
    ) -> None:
        self.attempts = attempts
        self.processes, self.times, self.kills = processes, times, kills
        self.draw, self.done, self.hits = random.Random(seed), list[str](), 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._disturb, daemon=True)

    def __enter__(self) -> Disturber:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join()

    def _disturb(self) -> None:
        while len(self.done) < self.times and not self._over.wait(self.draw.uniform(*WAIT_S)):
            if found := self.processes():
                with suppress(psutil.Error):
                    self._one(self.draw.choice(found))

    def _one(self, victim: psutil.Process) -> None:
        self.hits += self.attempts(victim.pid)
        if self.draw.random() < self.kills:
            victim.send_signal(signal.SIGKILL)
            self.done.append("killed")
            return
        pause = self.draw.choice(PAUSE_S)
        victim.suspend()
        self._over.wait(pause)  # at the end of the sweep, the victim is resumed at once
        self.done.append(f"paused for {pause:g} s")
        victim.resume()


def files_of(folder: Path) -> dict[str, Any]:
    """Return the content of every file of a sweep's runs, by path, without times, hosts and the sweep's folder."""
    return {
        str(path.relative_to(folder)): _content(path, folder)
        for run in sorted(path for path in folder.iterdir() if (path / STATUS).is_file())
        for path in sorted(run.rglob("*"))
        if path.is_file()
    }


def _content(path: Path, folder: Path) -> Any:
    if path.name == STATUS:
        status = json.loads(path.read_text())
        return {name: value for name, value in status.items() if name not in ("seconds", "host")}
    if path.name == NOTEBOOK:
        return [_cell(cell, folder) for cell in json.loads(path.read_text())["cells"]]
    if path.name == PAGE:
        return re.sub(r"cell-id=\w+", "", path.read_text().replace(str(folder), ""))
    return sha256(path.read_bytes()).hexdigest()


def _cell(cell: dict[str, Any], folder: Path) -> str:
    return json.dumps([cell["source"], cell.get("outputs")], sort_keys=True).replace(str(folder), "")


def assert_same(one: Path, other: Path) -> None:
    """Compare table, rounds, models and files of two sweeps."""
    left, right = wb.runs(one).table, wb.runs(other).table
    columns = [name for name in left if name not in UNEQUAL_COLUMNS]
    assert sorted(left) == sorted(right)
    left, right = (table.sort_values("run", ignore_index=True)[columns] for table in (left, right))
    assert left.equals(right), left.compare(right)
    traces = [
        sorted(wb.runs(each).traces(), key=lambda trace: trace.experiment.seed) for each in (one, other)
    ]
    assert all(a.same(b) for a, b in zip(*traces, strict=True))
    rows = [shard_rows(each) for each in (one, other)]
    assert rows[0] == rows[1]
    assert files_of(one) or rows[0]
    assert files_of(one) == files_of(other)


def shard_rows(folder: Path) -> list[str]:
    """Return the whole content of each run in the shards of a sweep, once, without times and hosts."""
    tables = [pq.read_table(path, columns=["run"]) for path in shards.files(folder)]
    names = sorted({name for table in tables for name in table["run"].to_pylist()})
    return [_row(shards.find(folder, name) or {}) for name in names]


def _row(row: dict[str, Any]) -> str:
    curves = {name: values.tobytes() for name, values in row["curves"].items()}
    return repr(
        {name: value for name, value in row.items() if name not in UNEQUAL_COLUMNS} | {"curves": curves}
    )
