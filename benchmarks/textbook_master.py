"""The baseline of `benchmarks/real.py`: a gradient-coding master as textbooks and public code write it.

    mpiexec -n N+1 python benchmarks/textbook_master.py STRAGGLERS FEATURES ROUNDS

Irecv from all, Waitany until enough, least squares for the weights in every round, then wait for the late ones too, as
nothing tells their messages from the next round's. Prints rounds per second and the master's CPU seconds per round.
"""

from __future__ import annotations

import resource
import sys
import time

import numpy as np
from mpi4py import MPI


def cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def code(n: int, s: int) -> np.ndarray:
    """Tandon et al. 2017, Algorithm 2."""
    H = np.random.default_rng(0).standard_normal((s, n))
    H[:, -1] = -H[:, :-1].sum(axis=1)
    B = np.zeros((n, n))
    for i in range(n):
        window = (i + np.arange(s + 1)) % n
        B[i, window[0]] = 1.0
        if s:
            B[i, window[1:]] = -np.linalg.solve(H[:, window[1:]], H[:, window[0]])
    return B


def master(comm: MPI.Intracomm, B: np.ndarray, s: int, features: int, rounds: int) -> None:
    n = len(B)
    model, answers = np.zeros(features), np.empty((n, features))
    began, used = time.perf_counter(), cpu()
    for _ in range(rounds):
        sends = [comm.Isend(model, i + 1, 1) for i in range(n)]
        receives = [comm.Irecv(answers[i], i + 1, 2) for i in range(n)]
        came = [MPI.Request.Waitany(receives) for _ in range(n - s)]
        weights = np.linalg.lstsq(B[came].T, np.ones(n), rcond=None)[0]
        model = model - 0.1 * (weights @ answers[came]) / n
        MPI.Request.Waitall(receives)
        MPI.Request.Waitall(sends)
    print(rounds / (time.perf_counter() - began), (cpu() - used) / rounds)


def worker(comm: MPI.Intracomm, row: np.ndarray, features: int, rounds: int) -> None:
    n = len(row)
    X = np.random.default_rng(1).standard_normal((n, features))
    y, held, model = np.ones(n), np.flatnonzero(row), np.empty(features)
    for _ in range(rounds):
        comm.Recv(model, 0, 1)
        gradient = sum(row[k] * (X[k] @ model - y[k]) * X[k] for k in held)
        comm.Send(gradient, 0, 2)


def main() -> None:
    comm = MPI.COMM_WORLD
    s, features, rounds = (int(word) for word in sys.argv[1:])
    B = code(comm.size - 1, s)
    comm.Barrier()
    if comm.rank == 0:
        master(comm, B, s, features, rounds)
    else:
        worker(comm, B[comm.rank - 1], features, rounds)


if __name__ == "__main__":
    main()
