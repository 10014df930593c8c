"""The contract between a scheme and an engine: effects, messages, plans, nodes.

A scheme is a frozen set of parameters with two methods: `plan` (data: who holds which parts with which
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
Hold       a fault: nothing happens at the node for a while     None
Crash      a fault: the node dies                               never
========== ==================================================== ==================================

A match is data, not a function: `{kind: first round that still counts}`, so a late answer can never be taken for
a fresh one; what a Close names is dropped by the engine and counted as stale.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from workbench.core.base.errors import RunError
from workbench.core.contract.batches import BatchSampler
from workbench.core.contract.plan import Plan, Work

Match = Mapping[str, int]

REL_TOL = 1 + 2.0**-50  # times with a smaller quotient differ by rounding at most: they are one moment
ABS_TOL = 1e-9  # s: so are times that were carried from clock to clock, if they are no further apart

MODEL, CODED, PEER_LOST = "model", "coded", "lost"
NO_RANK = -1  # in notes of arrivals, in place of a rank: none had come by a deadline


def simultaneous(one: float, other: float) -> bool:
    """Do two times differ by rounding at most?

    >>> simultaneous(0.1 + 0.2, 0.3), simultaneous(0.3, 0.3001)
    (True, False)
    """
    return math.isclose(one, other, rel_tol=REL_TOL - 1, abs_tol=ABS_TOL)


class Message(NamedTuple):
    """What a node receives. `number` tells apart several messages of one node in one round.

    `src`: the sender's rank; `kind`, `round`: what a `Recv` matches; `value`: what was sent.

    >>> Message(src=3, kind="coded", round=7, number=0, value=None).src
    3
    """

    src: int
    kind: str
    round: int
    number: int
    value: Any


class Compute(NamedTuple):
    """Go through `work` at `model`; given up with None once a message matching `unless` is there.

    `batch`: only that many samples of the work, drawn for this rank and draw, their sum scaled up to stand
    for all of it. `draw`: which of the worker's drawn times it takes, counted from 0; by default the round's.
    `model`: a tuple of models, one for each row of the work's coefficients, where a worker goes through several
    models' work in one round; such work is a task of its own for the delays, whatever it is made of. `job`: the
    commit that the gradient is for (a tuple where `model` is one), by default the round. What a problem draws
    (dropout) depends on it, so a gradient is the same in whatever round it is computed. `slowdown`: computing takes
    that many times as long; only faults set it.

    >>> from workbench.core.contract.plan import uncoded_plan
    >>> Compute(uncoded_plan(3, 10).work[1], model=None, round=3).work.samples
    4
    """

    work: Work
    model: Any
    round: int
    unless: Match | None = None
    batch: int | None = None
    draw: int | None = None
    job: int | tuple[int, ...] | None = None
    slowdown: float = 1.0


class Send(NamedTuple):
    """Send `value` to one rank or to several; `floats` is its length on the wire (default: a whole model).

    `share`: for what part of a model's sending time it counts (default: floats over the model's size), where
    padding makes the wire longer than the paper's model has it. `draw`: as in `Compute`. `every`: of a model, it is
    wanted even where a newer one follows (else, on real links, a slow receiver may get the newest only).

    `kind` and `round` are what the receiver's `Recv` matches; `number` tells apart several of one round.

    >>> Send(to=0, kind="coded", round=3, floats=10).number
    0
    """

    to: int | Sequence[int]
    kind: str
    round: int
    value: Any = None
    floats: int | None = None
    number: int = 0
    share: float | None = None
    draw: int | None = None
    every: bool = False


class Recv(NamedTuple):
    """Wait for the oldest message whose kind is in `match` and whose round is at least match[kind].

    `until` is an absolute time in seconds; what arrives at that very moment comes first, a past time polls. None: wait
    for ever (the engine ends a wait that nothing can end any more with a clear error). `latest`: take the newest
    instead, and forget the older.

    >>> Recv({"coded": 3}, until=1.5).latest
    False
    """

    match: Match
    until: float | None = None
    latest: bool = False


class Close(NamedTuple):
    """Messages of `kind` from before `round` are no longer wanted: refused, dropped, counted as stale.

    >>> Close("coded", round=3)
    Close(kind='coded', round=3)
    """

    kind: str
    round: int


class Decode(NamedTuple):
    """The node multiplies and adds `floats` numbers (charged only where the experiment says so).

    >>> Decode(floats=1000)
    Decode(floats=1000)
    """

    floats: int


class AllReduce(NamedTuple):
    """Sum `value` over all workers. `algorithm`: "mpi" (the library's own) or "ring" (explicit slices).

    `round`: which one the sum is for.

    >>> AllReduce(value=None, round=3).algorithm
    'mpi'
    """

    value: Any
    round: int
    algorithm: str = "mpi"


class Commit(NamedTuple):
    """A gradient estimate is ready at this node; the engine owns optimiser, loss and trace.

    `round`: which it completes; `residual`: squared distance ``|b - 1|^2`` of the decoding vector b from all ones,
    nan where the node cannot know it.

    >>> Commit(gradient=None, round=3).residual
    0.0
    """

    gradient: Any
    round: int
    residual: float = 0.0


class Hold(NamedTuple):
    """A fault: the node does nothing for `seconds`, whatever comes. With 0 it only notes the fault as an event.

    >>> Hold(0.5, round=3)
    Hold(seconds=0.5, round=3)
    """

    seconds: float
    round: int


class Crash(NamedTuple):
    """A fault: the node dies. `how`: what happens to a real process ("kill", "segfault" or "exit").

    >>> Crash("kill", round=3).how
    'kill'
    """

    how: str
    round: int


Effect = Compute | Send | Recv | Close | Decode | AllReduce | Commit | Hold | Crash
Program = Generator[Effect, Any, None]


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
    constant: Callable[[Work], Any] = _no_constant  # see `Quadratic`; known before the run
    l2: float = 0.0  # of the objective; the optimiser puts it in, unless a worker has a model of its own
    first: int = 0  # round to begin with: above 0 where a run is resumed
    # Gradients are those of a job's mini-batch, which it says, so programs name the job that work is for; None: of all.
    sampler: BatchSampler | None = None
    step: int = 0  # to begin with, of a worker that counts its own: above 0 where a run is resumed

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
