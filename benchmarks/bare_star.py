"""Baseline of `benchmarks/real.py overhead`: the fastest N - S of a star, in as few lines as a careful loop needs.

    mpiexec -n N+1 python benchmarks/bare_star.py STRAGGLERS DATA.npy SECONDS.npy

Ranks poll and nap, a worker gives up its work when a newer model comes, and messages carry their round and nothing
else: no checks, no decoding, no records, no deaths. DATA.npy: a row a worker, (N, p), whose pages all ranks share; each
computes with S + 1 of them. SECONDS.npy: how long each worker takes in each round, (rounds, N). Prints the seconds that
all rounds took.
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
OVER = -1.0  # instead of a round
SHORTEST, GATHERING, LISTENING = 5e-5, 5e-4, 4e-3  # poll intervals, s


def until(look: Callable[[], Any], longest: float, end: float = float("inf")) -> Any:
    """Poll until a condition holds, or until a time; sleep in between."""
    nap = SHORTEST
    while not (found := look()) and (left := end - time.monotonic()) > 0:
        time.sleep(min(nap, left))
        nap = min(1.5 * nap, longest)
    return found


class Master:
    """Master that waits for the fastest N - S; at most one model is under way to a worker, and the newest follows."""

    def __init__(self, comm: MPI.Intracomm, features: int) -> None:
        self.comm, self.workers = comm, comm.size - 1
        self.came = np.empty((self.workers, features + 1))
        self.receives = [comm.Recv_init(row, i + 1, ANSWER) for i, row in enumerate(self.came)]
        MPI.Prequest.Startall(self.receives)
        self.sends = [MPI.REQUEST_NULL] * self.workers
        self.kept: list[Any] = [None] * self.workers  # referenced until it was sent
        self.behind: set[int] = set()
        self.news = np.zeros(features + 1)

    def tell(self, i: int) -> None:
        """Send the newest model, unless an older one is still under way."""
        if self.sends[i].Test():
            self.kept[i], self.sends[i] = self.news, self.comm.Isend(self.news, i + 1, MODEL)
            self.behind.discard(i)
        else:
            self.behind.add(i)

    def look(self) -> list[int] | None:
        """Return the workers that have answered."""
        for i in tuple(self.behind):
            self.tell(i)
        return MPI.Request.Testsome(self.receives)

    def publish(self, round: float, model: Array) -> None:
        """Publish a new model, or the end."""
        self.news = np.concatenate([[round], model])
        for i in range(self.workers):
            self.tell(i)

    def run(self, s: int, rounds: int) -> float:
        """Return the seconds of a number of rounds."""
        model = np.zeros(self.came.shape[1] - 1)
        began = time.monotonic()
        for round in range(rounds):
            self.publish(round, model)
            total, taken = np.zeros_like(model), 0
            while taken < self.workers - s:
                for i in until(self.look, GATHERING):
                    if self.came[i, 0] == round and taken < self.workers - s:
                        total += self.came[i, 1:]
                        taken += 1
                    self.receives[i].Start()
            model = model - 1e-4 * total / self.workers
        seconds = time.monotonic() - began
        self.publish(OVER, model)
        self._await_last_words()
        return seconds

    def _await_last_words(self) -> None:
        left = self.workers
        while left:
            for i in until(self.look, GATHERING):
                if self.came[i, 0] == OVER:
                    left -= 1
                else:
                    self.receives[i].Start()
        until(lambda: MPI.Request.Testall(self.sends), GATHERING)


def worker(comm: MPI.Intracomm, s: int, data: Array, seconds: Array) -> None:
    """Take the newest model, compute S + 1 rows, wait for the drawn time, answer; cancel when a newer model comes."""
    first = min(comm.rank - 1, len(data) - s - 1)
    X, row, y = data[first : first + s + 1], np.full(s + 1, 0.5), np.ones(s + 1)
    news, answer = np.zeros(data.shape[1] + 1), np.zeros(data.shape[1] + 1)
    sent = MPI.REQUEST_NULL

    def newer() -> bool:
        return comm.Iprobe(0, MODEL)

    while True:
        until(newer, LISTENING)
        while newer():
            comm.Recv(news, 0, MODEL)
        if news[0] == OVER:
            break
        end = time.monotonic() + seconds[int(news[0])]
        gradient = ((X @ news[1:] - y) * row) @ X
        if until(newer, LISTENING, end):
            continue
        until(sent.Test, LISTENING)
        answer[0], answer[1:] = news[0], gradient
        sent = comm.Isend(answer, 0, ANSWER)
    until(sent.Test, LISTENING)
    answer[0] = OVER
    until(comm.Isend(answer, 0, ANSWER).Test, LISTENING)


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
