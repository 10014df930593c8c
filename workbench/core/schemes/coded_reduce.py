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
from workbench.core.contract.plan import Plan, even_sizes
from workbench.core.contract.programs import at_least, coded_program, decoder
from workbench.core.contract.protocol import Node, Program
from workbench.core.contract.round_times import RoundTimes, SampledTimes, tree_round_times
from workbench.core.contract.scheme import Scheme, least_digits_field, log_spaced_ints
from workbench.core.schemes.gradient_coding import Matrix, own_code
from workbench.core.schemes.uncoded import check_stragglers


class Segments(NamedTuple):
    """Ordered weighted data set: consecutive samples start[k]:stop[k], each with weight[k]."""

    start: NDArray[np.int64]
    stop: NDArray[np.int64]
    weight: Array

    def take(self, first: int, last: int) -> Segments:
        """Return the samples from index `first` to `last` in the order of the set."""
        ends = np.cumsum(self.stop - self.start)
        begins = ends - (self.stop - self.start)
        a, b = np.maximum(first, begins) - begins, np.minimum(last, ends) - begins
        keep = b > a
        return Segments((self.start + a)[keep], (self.start + b)[keep], self.weight[keep])


class CR(Scheme):
    """CodedReduce on the (n, L)-regular tree: n children per parent, L layers, at most s late children per parent.

    >>> CR(children=2, layers=2, stragglers=1).loads(workers=6, samples=60).tolist()
    [30, 30, 30, 30, 30, 30]
    """

    name: ClassVar[str] = "CR"
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
        segments = self.allocate(samples)
        cuts = np.unique(
            np.concatenate([[0, samples], *(np.concatenate([h.start, h.stop]) for h in segments)])
        )
        first, last = ([np.searchsorted(cuts, getattr(h, k)) for h in segments] for k in ("start", "stop"))
        counts = [int((b - a).sum()) for a, b in zip(first, last, strict=True)]
        pieces = zip(first, last, segments, strict=True)
        runs = [(a, b, w) for fs, ls, h in pieces for a, b, w in zip(fs, ls, h.weight, strict=True)]
        indices = [np.zeros(0, dtype=np.int64), *(np.arange(a, b) for a, b, _ in runs)]
        layer = np.repeat(np.arange(self.layers + 1), [self.children**k for k in range(self.layers + 1)])
        return Plan(
            sizes=np.diff(cuts),
            indptr=np.concatenate([[0, 0], np.cumsum(counts)]),
            indices=np.concatenate(indices),
            coefficients=np.concatenate([np.zeros(0), *(np.full(b - a, w) for a, b, w in runs)]),
            parent=tree_parents(self.children, self.layers),
            notes={"layer": layer, "children_code": self.code().matrix},
        )

    def allocate(self, samples: int) -> list[Segments]:
        """Return the local weighted data set of every worker, layer by layer from the top."""
        B = self.code().matrix
        level = [Segments(np.array([0]), np.array([samples]), np.ones(1))]
        level = [child for s in level for child in comp_alloc(s, B)]
        local: list[Segments] = []
        for layer in range(1, self.layers + 1):
            sizes = np.array([int((s.stop - s.start).sum()) for s in level])
            own = self._own(sizes, layer)
            local += [s.take(0, k) for s, k in zip(level, own, strict=True)]
            rests = [s.take(k, size) for s, k, size in zip(level, own, sizes, strict=True)]
            level = [child for s in rests for child in comp_alloc(s, B)] if layer < self.layers else []
        return local

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


def comp_alloc(data: Segments, B: Array) -> list[Segments]:
    """Run CompAlloc (section III-A): cut the set evenly into n parts.

    Child i gets part k with weight b[i,k], in order of k.
    """
    n = len(B)
    ends = np.cumsum(even_sizes(int((data.stop - data.start).sum()), n))
    parts = [data.take(int(a), int(b)) for a, b in zip(np.concatenate([[0], ends[:-1]]), ends, strict=True)]
    children = []
    for row in B:
        segments = [Segments(p.start, p.stop, w * p.weight) for p, w in zip(parts, row, strict=True) if w]
        children.append(Segments(*(np.concatenate(columns) for columns in zip(*segments, strict=True))))
    return children


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
