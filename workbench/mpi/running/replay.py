"""Going through a real run again, offline: the arrivals that each rank noted decide, and the weights come out the same.

Sums are taken by rank, never by arrival, and pieces of work depend on the plan alone, so the same answers give the
same bits. Only answers that were taken are computed again.
"""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import Any

import numpy as np

from workbench.core.base.blas import one_thread
from workbench.core.base.errors import RunError
from workbench.core.base.settings import path_of
from workbench.core.base.types import Array
from workbench.core.contract.plan import MASTER
from workbench.core.contract.protocol import (
    MODEL,
    NO_RANK,
    PEER_LOST,
    AllReduce,
    Commit,
    Compute,
    Message,
    Node,
    Recv,
    Send,
)
from workbench.core.engine.user_errors import program_of
from workbench.core.experiment import Experiment
from workbench.core.trace.records import arrivals_of, check_kept, check_rounds, read_rows
from workbench.core.trace.trust import runnable
from workbench.mpi.engine.learner import Learner
from workbench.mpi.running.assembled import changes_of


def replay_arrivals(folder: str | Path, rounds: int | None = None, *, trust: bool = False) -> Array:
    """Models after each round, shape (rounds, p), from the spec and the noted arrivals alone.

    `trust`: run the code that a folder names which somebody else has written, or altered; it is asked for once.

    Raises `RunError` for a run whose sums are the MPI library's (RAR with algorithm "mpi"), whose commits mix models
    and whose workers leave work half done (not `Scheme.non_preemptive`) or that was resumed, or whose scheme looks at
    the clock (`Scheme.clock_driven`), and where notes end early or name answers that nobody can have sent;
    `SettingError` where files were changed since the run ended.
    """
    home = path_of(folder, "folder")
    with runnable(home, trust) as e, one_thread():
        check_kept(home, e.rounds, e.shape()[1])
        check_rounds(home, e.shape()[1])
        done = len(read_rows(home)) if rounds is None else rounds
        return np.array(_Again(e, home, done).models())


class _Again:
    def __init__(self, e: Experiment, home: Path, rounds: int) -> None:
        self.e, self.home, self.time = e, home, 0.0
        problem, optimiser = e.build_problem(), e.build_optimiser()
        state = optimiser.start(problem)
        self.learner = Learner(e.plan, problem, optimiser, e.seed, problem.start(), state)
        changes = [change for change in changes_of(home) if change.round < rounds]
        later = [e.replace(scheme=c.scheme, scheme_args=c.scheme_args, adaptive=False) for c in changes]
        ends = [change.round for change in changes] + [rounds]
        self.stretches = list(zip([e, *later], [0, *ends], ends, strict=False))
        self.nodes: dict[int, _Node]
        self.models_sent: dict[tuple[int, int], Any]  # rank, round -> the model that it was sent
        self.found: list[Array] = []

    def models(self) -> list[Array]:
        """Drive the masters of all stretches; what they ask for is computed then."""
        for e, first, end in self.stretches:
            self.begin(e, first)
            self.node(MASTER).until(lambda end=end: len(self.found) == end, first)
        return self.found

    def begin(self, e: Experiment, first: int) -> None:
        """Go on from a round with an experiment's scheme."""
        self.scheme, self.plan, self.first = e.built_scheme, e.plan, first
        self.learner.turn(e.plan)
        self.nodes, self.models_sent, self.mixes = {}, {}, self.plan.versions > 1
        if self.mixes and not self.scheme.non_preemptive:
            why = "what workers began and left the notes of arrivals do not tell"
            raise RunError(f"{self.e.scheme}: commits mix several models, and {why}")
        if self.mixes and list(self.home.glob("books-*.npz")):
            why = "commits mix several models, and the run was resumed: no arrivals join it"
            raise RunError(f"{self.e.scheme}: {why}")
        if self.scheme.clock_driven:
            raise RunError(f"{self.e.scheme}: what it does depends on the clock, which arrivals do not tell")
        if self.plan.committers != (MASTER,):
            raise RunError(f"{self.e.scheme}: has no master whose arrivals could be gone through again")

    def node(self, rank: int) -> _Node:
        """The node's program, begun when it is first needed."""
        if rank not in self.nodes:
            self.nodes[rank] = _Node(self, rank)
        return self.nodes[rank]


class _Node:
    """One rank's program; `sent` holds its answers by (round, number)."""

    def __init__(self, run: _Again, rank: int) -> None:
        self.run, self.rank = run, rank
        self.arrivals: dict[int, list[tuple[int, int, int]]] = {}  # by the round that is gathered
        for row in arrivals_of(run.home, rank):
            self.arrivals.setdefault(0 if run.mixes else row[0], []).append(row)
        self.taken: dict[int, int] = {}  # round -> how many of its arrivals the program has got
        self.sent: dict[tuple[int, int], Message] = {}
        self.served = run.first - 1  # newest round whose model it has got
        e, learner = run.e, run.learner
        facts = (learner.smoothness, learner.constant, learner.l2)
        size, model = learner.problem.size, learner.start()
        # Time goes on only where a deadline passes.
        node = Node(
            rank, run.plan, e.rounds, size, model, lambda: run.time, *facts, run.first, learner.sampler
        )
        wrong = [fault for fault in e.faults if fault.changes_answers]
        self.program: Generator[Any, Any, Any] = program_of(run.scheme, node, wrong)
        self.effect = self.program.send(None)

    def until(self, done: Any, round: int) -> None:
        """Go on until `done()`; work of rounds before `round` is no longer wanted."""
        try:
            while not done():
                self.effect = self.program.send(self.answer(self.effect, round))
        except StopIteration:
            if not done():
                raise RunError(f"rank {self.rank}: its notes do not reach round {round}") from None

    def message(self, round: int, number: int) -> Message:
        self.until(lambda: (round, number) in self.sent, round)
        return self.sent.pop((round, number))

    def answer(self, effect: Any, round: int) -> Any:
        run = self.run
        if isinstance(effect, Compute):
            return run.learner.whole(self.rank, effect) if effect.round >= round else None
        if isinstance(effect, Recv):
            return self.receive(effect, round)
        if isinstance(effect, Send):
            self.send(effect)
        elif isinstance(effect, Commit):
            run.learner.commit(effect.round, effect.gradient, effect.residual)
            run.found.append(run.learner.model)
            return run.learner.model
        elif isinstance(effect, AllReduce):
            raise RunError("an all-reduce has no arrivals")
        return None

    def send(self, effect: Send) -> None:
        """Keep answers; tell children the model (a mere word to stop says nothing of a model)."""
        if effect.kind != MODEL:
            message = Message(self.rank, effect.kind, effect.round, effect.number, effect.value)
            self.sent[effect.round, effect.number] = message
        elif effect.value is not None:
            for rank in [effect.to] if isinstance(effect.to, int) else effect.to:
                self.run.models_sent[rank, effect.round] = effect.value

    def receive(self, effect: Recv, round: int) -> Message | None:
        """The next noted answer of the round that is gathered, or the model of the round that is wanted."""
        gathered = [first for kind, first in effect.match.items() if kind not in (MODEL, PEER_LOST)]
        if gathered and max(gathered) >= round:
            answers, k = self.arrivals.get(max(gathered), []), self.taken.get(max(gathered), 0)
            if k < len(answers):
                self.taken[max(gathered)] = k + 1
                of, src, number = answers[k]
                if src == NO_RANK and effect.until is not None:
                    self.run.time = max(self.run.time, effect.until)
                    return None
                if src not in self.run.plan.children[self.rank]:
                    raise self.damaged(max(gathered), f"name rank {src}, which is not its child")
                return self.run.node(src).message(of, number)
            if effect.until is None:
                raise RunError(f"rank {self.rank}: the notes of round {max(gathered)} end early")
            self.run.time = max(self.run.time, effect.until)
            return None
        if round < self.served + (not self.run.mixes) or (self.rank, round) not in self.run.models_sent:
            raise self.damaged(round, "name an answer that it cannot have sent")
        self.served = round
        return Message(
            int(self.run.plan.parent[self.rank]), MODEL, round, 0, self.run.models_sent[self.rank, round]
        )

    def damaged(self, round: int, what: str) -> RunError:
        of = self.run.plan.parent[self.rank] if "sent" in what else self.rank
        return RunError(f"rank {of}: the notes of round {round} {what}; are the files damaged?")
