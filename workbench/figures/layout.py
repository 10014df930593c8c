"""Where the nodes of a plan stand: layered for few, radial for many, a circle for a ring."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from workbench.protocol import Array, Plan

LAYERED = 32  # workers up to which a tree is drawn from the top down


class Layout(NamedTuple):
    """Positions of the ranks shown (the first ones), and the edges between them."""

    x: Array
    y: Array
    layer: NDArray[np.int64]  # distance from the root
    edges: NDArray[np.int64]  # (edges, 2) ranks
    ring: bool


def place(plan: Plan, most: int) -> Layout:
    """Lay out the first `most` ranks of a plan."""
    parent = plan.parent[:most]
    ranks = len(parent)
    if plan.workers > 1 and not np.any(plan.parent[1:] >= 0):
        return _ring(ranks)
    layer = _layers(parent)
    slot = _slots(parent, layer)
    children = np.flatnonzero((parent >= 0) & (parent < ranks))
    edges = np.stack([parent[children], children], axis=1)
    if ranks - 1 <= LAYERED:
        return Layout(slot, -layer.astype(float), layer, edges, False)
    angle = 2 * np.pi * slot / (slot.max() + 1.0)
    return Layout(layer * np.sin(angle), layer * np.cos(angle), layer, edges, False)


def _ring(ranks: int) -> Layout:
    """Workers on a circle, each linked to the next; the master in the middle, linked to nobody."""
    workers = np.arange(1, ranks)
    angle = 2 * np.pi * (workers - 1) / len(workers)
    x, y = (np.concatenate([[0.0], side]) for side in (np.sin(angle), np.cos(angle)))
    edges = np.stack([workers, np.roll(workers, -1)], axis=1)
    return Layout(x, y, (np.arange(ranks) > 0).astype(np.int64), edges, True)


def _layers(parent: NDArray[np.int64]) -> NDArray[np.int64]:
    """Count the steps from each rank up to its root, all ranks at once."""
    layer = np.zeros(len(parent), dtype=np.int64)
    above = parent.copy()
    while np.any(up := above >= 0):
        layer[up] += 1
        above[up] = np.where(above[up] < len(parent), parent[np.minimum(above[up], len(parent) - 1)], -1)
    return layer


def _slots(parent: NDArray[np.int64], layer: NDArray[np.int64]) -> Array:
    """Place along the layer: leaves stand side by side in depth-first order, parents over their children."""
    children: list[list[int]] = [[] for _ in parent]
    roots: list[int] = []
    for rank, above in enumerate(parent.tolist()):
        (children[above] if 0 <= above < len(parent) else roots).append(rank)
    slot, free = np.zeros(len(parent)), 0
    stack = roots[::-1]
    while stack:
        rank = stack.pop()
        stack.extend(reversed(children[rank]))
        if not children[rank]:
            slot[rank], free = free, free + 1
    for rank in np.argsort(-layer, kind="stable").tolist():
        if children[rank]:
            slot[rank] = np.mean(slot[children[rank]])
    return slot
