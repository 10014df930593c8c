"""Any table with columns for worker, step and seconds; EC2's times of paper 4 are such a one."""

from pathlib import Path

import pandas as pd

from workbench.analysis.recordings.sources import Source
from workbench.core.base.formulas import from_csv
from workbench.core.base.reading import read_parquet, read_table

OTHER_NAMES = {"iteration": "step", "experiment": "recording"}


def tells(path: Path) -> bool:
    """A table of a kind that pandas reads."""
    return path.suffix in (".csv", ".parquet")


def read(path: Path) -> pd.DataFrame:
    """The table as it is; `iteration` is a step, and `experiment` a recording."""
    rows = from_csv(read_table(path)) if path.suffix == ".csv" else read_parquet(path)
    return rows.rename(columns={k: v for k, v in OTHER_NAMES.items() if v not in rows})


SOURCE = Source(
    name="table",
    title="a table of times",
    tells=tells,
    read=read,
    where="public repository AmoghJohri/GradientCoding, EC2_Experiments/Data (paper 4)",
    licence="none stated: not to be passed on",
    files=("ec2_traces.csv",),
    published="data4.txt, data6.txt and data7.txt",
    how="put them into a folder FOLDER; wb.traces.load('FOLDER').write('ec2_traces.csv') makes that table",
)
