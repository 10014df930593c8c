"""Who holds which parts of the data, with which coefficients, and who talks to whom: drawn and checked before a run."""

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
    """Weighted parts that one Compute goes through: gradient = sum of coefficient * part's gradient.

    With coefficients of shape (k, m) the answer is k such sums, shape (k, p), for the price of one pass.

    `parts` hold `samples` samples together; `coefficients`: (m,) or (k, m).

    >>> uncoded_plan(workers=3, samples=10).work[1].samples
    4
    """

    parts: NDArray[np.int64]  # (m,) indices of parts
    coefficients: Array  # (m,) or (k, m)
    samples: int  # how many samples the parts hold together

    def split(self, sizes: NDArray[np.int64]) -> list[Work]:
        """Cut into one Work per part, in order (a worker that answers part by part)."""
        pairs = zip(self.parts, self.coefficients, strict=True)
        return [Work(np.array([p]), np.array([c]), int(sizes[p])) for p, c in pairs]


@dataclass(frozen=True)
class Blend(Work):
    """Work on encoded data: parts are weighted and added up, row by row, before anything is computed.

    Parts with the same number in `blocks` make one block; shorter ones are filled up with rows of zeros. The answer
    is the sum over the blocks of block^T (block @ model), which is quadratic in the data: see `Quadratic`.

    `parts`, `coefficients` and `samples`: as in `Work`.

    >>> blend = Blend(np.array([0, 2]), np.ones(2), 4, blocks=np.array([1, 1]))
    >>> blend.block(1).parts.tolist()
    [0, 2]
    """

    blocks: NDArray[np.int64]  # (m,)

    def block(self, number: int) -> Work:
        """What goes into one block; its samples are those of the longest part, which only the engine's sizes tell."""
        of = self.blocks == number
        return Work(self.parts[of], self.coefficients[of], 0)


@dataclass(frozen=True)
class Plan:
    """Who holds what and who talks to whom. Drawn and checked before a run; rank 0 is the master.

    Parts are consecutive slices of the data set. `indptr`, `indices`, `coefficients` are the encoding matrix
    in compressed rows: rank r computes part indices[k] with coefficients[k], k in indptr[r]:indptr[r+1].

    `sizes`: samples in each part. `parent`: rank of the parent, -1 for none. `committers`: ranks whose commits
    complete a round. `answers`: messages a worker sends per round at most. `batch`: samples it draws per round.
    `blocks`: see `Blend`. `coordinates`: m, where a scheme treats coordinates modulo m apart. `versions`: of how many
    models' gradients messages and commits may be made; 1: of the round's own. `notes`: for figures.

    >>> plan = uncoded_plan(workers=3, samples=10)
    >>> plan.ranks, plan.sizes.tolist(), plan.parent.tolist(), plan.children[0]
    (4, [4, 3, 3], [-1, 0, 0, 0], (1, 2, 3))
    """

    sizes: NDArray[np.int64]  # (parts,) samples in each part
    indptr: NDArray[np.int64]  # (ranks + 1,)
    indices: NDArray[np.int64]
    coefficients: Array
    parent: NDArray[np.int64]  # (ranks,) -1: none (the master; the workers of a ring)
    committers: tuple[int, ...] = (MASTER,)  # the ranks whose commits make a round complete
    answers: int = 1  # messages that a worker sends per round at most
    batch: int | None = None  # samples that a worker draws per round from what it holds; None: all of them
    blocks: NDArray[np.int64] | None = None  # (parts,) encoded data: parts of one number are blended into one
    coordinates: int = 1  # a scheme that treats coordinates apart, modulo m, says m here (see `arithmetic`)
    versions: int = 1  # models that may be in use at one time, the newest included (see `mixed`)
    notes: Mapping[str, Any] = field(default_factory=dict)  # for figures: layer of a rank, code, ...

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
        """Steps from each rank up to its root: shape (ranks,); ring workers are 0."""
        depth, above = np.zeros(self.ranks, dtype=np.int64), self.parent
        while np.any(up := above >= 0):
            depth += up
            above = np.where(up, self.parent[above], -1)
        return depth

    @cached_property
    def bounds(self) -> NDArray[np.int64]:
        """Sample where each part starts, and the end: shape (parts + 1,)."""
        return np.concatenate([[0], np.cumsum(self.sizes)])

    @cached_property
    def stored(self) -> NDArray[np.int64]:
        """Samples that each rank holds: shape (ranks,)."""
        if self.blocks is not None:
            return np.concatenate([[0], self.portions.sum(axis=1)])
        offsets = np.concatenate([[0], np.cumsum(self.sizes[self.indices])])
        return np.asarray(offsets[self.indptr[1:]] - offsets[self.indptr[:-1]])

    @cached_property
    def portions(self) -> NDArray[np.int64]:
        """Samples of each part (or block) that a worker holds, in its order, filled up with 0: (workers, most)."""
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
        """Samples that each rank goes through per round: shape (ranks,)."""
        return self.stored if self.batch is None else np.minimum(self.stored, self.batch)

    @cached_property
    def work(self) -> list[Work]:
        """Work of every rank (rank 0 has none of it)."""
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
        """Give worker i (rank i + 1) what worker rows[i] holds; who talks to whom stays."""
        places = np.concatenate([[0], rows + 1])
        counts = np.diff(self.indptr)[places]
        indptr = np.concatenate([[0], np.cumsum(counts)])
        take = np.repeat(self.indptr[places] - indptr[:-1], counts) + np.arange(indptr[-1])
        return replace(self, indptr=indptr, indices=self.indices[take], coefficients=self.coefficients[take])

    def matrix(self) -> Array:
        """Encoding matrix as a dense array: shape (ranks, parts)."""
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
    """Plan of a master and one worker per row of `matrix` (workers, parts); the data are cut evenly.

    `samples` are cut; `notes`: what figures may show.

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
    """Plan of a master and workers with as many parts each; the data are cut evenly, into as many as there are workers.

    `held` (workers, k): parts of each worker, in its order. `samples` are cut, into `parts` where told;
    `coefficients` (workers, k): ones, if not told. `more`: other fields of the plan.

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
    """Plan of a master and workers with one part each, as it is: `star_plan` of the identity, which is not made.

    `samples`: of the data set, cut evenly.

    >>> uncoded_plan(workers=3, samples=10).stored.tolist()
    [0, 4, 3, 3]
    """
    return even_plan(np.arange(workers)[:, None], samples)
