"""Tables with columns for worker, step and seconds, such as EC2's times of paper 4."""

from pathlib import Path

import pandas as pd

from workbench.analysis.recordings.sources import Source
from workbench.core.base.tables import ending
from workbench.core.contract.recorded import ENDINGS, read_times


def tells(path: Path) -> bool:
    """Return whether the file is a table in text, compressed or not, or in Parquet."""
    return ending(path) in ENDINGS


def read(path: Path, unit: str | None = None, **columns: str) -> pd.DataFrame:
    """Read the table as the delay model "replay" does: see `read_times`."""
    return read_times(path, columns, unit)


SOURCE = Source(
    name="table",
    title="a table of times",
    tells=tells,
    read=read,
    where="public repository AmoghJohri/GradientCoding, EC2_Experiments/Data (paper 4)",
    licence="none stated: do not redistribute",
    files=("ec2_traces.csv",),
    published="data4.txt, data6.txt and data7.txt",
    takes_columns=True,
    how="put them into a folder FOLDER; wb.traces.load('FOLDER').write('ec2_traces.csv') makes that table",
)
