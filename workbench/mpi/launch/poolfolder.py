"""Folder of a pool, through which client, supervisor and ranks of the pool communicate.

======================  ====================================================================================
``pool.json``           settings of supervisor and rank 0, see `workbench.mpi.launch.head.pools`
``log.txt``             output of supervisor, mpiexec and ranks; lines with `PROGRESS_PREFIX` are for
                        the supervisor
``forkserver``          socket for the ranks' stubs, see `workbench.mpi.launch.rank.forkserver`
``progress``            number of ranks that are up, during the start
``ready.json``          process and host of each rank, once all are up
``tasks/``              submitted runs, one file each; rank 0 removes the oldest
``lost.json``           ranks on other hosts that died, as found by the supervisor
``quit``                request to end the pool
``gone.json``           exists once the pool has ended, with the reason
======================  ====================================================================================

JSON files are written atomically, so that others can read them at any time.
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

from workbench.core.base.files import private_folder, write_file, write_json
from workbench.core.base.reading import parse_json, read_bytes, read_text
from workbench.mpi.launch.processes import ProcessId

# Prefix of lines that a rank prints for the supervisor: up, done, or failed and why
PROGRESS_PREFIX = "workbench:"
SHARED_MEMORY_FOLDER = Path("/dev/shm")  # Open MPI's shared memory on Linux
# s after which all ranks have mapped the shared memory, so that unmapped files are left over
SETTLE_TIME_S = 60.0
PREFIX = "straggler-workbench-"  # prefix of a pool's folder in SHARED_MEMORY_FOLDER
LOGS = "logs"  # folder of the logs of failed starts, beside that of the pools
MAX_LOGS = 20  # max number of logs in that folder
ARRAYS = "task.npz"  # file in the run folder: the arrays of a task


def say(*fields: Any) -> None:
    """Print a line of a rank for the supervisor, in a single write, because forked ranks share one pipe."""
    os.write(1, " ".join(map(str, (PROGRESS_PREFIX, *fields))).encode() + b"\n")


@dataclass(frozen=True)
class PoolFolder:
    """Folder of one pool."""

    path: Path

    def make(self, settings: dict[str, Any]) -> None:
        """Create the folder, for this user only."""
        self.path.mkdir(parents=True, mode=0o700)
        (self.path / "tasks").mkdir()
        write_json(self.path / "pool.json", settings)

    def settings(self) -> dict[str, Any]:
        """Return the settings of the pool. Raises OSError if they no longer exist."""
        return self._read("pool.json")

    @property
    def log(self) -> Path:
        """Log file of supervisor, mpiexec and ranks."""
        return self.path / "log.txt"

    def logged(self) -> list[str]:
        """Return the lines of the log that are not blank."""
        text = read_text(self.log, errors="replace") if self.log.exists() else ""
        return [line.strip() for line in text.splitlines() if line.strip(" -")]

    def kept_log(self) -> str:
        """Copy the log to a folder that outlives this one. Return "; see PATH", or "" if that fails."""
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
        """Number of ranks that are up, during the start."""
        try:
            return int(read_text(self.path / "progress") or 0)
        except (OSError, ValueError):
            return 0

    def count(self, up: int) -> None:
        """Write the number of ranks that are up."""
        (self.path / "progress").write_text(str(up))

    @property
    def ready(self) -> bool:
        """Whether all ranks are up."""
        return (self.path / "ready.json").exists()

    def places(self) -> list[ProcessId]:
        """Return process and host of each rank. Raises OSError before all are up."""
        return [ProcessId(*place) for place in self._read("ready.json")["places"]]

    def begin(self, places: Iterable[ProcessId]) -> None:
        """Write process and host of each rank, once all are up."""
        write_json(self.path / "ready.json", {"places": list(places)})

    def hand_in(self, fields: dict[str, Any], arrays: bytes) -> Path:
        """Submit a run. Return a file that exists until rank 0 takes it."""
        write_file(Path(fields["folder"]) / ARRAYS, arrays)
        path = self.path / "tasks" / f"{time.time_ns()}-{secrets.token_hex(4)}.json"
        write_json(path, fields)
        return path

    def next_task(self) -> Path | None:
        """Return the oldest waiting run, or None."""
        with os.scandir(self.path / "tasks") as found:
            names = [entry.name for entry in found if entry.name.endswith(".json")]
        return self.path / "tasks" / min(names) if names else None

    def lost(self) -> list[int]:
        """Return the ranks on other hosts that died."""
        return list(self._read("lost.json")["ranks"]) if (self.path / "lost.json").exists() else []

    def lose(self, ranks: Iterable[int]) -> None:
        """Write the ranks on other hosts that died."""
        write_json(self.path / "lost.json", {"ranks": sorted(ranks)})

    @property
    def quitting(self) -> bool:
        """Whether the pool was asked to end."""
        return (self.path / "quit").exists()

    def quit(self) -> None:
        """Ask the pool to end."""
        (self.path / "quit").touch()

    def gone(self) -> dict[str, Any] | None:
        """Return how the pool ended, or None: `reason`, if a rank gave one, and `gone`, the lost hosts."""
        return self._read("gone.json") if (self.path / "gone.json").exists() else None

    def end(self, **how: Any) -> None:
        """Write that the pool has ended."""
        write_json(self.path / "gone.json", how)

    def remove(self) -> None:
        """Remove the folder of an ended pool, and what its ranks have left in shared memory."""
        for left in (shared(self.path), self.path):
            shutil.rmtree(left, ignore_errors=True)

    def _read(self, name: str) -> dict[str, Any]:
        return parse_json(read_bytes(self.path / name))


def shared(folder: Path) -> Path:
    """Return the folder of the shared memory of a pool whose ranks are all on this machine."""
    return SHARED_MEMORY_FOLDER / f"{PREFIX}{folder.name}"


def left_in_memory() -> list[str]:
    """Return the names of this user's pools whose folder is still in shared memory."""
    found = [path for path in SHARED_MEMORY_FOLDER.glob(f"{PREFIX}*") if path.stat().st_uid == os.getuid()]
    return [path.name.removeprefix(PREFIX) for path in found]


def segments_left() -> list[Path]:
    """Return files of this user's MPI shared memory that no process has mapped.

    A killed process leaves such files, if it used MPI by itself or under an mpiexec without `kept_in`.
    """
    settled = time.time() - SETTLE_TIME_S
    files = [
        path
        for path in SHARED_MEMORY_FOLDER.glob(f"sm_segment.*.{os.getuid()}.*")
        if path.lstat().st_mtime < settled
    ]
    for maps in Path("/proc").glob("[0-9]*/maps") if files else ():
        with suppress(OSError):  # the process has ended, or is another user's
            text = maps.read_text(errors="replace")
            files = [path for path in files if str(path) not in text]
    return files


def kept_in(place: Path) -> dict[str, str]:
    """Create a folder for everything that MPI leaves when it is killed. Return the variables for mpiexec.

    Ranks share memory through files (16 MB each, hardly used), and mpiexec has its own folder. Empty if there is
    no such file system.
    """
    try:
        place.mkdir(mode=0o700)
    except OSError:
        return {}
    return {"OMPI_MCA_btl_sm_backing_directory": str(place), "PRTE_MCA_prte_tmpdir_base": str(place)}
