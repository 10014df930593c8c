"""Messages between ranks over MPI: posted receives, buffered sends, and who died.

Every rank has a persistent receive posted for each peer at all times and never blocks: `poll` tests what is under
way. A send's buffer stays alive until MPI is done with it. Of models, at most one is on its way to a peer; while it
is, only the newest of those that follow is kept. At the end every peer gets a last word, so that no receive is left
over and the communicator can be freed (MPI_Cancel is never used).
"""

import ctypes
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from mpi4py import MPI

from workbench.core.contract.links import BYTES_PER_FLOAT
from workbench.core.contract.protocol import MODEL
from workbench.mpi.engine.wakeup import WakeupPipe
from workbench.mpi.engine.wire import (
    HEADER_WORDS,
    Buffer,
    Envelope,
    MessageRejected,
    NonFinitePayload,
    Words,
    decode_message,
    encode_message,
)

TAG = 1
SEND_PROGRESS_INTERVAL_S = 2e-2  # s between looks at what is being sent
GOODBYE = "bye"


class BufferPool:
    """Sheets of one size, taken again once nobody holds a view of them."""

    def __init__(self, floats: int, width: int = BYTES_PER_FLOAT) -> None:
        self.floats, self.width = floats, width
        self.all: list[Buffer] = []
        self.newest = 0
        self.idle = 0  # references that the interpreter counts of a sheet's memory, if nobody looks at it

    def take(self) -> Buffer:
        """A sheet that is not in use, the longest unused first; a new one only where all are in use."""
        for _ in self.all:
            self.newest = (self.newest + 1) % len(self.all)
            sheet = self.all[self.newest]
            if sys.getrefcount(sheet.words) <= self.idle:
                return sheet
        return self.add()

    def add(self) -> Buffer:
        """One more."""
        sheet = Buffer(self.floats, self.width)
        self.newest = len(self.all)
        self.all.append(sheet)
        self.idle = sys.getrefcount(sheet.words)
        return sheet


class PersistentReceives(BufferPool):
    """Persistent receives from one peer: one is posted, the others' sheets are still looked at by somebody.

    What has come is thus never copied; a slot is posted again once nobody holds a view of its sheet.
    """

    def __init__(self, comm: MPI.Intracomm, peer: int, floats: int, width: int) -> None:
        super().__init__(floats, width)
        self.comm, self.peer = comm, peer
        self.receives: list[MPI.Prequest] = []
        self.seen = [0, 0]  # newest serial number: of what is no model, of models, which may be overtaken

    def add(self) -> Buffer:
        """One more, with its receive."""
        sheet = super().add()
        self.receives.append(self.comm.Recv_init([sheet.words, MPI.BYTE], self.peer, TAG))
        self.idle = sys.getrefcount(sheet.words)
        return sheet

    @property
    def came(self) -> Buffer:
        """The sheet of the receive that is, or was, posted."""
        return self.all[self.newest]

    def post(self) -> MPI.Request:
        """Post a receive onto a sheet that nobody looks at."""
        # neither a shorter message nor none must be taken for the last one
        self.take().words[:HEADER_WORDS] = 0
        request = self.receives[self.newest]
        request.Start()
        return request

    def free(self) -> None:
        """Give the receives back."""
        for request in self.receives:
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
_yield: Callable[[], None] = getattr(os, "sched_yield", lambda: None)


class Transport:
    """One rank's post office in one run. `refused(sender, round, reason)` hears of messages that are no good.

    `width`: bytes of a number.
    """

    def __init__(
        self,
        comm: MPI.Intracomm,
        run: int,
        peers: Sequence[int],
        floats: int,
        refused: Callable[[int, int, str], None],
        wakeup: WakeupPipe | None = None,
        width: int = BYTES_PER_FLOAT,
    ) -> None:
        self.comm, self.run, self.peers, self.refused = comm, run, list(peers), refused
        self.wakeup = wakeup or WakeupPipe()
        self.rank = comm.rank
        self.buffers = BufferPool(floats, width)
        self.slots = [PersistentReceives(comm, peer, floats, width) for peer in self.peers]
        self.receives: list[Any] = [slots.post() for slots in self.slots]
        self.open = [True] * len(self.peers)  # a receive is posted, or will be
        self.taken: list[int] = []  # from whom something came, so that a receive is to be posted
        self.dead: set[int] = set()
        self.sent_goodbye: set[int] = set()
        self.sent_serial = 0
        self.next_progress = 0.0  # when to look at what is being sent
        self.outputs: list[tuple[MPI.Request, Words, int]] = []  # with what it reads from, and to whom
        self.model_out: dict[int, MPI.Request] = {}  # the model on its way to a peer
        self.model_next: dict[int, tuple[Buffer, int, Words]] = {}  # the newest that waits until then

    def send(self, to: Sequence[int], envelope: Envelope, value: Any, newest: bool = False) -> None:
        """Send to each peer; returns at once. `newest`: what is not on its way yet gives way to what is sent later."""
        self.sent_serial += 1
        sheet = self.buffers.take()
        length = encode_message(sheet, envelope, value, self.run, self.sent_serial)
        if newest and self.outputs:
            self._progress_sends()  # most of the last models have arrived
        for peer in to:
            if peer in self.dead:
                continue
            if newest and peer in self.model_out:
                self.model_next[peer] = (sheet, length, sheet.words)
            else:
                self._isend(peer, sheet, length, newest)
        self.wakeup.notify(to)

    def _isend(self, peer: int, sheet: Buffer, length: int, newest: bool) -> None:
        try:
            request = self.comm.Isend([sheet.words, length, MPI.BYTE], peer, TAG)
        except MPI.Exception:
            self.mark_dead(peer)
            return
        self.outputs.append((request, sheet.words, peer))
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
            sheet, length, _ = self.model_next.pop(peer)
            self._isend(peer, sheet, length, newest=True)
            self.wakeup.notify([peer])

    def _sent(self, request: MPI.Request, words: Words, peer: int) -> bool:
        try:
            done = bool(request.Test())
        except MPI.Exception:
            self.mark_dead(peer)
            return True
        if done and self.model_out.get(peer) is request:
            del self.model_out[peer]
        return done

    @property
    def needs_polling(self) -> bool:
        """May something be under way that only goes on while this rank looks, and nobody rings for?"""
        return bool(self.model_next) or not _FETCHED

    def poll(self, now: float = float("inf"), awake: float = 0.0) -> list[tuple[Envelope, Any]]:
        """Move everything on; return what has come, each value a view that stays valid as long as it is held.

        `now`: so that what is being sent is not looked at every time; it costs, and nobody waits for the sheets.
        `awake`: until when to look on.
        """
        if self.outputs and (self.model_next or now >= self.next_progress):
            self.next_progress = now + SEND_PROGRESS_INTERVAL_S
            self._progress_sends()
        for i in self.taken:  # who waits for what came has it by now
            if self.open[i]:
                self.receives[i] = self.slots[i].post()
        self.taken.clear()
        receives = self.receives
        try:  # a look moves messages on once it has found none: from the queue to the fast lane, then through that
            done = _testsome(receives) or _testsome(receives) or _testsome(receives) if receives else []
            while not done and time.monotonic() < awake:
                if self.outputs:  # so that the next model need not wait for it
                    self._progress_sends()
                _yield()  # the other may be on this very core
                done = _testsome(receives)
        except MPI.Exception:
            return self._one_by_one()
        if not done:
            return []
        return [message for i in done if (message := self._taken(i)) is not None]

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
                if not self.slots[i].came.words[:HEADER_WORDS].any():
                    self.mark_dead(self.peers[i])
                elif (message := self._taken(i)) is not None:
                    found.append(message)
            except MPI.Exception as error:
                self._receive_failed(i, error)
        return found

    def _receive_failed(self, i: int, error: MPI.Exception) -> None:
        if error.Get_error_class() == MPI.ERR_TRUNCATE:
            self.refused(self.peers[i], -1, "too long")
            self.receives[i] = self.slots[i].post()
        else:
            self.mark_dead(self.peers[i])

    def _taken(self, i: int) -> tuple[Envelope, Any] | None:
        """What has come from a peer; the next receive is posted with the next look."""
        if not self.open[i]:
            return None
        peer, slots, message = self.peers[i], self.slots[i], None
        try:
            message = decode_message(slots.came, None, self.run, peer)
            envelope = message[0]
            stream = envelope.kind == MODEL
            if envelope.serial <= slots.seen[stream]:
                raise MessageRejected("sent twice")
            slots.seen[stream] = envelope.serial
            if envelope.kind == GOODBYE:
                self.sent_goodbye.add(peer)
                self.open[i] = False
                return None
        except NonFinitePayload as error:
            self.refused(peer, error.envelope.round, error.reason)
        except MessageRejected as error:
            message = None
            self.refused(peer, -1, error.reason)
        self.taken.append(i)
        return message

    def mark_dead(self, peer: int) -> None:
        """Take a peer for dead: nothing is sent to it or expected of it any more."""
        self.dead.add(peer)
        self.model_out.pop(peer, None)
        self.model_next.pop(peer, None)
        for i, known in enumerate(self.peers):
            if known == peer:
                self.open[i] = False
                self.receives[i] = MPI.REQUEST_NULL

    def send_goodbye(self) -> None:
        """Say to every peer that nothing follows."""
        self.model_next.clear()
        self.send(self.peers, Envelope(self.run, 0, self.rank, 0, 0, 0, 0.0, 0.0, GOODBYE), None)

    @property
    def drained(self) -> bool:
        """Has everybody said so, and is nothing on its way any more?"""
        return not self.outputs and not any(self.open)

    def free(self) -> None:
        """Give the receives back; only once it is quiet."""
        for slots in self.slots:
            slots.free()
