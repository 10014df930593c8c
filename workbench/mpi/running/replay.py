"""Replay of real runs, offline: the logged arrivals of each rank give the same models, bit for bit.

Sums are ordered by rank and not by arrival, and pieces of work depend on the plan alone. Equal answers therefore give
equal bits. Only answers that were used are computed again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator
from pathlib import Path
from typing import Any

import numpy as np

from workbench.core.base.blas import one_thread
from workbench.core.base.errors import RunError
from workbench.core.base.grouping import grouped
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
from workbench.core.trace.records import arrivals_of, check_kept, check_rounds, read_rows, read_stretches
from workbench.core.trace.trust import runnable
from workbench.mpi.engine.learner import Learner
from workbench.mpi.running.assembled import changes_of


def replay_arrivals(folder: str | Path, rounds: int | None = None, *, trust: bool = False) -> Array:
    """Return the model after each round, shape (rounds, p), from the spec and the logged arrivals alone.

    `trust`: run the code of a folder that another user has written or changed. `trust` is needed only once per folder.

    Raises `RunError` in these cases:

    * The MPI library makes the sums (RAR with algorithm "mpi").
    * Commits mix models, and workers leave work unfinished (not `Scheme.non_preemptive`) or the run was resumed.
    * The scheme depends on the clock (`Scheme.clock_driven`).
    * Logs end early, or name answers that cannot exist.

    Raises `SettingError` if files were changed since the run ended.
    """
    home = path_of(folder, "folder")
    with runnable(home, trust) as e, one_thread():
        check_kept(home, e.rounds, e.shape()[1])
        check_rounds(home, e.shape()[1])
        done = len(read_rows(home)) if rounds is None else rounds
        return np.array(_Replay(e, home, done).models())


class _Replay:
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
        self.models_sent: dict[tuple[int, int], Any]  # (rank, round) -> model that was sent to the rank
        # (rank, kind, round) -> other messages from the parent to the rank, in order
        self.passed_down: dict[tuple[int, str, int], deque[Message]]
        self.found: list[Array] = []

    def models(self) -> list[Array]:
        """Run the masters of all segments. Answers are computed when a master needs them."""
        for e, first, end in self.stretches:
            self.begin(e, first)
            self.node(MASTER).until(lambda end=end: len(self.found) == end, first)
        return self.found

    def begin(self, e: Experiment, first: int) -> None:
        """Start a segment of the run at round `first`, with the scheme of `e`."""
        self.scheme, self.plan, self.first = e.built_scheme, e.plan, first
        self.learner.turn(e.plan)
        self.nodes, self.models_sent, self.passed_down = {}, {}, {}
        self.mixes = self.plan.versions > 1
        if self.mixes and not self.scheme.non_preemptive:
            why = "arrivals do not show the unfinished work of workers"
            raise RunError(f"{self.e.scheme}: commits mix several models, and {why}")
        if self.mixes and read_stretches(self.home):
            why = "commits mix several models, and the run was resumed; no arrivals connect its stretches"
            raise RunError(f"{self.e.scheme}: {why}")
        if self.scheme.clock_driven:
            raise RunError(f"{self.e.scheme}: its results depend on the clock, which arrivals do not show")
        if self.plan.committers != (MASTER,):
            raise RunError(f"{self.e.scheme}: has no master whose arrivals could be replayed")

    def node(self, rank: int) -> _Node:
        """Return the program of a node, started on first use."""
        if rank not in self.nodes:
            self.nodes[rank] = _Node(self, rank)
        return self.nodes[rank]


class _Node:
    """Program of one rank. `sent` has its answers by (round, number)."""

    def __init__(self, run: _Replay, rank: int) -> None:
        self.run, self.rank = run, rank
        parent = run.plan.parent[rank]  # -1 for the root, whose timeouts are logged with this number as well
        rows = [row for row in arrivals_of(run.home, rank) if row[1] != parent or parent == NO_RANK]
        # round of the gathering -> arrivals
        self.arrivals = grouped((0 if run.mixes else row[0], row) for row in rows)
        self.taken: dict[int, int] = {}  # round -> number of arrivals that the program has received
        self.sent: dict[tuple[int, int], Message] = {}
        self.served = run.first - 1  # newest round whose model the program has received
        e, learner = run.e, run.learner
        facts = (learner.smoothness, learner.constant, learner.l2)
        size, model = learner.problem.size, learner.start()
        # Time advances only when a deadline passes.
        node = Node(
            rank, run.plan, e.rounds, size, model, lambda: run.time, *facts, run.first, learner.sampler
        )
        wrong = [fault for fault in e.faults if fault.changes_answers]
        self.program: Generator[Any, Any, Any] = program_of(run.scheme, node, wrong)
        self.effect = self.program.send(None)

    def until(self, done: Any, round: int) -> None:
        """Run the program until `done()`. Work of rounds before `round` is skipped."""
        try:
            while not done():
                self.effect = self.program.send(self.answer(self.effect, round))
        except StopIteration:
            if not done():
                raise RunError(f"rank {self.rank}: its arrival log does not reach round {round}") from None

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
            run.learner.commit(effect.round, effect.gradient, effect.residual, effect.share)
            run.found.append(run.learner.model)
            return run.learner.model
        elif isinstance(effect, AllReduce):
            raise RunError("an all-reduce has no arrivals")
        return None

    def send(self, effect: Send) -> None:
        """Keep an answer, or store a message for the children. A stop message has no model."""
        to = [effect.to] if isinstance(effect.to, int) else effect.to
        message = Message(self.rank, effect.kind, effect.round, effect.number, effect.value)
        if effect.kind == MODEL:
            models = {} if effect.value is None else {(rank, effect.round): effect.value for rank in to}
            self.run.models_sent |= models
        elif set(to) <= set(self.run.plan.children[self.rank]):
            for rank in to:
                self.run.passed_down.setdefault((rank, effect.kind, effect.round), deque()).append(message)
        else:
            self.sent[effect.round, effect.number] = message

    def receive(self, effect: Recv, round: int) -> Message | None:
        """Return the next logged answer of the current round, or the model that the program waits for."""
        for kind, first in effect.match.items():
            if waiting := self.run.passed_down.get((self.rank, kind, first)):
                return waiting.popleft()
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
                    raise self.damaged(max(gathered), f"names rank {src}, which is not its child")
                return self.run.node(src).message(of, number)
            if effect.until is None:
                raise RunError(f"rank {self.rank}: the arrival log of round {max(gathered)} ends early")
            self.run.time = max(self.run.time, effect.until)
            return None
        if round < self.served + (not self.run.mixes) or (self.rank, round) not in self.run.models_sent:
            raise self.damaged(round, "names an answer that it cannot have sent")
        self.served = round
        return Message(
            int(self.run.plan.parent[self.rank]), MODEL, round, 0, self.run.models_sent[self.rank, round]
        )

    def damaged(self, round: int, what: str) -> RunError:
        of = self.run.plan.parent[self.rank] if "sent" in what else self.rank
        return RunError(f"rank {of}: the arrival log of round {round} {what}; are the files damaged?")
