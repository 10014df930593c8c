"""Locks that the system takes back when their holder ends, however it does."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

_LOOKS = (0.0, 0.1, 0.2)  # s before each look: somebody else's is over soon


class Lock:
    """A lock on a file, which one holder has alone, be it a thread, a process, or on another host of a shared disk.

    Where the file system knows no locks (Windows, some network file systems), everybody gets it.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / ".lock"
    >>> first, second = Lock(path), Lock(path)
    >>> first.take(), second.take(), first.release(), second.take()
    (True, False, None, True)
    """

    def __init__(self, path: Path, mode: int = 0o666) -> None:
        self.path, self.mode = path, mode
        self._handle: int | None = None

    def take(self) -> bool:
        """Take it; False where another has it. Raises OSError where there can be no file."""
        try:
            handle = os.open(self.path, os.O_RDWR | os.O_CREAT, self.mode)
        except OSError as error:  # a folder that may only be read
            try:
                handle = os.open(self.path, os.O_RDONLY)
            except FileNotFoundError:
                raise error from None  # why there can be no file
        if not any(_locked(handle, pause) for pause in _LOOKS):
            os.close(handle)
            return False
        self._handle = handle
        return True

    def release(self) -> None:
        """Let go. May be called again."""
        handle, self._handle = self._handle, None
        if handle is not None:
            # Not left to `close`: a process that was forked meanwhile has the file open, too.
            with suppress(OSError):
                if fcntl is not None:
                    fcntl.flock(handle, fcntl.LOCK_UN)
            os.close(handle)

    @contextmanager
    def alone(self, refusal: Exception) -> Iterator[None]:
        """Have it for a block; raises `refusal` where another has it."""
        if not self.take():
            raise refusal
        try:
            yield
        finally:
            self.release()

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


def _locked(handle: int, pause: float) -> bool:
    time.sleep(pause)
    try:
        if fcntl is not None:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # no locks on this file system
        return True
    return True
