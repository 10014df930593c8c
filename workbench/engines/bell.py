"""A bell per rank: who has sent something rings, so that the receiver can sleep until then.

MPI tells nobody that a message has come; a rank finds out by looking, and with a hundred ranks on a few cores, looking
is what the cores are busy with. A datagram without content, over a socket in a folder that only this user may enter,
wakes a rank within microseconds. Ranks on other hosts cannot ring; who has such peers looks again and again.
"""

from __future__ import annotations

import contextlib
import select
import socket
import time
from collections.abc import Iterable
from pathlib import Path

LONGEST_PATH = 100  # bytes; systems allow 103 to 107


class Bell:
    """One rank's bell; without a folder, or where sockets are not to be had, a silent one."""

    def __init__(self, folder: Path | None = None, rank: int = 0) -> None:
        self.folder = folder
        self.socket: socket.socket | None = None
        if folder is not None and hasattr(socket, "AF_UNIX"):
            with contextlib.suppress(OSError):
                self._hang(self._place(rank))

    def _hang(self, place: str) -> None:
        if len(place.encode()) > LONGEST_PATH:
            return
        own = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        own.setblocking(False)
        own.bind(place)
        self.socket = own

    def _place(self, rank: int) -> str:
        return f"{self.folder}/bell{rank}"

    @property
    def hangs(self) -> bool:
        """Can this rank be rung?"""
        return self.socket is not None

    def ring(self, ranks: Iterable[int]) -> None:
        """Wake some ranks; those that are not there, or have been rung already, are not missed."""
        if self.socket is not None:
            for rank in ranks:
                with contextlib.suppress(OSError):
                    self.socket.sendto(b"", self._place(rank))

    def sleep(self, seconds: float) -> bool:
        """Sleep until rung (True), or so long."""
        if self.socket is None:
            time.sleep(seconds)
        elif select.select([self.socket], [], [], seconds)[0]:
            with contextlib.suppress(BlockingIOError):
                while True:
                    self.socket.recv(1)
            return True
        return False
