"""Plans: the allocation of parts of the data with their coefficients, and the tree of ranks that communicate.

A plan is drawn and checked before a run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workbench.core.base.types import Array

MASTER = 0


@dataclass(frozen=True)
class Work:
    """Weighted parts that one Compute processes: gradient = sum of coefficient * gradient of the part.

    With coefficients of shape (k, m), the answer is k such sums, shape (k, p), in one pass over the data.
    `parts`: (m,). `coefficients`: (m,) or (k, m). `samples`: number of samples of the parts together.

    >>> uncoded_plan(workers=3, samples=10).work[1].samples
    4
    """

    parts: NDArray[np.int64]  # (m,) indices of parts
    coefficients: Array  # (m,) or (k, m)
    samples: int  # number of samples of the parts together

    def split(self, sizes: NDArray[np.int64]) -> list[Work]:
        """Return one Work per part, in order, for a worker that sends one answer per part."""
        pairs = zip(self.parts, self.coefficients, strict=True)
        return [Work(np.array([p]), np.array([c]), int(sizes[p])) for p, c in pairs]


@dataclass(frozen=True)
class Blend(Work):
    """Work on encoded data: the rows of the parts are weighted and added before gradients are computed.

    Parts with the same number in `blocks` form one block; shorter parts are padded with rows of zeros. The answer is
    the sum over the blocks of block^T (block @ model), which is quadratic in the data (see `Quadratic`).
    `parts`, `coefficients`: as in `Work`. `samples`: number of rows of the blocks together. `blocks`: (m,).

    >>> blend = Blend(np.array([0, 2]), np.ones(2), 4, blocks=np.array([1, 1]))
    >>> blend.block(1).parts.tolist()
    [0, 2]
    """

    blocks: NDArray[np.int64]  # (m,)

    def block(self, number: int) -> Work:
        """Return the parts of one block. Its `samples` is 0, because no engine uses it."""
        of = self.blocks == number
        return Work(self.parts[of], self.coefficients[of], 0)


@dataclass(frozen=True)
class Plan:
    """Allocation of the parts, and the tree of ranks that communicate. Rank 0 is the master.

    Parts are consecutive slices of the data set. `indptr`, `indices` and `coefficients` are the encoding matrix in
    compressed rows: rank r computes part indices[k] with coefficients[k], k in indptr[r]:indptr[r+1].

    `sizes`: samples of each part. `parent`: rank of the parent, or -1. `committers`: ranks whose commits complete a
    round. `answers`: maximum number of messages of a worker per round. `batch`: samples that a worker draws per round.
    `blocks`: see `Blend`. `coordinates`: m, if the scheme treats the coordinates modulo m separately. `versions`:
    number of models whose gradients a message may contain; 1 = only that of the round. `notes`: data for figures.

    >>> plan = uncoded_plan(workers=3, samples=10)
    >>> plan.ranks, plan.sizes.tolist(), plan.parent.tolist(), plan.children[0]
    (4, [4, 3, 3], [-1, 0, 0, 0], (1, 2, 3))
    """

    sizes: NDArray[np.int64]  # (parts,) samples in each part
    indptr: NDArray[np.int64]  # (ranks + 1,)
    indices: NDArray[np.int64]
    coefficients: Array
    parent: NDArray[np.int64]  # (ranks,); -1 for the master and for the workers of a ring
    committers: tuple[int, ...] = (MASTER,)  # ranks whose commits complete a round
    answers: int = 1  # maximum number of messages of a worker per round
    batch: int | None = None  # samples that a worker draws per round from those it stores; None: all
    blocks: NDArray[np.int64] | None = None  # (parts,) number of the block of encoded data that a part is in
    coordinates: int = 1  # m, if the scheme treats the coordinates modulo m separately (see `arithmetic`)
    versions: int = 1  # number of models in use at the same time, the newest included (see `weights`)
    notes: Mapping[str, Any] = field(default_factory=dict)  # data for figures: layer of a rank, code, ...

    @property
    def ranks(self) -> int:
        """Number of nodes, master included."""
        return len(self.parent)

    @property
    def workers(self) -> int:
        """Number of nodes without the master."""
        return len(self.parent) - 1

    @property
    def parts(self) -> int:
        """Number of parts of the data set."""
        return len(self.sizes)

    @property
    def samples(self) -> int:
        """Number of samples of the data set."""
        return int(self.sizes.sum())

    @cached_property
    def depth(self) -> NDArray[np.int64]:
        """Steps from each rank up to its root, shape (ranks,); 0 for the workers of a ring."""
        depth, above = np.zeros(self.ranks, dtype=np.int64), self.parent
        while np.any(up := above >= 0):
            depth += up
            above = np.where(up, self.parent[above], -1)
        return depth

    @cached_property
    def bounds(self) -> NDArray[np.int64]:
        """First sample of each part, and at the end the number of samples: shape (parts + 1,)."""
        return np.concatenate([[0], np.cumsum(self.sizes)])

    @cached_property
    def stored(self) -> NDArray[np.int64]:
        """Number of samples, or of rows of encoded blocks, that each rank stores: shape (ranks,)."""
        if self.blocks is not None:
            return np.concatenate([[0], self.portions.sum(axis=1)])
        offsets = np.concatenate([[0], np.cumsum(self.sizes[self.indices])])
        return np.asarray(offsets[self.indptr[1:]] - offsets[self.indptr[:-1]])

    @cached_property
    def portions(self) -> NDArray[np.int64]:
        """Samples of each part (or block) of a worker, in its order, padded with 0: (workers, max parts)."""
        sizes = self.sizes[self.indices]
        counts = np.diff(self.indptr)[1:]
        rows = np.repeat(np.arange(self.workers), counts)
        if self.blocks is not None:
            table = np.zeros((self.workers, int(self.blocks.max()) + 1), dtype=np.int64)
            np.maximum.at(table, (rows, self.blocks[self.indices]), sizes)
            return table
        table = np.zeros((self.workers, int(counts.max(initial=1))), dtype=np.int64)
        table[rows, np.arange(len(sizes)) - np.repeat(self.indptr[1:-1], counts)] = sizes
        return table

    @cached_property
    def loads(self) -> NDArray[np.int64]:
        """Number of samples that each rank processes per round: shape (ranks,)."""
        return self.stored if self.batch is None else np.minimum(self.stored, self.batch)

    @cached_property
    def work(self) -> list[Work]:
        """Work of every rank; empty for rank 0."""
        rows = list(zip(self.stored.tolist(), self.indptr[:-1], self.indptr[1:], strict=True))
        if self.blocks is None:
            return [Work(self.indices[a:b], self.coefficients[a:b], stored) for stored, a, b in rows]
        of = self.blocks[self.indices]
        return [Blend(self.indices[a:b], self.coefficients[a:b], stored, of[a:b]) for stored, a, b in rows]

    @cached_property
    def children(self) -> list[tuple[int, ...]]:
        """Children of every rank, in rank order."""
        kids: list[list[int]] = [[] for _ in range(self.ranks)]
        for rank, parent in enumerate(self.parent.tolist()):
            if parent >= 0:
                kids[parent].append(rank)
        return [tuple(k) for k in kids]

    def shuffled(self, rows: NDArray[np.int64]) -> Plan:
        """Return the plan in which worker i (rank i + 1) has the parts of worker rows[i]. The tree is unchanged."""
        places = np.concatenate([[0], rows + 1])
        counts = np.diff(self.indptr)[places]
        indptr = np.concatenate([[0], np.cumsum(counts)])
        take = np.repeat(self.indptr[places] - indptr[:-1], counts) + np.arange(indptr[-1])
        return replace(self, indptr=indptr, indices=self.indices[take], coefficients=self.coefficients[take])

    def matrix(self) -> Array:
        """Return the encoding matrix as a dense array: shape (ranks, parts)."""
        dense = np.zeros((self.ranks, self.parts))
        rows = np.repeat(np.arange(self.ranks), np.diff(self.indptr))
        dense[rows, self.indices] = self.coefficients
        return dense


def even_sizes(samples: int, parts: int) -> NDArray[np.int64]:
    """Cut samples into parts whose sizes differ by one at most.

    >>> even_sizes(7, 3).tolist()
    [3, 2, 2]
    """
    size, rest = divmod(samples, parts)
    return np.asarray(size + (np.arange(parts) < rest), dtype=np.int64)


def shard_sizes(samples: int, workers: int, pieces: int) -> NDArray[np.int64]:
    """Cut samples into the workers' shards as `even_sizes` does, then each shard into pieces: (workers, pieces).

    >>> shard_sizes(11, workers=2, pieces=4).tolist()
    [[2, 2, 1, 1], [2, 1, 1, 1]]
    """
    return np.stack([even_sizes(size, pieces) for size in even_sizes(samples, workers).tolist()])


def star_plan(matrix: Array, samples: int, **notes: Any) -> Plan:
    """Return the plan of a master and one worker per row of `matrix` (workers, parts).

    The `samples` are cut into parts whose sizes differ by one at most. `notes`: data for figures.

    >>> star_plan(np.array([[1.0, 0.5], [0.0, 1.0]]), samples=10).stored.tolist()
    [0, 10, 5]
    """
    workers, parts = matrix.shape
    rows, columns = np.nonzero(matrix)
    counts = np.bincount(rows, minlength=workers)
    return Plan(
        sizes=even_sizes(samples, parts),
        indptr=np.concatenate([[0, 0], np.cumsum(counts)]),
        indices=columns,
        coefficients=matrix[rows, columns],
        parent=np.array([-1] + [MASTER] * workers),
        notes=notes,
    )


def even_plan(
    placement: NDArray[np.int64],
    samples: int,
    parts: int | None = None,
    coefficients: Array | None = None,
    **more: Any,
) -> Plan:
    """Return the plan of a master and workers with k parts each.

    `placement` (workers, k): parts of each worker, in its order. The `samples` are cut into `parts` parts, whose sizes
    differ by one at most; default: one part per worker. `coefficients` (workers, k): default 1. `more`: other fields of
    the plan.

    >>> even_plan(np.array([[0, 1], [1, 0]]), samples=10).stored.tolist()
    [0, 10, 10]
    """
    workers, each = placement.shape
    return Plan(
        sizes=even_sizes(samples, parts or workers),
        indptr=np.concatenate([[0], each * np.arange(workers + 1)]),
        indices=placement.ravel(),
        coefficients=np.ones(placement.size) if coefficients is None else coefficients.ravel(),
        parent=np.array([-1] + [MASTER] * workers),
        **more,
    )


def uncoded_plan(workers: int, samples: int) -> Plan:
    """Return the plan of a master and workers with one part each: that of `star_plan` for the identity matrix.

    `samples`: size of the data set, which is cut evenly.

    >>> uncoded_plan(workers=3, samples=10).stored.tolist()
    [0, 4, 3, 3]
    """
    return even_plan(np.arange(workers)[:, None], samples)
