"""Transfer of what is new in a run folder on another machine into the local one.

Files of rows, models and the like only grow. Missing bytes are requested by their offset, so it does no harm if a
piece is sent twice. Small files are replaced as a whole: a checkpoint after the rounds that it depends on, and
ended.json last. Rows are requested immediately. Models and checkpoints get a limited share of the time, so that
followers do not slow down the run's network.
"""

import os
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from workbench.core.base.files import write_file
from workbench.core.base.reading import open_regular, read_bytes
from workbench.core.trace.layout import ARRIVALS, CHECKPOINT, ENDED, GRADIENTS, LEDGERS, MODELS, ROWS

BYTES_PER_PIECE = 2**20  # max bytes of one file in one reply
POLL_INTERVAL_S = 0.15  # s between requests
MAX_LARGE_FILES_SHARE = 0.1  # max share of the time for files other than rows
GROWING_FILES, WHOLE_FILES = (MODELS, GRADIENTS), (CHECKPOINT, LEDGERS)


@dataclass
class DeltaRequest:
    """Request for new data of a run folder.

    `sizes`: sizes of growing files. `stamps`: stamps of replaced files. `all`: whether files besides the rows are
    included.
    """

    sizes: dict[str, int] = field(default_factory=dict)
    stamps: dict[str, str] = field(default_factory=dict)
    all: bool = True

    def read(self, folder: Path) -> tuple[dict[str, Any], bytes]:
        """Return, on the other machine, the new pieces and their bytes in one string."""
        ended = _stamp(folder / ENDED)  # read before the other files, which are complete if it exists
        whole = self.all or bool(ended)
        # read before the growing files, so that these have all rounds of the checkpoint
        saved = self._replaced(folder, [CHECKPOINT] if whole else [])
        # Models are read before rows. If a row is read before its model exists, the model is in the next reply.
        names = [*GROWING_FILES, *_arrivals(folder)] if whole else []
        pieces = [self._piece(folder, name) for name in [*names, ROWS]]
        found = [piece for piece in pieces if piece is not None]
        more = any(len(text) == BYTES_PER_PIECE for _, text in found)
        found += [] if more else saved
        found += self._replaced(folder, [LEDGERS, ENDED] if ended and not more else [])
        return {"pieces": [entry for entry, _ in found], "more": more}, b"".join(text for _, text in found)

    def _piece(self, folder: Path, name: str) -> tuple[dict[str, Any], bytes] | None:
        """Return the next bytes of a growing file."""
        offset = self.sizes.get(name, 0)
        try:
            with open_regular(folder / name) as file:
                file.seek(offset)
                text = file.read(BYTES_PER_PIECE)
        except OSError:
            return None
        return ({"name": name, "offset": offset, "bytes": len(text)}, text) if text else None

    def _replaced(self, folder: Path, names: list[str]) -> list[tuple[dict[str, Any], bytes]]:
        """Return the whole content of each file that differs from the local copy."""
        found = []
        for name in names:
            stamp = _stamp(folder / name)
            if stamp and stamp != self.stamps.get(name):
                text = read_bytes(folder / name)
                found.append(({"name": name, "stamp": stamp, "bytes": len(text)}, text))
        return found


def _arrivals(folder: Path) -> list[str]:
    return sorted(f"{ARRIVALS}/{path.name}" for path in (folder / ARRIVALS).glob("*.i64"))


def _stamp(path: Path) -> str:
    try:
        status = path.stat()
    except OSError:
        return ""
    return f"{status.st_ino}-{status.st_mtime_ns}-{status.st_size}"


def file_sizes(home: Path) -> dict[str, int]:
    """Return the sizes of the growing files in a folder: the bases of a mirror for the next segment of the run."""
    names = [name for name in (ROWS, *GROWING_FILES, *_arrivals(home)) if (home / name).is_file()]
    return {name: (home / name).stat().st_size for name in names}


class Mirror:
    """Local copy of a run folder. `bases`: sizes of its growing files before this segment of the run."""

    def __init__(self, home: Path, bases: dict[str, int]) -> None:
        self.home, self.bases, here = home, bases, file_sizes(home)
        self.deltas = DeltaRequest(
            {name: here.get(name, 0) - bases.get(name, 0) for name in {**here, **bases}}
        )
        # time of the last request; time from which on models may be requested again
        self.asked = self.free = 0.0

    @property
    def due(self) -> bool:
        """Whether it is time for another request."""
        return time.monotonic() - self.asked > POLL_INTERVAL_S

    def hurry(self) -> None:
        """Let the next request ask for all files, even if their share of the time is used up."""
        self.free = 0.0

    def question(self) -> dict[str, Any]:
        """Return the next request."""
        self.asked = time.monotonic()
        self.deltas.all = self.asked > self.free
        return asdict(self.deltas)

    def take(self, answer: dict[str, Any], data: bytes) -> None:
        """Write the files of a reply. Raises OSError if they cannot be written."""
        now, at = time.monotonic(), 0
        if self.deltas.all:
            self.free = now + (now - self.asked) * (1 / MAX_LARGE_FILES_SHARE - 1)
        for piece in answer["pieces"]:
            text = data[at : at + piece["bytes"]]
            at += piece["bytes"]
            if "offset" in piece:
                self._write_at(piece["name"], piece["offset"], text)
            else:
                write_file(_inside(self.home, piece["name"]), text)
                self.deltas.stamps[piece["name"]] = piece["stamp"]

    def _write_at(self, name: str, offset: int, text: bytes) -> None:
        path = _inside(self.home, name)
        path.parent.mkdir(exist_ok=True)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT, 0o666), "wb") as file:
            file.seek(offset + self.bases.get(name, 0))
            file.write(text)
        self.deltas.sizes[name] = offset + len(text)


def _inside(home: Path, name: str) -> Path:
    """Return the path of a file in the run folder, whose name comes from another machine."""
    path = home / name
    if name not in (ROWS, *GROWING_FILES, *WHOLE_FILES, ENDED) and (
        path.parent != home / ARRIVALS or ".." in name
    ):
        raise ValueError(f"{name!r} is not a file of a run folder")
    return path
