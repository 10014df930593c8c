"""Contract between a scheme and an engine: effects, messages, plans and nodes.

A scheme is a frozen set of parameters with two methods. `plan` returns data: the allocation of parts with their
coefficients, and which ranks communicate. `program` returns a generator: the behaviour of one node. A program performs
no input or output. It yields effects, and an engine returns their results:

========== ==================================================== ==================================
effect     meaning                                              result
========== ==================================================== ==================================
Compute    coded partial gradient of some work at a model       the value, or None if pre-empted
Send       send a message; it is buffered and never blocks      None
Recv       oldest waiting message that matches                  the message, or None at `until`
Close      drop messages of a kind from before a round          None (the port refuses them)
Decode     the node combines that many floats                   None (takes time with `decode_rate`)
AllReduce  sum over all workers                                 the sum
Commit     a gradient estimate is ready                         the updated model
Hold       a fault: the node does nothing for some seconds      None
Crash      a fault: the node dies                               never
========== ==================================================== ==================================

A match is data, not a function: `{kind: first round that still counts}`. A late answer can therefore not be taken for
a new one. The engine drops the messages that a Close refers to, and counts them as stale.
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

REL_TOL = 1 + 2.0**-50  # two times with a smaller ratio differ only by rounding, and count as simultaneous
# max difference of simultaneous times, s, because conversions between clocks round
ABS_TOL = 1e-9

MODEL, CODED, PEER_LOST = "model", "coded", "lost"
NO_RANK = -1  # in arrival logs, in place of a rank: no message had arrived by a deadline


def simultaneous(one: float, other: float) -> bool:
    """Return whether two times are equal up to rounding.

    >>> simultaneous(0.1 + 0.2, 0.3), simultaneous(0.3, 0.3001)
    (True, False)
    """
    return math.isclose(one, other, rel_tol=REL_TOL - 1, abs_tol=ABS_TOL)


class Message(NamedTuple):
    """Message that a node receives.

    `src`: the sender's rank. `kind`, `round`: fields that a `Recv` matches. `number`: index of the message among those
    of one sender in one round. `value`: the content.

    >>> Message(src=3, kind="coded", round=7, number=0, value=None).src
    3
    """

    src: int
    kind: str
    round: int
    number: int
    value: Any


class Compute(NamedTuple):
    """Compute the gradient of `work` at `model`.

    `unless`: a message that matches it pre-empts the computation, whose result is then None. `model`: a model, or a
    tuple of models with one for each row of the work's coefficients. With a tuple, the whole work is one task with one
    drawn time. `batch`: use only that many samples, which are drawn by rank and `draw`. The sum is scaled up to the
    size of the work. `draw`: index of the worker's drawn time, from 0; by default the round. `job`: the commit
    that the gradient is for (a tuple if `model` is a tuple); by default the round. Random numbers of a problem
    (dropout) depend on the job, and not on the round in which the gradient is computed. `slowdown`: factor on the
    computing time; only faults set it.

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
    """Send `value` to one rank or to several.

    `kind`, `round`: fields that the receiver's `Recv` matches. `floats`: length on the wire (default: a whole model).
    `number`: index of the message among those of one round. `share`: sending time divided by the sending time of a
    model (default: floats / model size). A scheme sets `share` if padding makes its messages longer than in the paper.
    `draw`: as in `Compute`. `every`: deliver a model even if a newer model follows. Without `every`, a slow receiver on
    real links may get only the newest model.

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

    `until`: absolute time, s, at which the wait ends. A message that arrives exactly then is still received. With a
    time in the past, the node polls once. With None, the wait has no limit. The engine raises an error if no message
    can arrive any longer.
    `latest`: take the newest message instead, and drop older ones.

    >>> Recv({"coded": 3}, until=1.5).latest
    False
    """

    match: Match
    until: float | None = None
    latest: bool = False


class Close(NamedTuple):
    """Refuse and drop messages of `kind` from before `round`, and count them as stale.

    >>> Close("coded", round=3)
    Close(kind='coded', round=3)
    """

    kind: str
    round: int


class Decode(NamedTuple):
    """Multiply and add `floats` values. This takes time only if the experiment sets `decode_rate`.

    >>> Decode(floats=1000)
    Decode(floats=1000)
    """

    floats: int


class AllReduce(NamedTuple):
    """Sum `value` over all workers, for a round.

    `algorithm`: "mpi" (that of the MPI library) or "ring" (explicit messages of slices).

    >>> AllReduce(value=None, round=3).algorithm
    'mpi'
    """

    value: Any
    round: int
    algorithm: str = "mpi"


class Commit(NamedTuple):
    """Commit a gradient estimate, from which the engine updates the model and the trace.

    `round`: round that the commit completes. `residual`: squared distance ``|b - 1|^2`` of the decoding vector b from
    all ones; nan if it is unknown at the node. `share`: mean weight of the parts in `gradient`, if the scheme does not
    scale this weight to 1. The step then uses `share` times the regularisation (see `problem.regularised`).

    >>> Commit(gradient=None, round=3).residual
    0.0
    """

    gradient: Any
    round: int
    residual: float = 0.0
    share: float = 1.0


class Hold(NamedTuple):
    """Pause the node for `seconds`, as a fault. Messages wait. With 0 s, only an event is recorded.

    >>> Hold(0.5, round=3)
    Hold(seconds=0.5, round=3)
    """

    seconds: float
    round: int


class Crash(NamedTuple):
    """Let the node die, as a fault. `how`: end of a real process ("kill", "segfault" or "exit").

    >>> Crash("kill", round=3).how
    'kill'
    """

    how: str
    round: int


Effect = Compute | Send | Recv | Close | Decode | AllReduce | Commit | Hold | Crash
Program = Generator[Effect, Any, None]


def _no_constant(work: Work) -> Any:
    raise RunError("scheme: it needs the constant part of a gradient, which this engine does not compute")


@dataclass(frozen=True)
class Node:
    """Information that the program of one node may use."""

    rank: int
    plan: Plan
    rounds: int
    floats: int  # model size p
    model: Any  # the model of the first round
    clock: Callable[[], float]
    smoothness: Callable[[Work], float] = lambda work: 1.0  # smoothness of the mean loss over some work
    # function of some work: constant term of a `Quadratic`, computed before the run
    constant: Callable[[Work], Any] = _no_constant
    l2: float = 0.0  # regularisation, for programs in which workers update models of their own
    first: int = 0  # first round; above 0 if the run is resumed
    # Sampler of each job's mini-batch, or None for gradients over all samples. With a sampler, programs must set
    # `Compute.job`.
    sampler: BatchSampler | None = None
    step: int = 0  # first step of a worker that counts its own steps; above 0 if the run is resumed

    @property
    def span(self) -> range:
        """Rounds of the run, from `first` on."""
        return range(self.first, self.rounds)

    @property
    def children(self) -> tuple[int, ...]:
        """Ranks of the children."""
        return self.plan.children[self.rank]

    @property
    def parent(self) -> int:
        """Rank of the parent, or -1."""
        return int(self.plan.parent[self.rank])

    @property
    def work(self) -> Work:
        """Coded work of the node in the plan."""
        return self.plan.work[self.rank]
