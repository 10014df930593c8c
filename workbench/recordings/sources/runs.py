"""Our own run folders: what every worker computed and sent in every round."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from workbench.recordings.source import Source
from workbench.trace.layout import RUN
from workbench.trace.trace import Trace


def tells(path: Path) -> bool:
    """A folder of a run that has ended."""
    return (path / RUN).is_file()


def read(path: Path) -> pd.DataFrame:
    """Seconds of computing, and of being taken in by the receiver's port, by rank and round."""
    return of_trace(Trace.load(path))


def of_trace(trace: Trace) -> pd.DataFrame:
    """The same of a run at hand."""
    events = trace.events
    events = events[(events["rank"] > 0) & events["kind"].isin(["compute", "send", "drop"])]
    phase = events["kind"].map({"compute": "compute", "send": "port", "drop": "port"})
    rows = events.assign(phase=phase, seconds=events["end"] - events["begun"])
    rows = rows.rename(columns={"rank": "worker", "round": "step"})
    return rows.groupby(["worker", "step", "phase"])["seconds"].sum().reset_index()


SOURCE = Source(name="run", title="a run folder", tells=tells, read=read)
