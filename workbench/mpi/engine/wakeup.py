"""One wake-up pipe per rank, so that a receiver can sleep until a sender notifies it.

MPI has no wake-up: a rank finds a message only by polling. With a hundred ranks on a few cores, polling would use up
the cores. One byte in a named pipe wakes a rank within microseconds. Its value is `MESSAGE` for an MPI message, or
`CONTROL` for a control message of rank 0. Only this user may enter the folder of the pipes. A rank on another host
cannot write to them, so a rank with remote peers keeps polling.
"""

import contextlib
import os
import select
import time
from collections.abc import Iterable
from pathlib import Path

MESSAGE, CONTROL = b"m", b"w"
MAX_BYTES_PER_READ = 4096  # max bytes (notifications) per read
# max number of write ends that stay open, because a process may often open only about 1000 files
MAX_OPEN_PIPES = 400


class WakeupPipe:
    """Wake-up pipe of one rank (a self-pipe that other ranks can write to).

    Without a folder, or without named pipes, `enabled` is False. Then `notify` does nothing, and `sleep` only sleeps.
    """

    def __init__(self, folder: Path | None = None, rank: int = 0) -> None:
        self.folder = folder
        self._read_fd: int | None = None
        self.control_pending = False  # whether a control message was announced and has not been read yet
        self._write_fds: dict[int, int] = {}  # rank -> write end of its pipe
        if folder is not None and hasattr(os, "mkfifo"):
            with contextlib.suppress(OSError):
                os.mkfifo(self._path(rank), 0o600)
                # Opened for writing as well, so that the pipe never reports end of file
                self._read_fd = os.open(self._path(rank), os.O_RDWR | os.O_NONBLOCK)
        self.enabled = self._read_fd is not None  # whether this rank can be woken

    def _path(self, rank: int) -> str:
        return f"{self.folder}/wakeup{rank}"

    def notify(self, ranks: Iterable[int], reason: bytes = MESSAGE) -> None:
        """Wake up some ranks, without waiting for them.

        A rank that has ended is skipped. A full pipe is skipped as well, since its rank will wake up anyway.
        """
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
        """Sleep until notified, for at most `seconds`. Return whether notified."""
        if self._read_fd is None:
            time.sleep(seconds)
        elif select.select((self._read_fd,), (), (), seconds)[0]:
            self.control_pending |= CONTROL in os.read(self._read_fd, MAX_BYTES_PER_READ)
            return True
        return False
