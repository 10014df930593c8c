"""Files of recorded steps: one table for every rank, in segments, each of which is replaced as a whole.

A file is called ``rank3.0.000002.npz``: rank 3, attempt 0 of the job in this folder, segment 2. It holds an array
`steps`, one row for each step, and the text `about`, which is JSON.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from workbench.core.base.files import atomic_write

PHASES = ("data", "forward", "backward", "exchange", "optimiser", "other")
EXCHANGE = "exchange"  # the phase in which a rank waits for others, or for a link
FORWARD_EXCHANGE = "exchange: forward"  # an exchange in the forward pass, for example of BatchNorm's buffers
WORK = ("samples", "tokens", "squares")  # amounts of work of a step; NaN if unknown
PROBE_BYTES = 2**20  # bytes of a message that probes a link
FIELDS = ("ended", *PHASES, FORWARD_EXCHANGE, "processor", *WORK)
ROW = np.dtype([("step", np.int64), *((name, np.float64) for name in FIELDS)])
StepRows = NDArray[np.void]  # rows of the type `ROW`
SEGMENT_STEPS = 4096  # max number of steps in a file
FORMAT = 1  # version of the file format; a reader refuses higher versions

_NAME = re.compile(r"rank(\d{1,9})\.(\d{1,6})\.(\d{6,9})\.npz")


class Place(NamedTuple):
    """Rank, attempt and segment that the name of a file contains."""

    rank: int
    attempt: int
    segment: int

    @property
    def name(self) -> str:
        """Name of the file."""
        return f"rank{self.rank}.{self.attempt}.{self.segment:06d}.npz"


def place_of(path: Path) -> Place | None:
    """Return rank, attempt and segment from the name of a file, or None for other files.

    >>> place_of(Path("rank3.0.000002.npz"))
    Place(rank=3, attempt=0, segment=2)
    """
    found = _NAME.fullmatch(path.name)
    return Place(*map(int, found.groups())) if found else None


def places(folder: Path) -> Iterator[Place]:
    """Yield the places of all recorded files of a folder, in any order."""
    return (place for file in folder.iterdir() if (place := place_of(file)) is not None)


def next_attempt(folder: Path, rank: int) -> int:
    """Return the number of attempts that this rank has recorded into the folder before."""
    return max((each.attempt + 1 for each in places(folder) if each.rank == rank), default=0)


def write_steps(folder: Path, place: Place, steps: StepRows, about: Mapping[str, Any]) -> None:
    """Write a segment atomically. Raises OSError."""
    with atomic_write(folder / place.name) as out:
        np.savez(out, steps=steps, about=np.array(json.dumps(about)))
