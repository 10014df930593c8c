"""Operations of ByteDance's training jobs for language models: computations and transfers of all workers."""

from pathlib import Path

import numpy as np
import pandas as pd

from workbench.analysis.recordings.pipeline import Pipeline
from workbench.analysis.recordings.sources import Source
from workbench.core.base.reading import parquet_columns, read_parquet
from workbench.core.base.settings import SettingError
from workbench.core.contract.recorded import refuse

NEEDED_COLUMNS = {"dp_rank", "stage", "rank", "step", "optype", "start_ts", "duration", "seq_id"}
TIMES = ("start_ts", "duration")  # columns in seconds; others are whole numbers
COMPUTING = ("forward-compute", "backward-compute", "optimizer")


def tells(path: Path) -> bool:
    """Return whether the file is a table of operations."""
    return path.suffix.lower() == ".parquet" and set(parquet_columns(path)) >= NEEDED_COLUMNS


def operations(path: Path) -> pd.DataFrame:
    """Return one row per operation, with `start` and `end` in seconds from the beginning of the step.

    Raises `TableError` with the row of a number that is wrong.
    """
    rows = read_parquet(path)
    rows = rows.set_axis(pd.RangeIndex(1, len(rows) + 1, name="row"), axis=0)
    for name in sorted(NEEDED_COLUMNS - {"optype"}):
        values = pd.to_numeric(rows[name], errors="coerce").to_numpy(np.float64, na_value=np.nan)
        wrong = ~np.isfinite(values) | ((values < 0) & (name == "duration"))
        wrong |= (values % 1 != 0) & (name not in TIMES)
        refuse(rows, wrong, rows[name], "is not a number of an operation; leave its step out")
    rows["optype"] = rows["optype"].astype(str)
    rows["start"] = rows["start_ts"].astype(np.float64)
    rows["end"] = rows["start"] + rows["duration"].astype(np.float64)
    return rows.astype({"dp_rank": int, "stage": int, "rank": int, "step": int, "seq_id": int})


def read(path: Path) -> pd.DataFrame:
    """Return seconds per worker and step, by phase: compute, send (all transfers), idle (waiting for others in them).

    For jobs that `Pipeline` does not support, sending and waiting are one phase: "exchange".
    """
    rows = operations(path)
    computes = rows["optype"].isin(COMPUTING)
    try:
        moved = Pipeline.of(rows).alone(rows)
    except SettingError:
        parts = [rows.assign(phase=np.where(computes, "compute", "exchange"))]
    else:
        others = rows[~computes]
        moved = moved[~computes].clip(upper=others["duration"])
        parts = [rows[computes].assign(phase="compute"), others.assign(phase="send", duration=moved)]
        parts.append(others.assign(phase="idle", duration=others["duration"] - moved))
    rows = pd.concat(parts)
    rows = rows.assign(host="stage " + rows["stage"].astype(str), worker=rows["rank"])
    total = rows.groupby(["worker", "host", "step", "phase"])["duration"].sum()
    return total.rename("seconds").reset_index()


SOURCE = Source(
    name="bytedance",
    title="ByteDance's language model jobs",
    tells=tells,
    read=read,
    where="public repository ByteDance-Seed/StragglerAnalysis, data",
    licence="Apache 2.0",
    files=("bytedance_*.parquet", "trace-AR.parquet", "trace-SE.parquet", "trace-ST.parquet"),
    published="trace-AR.parquet, trace-SE.parquet and trace-ST.parquet",
)
