"""What is new in a run folder on another machine, and how it comes into the one here.

Rows, models and the like are only appended to: what is missing here is asked for by its offset, so the same piece may
come twice. Small files are replaced whole: a checkpoint once the rounds that it counts on are here, ended.json last of
all. Rows come at once, models and checkpoints no faster than a share of the time allows: who follows a run must not
take the network from it.
"""

import os
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from workbench.core.base.files import atomic_write
from workbench.core.base.reading import open_regular, read_bytes
from workbench.core.trace.layout import ARRIVALS, CHECKPOINT, ENDED, GRADIENTS, LEDGERS, MODELS, ROWS

BYTES_PER_PIECE = 2**20  # bytes of one file in one answer
POLL_INTERVAL_S = 0.15  # s between questions
MAX_LARGE_FILES_SHARE = 0.1  # of the time may go into what is not rows
GROWING_FILES, WHOLE_FILES = (MODELS, GRADIENTS), (CHECKPOINT, LEDGERS)


@dataclass
class DeltaRequest:
    """What is here already: sizes of growing files, by name, and stamps of replaced ones. `all`: not only rows."""

    sizes: dict[str, int] = field(default_factory=dict)
    stamps: dict[str, str] = field(default_factory=dict)
    all: bool = True

    def read(self, folder: Path) -> tuple[dict[str, Any], bytes]:
        """There: the pieces that follow, and their bytes one behind the other."""
        ended = _stamp(folder / ENDED)  # before the others: they are complete then
        whole = self.all or bool(ended)
        # Before the growing files: then these have all rounds that it counts on.
        saved = self._replaced(folder, [CHECKPOINT] if whole else [])
        # Models first: a row that is here has its model here soon, and the last ones come together.
        names = [*GROWING_FILES, *_arrivals(folder)] if whole else []
        pieces = [self._piece(folder, name) for name in [*names, ROWS]]
        found = [piece for piece in pieces if piece is not None]
        more = any(len(text) == BYTES_PER_PIECE for _, text in found)
        found += [] if more else saved
        found += self._replaced(folder, [LEDGERS, ENDED] if ended and not more else [])
        return {"pieces": [entry for entry, _ in found], "more": more}, b"".join(text for _, text in found)

    def _piece(self, folder: Path, name: str) -> tuple[dict[str, Any], bytes] | None:
        """The next bytes of a growing file."""
        offset = self.sizes.get(name, 0)
        try:
            with open_regular(folder / name) as file:
                file.seek(offset)
                text = file.read(BYTES_PER_PIECE)
        except OSError:
            return None
        return ({"name": name, "offset": offset, "bytes": len(text)}, text) if text else None

    def _replaced(self, folder: Path, names: list[str]) -> list[tuple[dict[str, Any], bytes]]:
        """Files as a whole, as far as they are others than those at home."""
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
    """Sizes of the growing files in a folder: a mirror's bases, for the part of a run that begins now."""
    names = [name for name in (ROWS, *GROWING_FILES, *_arrivals(home)) if (home / name).is_file()]
    return {name: (home / name).stat().st_size for name in names}


class Mirror:
    """The run folder here. `bases`: sizes that its growing files had before this part of the run began."""

    def __init__(self, home: Path, bases: dict[str, int]) -> None:
        self.home, self.bases, here = home, bases, file_sizes(home)
        self.deltas = DeltaRequest(
            {name: here.get(name, 0) - bases.get(name, 0) for name in {**here, **bases}}
        )
        self.asked = self.free = 0.0  # when there was a question last; when there is time for models again

    @property
    def due(self) -> bool:
        """Is it time for another question?"""
        return time.monotonic() - self.asked > POLL_INTERVAL_S

    def hurry(self) -> None:
        """From now on everything is wanted at once."""
        self.free = 0.0

    def question(self) -> dict[str, Any]:
        """What to ask."""
        self.asked = time.monotonic()
        self.deltas.all = self.asked > self.free
        return asdict(self.deltas)

    def take(self, answer: dict[str, Any], data: bytes) -> None:
        """Write down what has come. Raises OSError where that cannot be."""
        now, at = time.monotonic(), 0
        if self.deltas.all:
            self.free = now + (now - self.asked) * (1 / MAX_LARGE_FILES_SHARE - 1)
        for piece in answer["pieces"]:
            text = data[at : at + piece["bytes"]]
            at += piece["bytes"]
            if "offset" in piece:
                self._write_at(piece["name"], piece["offset"], text)
            else:
                with atomic_write(_inside(self.home, piece["name"])) as out:
                    out.write(text)
                self.deltas.stamps[piece["name"]] = piece["stamp"]

    def _write_at(self, name: str, offset: int, text: bytes) -> None:
        path = _inside(self.home, name)
        path.parent.mkdir(exist_ok=True)
        place = offset + self.bases.get(name, 0)
        handle = os.open(path, os.O_WRONLY | os.O_CREAT, 0o666)
        try:
            while text:
                written = os.pwrite(handle, text, place)
                text, place = text[written:], place + written
        finally:
            os.close(handle)
        self.deltas.sizes[name] = place - self.bases.get(name, 0)


def _inside(home: Path, name: str) -> Path:
    """A file of the run folder, by a name from another machine."""
    path = home / name
    if name not in (ROWS, *GROWING_FILES, *WHOLE_FILES, ENDED) and (
        path.parent != home / ARRIVALS or ".." in name
    ):
        raise ValueError(f"{name!r} is not a file of a run folder")
    return path
