"""A bell per rank: who has sent something rings, so that the receiver can sleep until then.

MPI tells nobody that a message has come; a rank finds out by looking, and with a hundred ranks on a few cores, looking
is what the cores are busy with. A byte in a named pipe, in a folder that only this user may enter, wakes a rank within
microseconds, and says whether a message has come or a word of rank 0. Ranks on other hosts cannot ring; who has such
peers looks again and again.
"""

import contextlib
import os
import select
import time
from collections.abc import Iterable
from pathlib import Path

MESSAGE, CONTROL = b"m", b"w"
MAX_BYTES_PER_READ = 4096  # rings that are heard as one
MAX_OPEN_PIPES = 400  # pipes that are kept open; systems allow a process some 1000 files


class WakeupPipe:
    """One rank's bell; without a folder, or where named pipes are not to be had, a silent one."""

    def __init__(self, folder: Path | None = None, rank: int = 0) -> None:
        self.folder = folder
        self._read_fd: int | None = None
        self.control_pending = False  # somebody has rung for a word
        self._write_fds: dict[int, int] = {}  # to the others' bells
        if folder is not None and hasattr(os, "mkfifo"):
            with contextlib.suppress(OSError):
                os.mkfifo(self._path(rank), 0o600)
                self._read_fd = os.open(self._path(rank), os.O_RDWR | os.O_NONBLOCK)  # never at its end
        self.enabled = self._read_fd is not None  # this rank can be rung

    def _path(self, rank: int) -> str:
        return f"{self.folder}/wakeup{rank}"

    def notify(self, ranks: Iterable[int], reason: bytes = MESSAGE) -> None:
        """Wake some ranks; those that are not there, or have been rung often already, are not missed."""
        if self._read_fd is None:
            return
        for rank in ranks:
            try:
                os.write(self._write_fds[rank], reason)
            except KeyError:
                self._notify_first_time(rank, reason)
            except OSError:
                pass

    def _notify_first_time(self, rank: int, reason: bytes) -> None:
        with contextlib.suppress(OSError):
            write_fd = os.open(self._path(rank), os.O_WRONLY | os.O_NONBLOCK)
            if len(self._write_fds) < MAX_OPEN_PIPES:
                self._write_fds[rank] = write_fd
                os.write(write_fd, reason)
                return
            try:
                os.write(write_fd, reason)
            finally:
                os.close(write_fd)

    def sleep(self, seconds: float) -> bool:
        """Sleep until rung (True), or so long."""
        if self._read_fd is None:
            time.sleep(seconds)
        elif select.select((self._read_fd,), (), (), seconds)[0]:
            self.control_pending = (
                CONTROL in os.read(self._read_fd, MAX_BYTES_PER_READ) or self.control_pending
            )
            return True
        return False
