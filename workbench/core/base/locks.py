"""File locks, which the system releases when the owning process ends for any reason."""

import errno
import os
import random
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from weakref import WeakSet

from workbench.core.base.settings import SettingError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

_LOCKS = Path("/proc/locks")
_FLAGS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
# s before each attempt to take the lock; a process that only checks the lock releases it within this time
_PAUSES_BEFORE_LOOKS_S = (0.0, 0.1, 0.2)


class Lock:
    """Exclusive lock on a file, for one thread or process, also among hosts with a shared disk.

    On systems without file locks (Windows, some network file systems), every attempt succeeds. The file is private:
    another user who could open it could also lock it.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / ".lock"
    >>> first, second = Lock(path), Lock(path)
    >>> first.take(), second.take(), first.release(), second.take()
    (True, False, None, True)
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._handle: int | None = None

    def take(self) -> bool:
        """Take the lock and return True, or return False if another process or thread has it.

        Raises OSError if the file cannot be made. Raises `SettingError` if another program has a shared lock, which
        this package never takes.
        """
        handle = self._opened()
        try:
            if any(_locked(handle, pause) for pause in _PAUSES_BEFORE_LOOKS_S) or self._shared(handle):
                self._handle = handle
                _held.add(self)
                return True
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)
        return False

    def _shared(self, handle: int) -> bool:
        """Try again to take the lock, which another process may have had only for a check.

        Return False if another process has the lock. Raises `SettingError` if another program has a read lock.
        """
        for _ in _PAUSES_BEFORE_LOOKS_S:
            if not _locked(handle, random.uniform(0, 0.05), shared=True):
                return False
            if _locked(handle, 0.0):
                return True
        raise SettingError(
            f"{self.path}: another program holds a read lock on it; end that, or copy the folder"
        )

    def _opened(self) -> int:
        try:
            handle = os.open(self.path, os.O_RDWR | os.O_CREAT | _FLAGS, 0o600)
        except OSError as error:  # the folder may be read-only
            try:
                handle = os.open(self.path, os.O_RDONLY | _FLAGS)
            except FileNotFoundError:
                raise error from None  # `error` is the original reason: the file could not be made
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            os.close(handle)
            raise OSError(errno.EINVAL, "no regular file", str(self.path))
        if status.st_mode & 0o077 and os.name == "posix":
            with suppress(OSError):  # the file belongs to another user
                os.fchmod(handle, 0o600)
        return handle

    def release(self) -> None:
        """Release the lock. Further calls have no effect."""
        handle, self._handle = self._handle, None
        if handle is not None:
            # Closing the file would not release the lock if a forked process still has the file open.
            with suppress(OSError):
                if fcntl is not None:
                    fcntl.flock(handle, fcntl.LOCK_UN)
            os.close(handle)

    @contextmanager
    def alone(self, refusal: Exception) -> Iterator[None]:
        """Take the lock for a block. Raises `refusal` if another process or thread has it."""
        if not self.take():
            raise refusal
        try:
            yield
        finally:
            self.release()

    def __del__(self) -> None:
        self.release()

    @property
    def locked(self) -> bool:
        """Whether another process or thread has the lock, as far as this user can see. Read locks do not count."""
        if not self.path.exists():
            return False
        try:
            free = self.take()
        except PermissionError:  # the run belongs to another user
            return _listed(self.path)
        except (OSError, SettingError):
            return False
        self.release()
        return not free


_held = WeakSet[Lock]()  # locks that this process has taken


def _after_fork() -> None:
    """Close the lock files of the parent process, which would stay locked until the last child of a killed one ends."""
    for lock in _held:
        handle, lock._handle = lock._handle, None
        if handle is not None:
            os.close(handle)


if hasattr(os, "register_at_fork"):  # missing on Windows
    os.register_at_fork(after_in_child=_after_fork)


def _listed(path: Path) -> bool:
    """Return whether /proc/locks lists a lock on a file that cannot be opened."""
    try:
        status, lines = path.stat(), _LOCKS.read_text().splitlines()
    except OSError:
        return False
    place = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    return any("FLOCK" in line and "WRITE" in line and place in line.split() for line in lines)


def _locked(handle: int, pause: float, shared: bool = False) -> bool:
    time.sleep(pause)
    try:
        if fcntl is not None:
            fcntl.flock(handle, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # the file system has no locks
        return True
    return True
