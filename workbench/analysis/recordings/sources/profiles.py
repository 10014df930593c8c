"""Cluster profiles of the workbench: every measured load and model size is a job."""

from pathlib import Path

import pandas as pd

from workbench.analysis.planning.profile import ClusterProfile
from workbench.analysis.recordings.sources import Source
from workbench.core.base.settings import SettingError


def tells(path: Path) -> bool:
    """Return whether the file is a cluster profile."""
    if path.suffix.lower() not in (".yaml", ".yml", ".json"):
        return False
    try:
        ClusterProfile.load(path)
    except SettingError:
        return False
    return True


def read(path: Path) -> pd.DataFrame:
    """Return the seconds of every worker in every round: see `Recorded.seconds`."""
    rows = [
        (f"{each.samples:g} samples, {each.floats} parameters", worker, step, seconds, each.samples)
        for each in ClusterProfile.load(path).recorded
        for step, row in enumerate(each.seconds)
        for worker, seconds in enumerate(row, 1)
    ]
    return pd.DataFrame(rows, columns=["recording", "worker", "step", "seconds", "samples"])


SOURCE = Source(name="profile", title="a cluster profile", tells=tells, read=read)
