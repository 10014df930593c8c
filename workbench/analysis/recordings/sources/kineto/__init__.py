"""Read traces of PyTorch's profiler (Kineto): one JSON file per rank and profiled window.

`files` parses a file, `workers` finds the rank of each file, `times` computes the seconds of each phase.
"""

from pathlib import Path

import pandas as pd

from workbench.analysis.recordings.sources import Source
from workbench.analysis.recordings.sources.kineto.files import (
    ENDING,
    HANDLER_ENDING,
    TraceFile,
    has_events,
    is_damaged,
)
from workbench.analysis.recordings.sources.kineto.times import Phases
from workbench.analysis.recordings.sources.kineto.workers import windows
from workbench.core.base.settings import SettingError

MAX_LISTED = 6  # max number of left-out steps that are listed


def tells(path: Path) -> bool:
    """Return whether the path is a trace of PyTorch's profiler, or a folder with one."""
    if path.is_dir():
        return bool(_files(path))
    return path.is_file() and bool(HANDLER_ENDING.search(path.name) or has_events(path))


def read(path: Path) -> pd.DataFrame:
    """Return the seconds of every profiled step, by phase.

    Phases are "exchange", the time in collective operations during which nothing is computed, and "compute", the rest.
    The forward pass of each module has a phase of its own, "compute: NAME", without the modules within it. The profiler
    does not record the backward pass by module. `attrs["left_out"]` of the result lists the unfinished steps, if any.
    """
    files = [TraceFile.read(file) for file in (_files(path) if path.is_dir() else [path])]
    if not files:
        raise SettingError(
            f"path = {str(path)!r}: holds no file called *.pt.trace.json or *.pt.trace.json.gz"
        )
    rows, left_out = [], []
    for worker, file, offset in windows(path, files):
        phases = Phases(file)
        rows += [
            (worker, file.host, step.number + offset, phase, seconds)
            for step in file.steps
            for phase, seconds in phases.of(step).items()
        ]
        left_out += [f"{number} of worker {worker}" for number in file.unfinished]
    found = pd.DataFrame(rows, columns=["worker", "host", "step", "phase", "seconds"])
    if left_out:
        more = f" and {len(left_out) - MAX_LISTED} more" if len(left_out) > MAX_LISTED else ""
        found.attrs["left_out"] = f"unfinished steps ({', '.join(left_out[:MAX_LISTED])}{more})"
    return found


def _files(folder: Path) -> list[Path]:
    """Return the files of the profiler's handler, or if there are none, all JSON files with events.

    Damaged files are returned as well, because one of them may be the trace of a rank.
    """
    found = sorted(each for each in folder.iterdir() if each.is_file() and not each.name.startswith("."))
    written = [each for each in found if HANDLER_ENDING.search(each.name)]
    known = [each for each in found if ENDING.search(each.name)]
    traces = [each for each in known if has_events(each)]
    return written or [each for each in known if each in traces or (traces and is_damaged(each))]


SOURCE = Source(name="kineto", title="PyTorch's profiler", tells=tells, read=read)
