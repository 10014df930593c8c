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

MESSAGE, WORD = b"m", b"w"
AT_ONCE = 4096  # rings that are heard as one
MOST = 400  # pipes that are kept open; systems allow a process some 1000 files


class Bell:
    """One rank's bell; without a folder, or where named pipes are not to be had, a silent one."""

    def __init__(self, folder: Path | None = None, rank: int = 0) -> None:
        self.folder = folder
        self.ear: int | None = None
        self.words = False  # somebody has rung for a word
        self._ropes: dict[int, int] = {}  # to the others' bells
        if folder is not None and hasattr(os, "mkfifo"):
            with contextlib.suppress(OSError):
                os.mkfifo(self._place(rank), 0o600)
                self.ear = os.open(self._place(rank), os.O_RDWR | os.O_NONBLOCK)  # never at its end
        self.hangs = self.ear is not None  # this rank can be rung

    def _place(self, rank: int) -> str:
        return f"{self.folder}/bell{rank}"

    def ring(self, ranks: Iterable[int], why: bytes = MESSAGE) -> None:
        """Wake some ranks; those that are not there, or have been rung often already, are not missed."""
        if self.ear is None:
            return
        for rank in ranks:
            try:
                os.write(self._ropes[rank], why)
            except KeyError:
                self._first_ring(rank, why)
            except OSError:
                pass

    def _first_ring(self, rank: int, why: bytes) -> None:
        with contextlib.suppress(OSError):
            rope = os.open(self._place(rank), os.O_WRONLY | os.O_NONBLOCK)
            if len(self._ropes) < MOST:
                self._ropes[rank] = rope
                os.write(rope, why)
                return
            try:
                os.write(rope, why)
            finally:
                os.close(rope)

    def sleep(self, seconds: float) -> bool:
        """Sleep until rung (True), or so long."""
        if self.ear is None:
            time.sleep(seconds)
        elif select.select((self.ear,), (), (), seconds)[0]:
            self.words = WORD in os.read(self.ear, AT_ONCE) or self.words
            return True
        return False
