"""Locks that the system takes back when their holder ends, however it does."""

from __future__ import annotations

import os
import time
from pathlib import Path

RUN_LOCK = (
    ".lock"  # in a run folder: shared by all who work on the run, so that nobody begins another one in it
)
_LOOKS = (0.0, 0.1, 0.2)  # s before each look: somebody else's is over soon


class Lock:
    """A lock on a file, held by one alone or shared by several.

    Two of them exclude each other wherever they are: in threads, processes, and on hosts that share the file system.
    Where that knows no locks (Windows, some network file systems), everybody gets them.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / ".lock"
    >>> first, second = Lock(path), Lock(path)
    >>> first.take(), second.take(), first.release(), second.take(shared=True)
    (True, False, None, True)
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._handle: int | None = None

    def take(self, shared: bool = False) -> bool:
        """Take it, or another hold of it; False where another has it. Raises OSError where there can be no file."""
        if self._handle is None:
            self._handle = _opened(self.path)
        if any(_locked(self._handle, shared, pause) for pause in _LOOKS):
            return True
        self.release()
        return False

    def claim(self) -> bool:
        """Share it, if nobody else has it: of several who claim it at the same time, one at most can."""
        return self.take() and self.take(shared=True)

    def release(self) -> None:
        """Let go. May be called again."""
        handle, self._handle = self._handle, None
        if handle is not None:
            _unlock(handle)  # not left to `close`: a process that was forked meanwhile has the file open, too
            os.close(handle)

    def __del__(self) -> None:
        self.release()

    @property
    def held(self) -> bool:
        """Has another one got it?"""
        if not self.path.exists():
            return False
        free = self.take()
        self.release()
        return not free


def _opened(path: Path) -> int:
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    except OSError:  # a folder that may only be read
        return os.open(path, os.O_RDONLY)


def _locked(handle: int, shared: bool, pause: float) -> bool:
    time.sleep(pause)
    try:
        import fcntl
    except ImportError:  # Windows
        return True
    try:
        fcntl.flock(handle, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # no locks on this file system
        return True
    return True


def _unlock(handle: int) -> None:
    try:
        import fcntl

        fcntl.flock(handle, fcntl.LOCK_UN)
    except (ImportError, OSError):
        return
