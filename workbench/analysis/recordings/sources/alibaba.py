"""Mini-batch times of training jobs in Alibaba's GPU cluster, normalised so that the longest is 1000."""

from pathlib import Path

import pandas as pd

from workbench.analysis.recordings.sources import Source
from workbench.core.base.tables import TEXT_ENDINGS, TableError, ending, read_texts, text_table

NAMES = {"worker": "worker", "time": "step", "batch_time_norm": "seconds"}


def tells(path: Path) -> bool:
    """Return whether the file is a table with a column of normalised mini-batch times."""
    if ending(path) not in TEXT_ENDINGS:
        return False
    try:
        with text_table(path) as table:
            return set(NAMES) <= set(table.names)
    except TableError:  # the reader of tables reports the error later
        return False


def read(path: Path) -> pd.DataFrame:
    """Return the recorded mini-batches, which are every tenth. Of two rows for one mini-batch the first is used."""
    rows = read_texts(path)[list(NAMES)].rename(columns=NAMES)
    return rows.drop_duplicates(["worker", "step"])


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
