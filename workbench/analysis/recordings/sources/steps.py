"""Logs of steps: text or JSON lines with step, rank and time, in one file for all ranks or one file per rank.

Lines without a step or without a time are skipped. If there are several epochs, steps are numbered over all of them.
"""

import math
import re
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from workbench.analysis.recordings.sources import Source
from workbench.analysis.recordings.sources.ec2 import open_text
from workbench.core.base.reading import parse_json, read_text
from workbench.core.base.settings import SettingError
from workbench.core.base.tables import TEXT_ENDINGS, TableError, ending, read_texts, text_table
from workbench.core.base.tables import number as number_of
from workbench.core.contract.recorded import (
    LOG_NAMES,
    OTHER_NAMES,
    PER_SECOND,
    UNITS,
    check_unit,
    timed,
    times_in,
)

ENDINGS = (".log", ".txt", ".out", ".err", ".jsonl", ".ndjson")
PEEKED_LINES = 500  # number of first lines that are searched for a step
MAX_QUOTED = 60  # max characters of a line in an error

_UNIT = r"ms|msecs?|milliseconds?|us|µs|s|secs?|seconds?"
_NUMBER = r"(?P<number>-?(?:\d+(?:\.\d*)?(?:e[-+]?\d+)?(?:,\d[\d.,]*)?|nan|inf))(?![\d.:/-]*[:/-]\d)"
_TIMED = r"(?:step[ _-]?time|iteration[ _-]?time|iter[ _-]?time|batch[ _-]?time|elapsed time per iteration|time per \w+"
_TIMED += r"|step[ _]timing|duration|elapsed|took|time|dt)"
# name (unit): number, or name: number unit, or name_unit: number
_TIME = re.compile(
    rf"(?<![\w.])(?P<name>(?:[a-z]+[ _-])?{_TIMED})(?:[ _]?(?:in )?[(\[]?(?P<before>{_UNIT})[)\]]?)?"
    rf"(?![a-z_])\"?\s*[:=]?\s*{_NUMBER}\s*(?P<after>{_UNIT})?(?![\w/])",
    re.IGNORECASE,
)
_STEP = re.compile(
    r"(?<![\w.])(?:global[ _]?step|step|iteration|iter|batch)\b[\s:=#]*\[?\s*(?P<step>\d+(?:,\d{3})*)(?!\d)"
    r"(?![\d.]*\s*(?:ms|s|sec)\b)(?!\.?\d)",
    re.IGNORECASE,
)
_EPOCH = re.compile(r"(?<![\w.])epoch\b[\s:=#]*\[?\s*(\d+)", re.IGNORECASE)
_RANK = re.compile(
    r"(?<![a-z])(?<!local[ _-])(?<!node[ _-])(?:global[ _-]?)?rank[ _=:#-]*(\d{1,6})(?!\d)", re.IGNORECASE
)
_PREFIX = re.compile(r"^\s*\[default(\d{1,6})\]:")  # prefix by torchrun, with the rank within the host
_PARTIAL = re.compile(
    r"^(?:data|load|fetch|forward|fwd|backward|bwd|eval|save|optim\w*|eta|total|remaining)[ _-]"
)
_WHOLE = re.compile(r"step|iter|batch")


class Line(NamedTuple):
    """One step of a file: line, rank, epoch, step, seconds."""

    line: int
    worker: int
    epoch: int
    step: int
    seconds: float


def tells(path: Path) -> bool:
    """Return whether the path is a log of steps, or a folder with one."""
    return any(_has_steps(file) for file in _files(path))


def _files(path: Path) -> list[Path]:
    """Return the logs of a folder, or those that torchrun writes: RANK/stdout.log."""
    if not path.is_dir():
        return [path] if path.suffix.lower() in ENDINGS and path.is_file() else []
    there = [each for each in path.iterdir() if not each.name.startswith(".")]
    known = (*ENDINGS, *TEXT_ENDINGS)
    found = [each for each in there if each.is_file() and {each.suffix.lower(), ending(each)} & {*known}]
    ranks = [each / "stdout.log" for each in there if each.is_dir() and each.name.isdigit()]
    return sorted(found) or sorted(each for each in ranks if each.is_file())


def _has_steps(file: Path) -> bool:
    try:
        if ending(file) in TEXT_ENDINGS:
            with text_table(file) as table:
                return bool(_step_names() & {*table.names})
        with open_text(file) as lines:
            return any(_is_step(line) for line in islice(lines, PEEKED_LINES))
    except (OSError, SettingError, TableError):
        return False


def _is_step(line: str) -> bool:
    if line.lstrip().startswith("{"):
        try:
            fields = parse_json(line)
        except ValueError:
            return False
        return isinstance(fields, dict) and bool(_step_names() & fields.keys())
    return bool(_STEP.search(line) and _TIME.search(line))


def _step_names() -> set[str]:
    return {"step", *OTHER_NAMES["step"]}


def read(path: Path, unit: str | None = None, **columns: str) -> pd.DataFrame:
    """Return seconds by rank and step.

    `unit`: unit of times that have none. `columns`: names of fields in JSON lines. The rank comes from the line, or
    from the name of the file. Raises `SettingError` with file and line.
    """
    check_unit(unit)
    parts = []
    for file in _files(path):
        try:
            parts.append(_of_file(file, unit, columns).assign(file=file.name))
        except TableError as error:
            raise SettingError(error.of(f"path = {str(file)!r}")) from None
    found = pd.concat([each for each in parts if len(each)]) if any(map(len, parts)) else pd.DataFrame()
    if found.empty:
        raise SettingError(f"path = {str(path)!r}: has no line with a step, a rank and a time")
    if found["worker"].astype(str).str.isdigit().all():
        found["worker"] = found["worker"].astype(int)
    if found["epoch"].nunique() > 1:
        found["step"] = found.groupby(["epoch", "step"]).ngroup()
    twice = found.duplicated(["worker", "step"])
    if twice.any():
        row = found[twice].iloc[0]
        why = f"step {row['step']} of rank {row['worker']} is there twice; give the log of one run"
        raise SettingError(f"path = {str(path)!r}, {row['file']}, line {found[twice].index[0]}: {why}")
    return found.drop(columns=["epoch", "file"]).rename_axis("line")


def _of_file(file: Path, unit: str | None, columns: Mapping[str, str]) -> pd.DataFrame:
    if ending(file) in TEXT_ENDINGS:
        return _in_table(file, read_texts(file), unit, columns)
    lines = read_text(file, "replace").split("\n")
    if any(line.lstrip().startswith("{") and _is_step(line) for line in lines):
        return _of_json(file, lines, unit, columns)
    rows = _lines(lines, unit, _rank_of_name(file))
    return pd.DataFrame(rows, columns=Line._fields).set_index("line")


_NO_RANK = "has no rank; log rank=N with every step, or give a file for each rank, called rank_0.log, rank_1.log, ..."


def _rank_of_name(file: Path) -> int | None:
    """Return the rank N from a file's name with "rankN", or from torchrun's N/stdout.log."""
    if file.name == "stdout.log" and file.parent.name.isdigit():
        return int(file.parent.name)
    found = set(_RANK.findall(file.stem))
    return int(found.pop()) if len(found) == 1 else None


def _lines(lines: list[str], unit: str | None, rank_of_name: int | None) -> Iterator[Line]:
    for number, line in enumerate(lines, 1):
        step = _STEP.search(line)
        if step is None or not (times := [*_TIME.finditer(line)]):
            continue
        if "," in step["step"]:
            raise TableError(f"step = {step['step']}: write it without commas", f"line {number}")
        rank, epoch = _RANK.search(line) or _PREFIX.search(line), _EPOCH.search(line)
        seconds = _seconds(number, times, unit)
        if seconds is None:
            continue
        worker = int(rank[1]) if rank else rank_of_name
        if worker is None:
            raise TableError(_NO_RANK, f"line {number}")
        yield Line(number, worker, int(epoch[1]) if epoch else 0, int(step["step"]), seconds)


def _seconds(number: int, times: list[re.Match[str]], unit: str | None) -> float | None:
    """Return the seconds of a line's step, or None if it has only times of parts of the step."""
    whole = [each for each in times if not _PARTIAL.match(each["name"].lower())]
    chosen = [each for each in whole if _WHOLE.search(each["name"].lower())] or whole
    if not chosen:
        return None
    if len(chosen) > 1:
        names = ", ".join(repr(each["name"]) for each in chosen[:3])
        raise TableError(
            f"has the times {names}; which one is the step's? Call it step_time", f"line {number}"
        )
    named = chosen[0]["after"] or chosen[0]["before"]
    if named is None and unit is None:
        shown = f"{chosen[0]['name']} = {chosen[0]['number']}"
        raise TableError(f"{shown}: has no unit; give unit = 's' or 'ms'", f"line {number}")
    known = UNITS[named.lower()] if named else str(unit)
    if named and unit and known != unit:
        raise TableError(
            f"unit = {unit!r}: the time has the unit {named!r}; leave one of them out", f"line {number}"
        )
    value = number_of(chosen[0]["number"])
    if value is None or not 0 <= value < math.inf:
        why = "is not a time of at least 0; write it with a point and without commas"
        raise TableError(f"{chosen[0]['name']} = {chosen[0]['number']}: {why}", f"line {number}")
    return value / PER_SECOND[known]


def _of_json(file: Path, lines: list[str], unit: str | None, columns: Mapping[str, str]) -> pd.DataFrame:
    """Return the steps of a file of JSON lines. Objects without a step or a time are skipped."""
    rows: dict[int, dict[str, Any]] = {}
    steps = {columns["step"]} if "step" in columns else _step_names()
    for number, line in enumerate(lines, 1):
        if not line.lstrip().startswith("{"):
            continue
        try:
            fields = parse_json(line)
        except ValueError as error:
            if not any(each.strip() for each in lines[number:]):
                continue  # the last line may be incomplete
            raise TableError(f"{line[:MAX_QUOTED]!r}: is not JSON ({error})", f"line {number}") from None
        if isinstance(fields, dict) and steps & fields.keys():
            rows[number] = {
                name: value for name, value in fields.items() if not isinstance(value, dict | list)
            }
    frame = pd.DataFrame.from_dict(rows, orient="index").rename_axis("line")
    return _in_table(file, _timed(frame, columns), unit, columns)


def _in_table(file: Path, frame: pd.DataFrame, unit: str | None, columns: Mapping[str, str]) -> pd.DataFrame:
    """Return the steps of a table. Its rank may be only in the file's name."""
    named = columns.get("worker") or next((n for n in ("worker", *LOG_NAMES["worker"]) if n in frame), None)
    if named is None:
        rank = _rank_of_name(file)
        if rank is None:
            raise TableError(_NO_RANK, f"line {frame.index[0]}")
        frame = frame.assign(rank=rank)
    found = times_in(frame, columns, unit)
    return found.assign(epoch=frame.get("epoch", 0))


def _timed(frame: pd.DataFrame, columns: Mapping[str, str]) -> pd.DataFrame:
    """Return only objects that have a time. Loggers write other values of a step into separate objects."""
    name = columns.get("seconds") or ("seconds" if "seconds" in frame else timed([*map(str, frame.columns)]))
    return frame[frame[name].notna()] if name in frame else frame


SOURCE = Source(name="steps", title="a log of steps", tells=tells, read=read, takes_columns=True)
