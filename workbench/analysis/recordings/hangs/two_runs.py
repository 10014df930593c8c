"""Find dumps of two runs in one folder, whose versions and process groups are equal."""

from operator import attrgetter
from typing import NamedTuple

from workbench.analysis.recordings.hangs.dumps import Dump, Group, Operation
from workbench.analysis.recordings.hangs.waits import SYNCHRONISING, Job
from workbench.analysis.recordings.sources.recorder import MAX_SKEW_S

_end = attrgetter("operation.end")
MAX_MISSED = (
    100  # max number of ended operations that a rank had not entered, if its dump was written earlier
)


class Entry(NamedTuple):
    """One operation of a dump."""

    dump: Dump
    group: Group
    operation: Operation

    @property
    def key(self) -> tuple[Group, int]:
        """Process group and number, which are equal for all ranks of the operation."""
        return self.group, self.operation.number

    def __str__(self) -> str:
        return (
            f"operation {self.operation.number} of process group {self.group.name} in {self.dump.path.name}"
        )


def two_runs(job: Job) -> str | None:
    """Return a sentence about two dumps that cannot be of one run, or None.

    An operation that needs all ranks ends after all of them have begun it. A run ends at the first timeout of an
    operation. So no operation begins after these moments, unless it is of a later run.
    """
    every = [
        Entry(dump, job.group(dump.rank, each.group), each) for dump in job.dumps for each in dump.operations
    ]
    ended: dict[tuple[Group, int], Entry] = {}
    for entry in every:
        if entry.operation.ended and SYNCHRONISING.match(entry.operation.name):
            ended[entry.key] = min(ended.get(entry.key, entry), entry, key=_end)
    pairs = [(ended[entry.key], entry) for entry in every if entry.key in ended]
    if waiting := [entry for entry in every if not entry.operation.ended]:
        pairs.append((min(waiting, key=_end), max(every, key=lambda entry: entry.operation.begun)))
    for first, second in pairs:
        if (later := second.operation.begun - _end(first)) > MAX_SKEW_S:
            what = "had ended" if first.operation.ended else "had reached its timeout"
            return f"{second} began {later:.0f} s after {first} {what}"
    for (group, number), entry in ended.items():
        for rank in {*group.ranks} & job.by_rank.keys():
            if 0 < (last := job.last_entered(rank, group)) < number - MAX_MISSED:
                return f"{entry} has ended, but rank {rank} has entered only {last} of its operations"
    return None
