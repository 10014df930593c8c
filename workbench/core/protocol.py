"""The contract between a scheme and an engine: effects, messages, plans, nodes.

A scheme is a frozen bag of numbers with two methods: `plan` (data: who holds which parts with which
coefficients, who talks to whom) and `program` (a generator: what one node does). A program performs no
input or output; it yields effects and an engine answers them:

========== ==================================================== ==================================
effect     meaning                                              answer
========== ==================================================== ==================================
Compute    coded partial gradient of some work at a model       the value, or None if pre-empted
Send       buffered, never blocks                               None
Recv       oldest waiting message that matches                  the message, or None at `until`
Close      messages of a kind before a round are unwanted       None (the port refuses them)
Decode     the node combines that many numbers                  None (costs time only if asked for)
AllReduce  sum over all workers, by the ring                    the sum
Commit     a gradient estimate is ready                         the updated model
========== ==================================================== ==================================

A match is data, not a function: `{kind: first round that still counts}`, so a late answer can never be taken for
a fresh one; what a Close names is dropped by the engine and counted as stale.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from workbench.base.errors import RunError
from workbench.base.settings import Settings, setting

if TYPE_CHECKING:
    from workbench.codes import GradientCode
    from workbench.forecasting import Odds, Setting

Array = NDArray[np.float64]
Match = Mapping[str, int]

MASTER = 0
NEAR = 1 + 2.0**-50  # times with a smaller quotient differ by rounding at most: they are one moment
SAME = 1e-9  # s: so are times that were carried from clock to clock, if they are no further apart
LEAST_DIGITS = 6  # that decoding must keep, unless a scheme is told otherwise

MODEL, CODED, LOST = "model", "coded", "lost"


def one_moment(one: float, other: float) -> bool:
    """Do two times differ by rounding at most?

    >>> one_moment(0.1 + 0.2, 0.3), one_moment(0.3, 0.3001)
    (True, False)
    """
    return math.isclose(one, other, rel_tol=NEAR - 1, abs_tol=SAME)


class Message(NamedTuple):
    """What a node receives. `number` tells apart several messages of one node in one round."""

    src: int
    kind: str
    round: int
    number: int
    value: Any


@dataclass(frozen=True)
class Work:
    """Weighted parts that one Compute goes through: gradient = sum of coefficient * part's gradient.

    With coefficients of shape (k, m) the answer is k such sums, shape (k, p), for the price of one pass.
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
    is the sum over the blocks of block^T (block @ model), which is quadratic in the data: see `problems.Quadratic`.
    """

    blocks: NDArray[np.int64]  # (m,)

    def block(self, number: int) -> Work:
        """What goes into one block; its samples are those of the longest part, which only the engine's sizes tell."""
        of = self.blocks == number
        return Work(self.parts[of], self.coefficients[of], 0)


class Compute(NamedTuple):
    """Go through `work` at `model`; given up with None once a message matching `unless` is there.

    `batch`: only that many samples of the work, drawn for this rank and round, their sum scaled up to stand
    for all of it.
    """

    work: Work
    model: Any
    round: int
    unless: Match | None = None
    batch: int | None = None


class Send(NamedTuple):
    """Send `value` to one rank or to several; `floats` is its length on the wire (default: a whole model).

    `share`: for what part of a model's sending time it counts (default: floats over the model's size), where
    padding makes the wire longer than the paper's model has it.
    """

    to: int | Sequence[int]
    kind: str
    round: int
    value: Any = None
    floats: int | None = None
    number: int = 0
    share: float | None = None


class Recv(NamedTuple):
    """Wait for the oldest message whose kind is in `match` and whose round is at least match[kind].

    `until` is an absolute time in seconds; what arrives at that very moment comes first, a past time polls. None: wait
    for ever (the engine ends a wait that nothing can end any more with a clear error). `latest`: take the newest
    instead, and forget the older.
    """

    match: Match
    until: float | None = None
    latest: bool = False


class Close(NamedTuple):
    """Messages of `kind` from before `round` are no longer wanted: refused, dropped, counted as stale."""

    kind: str
    round: int


class Decode(NamedTuple):
    """The node multiplies and adds `floats` numbers (charged only where the experiment says so)."""

    floats: int


class AllReduce(NamedTuple):
    """Sum `value` over all workers. `algorithm`: "mpi" (the library's own) or "ring" (explicit slices)."""

    value: Any
    round: int
    algorithm: str = "mpi"


class Commit(NamedTuple):
    """A gradient estimate is ready at this node; the engine owns optimiser, loss and trace."""

    gradient: Any
    round: int
    residual: float = 0.0  # distance of the decoding vector from all ones, as far as the node knows it


Effect = Compute | Send | Recv | Close | Decode | AllReduce | Commit
Program = Generator[Effect, Any, None]


@dataclass(frozen=True)
class Plan:
    """Who holds what and who talks to whom. Drawn and checked before a run; rank 0 is the master.

    Parts are consecutive slices of the data set. `indptr`, `indices`, `coefficients` are the encoding matrix
    in compressed rows: rank r computes part indices[k] with coefficients[k], k in indptr[r]:indptr[r+1].
    """

    sizes: NDArray[np.int64]  # (parts,) samples in each part
    indptr: NDArray[np.int64]  # (ranks + 1,)
    indices: NDArray[np.int64]
    coefficients: Array
    parent: NDArray[np.int64]  # (ranks,) -1: none (the master; the workers of a ring)
    committers: tuple[int, ...] = (MASTER,)  # the ranks whose commits make a round complete
    answers: int = 1  # messages that a worker sends per round at most
    batch: int | None = None  # samples that a worker draws per round from what it holds; None: all of them
    blocks: NDArray[np.int64] | None = (
        None  # (parts,) encoded data: a worker blends parts with the same number here into one (see `Blend`)
    )
    coordinates: int = 1  # a scheme that treats coordinates apart, modulo m, says m here (see `arithmetic`)
    notes: Mapping[str, Any] = field(
        default_factory=dict
    )  # what figures may show: layer of a rank, code, ...

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
        held = np.concatenate([[0], np.cumsum(self.sizes[self.indices])])
        return np.asarray(held[self.indptr[1:]] - held[self.indptr[:-1]])

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


def _no_constant(work: Work) -> Any:
    raise RunError("scheme: it needs the constant part of a gradient, which this engine does not tell")


@dataclass(frozen=True)
class Node:
    """What one node's program may know."""

    rank: int
    plan: Plan
    rounds: int
    floats: int  # model size p
    model: Any  # the model of the first round
    clock: Callable[[], float]
    smoothness: Callable[[Work], float] = lambda work: 1.0  # of the mean loss over some work, from the data
    constant: Callable[[Work], Any] = _no_constant  # see `problems.Quadratic`; known before the run
    first: int = 0  # round to begin with: above 0 where a run is resumed

    @property
    def span(self) -> range:
        """The rounds to go through."""
        return range(self.first, self.rounds)

    @property
    def children(self) -> tuple[int, ...]:
        """Ranks of the children."""
        return self.plan.children[self.rank]

    @property
    def parent(self) -> int:
        """Rank of the parent, -1 where there is none."""
        return int(self.plan.parent[self.rank])

    @property
    def work(self) -> Work:
        """The node's own coded work."""
        return self.plan.work[self.rank]


class Scheme(Settings):
    """A frozen, validated bag of numbers; defining a subclass with a `name` registers it."""

    name: ClassVar[str] = ""  # what users see: "CR", "GC" ...
    title: ClassVar[str] = ""  # a few words
    paper: ClassVar[str] = ""  # source
    exact: ClassVar[bool] = True  # commits the full gradient, whatever the stragglers
    numeric: ClassVar[bool] = False  # its decisions depend on the numbers, so messages must carry them
    optimiser: ClassVar[str] = "gd"  # that its paper defines it with; experiments may take another
    eases: ClassVar[tuple[str, int] | None] = (
        None  # number, and its direction, in which codes keep more digits
    )
    selects: ClassVar[bool] = False  # it asks whom the learning tells it to; a forecast asks all
    catalogue: ClassVar[dict[str, type[Scheme]]] = {}

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        """Register under the class's own name."""
        super().__pydantic_init_subclass__(**kwargs)
        if "name" in cls.__dict__:
            Scheme.catalogue[cls.name] = cls

    @classmethod
    def candidates(cls, workers: int) -> Iterable[dict[str, Any]]:
        """Numbers (`scheme_args`) that the planner tries with so many workers; `check` refuses what does not fit.

        Schemes with numbers of their own override it; see `some` and `divisors`.
        """
        return [{}]

    def check(self, workers: int) -> None:
        """Raise `SettingError` if this many workers do not fit; the message lists what would."""

    def check_problem(self, problem: str) -> None:
        """Raise `SettingError` if the scheme is not made for the problem of that name; the message says why."""

    def check_samples(self, workers: int, samples: int) -> None:
        """Raise `SettingError` if so many samples cannot be shared out; the message says how many could."""

    @abstractmethod
    def plan(self, workers: int, samples: int) -> Plan:
        """Say who holds which parts of a data set of that many samples, and who talks to whom."""

    @abstractmethod
    def program(self, node: Node) -> Program:
        """Say what one node does, as a generator of effects."""

    @abstractmethod
    def odds(self, setting: Setting, workers: int) -> Odds:
        """Round times over drawn compute times, vectorised: what `forecast` shows."""

    def rows(self, workers: int, round: int) -> NDArray[np.int64] | None:
        """Worker of the plan whose parts each worker takes in a round, (workers,); None: its own, always.

        Counted from 0. Schemes that shuffle override it; `held` and `encoding`, delays and forecasts follow.
        """
        return None

    def held(self, plan: Plan, round: int) -> Plan:
        """Plan as it is in one round."""
        rows = self.rows(plan.workers, round)
        return plan if rows is None else plan.shuffled(rows)

    def codes(self, workers: int) -> list[GradientCode]:
        """Codes whose decoding may cost digits; `wb.run` warns beforehand where it costs too many."""
        return []

    def encoding(self, plan: Plan, round: int) -> Array:
        """Encoding matrix of a round, shape (ranks, parts)."""
        return self.held(plan, round).matrix()

    def loads(self, workers: int, samples: int) -> NDArray[np.int64]:
        """Samples that each worker goes through per round, shape (workers,), without drawing the whole plan."""
        return self.plan(workers, samples).loads[1:]


def even_sizes(samples: int, parts: int) -> NDArray[np.int64]:
    """Cut samples into parts whose sizes differ by one at most.

    >>> even_sizes(7, 3).tolist()
    [3, 2, 2]
    """
    size, rest = divmod(samples, parts)
    return np.asarray(size + (np.arange(parts) < rest), dtype=np.int64)


def kept_digits() -> Any:
    """Declare the field `least_digits` of a scheme with codes that may keep too few digits; see `precision`."""
    return setting(
        LEAST_DIGITS,
        "of the 16 decimal digits of a number, how many decoding must keep; before a run, a code that keeps"
        " fewer is refused. 0 = run it all the same",
        "digits",
        ge=0,
        le=15,
    )


def some(low: int, high: int, count: int = 8) -> list[int]:
    """Whole numbers from low to high, ends included, denser at the low end; none where high is below low.

    >>> some(1, 100, 5)
    [1, 3, 10, 32, 100]
    """
    if high < low:
        return []
    steps = np.geomspace(1, high - low + 1, count)
    return sorted({low - 1 + round(float(x)) for x in steps})


def divisors(number: int) -> list[int]:
    """All divisors, ascending.

    >>> divisors(12)
    [1, 2, 3, 4, 6, 12]
    """
    return [k for k in range(1, number + 1) if number % k == 0]


def star_plan(matrix: Array, samples: int, **notes: Any) -> Plan:
    """Plan of a master and one worker per row of `matrix` (workers, parts); the data are cut evenly."""
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


def uncoded_plan(workers: int, samples: int) -> Plan:
    """Plan of a master and workers with one part each, as it is: `star_plan` of the identity, which is not made."""
    return Plan(
        sizes=even_sizes(samples, workers),
        indptr=np.concatenate([[0], np.arange(workers + 1)]),
        indices=np.arange(workers),
        coefficients=np.ones(workers),
        parent=np.array([-1] + [MASTER] * workers),
    )
