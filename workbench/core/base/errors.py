"""Errors of runs. Each message is one sentence."""

import errno
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path


def quoted(value: object, longest: int = 300) -> str:
    r"""Return the beginning of another program's output, for an error message: on one line, and printable.

    >>> quoted("Welcome!\n\x1b[1mNews\x1b[0m", 12)
    'Welcome! ...'
    """
    line = " ".join(str(value).split())
    line = "".join(character if character.isprintable() else "?" for character in line)
    return line if len(line) <= longest else f"{line[: longest - 3]}..."


MIN_INODES = 100  # min number of free inodes of a file system for the start of a run


def reason(error: OSError, path: Path | None = None) -> str:
    """Return why a file or folder cannot be written: the system's message, and the exhausted resource if it is known.

    >>> reason(OSError(errno.EROFS, "Read-only file system"))
    'Read-only file system'
    """
    text = error.strerror or type(error).__name__
    if error.errno == errno.EMFILE:
        return f"{text}: the limit is {_file_limit()}, see ulimit -n"
    if error.errno != errno.ENOSPC:
        return text
    given = path or error.filename2 or error.filename
    for place in [] if not isinstance(given, str | Path) else [Path(given), *Path(given).parents]:
        with suppress(OSError):
            room = os.statvfs(place)
            used_up = room.f_files and room.f_favail < MIN_INODES and room.f_bavail
            return f"{text}: {room.f_favail} inodes are left, remove some files" if used_up else text
    return text


def sentence_of(error: OSError) -> str:
    """Return an OSError as one sentence with the file, without the error number."""
    named = [str(name) for name in (error.filename, error.filename2) if isinstance(name, str | Path)]
    where = f"{named[-1]}: " if named else ""
    return f"{where}{reason(error)}" if error.strerror else str(error) or type(error).__name__


def _file_limit() -> int:
    import resource

    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


class PrecisionWarning(UserWarning):
    """Warning: decoding may lose more than half of the digits. The message names a better code, if there is one."""


class WorkbenchError(RuntimeError):
    """Base of the errors below."""


class MissingLayer(WorkbenchError, ImportError):
    """Error: dependencies of a layer of the package are not installed. The message has the pip command."""


class RunError(WorkbenchError):
    """Error: a run cannot continue. All commits before the error are correct.

    >>> issubclass(QuorumLost, RunError)
    True
    """


class QuorumLost(RunError):
    """Error: a parent lost more children than its code tolerates.

    `parent`: rank of the parent (-1: the ring). `round`: round of the loss. `missing`: ranks of the lost children.
    `why`: reasons, by rank.

    >>> str(QuorumLost(0, 7, [3], {3: "killed"})).split(", ")[0]
    'round 7: the master lost worker 3 (killed)'
    """

    def __init__(
        self, parent: int, round: int, missing: Sequence[int], why: Mapping[int, str] | None = None
    ) -> None:
        who = {-1: "the ring", 0: "the master"}.get(parent, f"worker {parent}")
        known = why or {}
        names = ", ".join(f"{r} ({known[r]})" if r in known else str(r) for r in missing)
        super().__init__(
            f"round {round}: {who} lost worker{'s' * (len(missing) > 1)} {names}, more than the scheme tolerates;"
            " raise stragglers, or drop the dead workers"
        )
        self.parent, self.round, self.missing, self.why = parent, round, tuple(missing), dict(known)


class Deadlock(RunError):
    """Error: all ranks of a run wait, and no message is under way. `waiting`: text about the waiting ranks.

    >>> print(Deadlock(3, "the master waits for 2 more answers"))
    round 3: nothing is left that could happen, and the master waits for 2 more answers
    """

    def __init__(self, round: int, waiting: str) -> None:
        super().__init__(f"round {round}: nothing is left that could happen, and {waiting}")
        self.round = round


class Diverged(RunError):
    """Error: the model is no longer finite, because step sizes were too large."""

    def __init__(self, round: int) -> None:
        super().__init__(f"round {round}: the model is no longer finite; take a smaller step")
        self.round = round


class ClusterError(RunError):
    """Error: the processes of a run cannot be started, or have ended. The message has the host and advice.

    >>> issubclass(ClusterError, RunError)
    True
    """
