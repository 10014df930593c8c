"""Control messages between rank 0 and the others, apart from the messages of a run: tasks, start, end, reports.

A control message is a JSON object, optionally followed by bytes. Control messages may have any length, and use their
own communicator.
"""

import json
import time
from collections.abc import Iterable
from typing import Any

import numpy as np
from mpi4py import MPI

from workbench.mpi.engine.wakeup import CONTROL, WakeupPipe

TAG = 2
COLLECTIVE_POLL_INTERVAL_S = 2e-5  # s between tests of a collective operation, per rank


class Control:
    """Control channel of one rank, which never blocks. All ranks of the world create theirs at the same time."""

    def __init__(self, world: MPI.Intracomm, wakeup: WakeupPipe | None = None) -> None:
        world.Set_errhandler(MPI.ERRORS_RETURN)
        self.world, self.comm, self.rank, self.size = world, dup_comm(world), world.rank, world.size
        self.comm.Set_errhandler(MPI.ERRORS_RETURN)
        self.wakeup = wakeup or WakeupPipe()
        self.dead: set[int] = set()
        self._out: list[tuple[MPI.Request, Any]] = []

    def send(self, to: int | Iterable[int], content: dict[str, Any], data: bytes = b"") -> None:
        """Send a control message to one rank or to several."""
        text = json.dumps(content).encode()
        message = np.frombuffer(len(text).to_bytes(8, "little") + text + data, dtype=np.uint8)
        ranks = [to] if isinstance(to, int) else list(to)
        for rank in ranks:
            if rank in self.dead:
                continue
            try:
                self._out.append((self.comm.Isend([message, MPI.BYTE], rank, TAG), message))
            except MPI.Exception:
                self.dead.add(rank)
        self.wakeup.notify(ranks, CONTROL)

    def poll(self) -> list[tuple[int, dict[str, Any], bytes]]:
        """Return the control messages that have arrived: sender, fields, bytes."""
        self.wakeup.control_pending = False
        if self._out:
            self._out = [entry for entry in self._out if not _sent(entry[0])]
        found = []
        status = MPI.Status()
        # probed twice, because the first probe may only let MPI make progress
        while message := self._probe(status) or self._probe(status):
            buffer = np.empty(status.Get_count(MPI.BYTE), dtype=np.uint8)
            message.Recv([buffer, MPI.BYTE])
            text = buffer.tobytes()
            end = 8 + int.from_bytes(text[:8], "little")
            found.append((status.Get_source(), json.loads(text[8:end]), text[end:]))
        return found

    def _probe(self, status: MPI.Status) -> MPI.Message | None:
        try:
            return self.comm.Improbe(MPI.ANY_SOURCE, TAG, status)
        except MPI.Exception:
            self.comm.Ack_failed()  # after this call, receiving from any source is possible again
            return None

    @property
    def drained(self) -> bool:
        """Whether all messages have been sent."""
        self._out = [entry for entry in self._out if not _sent(entry[0])]
        return not self._out


def dup_comm(comm: MPI.Intracomm) -> MPI.Intracomm:
    """Duplicate a communicator. All its ranks call this, and sleep while they wait for each other."""
    found, request = comm.Idup()
    while not request.Test():
        time.sleep(max(2e-4, COLLECTIVE_POLL_INTERVAL_S * comm.size))
    return found


def _sent(request: MPI.Request) -> bool:
    try:
        return bool(request.Test())
    except MPI.Exception:
        return True  # the receiver is dead
