"""Probe of the links between neighbouring ranks: how long a message takes there and back."""

from __future__ import annotations

from time import perf_counter
from typing import Any

# number of float32 values of a message, and number of messages of a probe, of which the fastest counts
MESSAGE_FLOATS, REPEATS = 65536, 5


def probe() -> float:
    """Return the seconds of a 256 KiB message to the next rank and its empty reply, or 0 if there is one rank.

    All ranks must call it at the same time. No rank handles two messages at once, so a slow link does not delay another
    one. A slow receiver also replies late, so the fastest of several messages counts.
    """
    import torch
    from torch import distributed

    rank, ranks = distributed.get_rank(), distributed.get_world_size()
    device = "cuda" if distributed.get_backend() == "nccl" else "cpu"
    message, answer = torch.zeros(MESSAGE_FLOATS, device=device), torch.zeros(1, device=device)
    found = []
    for _ in range(REPEATS if ranks > 1 else 0):
        for turn in range(3):
            if _turn(rank, ranks) == turn:
                found.append(_sent(distributed, message, answer, (rank + 1) % ranks))
            elif _turn((rank - 1) % ranks, ranks) == turn:
                distributed.recv(message, (rank - 1) % ranks)
                distributed.send(answer, (rank - 1) % ranks)
    return min(found, default=0.0)


def _turn(rank: int, ranks: int) -> int:
    """Return the stage of the probe, from 0, in which a rank sends. Neighbours never send in the same stage.

    >>> [_turn(rank, 5) for rank in range(5)]
    [0, 1, 0, 1, 2]
    """
    return 2 if ranks % 2 and rank == ranks - 1 else rank % 2


def _sent(distributed: Any, message: Any, answer: Any, to: int) -> float:
    begun = perf_counter()
    distributed.send(message, to)
    distributed.recv(answer, to)
    answer.item()  # waits for the device
    return perf_counter() - begun
