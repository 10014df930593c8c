"""Transport between ranks over MPI: posted receives, buffered sends, and detection of dead peers.

Every rank keeps a persistent receive posted for each peer, and never blocks: `poll` tests the pending requests. A
send's buffer stays alive until MPI has finished with it. At most one model is on its way to a peer. Meanwhile, only the
newest of the following models is kept. At the end every peer gets a goodbye, so that no receive is left over and the
communicator can be freed (MPI_Cancel is never used).
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
SEND_PROGRESS_INTERVAL_S = 2e-2  # s between tests of the pending sends
TESTS_PER_YIELD = 3  # a call of sched_yield takes as long as several tests
GOODBYE = "bye"
MAX_PREPARED_FLOATS = 2**17  # longer buffers do not fit into the cache of a core, see `Transport.prepare`


class BufferPool:
    """Buffers of one size, reused when no view of them exists."""

    def __init__(self, floats: int, width: int = BYTES_PER_FLOAT) -> None:
        self.floats, self.width = floats, width
        self.all: list[Buffer] = []
        self.newest = 0
        self.idle = 0  # number of references to the memory of a buffer that has no views

    def take(self) -> Buffer:
        """Return the buffer that has been unused for longest. If all are in use, add one."""
        for _ in self.all:
            self.newest = (self.newest + 1) % len(self.all)
            buffer = self.all[self.newest]
            if sys.getrefcount(buffer.words) <= self.idle:
                return buffer
        return self.add()

    def add(self) -> Buffer:
        """Add a buffer."""
        buffer = Buffer(self.floats, self.width)
        self.newest = len(self.all)
        self.all.append(buffer)
        self.idle = sys.getrefcount(buffer.words)
        return buffer


class PersistentReceives(BufferPool):
    """Persistent receives from one peer: one is posted, and the buffers of the others may still have views.

    Received messages are therefore never copied. A receive is posted again once no view of its buffer exists.
    """

    def __init__(self, comm: MPI.Intracomm, peer: int, floats: int, width: int) -> None:
        super().__init__(floats, width)
        self.comm, self.peer = comm, peer
        self.receives: list[MPI.Prequest] = []
        # Newest serial numbers received: of models [1], which other messages may overtake, and of other messages [0]
        self.seen = [0, 0]

    def add(self) -> Buffer:
        """Add a buffer with its receive."""
        buffer = super().add()
        self.receives.append(self.comm.Recv_init([buffer.words, MPI.BYTE], self.peer, TAG))
        self.idle = sys.getrefcount(buffer.words)
        return buffer

    @property
    def came(self) -> Buffer:
        """Buffer of the receive that was posted last."""
        return self.all[self.newest]

    def post(self) -> MPI.Request:
        """Post a receive into an unused buffer."""
        # Clear the header, so that the previous message is not read again if none, or a shorter one, comes
        self.take().words[:HEADER_WORDS] = 0
        request = self.receives[self.newest]
        request.Start()
        return request

    def free(self) -> None:
        """Free the requests."""
        for request in self.receives:
            request.Free()


def _fetched() -> bool:
    """Return whether a receiver of a long message reads the sender's memory, so that the sender need not poll.

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
    """Transport of one rank in one run. `refused(sender, round, reason)` is called for rejected messages.

    `width`: bytes of a value.
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
        self.open = [True] * len(self.peers)  # whether a receive is posted, or will be
        self.taken: list[int] = []  # indices of peers whose receive has to be posted
        self.dead: set[int] = set()
        self.sent_goodbye: set[int] = set()
        self.sent_serial = 0
        self.prepared: Buffer | None = None  # buffer of the next message, see `prepare`
        self.next_progress = 0.0  # time of the next test of the pending sends
        # pending sends: request, the memory that it reads, receiver
        self.outputs: list[tuple[MPI.Request, Words, int]] = []
        self.model_out: dict[int, MPI.Request] = {}  # peer -> request of the model on its way to it
        # Peer -> newest model, which waits until the one in `model_out` has been sent
        self.model_next: dict[int, tuple[Buffer, int, Words]] = {}

    def send(self, to: Sequence[int], envelope: Envelope, value: Any, newest: bool = False) -> None:
        """Send to each peer, and return at once.

        `newest`: a later model replaces this one if it is not on its way yet.
        """
        self.sent_serial += 1
        buffer, self.prepared = self.prepared or self.buffers.take(), None
        length = encode_message(buffer, envelope, value, self.run, self.sent_serial)
        if newest and self.outputs:
            # most previous models have been sent by now, so that their buffers are free
            self._progress_sends()
        for peer in to:
            if peer in self.dead:
                continue
            if newest and peer in self.model_out:
                self.model_next[peer] = (buffer, length, buffer.words)
            else:
                self._isend(peer, buffer, length, newest)
        self.wakeup.notify(to)

    def prepare(self) -> None:
        """Write into the buffer of the next message, while this rank waits.

        A receiver has read the buffer, so the cache of its core has a copy. Once this rank has written into the buffer,
        the next message is written in half the time. Pending sends are tested, so that the next model is not delayed.
        """
        if self.outputs:
            self._progress_sends()
        if self.prepared is None and self.buffers.floats <= MAX_PREPARED_FLOATS:
            self.prepared = self.buffers.take()
            self.prepared.words.fill(0)

    def _isend(self, peer: int, buffer: Buffer, length: int, newest: bool) -> None:
        try:
            request = self.comm.Isend([buffer.words, length, MPI.BYTE], peer, TAG)
        except MPI.Exception:
            self.mark_dead(peer)
            return
        self.outputs.append((request, buffer.words, peer))
        if newest:
            self.model_out[peer] = request

    def _progress_sends(self) -> None:
        """Release the buffers of finished sends."""
        try:
            done = self._sent_now()
        except MPI.Exception:
            self.outputs = [entry for entry in self.outputs if not self._sent(*entry)]
        else:
            for place in sorted(done, reverse=True):
                request, _, peer = self.outputs.pop(place)
                if self.model_out.get(peer) is request:
                    del self.model_out[peer]
        for peer in [p for p in self.model_next if p not in self.model_out]:
            buffer, length, _ = self.model_next.pop(peer)
            self._isend(peer, buffer, length, newest=True)
            self.wakeup.notify([peer])

    def _sent_now(self) -> Sequence[int]:
        """Return the indices of finished sends. With one send, `Test` is faster than `Testsome`."""
        if len(self.outputs) == 1:
            return (0,) if self.outputs[0][0].Test() else ()
        return _testsome([request for request, _, _ in self.outputs]) or ()

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
        """Whether some message makes progress only while this rank polls, without a notification."""
        return bool(self.model_next) or not _FETCHED

    def poll(self, now: float = float("inf"), awake: float = 0.0) -> list[tuple[Envelope, Any]]:
        """Let MPI make progress. Return the received messages, with values that are views and stay valid while held.

        `now`: current time, s. Pending sends are tested only at intervals, because tests are expensive and nobody
        waits for their buffers. `awake`: time until which to keep polling.
        """
        if self.outputs and (self.model_next or now >= self.next_progress):
            self.next_progress = now + SEND_PROGRESS_INTERVAL_S
            self._progress_sends()
        # the program has used the messages of these peers, so the next receives are posted
        for i in self.taken:
            if self.open[i]:
                self.receives[i] = self.slots[i].post()
        self.taken.clear()
        try:
            done = self._tested() or self._spun(awake)
        except MPI.Exception:
            return self._one_by_one()
        return [message for i in done if (message := self._taken(i)) is not None]

    def _tested(self) -> Sequence[int]:
        """Let MPI make progress. Return the indices of receives that have completed.

        A call without a result lets MPI make progress, and a message may become visible only after two of them. With
        one receive, `Test` is three times as fast as `Testsome`.
        """
        receives = self.receives
        if len(receives) != 1:
            return _testsome(receives) or _testsome(receives) or _testsome(receives) or ()
        test = receives[0].Test
        return (0,) if self.open[0] and (test() or test() or test()) else ()

    def _spun(self, awake: float) -> Sequence[int]:
        """Test the receives until one has completed, or until the time `awake`. Return as `_tested`."""
        while time.monotonic() < awake:
            for _ in range(TESTS_PER_YIELD):
                if done := self._tested():
                    return done
            self.prepare()
            _yield()  # give up the core, which the other rank may need
        return ()

    def _one_by_one(self) -> list[tuple[Envelope, Any]]:
        """Test the receives one by one after an error, to find the failed ones.

        A receive that Testsome has completed tests true, with or without an error. Only a message leaves a header.
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
        """Return the received message of a peer, if it is valid. The next receive is posted in the next poll."""
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
        """Mark a peer as dead. Nothing is sent to it or expected from it any longer."""
        self.dead.add(peer)
        self.model_out.pop(peer, None)
        self.model_next.pop(peer, None)
        for i, known in enumerate(self.peers):
            if known == peer:
                self.open[i] = False
                self.receives[i] = MPI.REQUEST_NULL

    def send_goodbye(self) -> None:
        """Send every peer the last message."""
        self.model_next.clear()
        self.send(self.peers, Envelope(self.run, 0, self.rank, 0, 0, 0, 0.0, 0.0, GOODBYE), None)

    @property
    def drained(self) -> bool:
        """Whether all goodbyes have arrived, and nothing is left to send."""
        return not self.outputs and not any(self.open)

    def free(self) -> None:
        """Free the requests. Call it only when `drained`."""
        for slots in self.slots:
            slots.free()
