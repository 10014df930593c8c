"""Files of a job: a row for each exchange of all ranks, the computing times of ranks, and checkpoints."""

from __future__ import annotations

import csv
import json
import math
import os
import time
import zlib
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from workbench.core.base.errors import RunError
from workbench.core.base.files import atomic_write, private_folder
from workbench.core.base.reading import read_bytes
from workbench.core.base.settings import SettingError

STEPS, TIMES, CHECKPOINT = "steps.csv", "times.csv", "checkpoint.state"
STEP_COLUMNS = ("step", "time", "loss", "answers", "residual", "ranks")
# `seconds`: time from the end of the last exchange to the answer. `cpu`: processor time in this span.
TIME_COLUMNS = ("worker", "step", "seconds", "cpu", "samples", "used")


class State(NamedTuple):
    """Model, optimiser and other state of a rank after a number of steps, as `states.pack` writes it."""

    step: int
    values: bytes | memoryview
    loop: int = 0  # number of the script's loop over batches in which the rank was, from 1


class Recorder:
    """Writer of the files in a job's folder, which may be read during the job. Without a folder, it writes nothing.

    `steps.csv` has a row for each exchange of all ranks, with `time` in s since the start, and the loss of the batch.
    `times.csv` has a row for the first answer of a rank to an exchange. `wb.diagnose` reads it.

    `resumed`: number of steps from which a job continues, or None. Rows of later steps are removed, as these are
    repeated.
    """

    def __init__(self, folder: Path | None, resumed: int | None = None) -> None:
        self.folder, self.start = folder, time.monotonic()
        self._files: dict[str, Any] = {}
        self._answered: dict[int, int] = {}  # rank -> step of its newest row
        if folder is None:
            return
        private_folder(folder)
        if any(folder.iterdir()) and resumed is None:
            raise SettingError(f"--folder = {folder}: is not empty; give a new one, or --resume to continue")
        for name, columns in ((STEPS, STEP_COLUMNS), (TIMES, TIME_COLUMNS)):
            with atomic_write(folder / name) as file:
                file.write(rows_until(folder / name, columns, resumed or 0))
            self._files[name] = (folder / name).open("a", newline="", buffering=1)

    def step(self, event: int, loss: float, residual: float, ranks: Iterable[int]) -> None:
        """Write the row of an exchange that has ended."""
        ranks, seconds = sorted(ranks), round(time.monotonic() - self.start, 6)
        shown = "" if math.isnan(residual) else f"{residual:.6g}"
        self._write(STEPS, (event, seconds, f"{loss:.9g}", len(ranks), shown, " ".join(map(str, ranks))))

    def answer(self, rank: int, event: int, header: dict[str, Any], used: bool) -> None:
        """Write the row of an answer, even of a late one."""
        times = (round(header.get(name, 0.0), 6) for name in ("seconds", "cpu"))
        if event > self._answered.get(rank, 0):
            self._answered[rank] = event
            self._write(TIMES, (rank, event, *times, header.get("samples", 0), int(used)))

    def _write(self, name: str, row: Iterable[Any]) -> None:
        if name in self._files:
            csv.writer(self._files[name]).writerow(row)

    def checkpoint(self, state: State) -> None:
        """Write a checkpoint atomically, with a checksum."""
        if self.folder is not None:
            head = json.dumps({"step": state.step, "loop": state.loop, "crc32": zlib.crc32(state.values)})
            with atomic_write(self.folder / CHECKPOINT) as file:
                file.write(f"{head}\n".encode())
                file.write(state.values)


def rows_until(path: Path, columns: Sequence[str], step: int) -> bytes:
    """Return the header of a table, and the whole rows of its steps up to `step`, if the file exists."""
    rows = read_bytes(path).splitlines(keepends=True)[1:] if path.exists() else []
    place = columns.index("step")
    kept = [row for row in rows if row.endswith(b"\n") and int(row.split(b",")[place]) <= step]
    return b"".join([f"{','.join(columns)}\r\n".encode(), *kept])


def saved_state(folder: Path) -> State | None:
    """Return the state of the last checkpoint, or None without one. Raises `RunError` for a damaged file."""
    path = folder / CHECKPOINT
    if not path.is_file():
        return None
    head, _, values = read_bytes(path).partition(b"\n")
    with suppress(ValueError, KeyError, TypeError):
        fields = json.loads(head)
        if zlib.crc32(values) == fields["crc32"]:
            return State(int(fields["step"]), values, int(fields.get("loop", 0)))
    raise RunError(f"{os.fspath(path)}: is damaged; start again in a new folder")
