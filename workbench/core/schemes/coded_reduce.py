"""CodedReduce, CR: gradient coding on a regular tree.

Relays decode, add their own gradient and send the sum to their parent. A. Reisizadeh, S. Prakash, R. Pedarsani, A. S.
Avestimehr, "CodedReduce: A fast and robust framework for gradient aggregation in distributed learning", section III-A:
CompAlloc, Allocate, Execute.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from workbench.core.base.settings import SettingError, setting
from workbench.core.base.types import Array
from workbench.core.codes import GradientCode, cyclic
from workbench.core.contract.plan import Plan
from workbench.core.contract.programs import at_least, coded_program, decoder
from workbench.core.contract.protocol import Node, Program
from workbench.core.contract.round_times import RoundTimes, SampledTimes, tree_round_times
from workbench.core.contract.scheme import Scheme, least_digits_field, log_spaced_ints
from workbench.core.schemes.gradient_coding import Matrix, own_code
from workbench.core.schemes.uncoded import check_stragglers


class Segments(NamedTuple):
    """Ordered weighted data sets of nodes 0, 1, ...: samples start[k]:stop[k] of node[k], each with weight[k].

    `node` is sorted.
    """

    node: NDArray[np.int64]
    start: NDArray[np.int64]
    stop: NDArray[np.int64]
    weight: Array

    def sizes(self, nodes: int) -> NDArray[np.int64]:
        """Return the number of samples of each node, (nodes,)."""
        return np.bincount(self.node, self.stop - self.start, nodes).astype(np.int64)

    def take(self, first: NDArray[np.int64], last: NDArray[np.int64]) -> Segments:
        """Return the samples of each node from index `first` to `last` in the order of its set; both (nodes,)."""
        sizes, own = self.stop - self.start, self.sizes(len(first))
        begins = np.cumsum(sizes) - sizes - (np.cumsum(own) - own)[self.node]
        a, b = np.maximum(first[self.node] - begins, 0), np.minimum(last[self.node] - begins, sizes)
        keep = b > a
        return Segments(self.node[keep], (self.start + a)[keep], (self.start + b)[keep], self.weight[keep])

    def of(self, node: int) -> Segments:
        """Return the set of one node."""
        return Segments._make(column[self.node == node] for column in self)


class CR(Scheme):
    """CodedReduce on the (n, L)-regular tree: n children per parent, L layers, at most s late children per parent.

    >>> CR(children=2, layers=2, stragglers=1).loads(workers=6, samples=60).tolist()
    [30, 30, 30, 30, 30, 30]
    """

    name = "CR"
    title: ClassVar[str] = "CodedReduce"
    paper: ClassVar[str] = "CodedReduce, section III-A"
    precision_knob: ClassVar[tuple[str, int] | None] = ("stragglers", -1)
    children: int = setting(3, "children of every parent (n)", ge=1)
    layers: int = setting(2, "layers of workers below the master (L)", ge=1)
    stragglers: int = setting(1, "children per parent that may be late or dead (s)", ge=0)
    code_seed: int = setting(0, "seed of the code's random numbers", ge=0)
    matrix: Matrix | None = setting(None, "user-defined encoding matrix, n rows of n; empty = built-in")
    least_digits: int = least_digits_field()

    @classmethod
    def candidates(cls, workers: int) -> list[dict[str, Any]]:
        """Return every regular tree of this many workers with some s. If there is none, return the nearest tree."""
        near = nearest_trees(workers, 40)
        trees = [tree for tree in near if tree_size(*tree) == workers] or near[:1]
        return [
            {"children": n, "layers": k, "stragglers": s - 1} for n, k in trees for s in log_spaced_ints(1, n)
        ]

    def check(self, workers: int) -> None:
        """Raise `SettingError` for s >= n, a wrong number of workers, or a matrix that does not decode."""
        check_stragglers(self.stragglers, self.children, f"a parent with {self.children} children")
        self._check_size(workers)
        if self.matrix is not None and any(len(row) != self.children for row in self.matrix):
            raise SettingError(f"scheme_args.matrix: give {self.children} rows of {self.children} numbers")
        if self.matrix is not None and not all(any(row) for row in self.matrix):
            raise SettingError("scheme_args.matrix: has a row of zeros; every child needs a part")
        self.code()

    def _check_size(self, workers: int) -> None:
        """Raise `SettingError` unless the workers fill the tree.

        A tree that is too deep is refused before its workers are counted.
        """
        deep = self.layers > (workers if self.children == 1 else workers.bit_length())
        size = None if deep else tree_size(self.children, self.layers)
        if workers != size:
            near = nearest_trees(workers)
            shapes = [f"children {n}, layers {k} ({tree_size(n, k)} workers)" for n, k in near]
            raise SettingError(
                f"workers = {workers}: the ({self.children},{self.layers}) tree has {size or 'more'} workers;"
                f" nearest regular trees: {', '.join(shapes)}, or a star: children {workers}, layers 1"
            )

    def code(self) -> GradientCode:
        """Return the code between a parent and its children."""
        if self.matrix is not None:
            return own_code(self.matrix, self.children, self.stragglers)
        return cyclic(self.children, self.stragglers, self.code_seed)

    def codes(self, workers: int) -> list[GradientCode]:
        return [self.code()]

    @property
    def q(self) -> Fraction:
        """Ratio n/(s+1) of a parent's data set to the data set of one child."""
        return Fraction(self.children, self.stragglers + 1)

    def plan(self, workers: int, samples: int) -> Plan:
        """Run Allocate (Algorithm 3 of the paper), then cut the data wherever the data set of a node begins or ends."""
        held = self.allocate(samples)
        cuts = np.unique(np.concatenate([[0, samples], held.start, held.stop]))
        first, last = np.searchsorted(cuts, held.start), np.searchsorted(cuts, held.stop)
        counts = last - first
        rows = np.repeat(held.node, counts)
        layer = np.repeat(np.arange(self.layers + 1), [self.children**k for k in range(self.layers + 1)])
        return Plan(
            sizes=np.diff(cuts),
            indptr=np.concatenate([[0], np.searchsorted(rows, np.arange(-1, workers), "right")]),
            indices=np.repeat(last - np.cumsum(counts), counts) + np.arange(len(rows)),
            coefficients=np.repeat(held.weight, counts),
            parent=tree_parents(self.children, self.layers),
            notes={"layer": layer, "children_code": self.code().matrix},
        )

    def allocate(self, samples: int) -> Segments:
        """Return the local weighted data set of every worker (node i is rank i + 1), layer by layer from the top."""
        B, local, workers, nodes = self.code().matrix, [], 0, 1
        rest = Segments(np.array([0]), np.array([0]), np.array([samples]), np.ones(1))
        for layer in range(1, self.layers + 1):
            level, nodes = comp_alloc(rest, nodes, B), nodes * self.children
            sizes = level.sizes(nodes)
            own = self._own(sizes, layer)
            kept, rest = level.take(0 * own, own), level.take(own, sizes)
            local.append(kept._replace(node=kept.node + workers))
            workers += nodes
        return Segments._make(map(np.concatenate, zip(*local, strict=True)))

    def loads(self, workers: int, samples: int) -> NDArray[np.int64]:
        """Return the samples of each worker, from sizes alone, which takes milliseconds for a million workers."""
        n, holds = self.children, (self.code().matrix != 0).astype(np.int64)
        rest, loads = np.array([samples]), []
        for layer in range(1, self.layers + 1):
            size, extra = np.divmod(rest[:, None], n)
            level = ((size + (np.arange(n) < extra)) @ holds.T).ravel()
            own = self._own(level, layer)
            loads.append(own)
            rest = level - own
        return np.concatenate(loads)

    def _own(self, sizes: NDArray[np.int64], layer: int) -> NDArray[np.int64]:
        """Return how many samples of its subtree a node processes: the share 1/(1 + q + ... + q^(layers below))."""
        share = 1 / Fraction(sum(self.q**k for k in range(self.layers - layer + 1)))
        distinct, place = np.unique(sizes, return_inverse=True)
        retained = [
            (2 * size * share.numerator + share.denominator) // (2 * share.denominator)
            for size in distinct.tolist()
        ]
        return np.array(retained, dtype=np.int64)[place]

    def program(self, node: Node) -> Program:
        """Return the program of a node: the same for the master, relays and leaves. Leaves have no children."""
        rule = at_least(self.children - self.stragglers)
        combine = decoder(self.code, first=node.children[0] if node.children else 0)
        return coded_program(node, rule, combine)

    def round_times(self, draws: SampledTimes, workers: int) -> RoundTimes:
        """Return the round times, from order statistics layer by layer."""
        return tree_round_times(draws, self.children, self.layers, self.children - self.stragglers)


def comp_alloc(data: Segments, nodes: int, B: Array) -> Segments:
    """Run CompAlloc (section III-A) at each node: cut its set evenly into n parts.

    Child i of the node, which is node n * node + i of the result, gets part k with weight b[i,k], in order of k.
    """
    n = len(B)
    size, rest = np.divmod(data.sizes(nodes)[:, None], n)
    sizes = size + (np.arange(n) < rest)
    ends = np.cumsum(sizes, axis=1)
    parts = [data.take(first, last) for first, last in zip((ends - sizes).T, ends.T, strict=True)]
    places = [(parts[k], i, B[i, k]) for k, i in np.argwhere(B.T)]
    children = [p._replace(node=n * p.node + i, weight=w * p.weight) for p, i, w in places]
    joined = Segments._make(map(np.concatenate, zip(*children, strict=True)))
    order = np.argsort(joined.node, kind="stable")
    return Segments._make(column[order] for column in joined)


def tree_size(children: int, layers: int) -> int:
    """Return the number of workers of the (n, L)-regular tree: n + n^2 + ... + n^L.

    >>> tree_size(12, 2), tree_size(4, 3)
    (156, 84)
    """
    return sum(children**layer for layer in range(1, layers + 1))


def tree_parents(children: int, layers: int) -> NDArray[np.int64]:
    """Return the parent of every rank. Ranks are numbered layer by layer. The master is rank 0 with parent -1."""
    ranks = np.arange(1, tree_size(children, layers) + 1)
    return np.concatenate([[-1], (ranks - 1) // children])


def nearest_trees(workers: int, count: int = 4) -> list[tuple[int, int]]:
    """Return the shapes (n, L) whose size is nearest to that many workers, without L = 1 (a star), which always fits.

    >>> nearest_trees(156)[0]
    (12, 2)
    """
    shapes = [(n, layers) for layers in range(2, 21) for n in _around(workers, layers)]
    return sorted(shapes, key=lambda s: (abs(tree_size(*s) - workers), s[1]))[:count]


def _around(workers: int, layers: int) -> list[int]:
    n = max(2, round(workers ** (1 / layers)))
    return [k for k in range(max(2, n - 2), n + 2) if tree_size(k, layers) <= 2 * workers + 6]
