"""All-reduce of the MPI library over the workers, without blocking, optionally on the emulated link."""

import time
from functools import partial
from typing import Any

import numpy as np
from mpi4py import MPI

from workbench.core.base.types import Array
from workbench.core.contract.links import BYTES_PER_FLOAT, Link
from workbench.core.contract.protocol import AllReduce
from workbench.core.contract.ring import bytes_sent, ring_finish
from workbench.mpi.engine.polling import COLLECTIVE
from workbench.mpi.engine.rank import RankEngine


class Reduce:
    """Sum of all workers' vectors. On the emulated link, its end is that of a ring all-reduce."""

    def __init__(
        self, workers: MPI.Intracomm, floats: int, link: Link | None, width: int = BYTES_PER_FLOAT
    ) -> None:
        self.comm, self.link = workers, link
        # Whether an all-reduce was left unfinished; these processes can then take part in no other run
        self.under_way = False
        n = workers.size
        self.floats, self.width = floats, width
        # the vector, followed by each worker's time of entry, as two values whose sum is exact
        self.buffer: Array = np.empty(floats + 2 * n, np.dtype(f"f{width}"))
        self.finish = np.empty(n)
        self.port_free = np.zeros(n)

    def __call__(self, engine: RankEngine, effect: AllReduce) -> Any:
        """Take part in one all-reduce. Return the sum, shape (p,)."""
        me, n, floats = self.comm.rank, self.comm.size, self.floats
        entry = engine.clock.sending_time()
        self.buffer[:floats] = effect.value
        self.buffer[floats:] = 0.0
        self.buffer[floats + me] = came = entry - engine.clock.zero
        self.buffer[floats + n + me] = came - float(self.buffer[floats + me])
        self._await(engine, self.comm.Iallreduce(MPI.IN_PLACE, self.buffer, MPI.SUM))
        total, end = self.buffer[:floats].copy(), time.monotonic()
        if self.link is not None:
            end = engine.clock.zero + self._ring_end(engine, floats, effect.round)
            engine.mailbox.sleep_until(end)
        engine.clock.advance(end)
        self._record(engine, effect.round, entry)
        return total

    def _record(self, engine: RankEngine, round: int, entry: float) -> None:
        """Record this worker's share as that of a ring: messages, bytes, and when it had the sum."""
        n, me, ledger = self.comm.size, self.comm.rank, engine.ledger
        steps, sent = 2 * (n - 1), bytes_sent(self.floats, n, me, self.width)
        ledger.handled += 2 * steps
        ledger.add("messages", round, steps)
        ledger.add("bytes", round, sent)
        ledger.log(round, engine.rank, "send", entry, entry, engine.clock.now, 1 + (me + 1) % n, sent, steps)

    def _ring_end(self, engine: RankEngine, floats: int, round: int) -> float:
        """Return when this worker has the sum, s after the run's beginning."""
        entries = self.buffer[floats:].astype(float).reshape(2, -1).sum(axis=0)
        assert self.link is not None
        if self.link.is_free:
            return float(entries.max())
        if self.comm.rank == 0:
            transit = engine.setup.delays.transit
            extra = None if transit is None else partial(transit, round)
            self.finish[:], self.port_free = ring_finish(entries, self.port_free, floats, self.link, extra)
        self._await(engine, self.comm.Ibcast(self.finish, 0))
        return float(self.finish[self.comm.rank])

    def _await(self, engine: RankEngine, request: MPI.Request) -> None:
        self.under_way = True
        engine.mailbox.wait(lambda: True if request.Test() else None, COLLECTIVE)
        self.under_way = False
