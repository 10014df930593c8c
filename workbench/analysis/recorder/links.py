"""Probe of the links between neighbouring ranks: how long a message takes there and back."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median
from time import perf_counter
from typing import Any

from workbench.analysis.recorder.steps import PROBE_BYTES

REPEATS = 3  # number of messages of a probe, in each way
Stages = list[tuple[Any, Any]]  # tensors that are sent and received at the same time, or None


def probe() -> tuple[float, float]:
    """Return the seconds of a message to the next rank and its empty reply, alone and in both ways; 0 for one rank.

    All ranks must call it at the same time. No rank has messages with two others at once, so a slow link does not delay
    another one. A slow receiver also replies late, so the fastest of several messages counts. In both ways, each rank
    sends and receives at once, as in an exchange: processors that ranks share then take longer, and the median counts.
    """
    import torch
    from torch import distributed

    if distributed.get_world_size() == 1:
        return 0.0, 0.0
    device = "cuda" if distributed.get_backend() == "nccl" else "cpu"
    message, other, answer = (torch.zeros(floats, device=device) for floats in (*[PROBE_BYTES // 4] * 2, 1))
    alone, both = _turns([(message, None), (None, answer)]), _turns([(message, other)])
    found = min(alone), median(both)
    distributed.barrier()
    return found


def _turns(stages: Stages) -> Iterator[float]:
    """Yield the seconds of messages to the next rank. Ranks begin each turn together."""
    from torch import distributed

    rank, ranks = distributed.get_rank(), distributed.get_world_size()
    before, after = (rank - 1) % ranks, (rank + 1) % ranks
    for _ in range(REPEATS):
        for turn in range(3):
            distributed.barrier()
            if _turn(rank, ranks) == turn:
                yield _took(distributed, stages, after)
            elif _turn(before, ranks) == turn:
                _took(distributed, [(theirs, mine) for mine, theirs in stages], before)


def _took(distributed: Any, stages: Stages, peer: int) -> float:
    """Return the seconds of messages to and from a rank."""
    begun, received = perf_counter(), None
    for sent, received in stages:
        ways = [(distributed.isend, sent), (distributed.irecv, received)]
        batch = [distributed.P2POp(way, tensor, peer) for way, tensor in ways if tensor is not None]
        for work in distributed.batch_isend_irecv(batch):
            work.wait()
    if received is not None:
        received[0].item()  # waits for the device
    return perf_counter() - begun


def _turn(rank: int, ranks: int) -> int:
    """Return the stage of the probe, from 0, in which a rank sends. Neighbours never send in the same stage.

    >>> [_turn(rank, 5) for rank in range(5)]
    [0, 1, 0, 1, 2]
    """
    return 2 if ranks % 2 and rank == ranks - 1 else rank % 2
