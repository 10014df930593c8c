"""Cluster profiles of the workbench: every measured load and model size is a job."""

from pathlib import Path

import pandas as pd

from workbench.analysis.planning.profile import ClusterProfile
from workbench.analysis.recordings.sources import Source
from workbench.core.base.reading import head_of
from workbench.core.base.settings import SettingError

HEAD_BYTES = 2**20  # bytes of a file that are searched for a field of profiles


def tells(path: Path) -> bool:
    """Return whether the file begins as a cluster profile."""
    return path.suffix.lower() in (".yaml", ".yml", ".json") and b"one_clock" in head_of(path, HEAD_BYTES)


def read(path: Path) -> pd.DataFrame:
    """Return the seconds of every worker in every round: see `Recorded.seconds`."""
    rows, cluster = [], ClusterProfile.load(path)
    for each in cluster.recorded:
        name = f"{each.samples:g} samples, {each.floats} parameters"
        for step, row in enumerate(each.seconds):
            if len(row) != cluster.workers:
                why = f"row {step + 1} of seconds has {len(row)} times for {cluster.workers} workers"
                raise SettingError(f"path = {str(path)!r}: {name}: {why}; measure the cluster again")
            rows += [(name, worker, step, seconds, each.samples) for worker, seconds in enumerate(row, 1)]
    return pd.DataFrame(rows, columns=["recording", "worker", "step", "seconds", "samples"])


SOURCE = Source(name="profile", title="a cluster profile", tells=tells, read=read)
