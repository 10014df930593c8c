"""Tables of recorded times: worker, step and duration. `wb.traces.load` and the delay model "replay" read them here.

Names are text: 1e5 and 100000 are different workers, and a host may be called NA. Times are in seconds, unless the name
of their column contains another unit (`took_ms`, `time [us]`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from workbench.core.base.formulas import is_escaped, restored
from workbench.core.base.settings import SettingError
from workbench.core.base.tables import (
    TEXT_ENDINGS,
    TableError,
    ending,
    identifiers,
    number,
    read_columns,
    read_texts,
    texts,
    whole_number,
)

if TYPE_CHECKING:
    import pandas as pd

WORK_COLUMNS = (
    "samples",
    "tokens",
    "squares",
)  # columns with the amount of work that a recorded time was for
COLUMNS = ("recording", "worker", "host", "step", "phase", "seconds", *WORK_COLUMNS, "processor_seconds")
# other names of columns; if two of them exist and differ, an error is raised
OTHER_NAMES = {"step": ("iteration", "global_step"), "recording": ("experiment",)}
# names of columns in logs, used if no column has the usual name
LOG_NAMES = {"worker": ("rank", "global_rank"), "host": ("hostname",)}
ENDINGS = (*TEXT_ENDINGS, ".parquet")
# names of phases: all computing of a worker, and prefix for the computing of one layer
COMPUTE_PHASE, LAYER_PREFIX = "compute", "compute: "
# time of a message to the next worker, alone, and while that worker sends as much
PROBE_PHASE, BOTH_WAYS_PHASE = "probe", "probe: both ways"
MIN_TIMESTAMP_S = 1e8  # s; larger values (over three years) are points in time, not durations
MAX_STEP = 2**63 - 1
_SPELLINGS = {
    "s": "s sec secs second seconds",
    "ms": "ms msec msecs millis millisecond milliseconds",
    "us": "us µs μs usec usecs micros microsecond microseconds",
    "ns": "ns nsec nsecs nanos nanosecond nanoseconds",
    "min": "minute minutes",
    "h": "h hr hrs hour hours",
}
UNITS = {name: unit for unit, names in _SPELLINGS.items() for name in names.split()}
PER_SECOND = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9, "min": 1 / 60, "h": 1 / 3600}
_AMBIGUOUS_UNITS = {"m", "min", "mins"}  # may mean minutes, the minimum, or metres
_TIMES = {"duration", "dur", "took", "elapsed", "latency", "runtime", "compute", "wall", "time"}
_STEPS = {"step", "iteration"}


def read_times(path: Path, columns: Mapping[str, str] | None = None, unit: str | None = None) -> pd.DataFrame:
    """Read the columns of a table that are in `COLUMNS`, with times in seconds.

    The index is the line of each row, or in a Parquet file its number.

    `columns`: name in `COLUMNS` -> name in the table, for columns without a usual name. `unit`: unit of the table's
    times, if the column's name does not contain the unit. Raises `TableError`, `SettingError`, OSError, and ValueError
    of Arrow.
    """
    return times_in(read_columns(path) if ending(path) == ".parquet" else read_texts(path), columns, unit)


def times_in(
    frame: pd.DataFrame, columns: Mapping[str, str] | None = None, unit: str | None = None
) -> pd.DataFrame:
    """Return the columns of a table that are in `COLUMNS`, with times in seconds: see `read_times`."""
    columns, units = dict(columns or {}), check_unit(unit)
    names = [str(name) for name in frame.columns]
    if absent := sorted(set(columns.values()) - set(names)):
        raise TableError(f"lacks columns {absent}; it has {names}")
    called = {ours: columns.get(ours) or _usual(ours, names, frame) for ours in COLUMNS}
    called["seconds"] = called["seconds"] or timed(names)
    found = {ours: theirs for ours, theirs in called.items() if theirs is not None}
    if missing := sorted({"worker", "step", "seconds"} - set(found)):
        raise TableError(_lacks(missing, names))
    for name in found.values():
        if names.count(name) > 1:
            raise TableError(f"has {names.count(name)} columns {name!r}; rename all but one")
    chosen = frame[list(found.values())].set_axis(list(found), axis=1)
    scales: dict[str, float] = {
        ours: _per_second(found[ours], units, ours, ours in columns)
        for ours in ("seconds", "processor_seconds")
        if ours in found
    }
    return checked_times(chosen, found, scales)


def checked_times(
    frame: pd.DataFrame, called: Mapping[str, str] | None = None, scales: Mapping[str, float] | None = None
) -> pd.DataFrame:
    """Convert recorded times: names to text, and numbers to numeric types. Raises `TableError` for the first bad row.

    `called`: names of the columns in their file. `scales`: column -> number of its units in a second.
    """
    called, scales = called or {}, scales or {}
    if frame.empty:
        raise TableError("there is no row")
    if missing := sorted({"worker", "step", "seconds"} - set(frame.columns)):
        raise TableError(_lacks(missing, list(frame.columns)))
    found: dict[str, Any] = {}
    for name in (column for column in COLUMNS if column in frame):
        given = frame[name].rename(called.get(name, name))
        if name in ("worker", "host", "phase", "recording"):
            found[name] = _names(frame, given, name, from_file=bool(called))
        elif name == "step":
            found[name] = _steps(frame, given)
        else:
            found[name] = _amounts(frame, given, name) / scales.get(name, 1.0)
    frame = frame.assign(**found)
    keys = [name for name in ("recording", "worker", "step", "phase") if name in frame]
    why = f"{', '.join(keys[:-1])} and {keys[-1]} are those of a row before; name each job in a column recording"
    refuse(frame, frame.duplicated(keys).to_numpy(), frame["step"], why)
    why = "is that a point in time, or not in seconds? Give durations, in s"
    refuse(frame, (frame["seconds"] > MIN_TIMESTAMP_S).to_numpy(), frame["seconds"], why)
    return frame


def own_times(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of the phases in which workers compute, or all rows if there are none."""
    if "phase" not in frame:
        return frame
    rows = frame[(frame["phase"] == COMPUTE_PHASE) | frame["phase"].astype(str).str.startswith(LAYER_PREFIX)]
    return rows if len(rows) else frame


def place(frame: pd.DataFrame, row: int) -> str:
    """Return the position of a row (counted from 0) in the file of the table, such as "line 3"."""
    known = frame.index.name in ("line", "row")
    return f"{frame.index.name} {frame.index[row]}" if known else f"row {row + 1}"


def check_unit(unit: str | None) -> str | None:
    """Return a unit of times. Raises `SettingError` if it is unknown."""
    if unit is not None and unit not in PER_SECOND:
        raise SettingError(f"unit = {unit!r}: choose one of {', '.join(map(repr, PER_SECOND))}")
    return unit


def _usual(ours: str, names: Sequence[str], frame: pd.DataFrame) -> str | None:
    """Find a column by its usual names. Raises `TableError` if two of these columns exist and differ."""
    there = [name for name in (ours, *OTHER_NAMES.get(ours, ())) if name in names]
    for other in there[1:]:
        if not frame[there[0]].equals(frame[other]):
            raise TableError(f"has columns {there[0]!r} and {other!r}, which differ; rename one of them")
    return next(iter([*there, *(name for name in LOG_NAMES.get(ours, ()) if name in names)]), None)


def _letters_of(name: str) -> list[str]:
    """Split a column's name into words, in lower case.

    >>> _letters_of("stepTime_ms"), _letters_of("took [us]")
    (['step', 'time', 'ms'], ['took', 'us'])
    """
    apart = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name)
    return [text for text in re.split(r"[^a-zµμ]+", apart.lower()) if text]


def unit_of(name: str) -> str | None:
    """Return the unit that a column's name contains, or None.

    >>> unit_of("took_ms"), unit_of("Duration (µs)"), unit_of("took")
    ('ms', 'us', None)
    """
    texts = _letters_of(name)
    found = {UNITS[w] for i, w in enumerate(texts) if w in UNITS and (len(w) > 1 or i == len(texts) - 1)}
    return found.pop() if len(found) == 1 else None


def timed(names: Sequence[str]) -> str | None:
    """Find the only column whose name has a unit and otherwise only words for durations, or None.

    Raises `TableError` if there are several.
    """
    found = [name for name in names if unit_of(name) and {*_letters_of(name)} <= _TIMES | _STEPS | {*UNITS}]
    if len(found) > 1:
        raise TableError(f"has the times {', '.join(map(repr, found))}; call the one to read seconds")
    return found[0] if found else None


def _per_second(name: str, unit: str | None, ours: str, chosen: bool) -> float:
    """Return the number of a column's units per second.

    Raises `TableError` if the column's name is ambiguous, or has another unit than `unit`.
    """
    named_unit = None if name in ("seconds", "processor_seconds") else unit_of(name)
    if named_unit and unit and named_unit != unit:
        raise TableError(
            f"unit = {unit!r}: the name of column {name!r} says {named_unit!r}; leave one of them out"
        )
    if not (named_unit or unit) and _AMBIGUOUS_UNITS & {*_letters_of(name)}:
        raise TableError(f"column {name!r} may be in minutes or not; say it with unit = 's' or 'min'")
    return PER_SECOND[named_unit or unit or "s"]


def _lacks(missing: list[str], names: Sequence[str]) -> str:
    why = f"lacks columns {missing}; it has {list(names)}"
    if "seconds" in missing and (open_ := [n for n in names if {*_letters_of(n)} & _TIMES]):
        return f"{why}: {open_[0]!r} does not say its unit; call it duration_s, duration_ms or duration_us"
    return why


def _names(frame: pd.DataFrame, given: pd.Series[Any], name: str, from_file: bool) -> pd.Series[Any]:
    """Convert names to text. A host or recording that is missing in all rows becomes "", and a phase "compute".

    Whole numbers that name workers are normalised. In a file, an empty field is a missing name. In a frame, "" is a
    name, such as the host of a master.
    """
    found = identifiers(given) if name == "worker" else texts(given)
    if from_file and any(map(is_escaped, found)):
        plain = found.map(restored)
        if plain.nunique() < found.nunique():
            raise TableError(f"{given.name}: names that differ in an apostrophe only; rename one of them")
        found = plain
    missing = (found if from_file or name == "worker" else given).isna().to_numpy()
    if name == "worker":
        refuse(frame, missing, None, f"{given.name} is empty; fill it in, or leave the row out")
    elif missing.any() and not missing.all():
        refuse(
            frame, missing, None, f"{given.name} is empty; fill it in for every row, or leave the column out"
        )
    elif found.isna().any():
        return found.fillna(COMPUTE_PHASE if name == "phase" else "")
    return found


def _steps(frame: pd.DataFrame, given: pd.Series[Any]) -> pd.Series[Any]:
    import pandas as pd

    if pd.api.types.is_signed_integer_dtype(given.dtype) and not given.hasnans:
        return given.astype("int64")
    found = [_step(value) for value in given.astype(object)]
    wrong = np.array([value is None or abs(value) > MAX_STEP for value in found], dtype=bool)
    refuse(frame, wrong, given, "steps are whole numbers, because they give the order")
    return pd.Series(found, given.index, dtype="int64", name=given.name)


def _step(value: Any) -> int | None:
    if isinstance(value, str):
        return whole_number(value)
    try:
        return int(value) if value == int(value) else None
    except (TypeError, ValueError, OverflowError):
        return None


def _amounts(frame: pd.DataFrame, given: pd.Series[Any], name: str) -> pd.Series[Any]:
    """Convert numbers. Times are at least 0, amounts of work above 0. Only seconds are needed in each row."""
    import pandas as pd

    if pd.api.types.is_numeric_dtype(given.dtype) and not pd.api.types.is_bool_dtype(given.dtype):
        found = given.to_numpy(dtype=np.float64, na_value=np.nan)
        empty = np.isnan(found)
    else:
        found = np.array([_amount(value) for value in given.astype(object)], dtype=np.float64)
        empty = np.array([_blank(value) for value in given.astype(object)], dtype=bool)
    wrong = ~(np.isfinite(found) & (found >= 0))
    if name == "seconds":
        why = "times are finite and at least 0; did the clock step back? Leave such rows out"
        refuse(frame, wrong, given, why)
    elif name in WORK_COLUMNS:
        wrong = ~empty & ~(np.isfinite(found) & (found > 0))
        refuse(frame, wrong, given, f"a time is for more than 0 {name}; leave it empty if unknown")
    else:
        why = "a processor's seconds are finite and at least 0; leave them empty if unknown"
        refuse(frame, wrong & ~empty, given, why)
    return pd.Series(found, given.index, dtype=np.float64, name=given.name)


def _blank(value: Any) -> bool:
    import pandas as pd

    return not value.strip() if isinstance(value, str) else np.ndim(value) == 0 and bool(pd.isna(value))


def _amount(value: Any) -> float:
    if isinstance(value, str):
        found = number(value.strip())
        return np.nan if found is None else found
    try:
        return np.nan if isinstance(value, bool) or np.ndim(value) else float(value)
    except (TypeError, ValueError, OverflowError):
        return np.nan


def refuse(frame: pd.DataFrame, wrong: Any, values: pd.Series[Any] | None, why: str) -> None:
    """Raise `TableError` for the first row that is wrong."""
    if not wrong.any():
        return
    row = int(np.argmax(wrong))
    if values is not None:
        value = values.iloc[row]
        shown = " ".join(str(value).split())[:60]
        shown = repr(shown) if "," in shown else shown
        what = "is empty" if isinstance(value, str) and not value else f"= {shown}"
        why = f"{values.name} {what}: {why}"
    raise TableError(why, place(frame, row))
