"""A pool's folder: all by which client, supervisor and ranks of a pool speak to one another.

======================  ====================================================================================
``pool.json``           what the supervisor and rank 0 have to know, see `workbench.mpi.launch.head.pools`
``log.txt``             what supervisor, mpiexec and ranks print; what begins with `PROGRESS_PREFIX` is for
                        the supervisor
``forkserver``           where ranks' stubs knock, see `workbench.mpi.launch.rank.forkserver`
``progress``            how many ranks are up, while they start
``ready.json``          process and host of each rank, once all are up
``tasks/``              runs that are handed in, one file each; rank 0 takes the oldest away
``lost.json``           ranks on other hosts that are gone without a word, as the supervisor found out
``quit``                the pool is to end
``gone.json``           it has ended, and why
======================  ====================================================================================

Every file appears whole or not at all, so that each may be read by somebody else at any time.
"""

import os
import secrets
import shutil
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbench.core.base.files import atomic_write, private_folder, write_file, write_json
from workbench.core.base.reading import parse_json, read_bytes, read_text
from workbench.mpi.launch.processes import ProcessId

PROGRESS_PREFIX = "workbench:"  # of a line that a rank prints for the supervisor: up, done, or failed and why
SHARED_MEMORY_FOLDER = Path("/dev/shm")  # where Open MPI shares memory on Linux
SETTLE_TIME_S = 60.0  # s after which ranks have mapped one another's memory
PREFIX = "straggler-workbench-"  # of a pool's folder there
LOGS, MAX_LOGS = (
    "logs",
    20,
)  # folder beside that of the pools for the logs of failed starts; max number of them
ARRAYS = "task.npz"  # in the run folder: what a task has besides words


def say(*fields: Any) -> None:
    """A rank's line for the supervisor: whole, as forked ranks share one pipe."""
    os.write(1, " ".join(map(str, (PROGRESS_PREFIX, *fields))).encode() + b"\n")


@dataclass(frozen=True)
class PoolFolder:
    """The folder of one pool."""

    path: Path

    def make(self, settings: dict[str, Any]) -> None:
        """Make it, for this user only."""
        self.path.mkdir(parents=True, mode=0o700)
        (self.path / "tasks").mkdir()
        write_json(self.path / "pool.json", settings)

    def settings(self) -> dict[str, Any]:
        """What the pool was made with; raises OSError where that is not there any more."""
        return self._read("pool.json")

    @property
    def log(self) -> Path:
        """What was printed."""
        return self.path / "log.txt"

    def logged(self) -> list[str]:
        """Lines of the log that say something."""
        text = read_text(self.log, errors="replace") if self.log.exists() else ""
        return [line.strip() for line in text.splitlines() if line.strip(" -")]

    def kept_log(self) -> str:
        """Copy the log to where it stays once this folder is removed; return "; see PATH", empty if that fails."""
        saved = self.path.parent.with_name(LOGS) / f"{self.path.name}.txt"
        try:
            write_file(private_folder(saved.parent) / saved.name, self.log.read_bytes())
            for old in sorted(saved.parent.glob("*.txt"), key=lambda path: path.stat().st_mtime)[:-MAX_LOGS]:
                old.unlink(missing_ok=True)
        except OSError:
            return ""
        return f"; see {saved}"

    @property
    def up(self) -> int:
        """How many ranks are up while they start."""
        try:
            return int(read_text(self.path / "progress") or 0)
        except (OSError, ValueError):
            return 0

    def count(self, up: int) -> None:
        """So many are up."""
        (self.path / "progress").write_text(str(up))

    @property
    def ready(self) -> bool:
        """Are all ranks up?"""
        return (self.path / "ready.json").exists()

    def places(self) -> list[ProcessId]:
        """Where each rank is, once all are up; raises OSError before."""
        return [ProcessId(*place) for place in self._read("ready.json")["places"]]

    def begin(self, places: Iterable[ProcessId]) -> None:
        """All are up."""
        write_json(self.path / "ready.json", {"places": list(places)})

    def hand_in(self, fields: dict[str, Any], arrays: bytes) -> Path:
        """Hand a run in; the file that stays until rank 0 takes it."""
        with atomic_write(Path(fields["folder"]) / ARRAYS) as out:
            out.write(arrays)
        path = self.path / "tasks" / f"{time.time_ns()}-{secrets.token_hex(4)}.json"
        write_json(path, fields)
        return path

    def next_task(self) -> Path | None:
        """The oldest run that waits."""
        with os.scandir(self.path / "tasks") as found:
            names = [entry.name for entry in found if entry.name.endswith(".json")]
        return self.path / "tasks" / min(names) if names else None

    def lost(self) -> list[int]:
        """Ranks that are gone without a word."""
        return list(self._read("lost.json")["ranks"]) if (self.path / "lost.json").exists() else []

    def lose(self, ranks: Iterable[int]) -> None:
        """So many are by now."""
        write_json(self.path / "lost.json", {"ranks": sorted(ranks)})

    @property
    def quitting(self) -> bool:
        """Was it told to end?"""
        return (self.path / "quit").exists()

    def quit(self) -> None:
        """Tell it to end."""
        (self.path / "quit").touch()

    def gone(self) -> dict[str, Any] | None:
        """How it ended: `reason`, as far as a rank said so, and `gone`, the hosts that were; None: it has not."""
        return self._read("gone.json") if (self.path / "gone.json").exists() else None

    def end(self, **how: Any) -> None:
        """It has ended."""
        write_json(self.path / "gone.json", how)

    def remove(self) -> None:
        """Take it away once the pool has ended, and what its ranks have left in shared memory."""
        for left in (shared(self.path), self.path):
            shutil.rmtree(left, ignore_errors=True)

    def _read(self, name: str) -> dict[str, Any]:
        return parse_json(read_bytes(self.path / name))


def shared(folder: Path) -> Path:
    """Where the ranks of a pool that is alone on this machine share memory."""
    return SHARED_MEMORY_FOLDER / f"{PREFIX}{folder.name}"


def left_in_memory() -> list[str]:
    """Names of the pools of which there is such a folder of this user's."""
    found = [path for path in SHARED_MEMORY_FOLDER.glob(f"{PREFIX}*") if path.stat().st_uid == os.getuid()]
    return [path.name.removeprefix(PREFIX) for path in found]


def segments_left() -> list[Path]:
    """Files through which other ranks of this user's shared memory, and that no process has mapped any more.

    They stay where a process that uses MPI by itself is killed, or an mpiexec without a folder of its own (`kept_in`).
    """
    settled = time.time() - SETTLE_TIME_S
    files = [
        path
        for path in SHARED_MEMORY_FOLDER.glob(f"sm_segment.*.{os.getuid()}.*")
        if path.lstat().st_mtime < settled
    ]
    for maps in Path("/proc").glob("[0-9]*/maps") if files else ():
        with suppress(OSError):  # it has ended, or is another user's
            text = maps.read_text(errors="replace")
            files = [path for path in files if str(path) not in text]
    return files


def kept_in(place: Path) -> dict[str, str]:
    """Make a folder for all that MPI leaves there if it is killed, and the variables that say so to mpiexec.

    Ranks share memory through files (16 MB each, though hardly any of it is ever touched), mpiexec has a folder of its
    own. Empty where there is no such file system.
    """
    try:
        place.mkdir(mode=0o700)
    except OSError:
        return {}
    return {"OMPI_MCA_btl_sm_backing_directory": str(place), "PRTE_MCA_prte_tmpdir_base": str(place)}
