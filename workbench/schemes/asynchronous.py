"""Asynchronous SGD: the master updates on every arrival, and nobody waits for anybody."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from workbench.base.settings import setting
from workbench.core.odds import Draws, Odds
from workbench.core.plan import MASTER, Plan, uncoded_plan
from workbench.core.programs import Lost
from workbench.core.protocol import CODED, LOST, MODEL, Commit, Compute, Message, Node, Program, Recv, Send
from workbench.core.scheme import Scheme


class ASGD(Scheme):
    """Asynchronous SGD: each answer is a commit of its own, weighted by how old its model is.

    >>> ASGD().loads(workers=6, samples=60).tolist()
    [10, 10, 10, 10, 10, 10]
    """

    name: ClassVar[str] = "ASGD"
    title: ClassVar[str] = "Asynchronous SGD"
    paper: ClassVar[str] = "practice"
    exact: ClassVar[bool] = False
    own_pace: ClassVar[bool] = True
    damping: float = setting(
        0.0, "an answer whose model is t commits old has the weight (1 + t)^-damping", ge=0
    )

    def plan(self, workers: int, samples: int) -> Plan:
        """One part per worker; every worker may be at a model of its own."""
        return replace(uncoded_plan(workers, samples), versions=workers + 1)

    def program(self, node: Node) -> Program:
        """Master or worker."""
        return self._master(node) if node.rank == MASTER else self._worker(node)

    def _master(self, node: Node) -> Program:
        lost = Lost()
        yield Send(node.children, MODEL, node.first, node.model)
        for r in node.span:
            message: Message = yield Recv({CODED: 0, LOST: 0})
            while message.kind == LOST:
                lost.add(message)
                if not set(node.children) - lost.gone:
                    raise lost.quorum_lost(node.rank, r, lost.gone)
                message = yield Recv({CODED: 0, LOST: 0})
            weight = node.plan.workers * (1.0 + r - message.round) ** -self.damping
            model = yield Commit(message.value * weight, r)
            if r + 1 < node.rounds:
                yield Send(message.src, MODEL, r + 1, model)
        yield Send(node.children, MODEL, node.rounds, None, floats=0)

    def _worker(self, node: Node) -> Program:
        job = node.first
        while True:
            told: Message = yield Recv({MODEL: 0}, latest=True)
            if told.round == node.rounds:
                return
            value = yield Compute(node.work, told.value, told.round, {MODEL: node.rounds}, draw=job)
            if value is not None:
                yield Send(node.parent, CODED, told.round, value, draw=job)
            job += 1

    def odds(self, draws: Draws, workers: int) -> Odds:
        """Not yet."""
        raise NotImplementedError
