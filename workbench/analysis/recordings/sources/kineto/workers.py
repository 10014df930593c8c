"""Find the worker of each trace file, and the order of its files.

Ranks come from the files (distributedInfo.rank), or else from their names. They never come from the order of names.
"""

import re
from collections import defaultdict
from itertools import pairwise
from pathlib import Path

from workbench.analysis.recordings.sources.kineto.files import TraceFile
from workbench.analysis.recordings.sources.kineto.times import SECONDS_PER_MICROSECOND
from workbench.analysis.recordings.sources.recorder import MAX_SKEW_S
from workbench.core.base.settings import SettingError

MIN_DATE_US = 1e15  # smaller times are not counted from 1970, so that hosts do not share their zero
MAX_NAMED_RANK = 10**5  # larger numbers in names are times or dates
MAX_NAMES = 3  # max number of files that an error names

_LOCAL_RANK = re.compile(r"local.?rank", re.IGNORECASE)  # not the rank among all workers


def windows(path: Path, files: list[TraceFile]) -> list[tuple[int | str, TraceFile, int]]:
    """Return worker, file, and the number to add to its steps."""
    ours: dict[int | str, list[TraceFile]] = defaultdict(list)
    for file, worker in zip(files, _workers(path, files), strict=True):
        ours[worker].append(file)
    for worker, some in ours.items():
        some.sort(key=lambda file: file.window)
        for before, after in pairwise(some):
            _check_one_process(path, worker, before, after)
    _check_one_run(path, [*ours.values()])
    offsets = _offsets(path, ours)
    order = sorted(ours, key=lambda worker: (isinstance(worker, str), worker))
    return [(worker, file, offsets[place]) for worker in order for place, file in enumerate(ours[worker])]


def _check_one_process(path: Path, worker: int | str, before: TraceFile, after: TraceFile) -> None:
    both = f"path = {str(path)!r}: {before.path.name} and {after.path.name} are both of worker {worker}, "
    if after.window[0] < before.window[1]:
        raise SettingError(f"{both}and overlap in time; leave out copies, and give every worker its rank")
    named = before.is_host_and_process and after.is_host_and_process and before.label != after.label
    if named or before.events.process != after.events.process:
        raise SettingError(f"{both}but of different processes; give the files of one run")


def _check_one_run(path: Path, ours: list[list[TraceFile]]) -> None:
    """Raise `SettingError` if the files of one worker end long before those of another begin."""
    first, last = (
        min(ours, key=lambda some: some[-1].window[1]),
        max(ours, key=lambda some: some[0].window[0]),
    )
    gap = (last[0].window[0] - first[-1].window[1]) * SECONDS_PER_MICROSECOND
    if gap > MAX_SKEW_S and first[0].window[0] > MIN_DATE_US:
        both = f"{first[-1].path.name} ends {gap:.0f} s before {last[0].path.name} begins"
        raise SettingError(f"path = {str(path)!r}: {both}; give the files of one run")


def _offsets(path: Path, ours: dict[int | str, list[TraceFile]]) -> list[int]:
    """Return the number to add to the steps of each window, in order. It is 0 unless step numbers repeat."""
    most = max(map(len, ours.values()))
    every = [[step.number for file in files for step in file.steps] for files in ours.values()]
    if all(len(numbers) == len(set(numbers)) for numbers in every):
        return [0] * most
    short = next((worker for worker, some in ours.items() if len(some) < most), None)
    if short is not None:
        long = next(worker for worker, some in ours.items() if len(some) == most)
        why = f"worker {long} has {most} windows whose steps have the same numbers, worker {short} {len(ours[short])}"
        raise SettingError(f"path = {str(path)!r}: {why}; give the same windows of every worker")
    offsets = [0]
    for place in range(most - 1):
        last = max(step.number for some in ours.values() for step in some[place].steps)
        offsets.append(offsets[-1] + last + 1)
    return offsets


def _workers(path: Path, files: list[TraceFile]) -> list[int | str]:
    """Return the worker of each file: its rank, or its name HOST_PID if ranks are unknown."""
    ranks = [file.rank for file in files if file.rank is not None]
    if len(ranks) == len(files):
        return list(ranks)
    named = _named(files)
    if named and all(file.rank in (None, name) for file, name in zip(files, named, strict=True)):
        return named
    names = [file.path.name for file in files if file.rank is None]
    without = ", ".join(names[:MAX_NAMES]) + f" and {len(names) - MAX_NAMES} more" * (len(names) > MAX_NAMES)
    others = "though other files do" if ranks else "and the names do not say it"
    why = f"{without}: no distributedInfo.rank, {others}; call the files rank0.json, rank1.json, ..."
    raise SettingError(f"path = {str(path)!r}: {why}")


def _named(files: list[TraceFile]) -> list[int | str] | None:
    """Return the ranks from the names of the files, or None if the names do not contain them."""
    ranks = [rank for file in files if (rank := file.named_rank) is not None]
    if ranks:
        return list(ranks) if len(ranks) == len(files) else None
    labels = [file.label for file in files]
    if len(set(labels)) == 1 and (len(files) == 1 or files[0].is_host_and_process):
        return [0] * len(files)
    if any(_LOCAL_RANK.search(label) for label in labels):
        return None
    numbers = _varying(labels)
    together = max(file.window[0] for file in files) < min(file.window[1] for file in files)
    if all(file.is_host_and_process for file in files):
        return list(numbers) if set(numbers) == set(range(len(set(labels)))) else list(labels)
    return list(numbers) if numbers and together and max(numbers) < MAX_NAMED_RANK else None


def _varying(labels: list[str]) -> list[int]:
    """Return the number in each name if the names differ only in one number, else an empty list.

    >>> _varying(["trace2_of_12", "trace10_of_12"]), _varying(["a1", "b2"])
    ([2, 10], [])
    """
    parts = [re.split(r"(\d+)", label) for label in labels]
    if len({tuple(pieces[::2]) for pieces in parts}) > 1:
        return []
    differ = [
        column for column in zip(*(pieces[1::2] for pieces in parts), strict=True) if len(set(column)) > 1
    ]
    return [int(number) for number in differ[0]] if len(differ) == 1 else []
