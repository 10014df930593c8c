"""Read the times of EC2 workers that paper 4 recorded: text files with one "HOST_SECONDS" per line."""

import re
from io import TextIOWrapper
from itertools import count
from pathlib import Path
from typing import Any

import pandas as pd

from workbench.analysis.recordings.sources import Source
from workbench.core.base.reading import open_regular
from workbench.core.base.settings import SettingError

NAME = re.compile(r"data\d+\.txt")
# Some files begin lines with a number, some end them with one. Lines without a host are from waiting workers.
_LINE = re.compile(r"\s*(?:\d+\s+)?(?:(?P<host>[A-Za-z][\w.-]*?)_(?P<seconds>\d+(?:\.\d+)?))?(?:_\d+)?\s*")


def tells(path: Path) -> bool:
    """Return whether the path is a file of EC2 times, or a folder with one."""
    return any(_is_one(each) for each in _files(path))


def read(path: Path) -> pd.DataFrame:
    """Return seconds by host and iteration. Workers are numbered in the order of their first lines.

    Files of a folder become one recording each: data4.txt is "ec2-4".
    """
    parts = [_of_file(each) for each in _files(path) if _is_one(each)]
    if not parts:
        raise SettingError(f"path = {str(path)!r}: has no line HOST_SECONDS")
    return pd.concat(parts, ignore_index=True)


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path] if path.suffix == ".txt" and path.is_file() else []
    found = [each for each in path.iterdir() if NAME.fullmatch(each.name) and each.is_file()]
    return sorted(found, key=lambda each: int("".join(filter(str.isdigit, each.name))))


def open_text(file: Path) -> TextIOWrapper:
    """Open a regular file as text, to be read line by line."""
    return TextIOWrapper(open_regular(file), encoding="utf-8", errors="replace")


def _is_one(file: Path) -> bool:
    with open_text(file) as lines:
        first = next((line for line in lines if line.strip()), "")
    match = _LINE.fullmatch(first)
    return match is not None and match["host"] is not None


def _of_file(file: Path) -> pd.DataFrame:
    workers: dict[str, Any] = {}  # number and next iteration of each host
    rows = []
    with open_text(file) as lines:
        for number, line in enumerate(lines, 1):
            match = _LINE.fullmatch(line)
            if match is None:
                raise SettingError(
                    f"path = {str(file)!r}, line {number}: {line.strip()[:80]!r}: is not HOST_SECONDS"
                )
            if host := match["host"]:
                worker, steps = workers.setdefault(host, (len(workers), count()))
                rows.append((worker, host, next(steps), float(match["seconds"])))
    found = pd.DataFrame(rows, columns=["worker", "host", "step", "seconds"])
    return found.assign(recording=f"ec2-{file.stem.removeprefix('data')}")


SOURCE = Source(
    name="ec2",
    title="EC2's times of paper 4",
    tells=tells,
    read=read,
    where="public repository AmoghJohri/GradientCoding, EC2_Experiments/Data (paper 4)",
    licence="none stated: do not redistribute",
)
