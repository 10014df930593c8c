"""What can go wrong while a run is under way. Each message is one sentence."""

import errno
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path


def quoted(value: object, longest: int = 300) -> str:
    r"""Return the beginning of another program's words, for a sentence: on one line, and printable.

    >>> quoted("Welcome!\n\x1b[1mNews\x1b[0m", 12)
    'Welcome! ...'
    """
    line = " ".join(str(value).split())
    line = "".join(character if character.isprintable() else "?" for character in line)
    return line if len(line) <= longest else f"{line[: longest - 3]}..."


MIN_INODES = 100  # files that may still be made on a file system, below which a run is not begun


def reason(error: OSError, path: Path | None = None) -> str:
    """Return why a file or folder cannot be written: the system's words, and what is used up where that is known.

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
    """Return an error of the system as one sentence that names the file, without its number."""
    named = [str(name) for name in (error.filename, error.filename2) if isinstance(name, str | Path)]
    where = f"{named[-1]}: " if named else ""
    return f"{where}{reason(error)}" if error.strerror else str(error) or type(error).__name__


def _file_limit() -> int:
    import resource

    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


class PrecisionWarning(UserWarning):
    """Decoding may lose more than half of a number's digits; the message names a better code."""


class WorkbenchError(RuntimeError):
    """Base of the errors below."""


class MissingLayer(WorkbenchError, ImportError):
    """A layer of the package is used whose dependencies are not installed; the message has the pip command."""


class RunError(WorkbenchError):
    """A run cannot go on; nothing wrong was committed.

    >>> issubclass(QuorumLost, RunError)
    True
    """


class QuorumLost(RunError):
    """A parent lost more children than its code tolerates. `why`: what is known of them, by rank.

    `parent`: who waited (-1: the ring), `round`: when, `missing`: the ranks that it lost.

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
    """Nothing can happen any more, yet the run is not over. `waiting`: who waits for what.

    >>> print(Deadlock(3, "the master waits for 2 more answers"))
    round 3: nothing is left that could happen, and the master waits for 2 more answers
    """

    def __init__(self, round: int, waiting: str) -> None:
        super().__init__(f"round {round}: nothing is left that could happen, and {waiting}")
        self.round = round


class Diverged(RunError):
    """The model is not finite any more: steps were too large."""

    def __init__(self, round: int) -> None:
        super().__init__(f"round {round}: the model is no longer finite; take a smaller step")
        self.round = round


class ClusterError(RunError):
    """The processes of a run cannot be had, or are gone. The message says which, where, and what would help.

    >>> issubclass(ClusterError, RunError)
    True
    """
