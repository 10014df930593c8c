"""Shards of a sweep without notebooks: Parquet files with one row for each run, its settings, results and rounds.

A run may be in two shards, for example after a sweep was resumed. It then counts once: with its last row that is done,
else with its last row. Names of columns have a prefix: `setting.`, `result.`, or `curve.` for lists over the rounds.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from workbench.analysis.tables.about import RunNotes
from workbench.analysis.tables.rows import row_of
from workbench.core.base.files import atomic_write
from workbench.core.base.reading import open_parquet
from workbench.core.base.settings import SettingError
from workbench.core.experiment import Experiment, described
from workbench.core.trace.layout import SHARDS
from workbench.core.trace.metrics import first_reached
from workbench.core.trace.trace import Trace

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

T = TypeVar("T")
HEAD = ("run", "key", "state", "error", "seconds", "host", "spec")
SETTING, RESULT, CURVE = "setting.", "result.", "curve."
SUFFIX = ".parquet"
# rows from which on a merged file takes no further shard
MAX_MERGED_ROWS = 25_000
MAX_GROUP_BYTES = 8 << 20  # size in memory up to which row groups of a merged file are joined
MAX_READS = 5  # max number of times that shards are read again, because some were merged meanwhile
# max number of shards whose states are cached, because observers of a sweep often ask for them
CACHED_SHARDS = 2000
MIN_MERGED = 20  # min number of shards that are merged


@dataclass(frozen=True)
class ShardRow:
    """Row of one run. `spec`: its experiment with all fields. `seconds`: computing time on `host`."""

    run: str
    key: str
    state: str
    error: str
    seconds: float
    host: str
    spec: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    results: Mapping[str, Any] = field(default_factory=dict)
    curves: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, trace: Trace, **head: Any) -> ShardRow:
        """Return the row of a trace, as the table of runs would read it from a run folder."""
        row = row_of(trace)
        curves = {name: np.asarray(column) for name, column in trace.columns.items()}
        return cls(state="done", error="", settings=row.chosen, results=row.results, curves=curves, **head)


def table_of(rows: Sequence[ShardRow]) -> pa.Table:
    """Return the table of some runs. Values of a column that are not of one type are written as text."""
    import pyarrow as pa

    columns: dict[str, list[Any]] = {name: [getattr(row, name) for row in rows] for name in HEAD}
    for prefix, part in ((SETTING, "settings"), (RESULT, "results"), (CURVE, "curves")):
        for name in dict.fromkeys(name for row in rows for name in getattr(row, part)):
            columns[prefix + name] = [getattr(row, part).get(name) for row in rows]
    return pa.table({name: _array(values) for name, values in columns.items()})


def _array(values: list[Any]) -> pa.Array:
    import pyarrow as pa

    try:
        return pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        return pa.array([None if value is None else str(value) for value in values])


def encoded(table: pa.Table) -> bytes:
    """Return the content of a shard."""
    import pyarrow.parquet as pq

    pq.write_table(table, out := BytesIO(), compression="zstd")
    return out.getvalue()


def files(folder: Path) -> list[Path]:
    """Return the shards of a sweep, in order of their names."""
    return sorted((folder / SHARDS).glob(f"[!.]*{SUFFIX}"))


def read(folder: Path, names: Iterable[str] | None = None, prefixes: tuple[str, ...] = ()) -> pa.Table:
    """Read columns of all runs in a sweep's shards, each run once. Raises `SettingError` for a damaged shard.

    `names`: columns; None: those of `HEAD` without the spec. `prefixes`: prefixes of further columns.
    """
    wanted = frozenset(HEAD[:-1] if names is None else names) | {"run", "key", "state"}
    return _together(folder, lambda path: _columns(path, wanted, prefixes))


def _reread(read: Callable[[], T]) -> T:
    """Return the result of a function that reads shards. It is called again if some were merged meanwhile."""
    for _ in range(MAX_READS):
        with suppress(FileNotFoundError):
            return read()
    return read()


def _columns(path: Path, wanted: Collection[str], prefixes: tuple[str, ...] = ()) -> pa.Table:
    """Read columns of one shard."""
    try:
        with open_parquet(path) as file:
            names = file.schema_arrow.names
            chosen = [n for n in names if n in wanted or n.startswith(prefixes or ("\0",))]
            return file.read(chosen, use_threads=False)
    except FileNotFoundError:  # see `_reread`
        raise
    except (OSError, ValueError) as error:  # also of Arrow
        why = " ".join(str(error).split())
        raise SettingError(f"{path}: cannot be read ({why}); remove it, then resume") from None


def _together(folder: Path, read: Callable[[Path], pa.Table]) -> pa.Table:
    """Return the tables of all shards as one, with each run once."""
    import pyarrow as pa

    if found := _reread(lambda: [read(path) for path in files(folder)]):
        return _once(_joined(found))
    return pa.table({name: pa.array([], pa.string()) for name in ("run", "key", "state", "error")})


def _joined(tables: Sequence[pa.Table]) -> pa.Table:
    """Concatenate tables. A column that has text in one table and numbers in another becomes text."""
    import pyarrow as pa

    try:
        return pa.concat_tables(tables, promote_options="permissive")
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        text = {column.name for table in tables for column in table.schema if column.type == pa.string()}
        return pa.concat_tables([_as_text(table, text) for table in tables], promote_options="permissive")


def _as_text(table: pa.Table, names: Collection[str]) -> pa.Table:
    import pyarrow as pa

    columns = [column.with_type(pa.string()) if column.name in names else column for column in table.schema]
    return table.cast(pa.schema(columns))


def _once(table: pa.Table) -> pa.Table:
    """Return a table with each run once: its last row that is done, else its last one."""
    keys = table["key"].to_numpy()
    if len(set(keys)) == len(keys):
        return table
    done = [state == "done" for state in table["state"].to_pylist()]
    chosen = {keys[at]: at for at in sorted(range(len(keys)), key=lambda at: (done[at], at))}
    return table.take(sorted(chosen.values()))


def states(folder: Path) -> dict[str, str]:
    """Return the state of each run in shards, by the run's key."""
    table = read(folder, ())
    return dict(zip(table["key"].to_pylist(), table["state"].to_pylist(), strict=True))


def counts(folder: Path) -> tuple[dict[str, int], dict[str, str]]:
    """Return the number of runs by state, and the errors of failed runs by name."""
    import pyarrow.compute as pc

    table = _together(folder, lambda path: _states(path, path.stat().st_mtime_ns))
    found = {each["values"]: each["counts"] for each in table["state"].value_counts().to_pylist()}
    failed = table.filter(pc.equal(table["state"], "failed"))
    return found, dict(zip(failed["run"].to_pylist(), failed["error"].to_pylist(), strict=True))


@lru_cache(maxsize=CACHED_SHARDS)
def _states(path: Path, stamp: int) -> pa.Table:
    """Read how the runs of a shard ended. `stamp`: the time of its last change."""
    return _columns(path, ("run", "key", "state", "error"))


def frame(
    folder: Path, root: Path, apart: Collection[str], target: float | None, metric: str
) -> tuple[pd.DataFrame, list[str]]:
    """Return the rows of a sweep's shards for the table of runs, and which columns are settings.

    apart: names of runs that have a folder, whose rows are used instead. target, metric: as in `runs`.
    """
    import pandas as pd

    curves = () if target is None else (f"{CURVE}time", f"{CURVE}{metric}")
    table = read(folder, ("error", *curves), (SETTING, RESULT))
    data: dict[str, Any] = {}
    settings = [name.removeprefix(SETTING) for name in table.column_names if name.startswith(SETTING)]
    for name in table.column_names:
        short = name.removeprefix(SETTING).removeprefix(RESULT)
        if name != "key" and not name.startswith(CURVE) and short not in data:
            data[short] = _series(table[name])
    found = pd.DataFrame(data)
    below = folder.relative_to(root).as_posix()
    found["run"] = found["run"] if below == "." else f"{below}/" + found["run"]
    found["folder"] = str(folder) + "/" + table["run"].to_pandas().astype(str)
    for name, value in asdict(RunNotes()).items():
        found[name] = ", ".join(value) if name == "tags" else value
    if target is not None:
        found[["time_to", "rounds_to"]] = _reached(table, target, metric)
    keep = ~found["run"].isin(apart) if apart else slice(None)
    return found[keep].reset_index(drop=True), settings


def _series(column: Any) -> Any:
    """Return a column for pandas. Whole numbers stay exact even if some runs lack the value."""
    import pandas as pd
    import pyarrow as pa

    if pa.types.is_integer(column.type) and column.null_count:
        return column.to_pandas(types_mapper={column.type: pd.Int64Dtype()}.get)
    return column.to_pandas()


def _reached(table: pa.Table, target: float, metric: str) -> list[tuple[float, float]]:
    """Return time_to (s) and rounds_to of each run, NaN where the metric never is at the target."""
    batch = SETTING + "batch"
    batches = table[batch].to_pylist() if batch in table.column_names else [None] * len(table)
    if f"{CURVE}{metric}" not in table.column_names:
        return [(np.nan, np.nan)] * len(table)
    found = []
    for time, values, size in zip(table[f"{CURVE}time"], table[f"{CURVE}{metric}"], batches, strict=True):
        known = [np.nan] if values.values is None else values.values.to_numpy()
        first = first_reached(known, target, metric, size)
        found.append((np.nan, np.nan) if first is None else (time[first].as_py(), float(first + 1)))
    return found


def find(folder: Path, name: str) -> dict[str, Any] | None:
    """Return spec (as fields), engine, cluster, state, error and curves of a run by its name, or None."""
    return _reread(lambda: _find(folder, name))


def _find(folder: Path, name: str) -> dict[str, Any] | None:
    import pyarrow.compute as pc

    places: list[tuple[bool, Path, int]] = []
    for path in files(folder):
        with open_parquet(path) as file:
            runs = file.read(["run", "state"], use_threads=False)
        found = np.flatnonzero(pc.equal(runs["run"], name).to_numpy())
        places += [(runs["state"][at].as_py() == "done", path, at) for at in found.tolist()]
    if not places:
        return None
    _, path, at = max(places)
    with open_parquet(path) as file:
        return _found(file, at)


def _found(file: Any, at: int) -> dict[str, Any]:
    """Return one row of a file. Only its row group is read."""
    for group in range(file.num_row_groups):
        rows = file.metadata.row_group(group).num_rows
        if at < rows:
            row = file.read_row_group(group, use_threads=False).slice(at, 1)
            break
        at -= rows
    values = {name: row[name][0] for name in row.column_names}
    curves = {n.removeprefix(CURVE): v.values for n, v in values.items() if n.startswith(CURVE)}
    head = {name: values[name].as_py() for name in HEAD}
    chosen = {n: values[SETTING + n].as_py() for n in ("engine", "cluster") if SETTING + n in values}
    rounds = {name: value.to_numpy() for name, value in curves.items() if value is not None}
    return {**head, **chosen, "spec": json.loads(head["spec"]), "curves": rounds}


def trace_of(folder: Path, name: str) -> Trace:
    """Return the trace of a run in shards, with its rounds, and without its events and its model."""
    if (row := find(folder, name)) is None:
        raise SettingError(f"run = {name!r}: is not in the shards of {folder}")
    e = described(row["spec"])
    experiment = e if isinstance(e, Experiment) else Experiment(**row["spec"])
    return Trace(experiment, row.get("engine") or "sim", row["curves"], [], np.empty(0))


def merge(folder: Path) -> None:
    """Merge many shards into few. A reader during the merge finds each run in an old shard, the new one, or both."""
    found = files(folder)
    if len(found) < MIN_MERGED:
        return
    group, rows = list[Path](), 0
    for path in found:
        group.append(path)
        with open_parquet(path) as file:
            rows += int(file.metadata.num_rows)
        if rows >= MAX_MERGED_ROWS or path == found[-1]:
            if len(group) > 1:
                with suppress(OSError):  # such as a full disk: the shards stay as they are
                    _merged(group)
            group, rows = [], 0


def _merged(paths: Sequence[Path]) -> None:
    """Merge shards into the file of the last one, then remove the others. Small row groups are joined."""
    import pyarrow.parquet as pq

    empty = []
    for path in paths:
        with open_parquet(path) as file:
            empty.append(file.schema_arrow.empty_table())
    schema = _joined(empty).schema
    with atomic_write(paths[-1]) as out, pq.ParquetWriter(out, schema, compression="zstd") as writer:
        for tables in _row_groups(paths):
            writer.write_table(_joined([schema.empty_table(), *tables]))
    for path in paths[:-1]:
        path.unlink(missing_ok=True)


def _row_groups(paths: Sequence[Path]) -> Iterator[list[pa.Table]]:
    """Yield lists of row groups that make one row group of a merged file."""
    found: list[pa.Table] = []
    size = 0
    for path in paths:
        with open_parquet(path) as file:
            for number in range(file.num_row_groups):
                found.append(file.read_row_group(number, use_threads=False))
                size += found[-1].nbytes
                if size > MAX_GROUP_BYTES:
                    yield found
                    found, size = [], 0
    if found:
        yield found
