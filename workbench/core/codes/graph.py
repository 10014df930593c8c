"""Graph codes: parts are the vertices of a regular graph, workers its edges. The best weights take linear time.

M. Glasgow, M. Wootters, "Approximate gradient coding with optimal decoding", 2021. Definition II.2: every worker
stores two parts, and every part is stored by d workers. The paper also gives the sums of the best weights in each
component. For expanders: N. Raviv, I. Tamo, R. Tandon, A. G. Dimakis, "Gradient coding from cyclic MDS codes and
expander graphs", 2018.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from workbench.core.base.settings import SettingError
from workbench.core.base.types import Array
from workbench.core.codes.base import Decoding
from workbench.core.codes.checks import nearest, remembered, seed_fits

Ints = NDArray[np.int64]
# number of attempted exchanges per edge; after 3, the expansion is that of a random graph
SWITCHES_PER_EDGE = 10


@dataclass(frozen=True, eq=False)
class GraphCode:
    """Code whose workers send the plain sum of two parts, the vertices of the worker's edge.

    `edges` (workers, 2): vertices, the lower one first, without repeated edges. `parts`: number of vertices.

    >>> triangle_and_leaf = GraphCode(np.array([[0, 1], [0, 2], [1, 2], [2, 3]]), parts=4)
    >>> triangle_and_leaf.decode((0, 3)).weights.tolist(), triangle_and_leaf.totals(np.array([0, 1])).round(3).tolist()
    ([1.0, 1.0], [1.333, 0.667, 0.667, 0.0])
    """

    edges: Ints
    parts: int

    def matrix(self) -> Array:
        """Return the allocation as a matrix of zeros and ones, (workers, parts)."""
        dense = np.zeros((len(self.edges), self.parts))
        np.put_along_axis(dense, self.edges, 1.0, axis=1)
        return dense

    def totals(self, answered: Ints) -> Array:
        """Return the sum of the best weights of these answers for each part, (parts,).

        In a component of the surviving graph with an odd cycle, the sum is 1. A bipartite component has l vertices on
        one side and r on the other. There the sum is 1 - (l - r) / (l + r) on the first side, and 1 + (l - r) / (l +
        r) on the other. Both cases follow from the double cover. For each edge between u and v, the cover has an edge
        from u to the copy of v and an edge from v to the copy of u. In the double cover, a bipartite component is two
        components, and one with an odd cycle is one. All sums are 2 c / (o + c), where the component of a vertex has o
        originals and c copies.
        """
        from scipy.sparse import coo_array  # here, so that importing the workbench stays quick
        from scipy.sparse.csgraph import connected_components

        one, other = self.edges[answered].T
        rows, columns = np.concatenate([one, other]), np.concatenate([other, one]) + self.parts
        cover = coo_array((np.ones(len(rows)), (rows, columns)), shape=(2 * self.parts, 2 * self.parts))
        number, label = connected_components(cover, directed=False)
        vertices = np.bincount(label[: self.parts], minlength=number)
        copies = np.bincount(label[self.parts :], minlength=number)
        return np.asarray((2 * copies / (vertices + copies))[label[: self.parts]])

    def decode(self, answered: tuple[int, ...]) -> Decoding:
        """Return least-squares weights of these answers.

        The time is linear in the size of the graph, times the logarithm of its depth.
        """
        rows = np.asarray(answered, dtype=np.int64)
        totals = self.totals(rows)
        return Decoding(_edge_weights(self.edges[rows], totals), float(((totals - 1) ** 2).sum()))


def _edge_weights(edges: Ints, totals: Array) -> Array:
    """Return weights of the edges whose sum at each vertex is its total, from the leaves of a spanning forest upwards.

    A tree edge gets the rest that its lower vertex still needs. The root is then left with the alternating sum of the
    totals below. In a bipartite component this sum is 0. In any other component, one edge that closes an odd cycle
    gets half of this sum first.
    """
    forest, up, depth = _forest(edges, len(totals))
    sign = 1.0 - 2.0 * (depth % 2)
    weights, left = np.zeros(len(edges)), totals.copy()
    odd = np.flatnonzero(depth[edges[:, 0]] % 2 == depth[edges[:, 1]] % 2)
    component, first = np.unique(forest[edges[odd, 0]], return_index=True)
    at = odd[first]
    rest = np.bincount(forest, sign[:-1] * totals)
    weights[at] = rest[component] * sign[edges[at, 0]] / 2
    left[edges[at]] -= weights[at][:, None]
    keys = edges @ [len(totals), 1]
    by_key = np.argsort(keys)
    below = np.argsort(depth[:-1], kind="stable")
    levels = np.searchsorted(depth[below], np.arange(2, depth.max() + 2))
    for start, end in zip(levels[-2::-1], levels[:0:-1], strict=True):
        here = below[start:end]
        over = up[here]
        key = np.minimum(here, over) * len(totals) + np.maximum(here, over)
        weights[by_key[np.searchsorted(keys, key, sorter=by_key)]] = left[here]
        np.subtract.at(left, over, left[here])
    return weights


def _forest(edges: Ints, vertices: int) -> tuple[Ints, Ints, Ints]:
    """Return the component, the parent and the depth of each vertex.

    An additional vertex is the parent of all roots.
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import breadth_first_order, connected_components

    shape = (vertices + 1, vertices + 1)
    graph = coo_array((np.ones(len(edges)), edges.T), shape=shape)
    component = connected_components(graph, directed=False)[1][:vertices].astype(np.int64)
    roots = np.unique(component, return_index=True)[1]
    ends = np.concatenate([edges, np.stack([roots, np.full(len(roots), vertices)], axis=1)])
    graph = coo_array((np.ones(len(ends)), ends.T), shape=shape).tocsr()
    up = breadth_first_order(graph, vertices, directed=False)[1].astype(np.int64)
    up[vertices] = vertices
    depth, above = (up != np.arange(vertices + 1)).astype(np.int64), up
    while np.any(above != vertices):
        depth, above = depth + depth[above], above[above]
    return component, up, depth


@remembered
def random_regular(workers: int, degree: int, seed: int = 0) -> GraphCode:
    """Return the code of a random graph with `workers` edges and `degree` edges at every vertex, none twice.

    The graph starts as a regular ring. Then pairs of edges exchange an end at random, unless that makes a loop or
    repeats an edge.

    >>> random_regular(6, 3).matrix().sum(axis=0).tolist()
    [3.0, 3.0, 3.0, 3.0]
    """
    seed_fits(seed)
    graph_fits("replication", degree, workers)
    parts, rng = 2 * workers // degree, np.random.default_rng(seed)
    start, step = np.meshgrid(np.arange(parts), np.arange(1, degree // 2 + 1))
    across = np.arange(parts // 2 if degree % 2 else 0)
    ends = np.stack([start.ravel(), (start + step).ravel() % parts], axis=1)
    edges = np.concatenate([ends, np.stack([across, across + parts // 2], axis=1)])
    for _ in range(SWITCHES_PER_EDGE):
        edges = _switched(edges, parts, rng)
    return GraphCode(np.sort(edges, axis=1)[rng.permutation(workers)], parts)


def graph_fits(field: str, degree: int, workers: int) -> None:
    """Raise `SettingError` if no graph has this many edges and this degree, without repeated edges.

    >>> graph_fits("replication", 3, workers=6)
    """
    if not _fits(workers, degree):
        fits = [d for d in range(1, workers + 1) if _fits(workers, d)]
        what = f"{workers} workers are not the edges of a graph whose vertices have {degree} each"
        raise SettingError(f"{field} = {degree}: {what}; take {nearest(degree, fits)}")


def _fits(workers: int, degree: int) -> bool:
    return degree >= 1 and 2 * workers % degree == 0 and 2 * workers // degree > degree


def _switched(edges: Ints, parts: int, rng: np.random.Generator) -> Ints:
    """Exchange ends of pairs of edges: a-b, c-d become a-d, c-b."""
    half = len(edges) // 2
    edges = rng.permutation(edges)
    flip = rng.random(len(edges)) < 0.5
    edges[flip] = edges[flip, ::-1]
    one, two = edges[:half], edges[half : 2 * half]
    new = np.stack([one[:, 0], two[:, 1], two[:, 0], one[:, 1]], axis=1).reshape(half, 2, 2)
    keys = np.sort(new, axis=2) @ [parts, 1]
    both = np.concatenate([np.sort(edges, axis=1) @ [parts, 1], keys.ravel()])
    known, times = np.unique(both, return_counts=True)
    alone = times[np.searchsorted(known, keys)] == 1
    good = (alone & (new[:, :, 0] != new[:, :, 1])).all(axis=1)
    one[good], two[good] = new[good, 0], new[good, 1]
    return edges
