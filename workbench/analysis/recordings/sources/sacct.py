"""Output of Slurm's `sacct` with JobID and Elapsed: in columns, or separated by | (-P, -p) or commas."""

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from workbench.analysis.recordings.fields import Fields
from workbench.analysis.recordings.sources import Source
from workbench.core.base.reading import head_of, read_text
from workbench.core.base.settings import SettingError

DAY_S, HOUR_S, MINUTE_S = 86400, 3600, 60  # seconds
DONE = ("", "COMPLETED")  # states of finished tasks, or of a file without states
# [DD-[HH:]]MM:SS as in the manual, or HH:MM:SS as printed, with or without a fraction of a second
_ELAPSED = re.compile(r"(?:(?P<days>\d+)-)?(?:(?P<hours>\d+):)?(?P<minutes>\d+):(?P<seconds>\d+(?:\.\d+)?)")
_JOB = re.compile(
    r"(?P<job>\d+)(?:_(?P<task>\d+)|\+(?P<part>\d+)|_\[(?P<pending>[^\]]*)\])?(?:\.(?P<step>\S+))?"
)
_DASHES = re.compile(r"[\s-]*-[\s-]*")
_SEVERAL = re.compile(r"[,\[]")
_SKIPPED_STEPS = ("batch", "extern", "interactive")
NEEDED = "give sacct -P --format=JobID,JobName,NodeList,State,Elapsed"


class Row(NamedTuple):
    """One row of a file: its line, the job, the task of an array (-1: none), the step ("": the job itself)."""

    line: int
    job: int
    task: int
    step: str
    name: str
    node: str
    state: str
    seconds: float


def seconds_of(text: str) -> float | None:
    """Convert a time of Slurm to seconds, or return None if it is not in one of Slurm's forms.

    >>> seconds_of("1-02:03:04"), seconds_of("00:02:05"), seconds_of("02:05.250"), seconds_of("1-02:05")
    (93784.0, 125.0, 125.25, 86525.0)
    >>> seconds_of("INVALID"), seconds_of("00:61:00")
    (None, None)
    """
    match = _ELAPSED.fullmatch(text)
    if match is None:
        return None
    days, hours, minutes = (int(match[name] or 0) for name in ("days", "hours", "minutes"))
    seconds = float(match["seconds"])
    if seconds >= MINUTE_S or (minutes >= 60 and match["hours"]) or (hours >= 24 and match["days"]):
        return None
    return DAY_S * days + HOUR_S * hours + MINUTE_S * minutes + seconds


def tells(path: Path) -> bool:
    """Return whether the first line of a file has sacct's names JobID and Elapsed."""
    names = _names(head_of(path).partition(b"\n")[0].decode("utf-8", "replace"))
    return bool({"jobid", "jobidraw"} & names) and bool({"elapsed", "elapsedraw"} & names)


def _names(line: str) -> set[str]:
    separator = _separator(line)
    return {name.strip().lower() for name in (line.split(separator) if separator else line.split())}


def _separator(line: str) -> str:
    """Return the separator of the columns in the first line; "" if they have fixed widths."""
    return next((mark for mark in "|," if mark in line), "")


def read(path: Path) -> pd.DataFrame:
    """Return seconds of finished tasks. Raise `SettingError` with the line that is wrong.

    Workers are the tasks of job arrays, and steps the arrays and their numbered steps. Without arrays, workers are the
    nodes of jobs on one node, and a node's jobs are its steps. `attrs["left_out"]` lists the other states.
    """
    every = [*_rows(path)]
    rows, unfinished = [row for row in every if row.state in DONE], {row.state for row in every} - {*DONE}
    names = {(row.job, row.task): row.name for row in rows if not row.step}
    split = {(row.job, row.task) for row in rows if row.step}
    rows = [row for row in rows if row.step or (row.job, row.task) not in split]
    if not rows:
        raise SettingError(f"path = {str(path)!r}: has no task that is COMPLETED")
    placed = _by_task(rows) if any(row.task >= 0 for row in rows) else _by_node(path, rows)
    cells = [
        (row.line, worker, row.node, step, row.seconds, names.get((row.job, row.task)) or path.stem)
        for row, worker, step in placed
    ]
    found = pd.DataFrame(cells, columns=["line", "worker", "host", "step", "seconds", "recording"])
    found = found.set_index("line")
    if unfinished:
        found.attrs["left_out"] = f"tasks that are not COMPLETED ({', '.join(sorted(unfinished))})"
    return found


def _by_task(rows: list[Row]) -> Iterator[tuple[Row, int, int]]:
    """Yield the tasks of arrays, each with its worker and its step."""
    keys = {row: (row.job, int(row.step or -1)) for row in rows if row.task >= 0}
    steps = {key: i for i, key in enumerate(sorted(set(keys.values())))}
    for row, key in keys.items():
        yield row, row.task, steps[key]


def _by_node(path: Path, rows: list[Row]) -> Iterator[tuple[Row, str, int]]:
    """Yield the jobs on one node, each with its worker and its step."""
    for row in rows:
        if not row.node or _SEVERAL.search(row.node):
            why = (
                f"NodeList = {row.node!r}: jobs without an array are compared by node, and need one node each"
            )
            raise SettingError(f"path = {str(path)!r}, line {row.line}: {why}; {NEEDED}")
    before = Counter[str]()
    for row in sorted(rows, key=lambda row: (row.job, int(row.step or -1))):
        step, before[row.node] = before[row.node], before[row.node] + 1
        yield row, row.node, step


def _rows(path: Path) -> Iterator[Row]:
    columns = _Columns(path, lines := read_text(path, "replace").split("\n"))
    for number, line in enumerate(lines[columns.first :], columns.first + 1):
        if line.strip() and (row := columns.row(number, line)) is not None:
            yield row


class _Columns(Fields):
    """Columns of a file: separated by | or at the positions of the dashes in its second line."""

    def __init__(self, path: Path, lines: list[str]) -> None:
        super().__init__(path)
        header, second = lines[0], lines[1] if len(lines) > 1 else ""
        self.first, self._spans = 1, []  # type: int, list[tuple[int, int]]
        self._separator = _separator(header)
        if not self._separator:
            if not _DASHES.fullmatch(second):
                raise self.fault(f"has no line of dashes below its names; {NEEDED}", 2)
            self._spans = [match.span() for match in re.finditer("-+", second)]
            self.first = 2
        names = self._fields(header)
        self._width = len(names)
        self._places = {name.lower(): place for place, name in reversed([*enumerate(names)])}

    def _fields(self, line: str) -> list[str]:
        cells = line.split(self._separator) if self._separator else [line[a:b] for a, b in self._spans]
        return [cell.strip() for cell in cells]

    def row(self, number: int, line: str) -> Row | None:
        """Return one row, or None for tasks that have not begun, and for steps that Slurm adds (`_SKIPPED_STEPS`)."""
        fields = self._fields(line)
        if len(fields) != self._width:
            raise self.fault(f"has {len(fields)} fields, its first line {self._width}", number)

        def field(*names: str) -> str:
            return next((fields[self._places[name]] for name in names if name in self._places), "")

        identity = field("jobid", "jobidraw")
        step = identity.partition(".")[2].rstrip("+")
        if "." in identity and any(each.startswith(step) for each in _SKIPPED_STEPS):
            return None
        job = _JOB.fullmatch(identity)
        if job is None or (job["step"] and not job["step"].isdigit()):
            cut = "is cut off" if identity.endswith("+") else "is not a job, JOB_TASK or JOB.STEP"
            raise self.fault(f"JobID = {identity!r}: {cut}; {NEEDED}", number)
        if job["pending"] is not None:
            return None
        state = field("state").split(" ")[0].rstrip("+")
        is_done = state in DONE
        seconds = self._seconds(number, field("elapsed"), field("elapsedraw")) if is_done else 0.0
        task = int(job["task"]) if job["task"] else -1
        node = field("nodelist", "nodes")
        if node.endswith("+") and is_done:
            raise self.fault(f"NodeList = {node!r}: is cut off; {NEEDED}", number)
        return Row(number, int(job["job"]), task, job["step"] or "", field("jobname"), node, state, seconds)

    def _seconds(self, number: int, elapsed: str, raw: str) -> float:
        if raw.isdigit():
            return float(raw)
        seconds = seconds_of(elapsed)
        if seconds is None:
            forms = "give DD-HH:MM:SS, HH:MM:SS or MM:SS"
            raise self.fault(f"Elapsed = {elapsed or raw!r}: is not a time of Slurm; {forms}", number)
        return seconds


SOURCE = Source(name="sacct", title="Slurm's accounting (sacct)", tells=tells, read=read)
