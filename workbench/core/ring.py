"""Ring all-reduce: reduce-scatter, then all-gather, 2(N-1) steps of a slice of p/N each (paper 1, section II-B).

`ring_finish` is the clock of those steps, computed for all nodes at once; `ring_steps` is the same thing as a
program of explicit messages. Tests hold the two equal.
"""

from __future__ import annotations

import itertools
from collections.abc import Generator
from typing import Any

import numpy as np

from workbench.base.types import Array
from workbench.core.links import BYTES_PER_FLOAT, Link
from workbench.core.plan import even_sizes
from workbench.core.protocol import Node, Recv, Send

SLICE = "slice"


def slice_sizes(floats: int, n: int) -> Array:
    """Floats in each of the n slices of a vector (they differ by one at most)."""
    return even_sizes(floats, n).astype(float)


def bytes_sent(floats: int, n: int, place: int, width: int = BYTES_PER_FLOAT) -> int:
    """Bytes that the node at a place sends in one all-reduce: all slices twice, but for one each way.

    `width`: bytes of a number.

    >>> [bytes_sent(5, 2, place) for place in (0, 1)]
    [40, 40]
    """
    size, rest = divmod(floats, n)  # see `slice_sizes`, which would make a simulated round quadratic in n
    spared = 2 * size + ((place + 1) % n < rest) + ((place + 2) % n < rest)
    return width * (2 * floats - spared)


def ring_finish(entry: Array, port_free: Array, floats: int, link: Link) -> tuple[Array, Array]:
    """When each node has the sum, and when its port is free again; both shape (n,), seconds.

    At step k node i sends slice i-k; it goes on to step k+1 once it has received slice i-1-k. A message is at
    the next node's port after the latency and occupies it for its transfer.
    """
    n = len(entry)
    if (
        n > 1 and not link.latency and not link.bandwidth
    ):  # every step hands a maximum on, the last has seen all
        last = np.full(n, max(entry.max(), port_free.max()))
        return last, last.copy()
    transfer = link.width * slice_sizes(floats, n) / (link.bandwidth or np.inf)
    wrapped = np.concatenate([transfer, transfer])
    ring = np.empty(n + 1)  # ring[i + 1] = when node i is ready; ring[0] repeats the last node
    ring[1:] = entry
    before, ready, port = ring[:-1], ring[1:], port_free.astype(float)
    sent = np.empty(n)
    for k in range(2 * (n - 1)):
        ring[0] = ring[n]
        start = (-1 - k) % n  # node i receives slice i - 1 - k
        np.maximum(np.add(before, link.latency, out=sent) if link.latency else before, port, out=port)
        np.add(port, wrapped[start : start + n], out=port)
        np.maximum(ready, port, out=ready)
    return ready.copy(), port


def ring_steps(
    node: Node, value: Array, round: int, came: dict[tuple[int, int], Array]
) -> Generator[Any, Any, Array]:
    """Explicit messages of the ring for one worker; ranks 1..n stand in the ring in order.

    `came`: slices by round and step, kept from round to round: where a message's time is drawn by its length, a later
    one may overtake those before it.
    """
    n = node.plan.workers
    i = node.rank - 1
    after = 1 + (i + 1) % n
    bounds = np.concatenate([[0], np.cumsum(slice_sizes(node.floats, n))]).astype(int)
    slices = [value[a:b] for a, b in itertools.pairwise(bounds)]
    for k in range(2 * (n - 1)):
        mine = slices[(i - k) % n]
        yield Send(after, SLICE, round, mine, floats=len(mine), number=k)
        while (round, k) not in came:
            message = yield Recv({SLICE: round})
            came[message.round, message.number] = message.value
        j, new = (i - 1 - k) % n, came.pop((round, k))
        slices[j] = new + slices[j] if k < n - 1 else new
    return np.concatenate(slices)
