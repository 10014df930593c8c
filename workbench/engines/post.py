"""Messages between ranks over MPI: posted receives, buffered sends, and who died.

Every rank has a persistent receive posted for each peer at all times and never blocks: `poll` tests what is under
way. A send's buffer stays alive until MPI is done with it. Of models, at most one is on its way to a peer; while it
is, only the newest of those that follow is kept. At the end every peer gets a last word, so that no receive is left
over and the communicator can be freed (MPI_Cancel is never used).
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI

from workbench.engines.bell import Bell
from workbench.engines.wire import HEADER, Bytes, Envelope, Refused, Unusable, room, seal, unseal
from workbench.protocol import MODEL

TAG = 1
SENDS_EVERY = 2e-2  # s between looks at what is being sent
BYE = "bye"


class Buffers:
    """Byte arrays of one size, taken again once nobody holds a view of them."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.all: deque[Bytes] = deque()

    def take(self) -> Bytes:
        """A buffer that is not in use; a new one only where all are."""
        for _ in range(len(self.all)):
            self.all.rotate(-1)
            buffer = self.all[-1]
            if sys.getrefcount(buffer) == _IDLE:
                return buffer
        self.all.append(np.empty(self.size, dtype=np.uint8))
        return self.all[-1]


def _idle() -> int:
    """How many references the interpreter counts of a buffer that only the pool holds."""
    pool = deque([np.empty(1)])
    buffer = pool[-1]
    return sys.getrefcount(buffer)


_IDLE = _idle()


class Slots:
    """Persistent receives from one peer: one is posted, the others' buffers are still looked at by somebody.

    What has come is thus never copied; a slot is posted again once nobody holds a view of its buffer.
    """

    def __init__(self, comm: MPI.Intracomm, peer: int, size: int) -> None:
        self.comm, self.peer, self.size = comm, peer, size
        self.all: list[tuple[Bytes, Any, int]] = []  # with its receive, and its references while idle
        self.posted = 0
        self._add()

    def _add(self) -> None:
        buffer = np.zeros(self.size, dtype=np.uint8)
        request = self.comm.Recv_init([buffer, MPI.BYTE], self.peer, TAG)
        self.all.append((buffer, request, sys.getrefcount(buffer)))

    @property
    def came(self) -> Bytes:
        """The buffer of the receive that is, or was, posted."""
        return self.all[self.posted][0]

    def post(self) -> MPI.Request:
        """Post a receive into a buffer that nobody looks at."""
        for _ in range(len(self.all)):
            self.posted = (self.posted + 1) % len(self.all)
            if self._is_idle(self.posted):
                break
        else:
            self._add()
            self.posted = len(self.all) - 1
        buffer, request, _ = self.all[self.posted]
        buffer[:HEADER] = 0  # neither a shorter message nor none must be taken for the last one
        request.Start()
        return request

    def _is_idle(self, place: int) -> bool:
        buffer, _, idle = self.all[place]
        return sys.getrefcount(buffer) <= idle

    def free(self) -> None:
        """Give the receives back."""
        for _, request, _ in self.all:
            request.Free()


def _fetched() -> bool:
    """Does the receiver of a long message read it out of the sender's memory, so that the sender need not look?

    Open MPI does so on Linux unless the system forbids it (`ptrace_scope` 2 and 3, or a container without that call).
    """
    if sys.platform != "linux":
        return False
    scope = Path("/proc/sys/kernel/yama/ptrace_scope")
    try:
        if scope.exists() and int(scope.read_text()) > 1:
            return False
        return bool(ctypes.CDLL(None, use_errno=True).process_vm_readv(os.getpid(), None, 0, None, 0, 0) == 0)
    except (OSError, ValueError, AttributeError):
        return False


_FETCHED = _fetched()
_testsome = MPI.Request.Testsome


class Post:
    """One rank's post office in one run. `refused(sender, round, reason)` hears of messages that are no good."""

    def __init__(
        self,
        comm: MPI.Intracomm,
        run: int,
        peers: Sequence[int],
        floats: int,
        refused: Callable[[int, int, str], None],
        bell: Bell | None = None,
    ) -> None:
        self.comm, self.run, self.peers, self.refused = comm, run, list(peers), refused
        self.bell = bell or Bell()
        self.rank = comm.rank
        self.buffers = Buffers(room(floats))
        self.slots = [Slots(comm, peer, room(floats)) for peer in self.peers]
        self.receives: list[Any] = [slots.post() for slots in self.slots]
        self.open = [True] * len(self.peers)  # a receive is posted
        self.dead: set[int] = set()
        self.said_bye: set[int] = set()
        self.sent_serial = 0
        self.look_at = 0.0  # when to look at what is being sent
        self.seen_serial: dict[tuple[int, bool], int] = {}  # models may be overtaken by what is no model
        self.outputs: list[tuple[MPI.Request, Bytes, int]] = []  # with what it reads from, and to whom
        self.model_out: dict[int, MPI.Request] = {}  # the model on its way to a peer
        self.model_next: dict[int, tuple[Bytes, int]] = {}  # the newest that waits until then

    # ---------------------------------------------------------------- sending

    def send(self, to: Sequence[int], envelope: Envelope, value: Any, newest: bool = False) -> None:
        """Send to each peer; returns at once. `newest`: what is not on its way yet gives way to what is sent later."""
        self.sent_serial += 1
        buffer = self.buffers.take()
        length = seal(buffer, envelope, value, self.run, self.sent_serial)
        if newest and self.outputs:
            self._progress_sends()  # most of the last models have arrived
        for peer in to:
            if peer in self.dead:
                continue
            if newest and peer in self.model_out:
                self.model_next[peer] = (buffer, length)
            else:
                self._isend(peer, buffer, length, newest)
        self.bell.ring(to)

    def _isend(self, peer: int, buffer: Bytes, length: int, newest: bool) -> None:
        try:
            request = self.comm.Isend([buffer, length, MPI.BYTE], peer, TAG)
        except MPI.Exception:
            self.bury(peer)
            return
        self.outputs.append((request, buffer, peer))
        if newest:
            self.model_out[peer] = request

    def _progress_sends(self) -> None:
        """Let go of what has left."""
        try:
            done = MPI.Request.Testsome([request for request, _, _ in self.outputs]) or []
        except MPI.Exception:
            self.outputs = [entry for entry in self.outputs if not self._sent(*entry)]
        else:
            for place in sorted(done, reverse=True):
                request, _, peer = self.outputs.pop(place)
                if self.model_out.get(peer) is request:
                    del self.model_out[peer]
        for peer in [p for p in self.model_next if p not in self.model_out]:
            buffer, length = self.model_next.pop(peer)
            self._isend(peer, buffer, length, newest=True)
            self.bell.ring([peer])

    def _sent(self, request: MPI.Request, buffer: Bytes, peer: int) -> bool:
        try:
            done = bool(request.Test())
        except MPI.Exception:
            self.bury(peer)
            return True
        if done and self.model_out.get(peer) is request:
            del self.model_out[peer]
        return done

    @property
    def needs_looks(self) -> bool:
        """May something be under way that only goes on while this rank looks, and nobody rings for?"""
        return bool(self.model_next) or not _FETCHED

    # ---------------------------------------------------------------- receiving

    def poll(self, now: float = float("inf")) -> list[tuple[Envelope, Any]]:
        """Move everything on; return what has come, each value a view that stays valid as long as it is held.

        `now`: so that what is being sent is not looked at every time; it costs, and nobody waits for the buffers.
        """
        if self.outputs and (self.model_next or now >= self.look_at):
            self.look_at = now + SENDS_EVERY
            self._progress_sends()
        try:  # the first look may only move a message on
            done = _testsome(self.receives) or _testsome(self.receives) if self.receives else []
        except MPI.Exception:
            return self._one_by_one()
        if not done:
            return []
        return [letter for i in done if (letter := self._taken(i)) is not None]

    def _one_by_one(self) -> list[tuple[Envelope, Any]]:
        """Some receive failed: find out which.

        One that Testsome had ended before tests true, whether it ended well or not: only a message leaves a header.
        """
        found = []
        for i, request in enumerate(self.receives):
            if not self.open[i]:
                continue
            try:
                if not request.Test():
                    continue
                if not self.slots[i].came[:HEADER].any():
                    self.bury(self.peers[i])
                elif (letter := self._taken(i)) is not None:
                    found.append(letter)
            except MPI.Exception as error:
                self._receive_failed(i, error)
        return found

    def _receive_failed(self, i: int, error: MPI.Exception) -> None:
        if error.Get_error_class() == MPI.ERR_TRUNCATE:
            self.refused(self.peers[i], -1, "too long")
            self.receives[i] = self.slots[i].post()
        else:
            self.bury(self.peers[i])

    def _taken(self, i: int) -> tuple[Envelope, Any] | None:
        """What has come from a peer; the next receive is posted."""
        if not self.open[i]:
            return None
        peer = self.peers[i]
        letter = None
        try:
            letter = self._read(self.slots[i].came, peer)
        except Unusable as error:
            self.refused(peer, error.envelope.round, error.reason)
        except Refused as error:
            self.refused(peer, -1, error.reason)
        if letter is not None and letter[0].kind == BYE:
            self.said_bye.add(peer)
            self.open[i] = False
            return None
        self.receives[i] = self.slots[i].post()
        return letter

    def _read(self, came: Bytes, peer: int) -> tuple[Envelope, Any]:
        letter = unseal(came, None, self.run, peer)
        envelope = letter[0]
        stream = (peer, envelope.kind == MODEL)
        if envelope.serial <= self.seen_serial.get(stream, 0):
            raise Refused("sent twice")
        self.seen_serial[stream] = envelope.serial
        return letter

    def bury(self, peer: int) -> None:
        """Take a peer for dead: nothing is sent to it or expected of it any more."""
        self.dead.add(peer)
        self.model_out.pop(peer, None)
        self.model_next.pop(peer, None)
        for i, known in enumerate(self.peers):
            if known == peer:
                self.open[i] = False
                self.receives[i] = MPI.REQUEST_NULL

    # ---------------------------------------------------------------- the end

    def farewell(self) -> None:
        """Say to every peer that nothing follows."""
        self.model_next.clear()
        self.send(self.peers, Envelope(self.run, 0, self.rank, 0, 0, 0, 0.0, 0.0, BYE), None)

    @property
    def quiet(self) -> bool:
        """Has everybody said so, and is nothing on its way any more?"""
        return not self.outputs and not any(self.open)

    def free(self) -> None:
        """Give the receives back; only once it is quiet."""
        for slots in self.slots:
            slots.free()
