"""Positions of nodes: in layers, around the master, one branch of a very large tree, or on a circle for a ring."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from workbench.core.base.types import Array
from workbench.core.contract.plan import Plan

MAX_LAYERED_WORKERS = 32  # max number of workers for which a tree is drawn in layers
BRANCH_CHILDREN = 6  # number of children of a parent, if one branch is drawn
RING_NODES = 40  # number of drawn workers of a larger ring
REST_NODE = -1  # rank of a node that represents all siblings that are not drawn


class Layout(NamedTuple):
    """Positions of the drawn nodes, and the edges between them."""

    rank: NDArray[np.int64]
    x: Array
    y: Array
    layer: NDArray[np.int64]  # distance from the root
    edges: NDArray[np.int64]  # (edges, 2), indices in `rank`
    ring: bool
    # number of ranks that each node represents: 1, or more for a node of siblings that are not drawn
    number: NDArray[np.int64]

    @property
    def radial(self) -> bool:
        """Whether the nodes are drawn around the master, as for rings and large trees."""
        return self.ring or len(self.rank) - 1 > MAX_LAYERED_WORKERS


def place(plan: Plan, most: int) -> Layout:
    """Return the layout of a plan.

    If the plan has more than `most` ranks, the layout has one branch of the tree, or some workers of the ring.
    """
    whole = plan.ranks <= most
    if plan.workers > 1 and not np.any(plan.parent[1:] >= 0):
        return _ring(plan.workers, plan.workers if whole else RING_NODES)
    if whole:
        rank, parent, count, layer = np.arange(plan.ranks), plan.parent, np.ones_like(plan.parent), plan.depth
        slot = _slots(parent, layer)
    else:
        rank, parent, count, layer = _branch(plan)
        slot = _spread(layer)
    children = np.flatnonzero(parent >= 0)
    edges = np.stack([parent[children], children], axis=1)
    if len(rank) - 1 <= MAX_LAYERED_WORKERS or not whole:
        return Layout(rank, slot, -layer.astype(float), layer, edges, False, count)
    angle = 2 * np.pi * slot / (slot.max() + 1.0)
    return Layout(rank, layer * np.sin(angle), layer * np.cos(angle), layer, edges, False, count)


def _ring(workers: int, drawn: int) -> Layout:
    """Return the layout of a ring: workers on a circle, each linked to the next one, and the master in the middle."""
    rank = np.unique(np.linspace(1, workers + 1, drawn, endpoint=False).astype(np.int64))
    angle = 2 * np.pi * (rank - 1) / workers
    x, y = (np.concatenate([[0.0], side]) for side in (np.sin(angle), np.cos(angle)))
    place = np.arange(1, len(rank) + 1)
    edges = np.stack([place, np.roll(place, -1)], axis=1)
    layer = np.concatenate([[0], np.ones_like(rank)])
    return Layout(np.concatenate([[0], rank]), x, y, layer, edges, True, np.ones_like(layer))


def _branch(plan: Plan) -> NDArray[np.int64]:
    """Return the nodes of one branch: the master's first children, the children of the first one, and so on.

    In each layer, a last node represents the other siblings. The result has ranks, indices of their parents, the number
    of ranks that each node represents, and layers: (4, nodes).
    """
    nodes, at, layer = [(0, -1, 1, 0)], 0, 0
    while kids := plan.children[nodes[at][0]]:
        shown = kids if len(kids) <= BRANCH_CHILDREN else kids[: BRANCH_CHILDREN - 1]
        first, layer = len(nodes), layer + 1
        nodes += [(kid, at, 1, layer) for kid in shown]
        if len(shown) < len(kids):
            nodes.append((REST_NODE, at, len(kids) - len(shown), layer))
        at = first
    return np.array(nodes, dtype=np.int64).T


def _spread(layer: NDArray[np.int64]) -> Array:
    """Spread the nodes of each layer over the whole width."""
    among = np.array([np.sum(layer[:place] == depth) for place, depth in enumerate(layer.tolist())])
    return BRANCH_CHILDREN * (among + 0.5) / np.bincount(layer)[layer]


def _slots(parent: NDArray[np.int64], layer: NDArray[np.int64]) -> Array:
    """Return positions along the layers: leaves in depth-first order, and each parent above its children."""
    children: list[list[int]] = [[] for _ in parent]
    roots: list[int] = []
    for rank, above in enumerate(parent.tolist()):
        (children[above] if above >= 0 else roots).append(rank)
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
