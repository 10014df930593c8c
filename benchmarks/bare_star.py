"""Baseline of `benchmarks/real.py overhead`: a star that waits for its fastest N - S workers, without the workbench.

    mpiexec -n N+1 python benchmarks/bare_star.py STRAGGLERS DATA.npy SECONDS.npy

Ranks poll and sleep. A worker abandons its work when a newer model comes. Messages contain their round and the values.
There are no checks, no decoding, no records, and no handling of dead ranks. DATA.npy: one row per worker, (N, p), in
memory that all ranks share. Each worker computes with S + 1 rows. SECONDS.npy: computing times, s, (rounds, N). Rank 0
prints the seconds that all rounds took.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

Array = NDArray[np.float64]
MODEL, ANSWER = 1, 2
END_OF_RUN = -1.0  # round number of the last message
MIN_INTERVAL_S, MAX_GATHER_INTERVAL_S, MAX_IDLE_INTERVAL_S = 5e-5, 5e-4, 4e-3  # s between polls


def until(poll: Callable[[], Any], longest: float, end: float = float("inf")) -> Any:
    """Call `poll` until its result is true, or until the time `end`. Sleep up to `longest` s between calls."""
    interval = MIN_INTERVAL_S
    while not (found := poll()) and (left := end - time.monotonic()) > 0:
        time.sleep(min(interval, left))
        interval = min(1.5 * interval, longest)
    return found


class Master:
    """Master that waits for the fastest N - S workers.

    At most one model is on its way to a worker. Meanwhile, only the newest of the following models is kept.
    """

    def __init__(self, comm: MPI.Intracomm, features: int) -> None:
        self.comm, self.workers = comm, comm.size - 1
        self.came = np.empty((self.workers, features + 1))
        self.receives = [comm.Recv_init(row, i + 1, ANSWER) for i, row in enumerate(self.came)]
        MPI.Prequest.Startall(self.receives)
        self.sends = [MPI.REQUEST_NULL] * self.workers
        self.in_flight: list[Any] = [None] * self.workers  # models, referenced until they are sent
        self.behind: set[int] = set()
        self.newest = np.zeros(features + 1)

    def send(self, i: int) -> None:
        """Send the newest model to a worker, unless an older one is still on its way."""
        if self.sends[i].Test():
            self.in_flight[i], self.sends[i] = self.newest, self.comm.Isend(self.newest, i + 1, MODEL)
            self.behind.discard(i)
        else:
            self.behind.add(i)

    def poll(self) -> list[int] | None:
        """Return the workers that have answered since the last call."""
        for i in tuple(self.behind):
            self.send(i)
        return MPI.Request.Testsome(self.receives)

    def publish(self, round: float, model: Array) -> None:
        """Send a new model, or the end of the run, to all workers."""
        self.newest = np.concatenate([[round], model])
        for i in range(self.workers):
            self.send(i)

    def run(self, s: int, rounds: int) -> float:
        """Run the rounds. Return the seconds that they took."""
        model = np.zeros(self.came.shape[1] - 1)
        began = time.monotonic()
        for round in range(rounds):
            self.publish(round, model)
            total, taken = np.zeros_like(model), 0
            while taken < self.workers - s:
                for i in until(self.poll, MAX_GATHER_INTERVAL_S):
                    if self.came[i, 0] == round and taken < self.workers - s:
                        total += self.came[i, 1:]
                        taken += 1
                    self.receives[i].Start()
            model = model - 1e-4 * total / self.workers
        seconds = time.monotonic() - began
        self.publish(END_OF_RUN, model)
        self._await_last_messages()
        return seconds

    def _await_last_messages(self) -> None:
        left = self.workers
        while left:
            for i in until(self.poll, MAX_GATHER_INTERVAL_S):
                if self.came[i, 0] == END_OF_RUN:
                    left -= 1
                else:
                    self.receives[i].Start()
        until(lambda: MPI.Request.Testall(self.sends), MAX_GATHER_INTERVAL_S)


def worker(comm: MPI.Intracomm, s: int, data: Array, seconds: Array) -> None:
    """Take the newest model, compute with S + 1 rows, wait for the drawn time, and answer.

    The work is abandoned when a newer model comes.
    """
    first = min(comm.rank - 1, len(data) - s - 1)
    X, row, y = data[first : first + s + 1], np.full(s + 1, 0.5), np.ones(s + 1)
    model, answer = np.zeros(data.shape[1] + 1), np.zeros(data.shape[1] + 1)
    sent = MPI.REQUEST_NULL

    def newer() -> bool:
        return comm.Iprobe(0, MODEL)

    while True:
        until(newer, MAX_IDLE_INTERVAL_S)
        while newer():
            comm.Recv(model, 0, MODEL)
        if model[0] == END_OF_RUN:
            break
        end = time.monotonic() + seconds[int(model[0])]
        gradient = ((X @ model[1:] - y) * row) @ X
        if until(newer, MAX_IDLE_INTERVAL_S, end):
            continue
        until(sent.Test, MAX_IDLE_INTERVAL_S)
        answer[0], answer[1:] = model[0], gradient
        sent = comm.Isend(answer, 0, ANSWER)
    until(sent.Test, MAX_IDLE_INTERVAL_S)
    answer[0] = END_OF_RUN
    until(comm.Isend(answer, 0, ANSWER).Test, MAX_IDLE_INTERVAL_S)


def main() -> None:
    comm = MPI.COMM_WORLD
    s = int(sys.argv[1])
    data, seconds = np.load(sys.argv[2], mmap_mode="r"), np.load(sys.argv[3])
    comm.Barrier()
    if comm.rank == 0:
        print(Master(comm, data.shape[1]).run(s, len(seconds)))
    else:
        worker(comm, s, data, seconds[:, comm.rank - 1])


if __name__ == "__main__":
    main()
