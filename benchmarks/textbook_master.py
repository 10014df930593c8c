"""Baseline of `benchmarks/real.py textbook`: a gradient-coding master as in textbooks and in public code.

    mpiexec -n N+1 python benchmarks/textbook_master.py STRAGGLERS FEATURES ROUNDS [checked]

In each round, the master calls Irecv for all workers and Waitany until enough have answered. It computes the weights by
least squares. Then it waits for the late messages too, because they could not be distinguished from those of the next
round. The master prints rounds per second, and its CPU seconds per round. "checked": every message has the workbench's
header and is checked as in the workbench.
"""

from __future__ import annotations

import resource
import sys
import time

import numpy as np
from mpi4py import MPI

from workbench.mpi.engine.wire import Buffer, Envelope, decode_message, encode_message


class Bare:
    """Message that contains only values."""

    def __init__(self, features: int) -> None:
        self.buffer = np.zeros(features)

    def put(self, numbers: np.ndarray, sender: int) -> None:
        self.buffer[:] = numbers

    def get(self, sender: int) -> np.ndarray:
        return self.buffer


class Checked(Bare):
    """Message with a header that contains its sender and a checksum."""

    def __init__(self, features: int) -> None:
        self.message = Buffer(features)
        self.buffer = self.message.bytes

    def put(self, numbers: np.ndarray, sender: int) -> None:
        encode_message(self.message, Envelope(1, 0, sender, 0, 0, len(numbers), 0.0, 0.0, "answer"), numbers)

    def get(self, sender: int) -> np.ndarray:
        return np.asarray(decode_message(self.message, None, 1, sender)[1])


def cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def code(n: int, s: int) -> np.ndarray:
    """Return the encoding matrix of Tandon et al. 2017, algorithm 2: (n, n), for `s` stragglers."""
    H = np.random.default_rng(0).standard_normal((s, n))
    H[:, -1] = -H[:, :-1].sum(axis=1)
    B = np.zeros((n, n))
    for i in range(n):
        window = (i + np.arange(s + 1)) % n
        B[i, window[0]] = 1.0
        if s:
            B[i, window[1:]] = -np.linalg.solve(H[:, window[1:]], H[:, window[0]])
    return B


def master(comm: MPI.Intracomm, kind: type[Bare], B: np.ndarray, s: int, features: int, rounds: int) -> None:
    n = len(B)
    model, latest = np.zeros(features), kind(features)
    answers = [kind(features) for _ in range(n)]
    began, used = time.perf_counter(), cpu()
    for _ in range(rounds):
        latest.put(model, 0)
        sends = [comm.Isend(latest.buffer, i + 1, 1) for i in range(n)]
        receives = [comm.Irecv(answer.buffer, i + 1, 2) for i, answer in enumerate(answers)]
        came = [MPI.Request.Waitany(receives) for _ in range(n - s)]
        weights = np.linalg.lstsq(B[came].T, np.ones(n), rcond=None)[0]
        model = model - 1e-4 * (weights @ np.stack([answers[i].get(i + 1) for i in came])) / n
        MPI.Request.Waitall(receives)
        MPI.Request.Waitall(sends)
    print(rounds / (time.perf_counter() - began), (cpu() - used) / rounds)


def worker(comm: MPI.Intracomm, kind: type[Bare], row: np.ndarray, features: int, rounds: int) -> None:
    n = len(row)
    X = np.random.default_rng(1).standard_normal((n, features))
    y, held, latest, answer = np.ones(n), np.flatnonzero(row), kind(features), kind(features)
    for _ in range(rounds):
        comm.Recv(latest.buffer, 0, 1)
        model = latest.get(0)
        answer.put(sum(row[k] * (X[k] @ model - y[k]) * X[k] for k in held), comm.rank)
        comm.Send(answer.buffer, 0, 2)


def main() -> None:
    comm = MPI.COMM_WORLD
    s, features, rounds = (int(word) for word in sys.argv[1:4])
    kind = Checked if "checked" in sys.argv else Bare
    B = code(comm.size - 1, s)
    comm.Barrier()
    if comm.rank == 0:
        master(comm, kind, B, s, features, rounds)
    else:
        worker(comm, kind, B[comm.rank - 1], features, rounds)


if __name__ == "__main__":
    main()
