"""Mini-batch times of training jobs in Alibaba's GPU cluster, normalised to a longest one of 1000."""

from pathlib import Path

import pandas as pd

from workbench.analysis.recordings.sources import Source
from workbench.core.base.reading import first_line, read_table


def tells(path: Path) -> bool:
    """A table with a column of normalised mini-batch times."""
    return path.suffix == ".csv" and b"batch_time_norm" in first_line(path)


def read(path: Path) -> pd.DataFrame:
    """Every tenth mini-batch of every worker; the first of two rows of one mini-batch counts."""
    rows = read_table(path).rename(columns={"batch_time_norm": "seconds", "time": "step"})
    return rows.drop_duplicates(["worker", "step"])[["worker", "step", "seconds"]]


SOURCE = Source(
    name="alibaba",
    title="Alibaba's training jobs",
    tells=tells,
    read=read,
    where="public repository alibaba/clusterdata, cluster-trace-gpu-v2020/mini-batch-time/data (AntMan, OSDI 2020)",
    licence="see there",
    units="thousandths of the longest",
    files=("alibaba_job_*.csv", "job_[1-4]_norm.csv"),
    published="job_1_norm.csv to job_4_norm.csv",
)
