"""Probe of the links between neighbouring ranks: how long a message takes there and back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median
from time import perf_counter
from typing import Any

from workbench.analysis.recorder.steps import PROBE_BYTES

REPEATS = 3  # number of turns of a probe, in each way
MIN_MESSAGE_BYTES = 2**17  # of an exchange; the call of a shorter message takes longer than the message
MAX_MESSAGES = 24  # max number of messages both ways in a turn
Stages = list[tuple[Any, Any]]  # tensors that are sent and received at the same time, or None


def probe(buckets: Sequence[float] = ()) -> tuple[float, float]:
    """Return the seconds of 1 MiB to the next rank and an empty reply, and of 1 MiB both ways; 0 for one rank.

    All ranks must call it at the same time. No rank has messages with two others at once, so a slow link does not delay
    another one. A slow receiver also replies late, so the fastest of several messages counts. Both ways, each rank
    sends and receives messages of the all-reduces of `buckets` (bytes), and adds half of them: see `ring_messages`. A
    short message each way follows, because the buffers of the sender hide the end of the others. The median counts.
    """
    import torch
    from torch import distributed

    if distributed.get_world_size() == 1:
        return 0.0, 0.0
    device = "cuda" if distributed.get_backend() == "nccl" else "cpu"
    message, other = torch.zeros((2, PROBE_BYTES // 4), device=device)
    answer, reply = torch.zeros((2, 1), device=device)
    sizes = ring_messages(buckets, distributed.get_world_size())
    alone = min(_turns([(message, None), (None, answer)]))
    both = median(_turns([*((message[: size // 4], other[: size // 4]) for size in sizes), (answer, reply)]))
    distributed.barrier()
    return alone, both * PROBE_BYTES / sum(sizes)


def ring_messages(buckets: Sequence[float], ranks: int) -> list[int]:
    """Return the bytes of a rank's messages in ring all-reduces of `buckets` bytes; one of 1 MiB if there are none.

    Of each bucket, a rank sends 2 (n - 1) messages of an n-th (Patarasuk and Yuan, J. Parallel Distrib. Comput. 2009).
    Longer and shorter messages than those of a probe are replaced by others of the same total length.

    >>> ring_messages([2**20, 2**18], 4)
    [262144, 262144, 262144, 262144, 262144, 262144, 131072, 131072, 131072]
    """
    found: list[int] = []
    for bucket in buckets:
        size = int(min(max(bucket / ranks, MIN_MESSAGE_BYTES), PROBE_BYTES))
        found += [size] * round(2 * (1 - 1 / ranks) * bucket / size)
    return found[:MAX_MESSAGES] or [PROBE_BYTES]


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
    """Return the seconds of messages to and from a rank.

    Each stage begins before the one before it has ended, as in an all-reduce. Otherwise the notice that a rank is ready
    to receive would wait behind its own message. The last stage begins when all others have ended.
    """
    begun, works = perf_counter(), list[Any]()
    for number, (sent, received) in enumerate(stages, 1):
        if number == len(stages):
            _wait(works)
        ways = [(distributed.isend, sent), (distributed.irecv, received)]
        batch = [distributed.P2POp(way, tensor, peer) for way, tensor in ways if tensor is not None]
        before, works = works, distributed.batch_isend_irecv(batch)
        _wait(before)
        if number % 2 and sent is not None and received is not None:
            sent += received
    _wait(works)
    if received is not None:
        received[0].item()  # waits for the device
    return perf_counter() - begun


def _wait(works: list[Any]) -> None:
    while works:
        works.pop().wait()


def _turn(rank: int, ranks: int) -> int:
    """Return the stage of the probe, from 0, in which a rank sends. Neighbours never send in the same stage.

    >>> [_turn(rank, 5) for rank in range(5)]
    [0, 1, 0, 1, 2]
    """
    return 2 if ranks % 2 and rank == ranks - 1 else rank % 2
