"""Times of the answers in a job of `workbench.ddp`, which are in seconds."""

from pathlib import Path

from workbench.analysis.recordings.sources import Source
from workbench.core.contract.recorded import read_times

FILE, HEADER = "times.csv", "worker,step,seconds,cpu,samples,used"


def tells(path: Path) -> bool:
    """Return whether the file has the name and the columns of such a table."""
    if path.name != FILE or not path.is_file():
        return False
    with path.open(errors="replace") as file:
        return file.readline().strip() == HEADER


SOURCE = Source(name="ddp", title="times of workbench.ddp", tells=tells, read=read_times)
