"""Ring all-reduce: reduce-scatter, then all-gather, 2(N-1) steps of a slice of p/N each (paper 1, section II-B).

`ring_finish` computes the times of these steps for all nodes at once. `ring_steps` is the same algorithm as a program
of explicit messages. Tests compare the two.
"""

import itertools
from collections.abc import Callable, Generator
from functools import lru_cache
from typing import Any

import numpy as np

from workbench.core.base.types import Array
from workbench.core.contract.links import BYTES_PER_FLOAT, Link
from workbench.core.contract.plan import even_sizes
from workbench.core.contract.protocol import Node, Recv, Send

SLICE_KIND = "slice"
# max number of nodes for the closed form; with more nodes, simulating the steps is faster
MAX_RING_NODES = 256


def slice_sizes(floats: int, n: int) -> Array:
    """Return the number of floats in each of the n slices of a vector, which differ by at most one."""
    return even_sizes(floats, n).astype(float)


def bytes_sent(floats: int, n: int, place: int, width: int = BYTES_PER_FLOAT) -> int:
    """Return the bytes that a node sends in one all-reduce: all slices twice, except one slice in each phase.

    `place`: position of the node in the ring, from 0. `width`: bytes of one float.

    >>> [bytes_sent(5, 2, place) for place in (0, 1)]
    [40, 40]
    """
    size, rest = divmod(floats, n)  # not `slice_sizes`, which would make a simulated round quadratic in n
    spared = 2 * size + ((place + 1) % n < rest) + ((place + 2) % n < rest)
    return width * (2 * floats - spared)


def ring_finish(
    entry: Array, port_free: Array, floats: int, link: Link, extra: Callable[[float], Array] | None = None
) -> tuple[Array, Array]:
    """Return the times when each node has the sum, and when its port is free again; both shape (n,), s.

    At step k, node i sends slice i-k. It continues with step k+1 once it has received slice i-1-k. A message reaches
    the port of the next node after the latency, and occupies it for its transfer. The longest path determines the end.

    `extra`: function of a share of the vector. It returns the seconds that each node's link adds to the common latency,
    (n,).
    """
    n = len(entry)
    if n > 1 and not link.alike:
        return _by_different_steps(entry, port_free, floats, link, extra)
    if n > 1 and not link.latency and not link.bandwidth:
        # Every node passes its maximum on, so after the last step each node has the maximum over all nodes.
        last = np.full(n, max(entry.max(), port_free.max()))
        return last, last.copy()
    rate = link.width / (link.bandwidth or np.inf)
    if not 1 < n <= MAX_RING_NODES:
        return _by_steps(entry, port_free, rate * slice_sizes(floats, n), link.latency)
    port = (_ways(floats, n, link.latency, rate) + np.concatenate([entry, port_free])).max(axis=1)
    return port, port.copy()


def _by_steps(entry: Array, port_free: Array, transfer: Array, latency: float) -> tuple[Array, Array]:
    n = len(entry)
    wrapped = np.concatenate([transfer, transfer])
    ready_at = np.empty(n + 1)  # [i + 1]: when node i is ready; [0] repeats the last node
    ready_at[1:] = entry
    before, ready, port = ready_at[:-1], ready_at[1:], port_free.astype(float)
    sent = np.empty(n)
    for k in range(2 * (n - 1)):
        ready_at[0] = ready_at[n]
        start = (-1 - k) % n  # node i receives slice i - 1 - k
        np.maximum(np.add(before, latency, out=sent) if latency else before, port, out=port)
        np.add(port, wrapped[start : start + n], out=port)
        np.maximum(ready, port, out=ready)
    return ready.copy(), port


def _by_different_steps(
    entry: Array, port_free: Array, floats: int, link: Link, extra: Callable[[float], Array] | None
) -> tuple[Array, Array]:
    """Return the result of `ring_finish` for links that differ by node, or have drawn delays."""
    n, sizes = len(entry), slice_sizes(floats, len(entry))
    ready, port, node = entry.astype(float), port_free.astype(float), np.arange(n)
    rate = link.width / link.by_worker("bandwidth", n)
    lengths, which = np.unique(sizes, return_inverse=True)
    wire = [link.latency + (0.0 if extra is None else extra(length / floats)) for length in lengths]
    on_wire = np.array(np.broadcast_arrays(*wire, entry)[:-1])  # (lengths, n)
    for k in range(2 * (n - 1)):
        slices = (node - k) % n  # index of the slice that each node sends
        there = ready + on_wire[which[slices], node]
        transfers = rate * sizes[slices]
        port = np.maximum(np.roll(there, 1), port) + np.roll(transfers, 1)
        ready = np.maximum(ready, port)
    return ready, port


@lru_cache(maxsize=2)
def _ways(floats: int, n: int, latency: float, rate: float) -> Array:
    """Return the length of the longest path to node i from node j's entry, and from node j's port: (n, 2n), s."""
    hops, moved = _hops(floats, n)
    longest: Array = (latency * hops + rate * moved).max(axis=0)
    return longest


@lru_cache(maxsize=2)
def _hops(floats: int, n: int) -> tuple[Array, Array]:
    """Return the hops of the longest paths, and the floats that pass ports on them, each (2, n, 2n).

    A path begins when a node enters the all-reduce, or when its port becomes free. It has 2(n-1) steps. In each step
    the slice moves on to the next node (a hop), or waits in a port for the slice before. A path from an entry begins
    with a hop, and a path from a port with a wait. The longest paths have the fewest possible hops, or n hops more
    (first axis). In the other steps they wait for the largest slice on the path.
    """
    size, steps = slice_sizes(floats, n), 2 * (n - 1)
    before = size[(np.arange(n)[:, None] - np.arange(steps + 1)) % n]  # [j, s]: slice j - s
    total, largest = before.cumsum(axis=1), np.maximum.accumulate(before, axis=1)
    node, source = np.ogrid[:n, :n]
    found = []
    for first in (1, 0):  # 1: the first step is a hop
        least = (node - source - first) % n + first
        more = np.where(least + n + 1 - first <= steps, least + n, least)
        hops = np.stack([least, more])
        at = (source - 1 + first) % n, steps - hops - 1 + first
        found.append((hops, total[at] + (hops - first) * largest[at]))
    hops, moved = (np.concatenate(each, axis=2).astype(float) for each in zip(*found, strict=True))
    return hops, moved


def ring_steps(
    node: Node, value: Array, round: int, came: dict[tuple[int, int], Array]
) -> Generator[Any, Any, Array]:
    """Run the all-reduce of one worker with explicit messages, and return the sum. Ranks 1..n form the ring in order.

    `came`: received slices by round and step. The caller passes the same dictionary in all rounds, because messages may
    overtake each other if sending times are drawn.
    """
    n = node.plan.workers
    i = node.rank - 1
    after = 1 + (i + 1) % n
    bounds = np.concatenate([[0], np.cumsum(slice_sizes(node.floats, n))]).astype(int)
    slices = [value[a:b] for a, b in itertools.pairwise(bounds)]
    for k in range(2 * (n - 1)):
        mine = slices[(i - k) % n]
        yield Send(after, SLICE_KIND, round, mine, floats=len(mine), number=k)
        while (round, k) not in came:
            message = yield Recv({SLICE_KIND: round})
            came[message.round, message.number] = message.value
        j, new = (i - 1 - k) % n, came.pop((round, k))
        slices[j] = new + slices[j] if k < n - 1 else new
    return np.concatenate(slices)
