"""Times of the answers in a job of `workbench.ddp`, which are in seconds."""

from pathlib import Path

from workbench.analysis.recordings.sources import Source
from workbench.core.base.reading import head_of
from workbench.core.contract.recorded import read_times

FILE, HEADER = "times.csv", "worker,step,seconds,cpu,samples,used"


def tells(path: Path) -> bool:
    """Return whether the file has the name and the columns of such a table."""
    return path.name == FILE and head_of(path).partition(b"\n")[0].strip() == HEADER.encode()


SOURCE = Source(name="ddp", title="times of workbench.ddp", tells=tells, read=read_times)
